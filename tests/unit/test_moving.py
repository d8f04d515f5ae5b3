"""The wall clock is set while jobs with dates wait, under virtual time."""

from __future__ import annotations

import pytest

from ptss_mp.core import commands as do
from ptss_mp.core import events as on
from ptss_mp.core.job import NEVER, Spec, State
from ptss_mp.core.story import story

from .driving import MS, Drive, S, edge, row

HOUR, DAY, YEAR = 3_600 * S, 86_400 * S, 365 * 86_400 * S
FINISH = Spec(1, kill_at_deadline=False)


def redate(drive, job, was, release, due=NEVER):
    """Tell that a job has other instants: was = (release, due)."""
    return drive.step(on.Redated(drive.core.now, [(edge(job, release=was[0], due=was[1]), release, due)]))


def run_to(drive, until):
    """Let time pass by the core's wake-ups alone, to an instant; return (instant, job) of what was sent."""
    sent = []
    while (at := drive.core.wake_at) <= until:
        drive.wait(max(0, at - drive.now))
        sent += [(drive.now, job) for ids in drive.sent.values() for job in ids]
    return sent


@pytest.mark.parametrize("by", [S, HOUR, 10 * YEAR, -S, -HOUR, -YEAR])
def test_a_start_time_moves_with_the_clock(by):
    drive = Drive()
    begin, at = drive.now, drive.now + DAY
    drive.submit(row(1, release=at))
    drive.wait(S)
    there = max(at - by, 1)
    redate(drive, 1, (at, NEVER), there)
    sent = [(drive.now, 1)] if drive.sent else run_to(drive, begin + 20 * YEAR)
    assert sent == [(max(there, begin + S), 1)]


def test_there_and_back_and_there():
    drive = Drive()
    at = drive.now + DAY
    drive.submit(row(1, release=at))
    was = at
    for by in (HOUR, -2 * HOUR, HOUR, DAY // 2, -DAY // 2):
        drive.wait(S)
        redate(drive, 1, (was, NEVER), was - by)
        was -= by
    assert run_to(drive, at + DAY) == [(at, 1)]


def test_the_old_instant_is_not_heeded_even_at_that_very_moment():
    """The word of the clock comes with the wake-up for the old instant."""
    drive = Drive()
    at = drive.now + S
    drive.submit(row(1, release=at))
    drive.now = at
    drive.step(on.Redated(drive.core.now, [(edge(1, release=at), at + HOUR, NEVER)]), on.Fired(at, {}))
    assert not drive.sent
    assert drive.core.state_of(1) is State.DELAYED
    assert run_to(drive, at + DAY) == [(at + HOUR, 1)]


@pytest.mark.parametrize("where", ["ready", "waiting", "delayed"])
@pytest.mark.parametrize("by", [HOUR, -HOUR])
def test_a_deadline_moves_with_the_clock(where, by):
    drive = Drive()
    drive.submit(row(1))
    begin, due = drive.now, drive.now + 2 * HOUR
    release = begin + 10 * HOUR if where == "delayed" else begin
    drive.submit(row(2, due=due, release=release, after=[1] if where == "waiting" else None))
    redate(drive, 2, (release, due), release, due - by)
    told = []
    while not drive.ends:
        drive.wait(max(0, drive.core.wake_at - drive.now))
        told += [(drive.now, c.status) for c in drive.all(do.TellDeadline)]
    assert (drive.now, drive.ends) == (due - by, {2: "deadline"})
    if where != "delayed":
        window = due - by - begin
        assert told == [
            (due - by - window * 30 // 100, "soon"), (due - by - window * 5 // 100, "critical"),
        ]  # fmt: skip


def test_a_deadline_that_has_passed_by_the_new_clock_ends_the_job_at_once():
    drive = Drive()
    drive.submit(row(1))
    drive.submit(row(2, due=drive.now + HOUR))
    redate(drive, 2, (S, drive.now + HOUR), S, drive.now - 1)
    drive.wait(0)
    assert drive.ends == {2: "deadline"}


def test_a_deadline_that_only_orders_moves_and_kills_nobody():
    drive = Drive()
    drive.submit(row(1))
    drive.submit(row(2, FINISH, due=drive.now + 2 * HOUR), row(3, FINISH, due=drive.now + HOUR))
    redate(drive, 2, (S, drive.now + 2 * HOUR), S, drive.now + MS)
    drive.wait(HOUR * 3)
    drive.answer(1, 1)
    assert drive.sent == {1: [2]}
    assert drive.ends == {1: "succeeded"}


def test_the_order_follows():
    drive = Drive()
    drive.submit(row(1))
    now = drive.now
    drive.submit(row(2, due=now + HOUR), row(3, due=now + 2 * HOUR), row(4, due=now + 3 * HOUR))
    redate(drive, 4, (S, now + 3 * HOUR), S, now + 30 * 60 * S)
    redate(drive, 2, (S, now + HOUR), S, now + 4 * HOUR)
    order = []
    for job in (1, 4, 3, 2):
        order += [job]
        drive.answer(1, job)
    assert drive.ends == dict.fromkeys(order, "succeeded")


def test_what_waits_lends_its_new_deadline_upstream():
    drive = Drive()
    drive.submit(row(1))
    now = drive.now
    drive.submit(row(2), row(3, due=now + HOUR), row(4, due=now + DAY, after=[2]))
    redate(drive, 4, (S, now + DAY), S, now + 60 * S)
    drive.answer(1, 1)
    assert drive.sent == {1: [2]}, "its dependent is due in a minute"
    redate(drive, 4, (S, now + 60 * S), S, now + DAY)
    drive.answer(1, 2)
    assert drive.sent == {1: [3]}


def test_what_was_sent_keeps_its_instants_and_what_was_released_stays_released():
    drive = Drive()
    due = drive.now + HOUR
    drive.submit(row(1, due=due), row(2))
    redate(drive, 1, (S, due), S, drive.now)
    redate(drive, 2, (S, NEVER), drive.now + HOUR)
    assert drive.core.state_of(1) is State.SENT
    assert drive.core.state_of(2) is State.READY
    drive.answer(1, 1)
    assert drive.sent == {1: [2]}
    assert drive.ends == {1: "succeeded"}


def test_a_pause_before_a_retry_is_no_date():
    drive = Drive()
    start = drive.now + S
    drive.submit(row(1, Spec(1, retries=3), release=start))
    redate(drive, 1, (start, NEVER), start - S // 2)
    assert run_to(drive, start + HOUR) == [(start - S // 2, 1)]
    drive.answer(1, 1, end=on.FAILED)
    (postponed,) = drive.all(do.Postpone)
    redate(drive, 1, (start - S // 2, NEVER), start + DAY)
    assert run_to(drive, start + HOUR) == [(postponed.until, 1)]


def test_one_that_nobody_knows_any_more():
    drive = Drive()
    redate(drive, 77, (S, NEVER), S)
    assert drive.out == []


def test_the_story_tells_it():
    drive = Drive()
    drive.submit(row(1, release=drive.now + S))
    redate(drive, 1, (drive.now + S, NEVER), drive.now + HOUR)
    assert ("redated", "the wall clock was set") in [line[2::2] for line in story(list(drive.core.history), 1)]
