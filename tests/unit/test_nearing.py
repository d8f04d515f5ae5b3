"""Deadlines that come near are told, each once, at the instant at which it comes true."""

from __future__ import annotations

import pytest

from ptss_mp import future
from ptss_mp.core import commands as do
from ptss_mp.core import events as on
from ptss_mp.core import nearing
from ptss_mp.core.job import NEVER, Spec
from ptss_mp.core.story import story

from .driving import MS, Drive, S, row

FINISH = Spec(1, kill_at_deadline=False)


def told(drive):
    """What the last step told: (status, ids)."""
    return [(command.status, command.ids) for command in drive.all(do.TellDeadline)]


def follow(drive, until):
    """Let time pass by the core's own wake-ups alone; return (instant, status, ids) of all that is told."""
    found = []
    while drive.core.wake_at <= until:
        drive.wait(max(0, drive.core.wake_at - drive.now))
        found += [(drive.now, *each) for each in told(drive)]
    return found


@pytest.mark.parametrize("spec", [Spec(1), FINISH])
@pytest.mark.parametrize("where", ["ready", "running", "waiting", "bound"])
def test_at_the_very_instants_wherever_the_job_stands(spec, where):
    drive = Drive(resources={"gpu": ("0",)})
    if where != "running":
        drive.submit(row(1, Spec(1, needs=(("gpu", 1),)) if where == "bound" else Spec(1)))
    if where == "bound":
        spec = Spec(1, kill_at_deadline=spec.kill_at_deadline, needs=(("gpu", 1),))
    begin = drive.now
    drive.submit(row(2, spec, due=begin + 10 * S, release=begin, after=[1] if where == "waiting" else None))
    late = [(begin + 10 * S, "exceeded", [2])] if not spec.kill_at_deadline else []
    seen = follow(drive, begin + 10 * S)
    assert seen == [(begin + 7 * S, "soon", [2]), (begin + 9500 * MS, "critical", [2]), *late]
    assert drive.ends == ({} if late or where == "running" else {2: "deadline"})


def test_nothing_is_told_of_a_job_that_has_ended():
    drive = Drive()
    drive.submit(row(1, due=drive.now + 10 * S, release=drive.now))
    drive.answer(1, 1)
    assert follow(drive, drive.now + 20 * S) == []
    drive.submit(row(2, due=drive.now + S, release=drive.now))
    drive.step(on.Cancelled(drive.now, [2]))
    assert follow(drive, drive.now + 20 * S) == []


def test_a_job_without_a_deadline_costs_no_entry_and_no_wake_up():
    drive = Drive()
    drive.submit(row(1), row(2), row(3, after=[2]))
    assert len(drive.core.nearing) == 0
    assert drive.core.nearing.next_at == NEVER


def test_the_window_begins_with_the_release():
    drive = Drive()
    begin = drive.now
    drive.submit(row(1, release=begin + 100 * S, due=begin + 110 * S))
    drive.step(on.Paused(drive.now))
    assert follow(drive, begin + 120 * S)[0] == (begin + 107 * S, "soon", [1])


def test_a_core_that_comes_late_tells_what_is_true_now():
    drive = Drive()
    drive.submit(row(1, FINISH, due=drive.now + 10 * S, release=drive.now))
    drive.wait(9 * S + 600 * MS)
    assert told(drive) == [("critical", [1])]
    drive.wait(5 * S)
    assert told(drive) == [("exceeded", [1])]
    assert drive.core.nearing.next_at == NEVER


def test_a_window_of_nothing_is_exceeded_at_once():
    drive = Drive()
    drive.submit(row(1), row(2, FINISH, due=drive.now - 5, release=drive.now))
    drive.wait(1)
    assert told(drive) in ([], [("exceeded", [2])])  # in the step before, or in this one
    assert drive.core.nearing.next_at == NEVER


def test_a_retry_keeps_its_window():
    drive = Drive()
    begin = drive.now
    drive.submit(row(1, Spec(1, retries=9), due=begin + 100 * S, release=begin))
    drive.answer(1, 1, end=on.FAILED)
    seen = follow(drive, begin + 100 * S)
    assert [(at - begin, status) for at, status, _ in seen] == [(70 * S, "soon"), (95 * S, "critical")]


def test_a_million_at_one_instant_are_told_in_slices():
    count = 20_000
    drive = Drive()
    begin = drive.now
    drive.submit(row(1), *(row(job, due=begin + 10 * S, release=begin) for job in range(2, count)))
    drive.core.step([on.Fired(begin + 7 * S - 1, {})])
    while drive.core.behind:
        drive.core.step(())
    most, ids = 0, []
    out = drive.core.step([on.Fired(begin + 7 * S, {})])
    while out or drive.core.behind:
        found = [job for command in out if type(command) is do.TellDeadline for job in command.ids]
        most, ids = max(most, len(found)), ids + found
        out = drive.core.step(())
    assert sorted(ids) == list(range(2, count))
    assert most < 1_000


def test_the_story_tells_it():
    drive = Drive()
    drive.submit(row(1, FINISH, due=drive.now + 10 * S, release=drive.now))
    follow(drive, drive.now + 10 * S)
    lines = [(line.what, line.detail) for line in story(list(drive.core.history), 1)]
    assert lines == [
        ("submitted", ""), ("sent", ""),
        ("soon", "its deadline is in 3.000 s"), ("critical", "its deadline is in 0.500 s"),
        ("exceeded", "its deadline was 0.000 s ago"),
    ]  # fmt: skip


def test_parent_and_core_mean_the_same():
    """`Future.deadline_status` and the events."""
    assert (future.SOON, future.CRITICAL) == (nearing.SOON_PERCENT / 100, nearing.CRITICAL_PERCENT / 100)
