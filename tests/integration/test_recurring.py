"""Tasks that are added, and recur (API section 3, Recurrence): seen from outside, by what their jobs write."""

from __future__ import annotations

import logging
import os
import threading
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

import deeds
import pytest
from support import CAP_S, alive, lines, until, wait_for_lines

from ptss_mp import Executor, InvalidOption, InvalidType, NotPicklable, Outcome, Recurring, task
from ptss_mp.pool import State

MS = timedelta(milliseconds=1)  # two clocks are read for an Outcome


def now() -> datetime:
    return datetime.now(UTC)


class Seen(list[Outcome[Any]]):
    """The outcomes of a task's jobs, as its callbacks tell them."""

    def __init__(self, handle: Recurring) -> None:
        handle.add_done_callback(lambda future: self.append(future.outcome()))

    @property
    def statuses(self) -> list[str]:
        return [str(outcome.status) for outcome in self]

    @property
    def values(self) -> list[Any]:
        return [outcome.result() for outcome in self]


def slots_pass(handle: Recurring, count: int) -> None:
    """Wait until so many further slots have come."""
    seen = {handle.next_run}
    until(lambda: seen.add(handle.next_run) or len(seen) > count, f"{count} slots")


def is_late(handle: Recurring, by: float) -> None:
    """Wait until the next run is late by so many seconds."""
    until(lambda: handle.next_run and (now() - handle.next_run).total_seconds() > by, "a slot that is missed")


def alternate(log: Any) -> bool:
    """No run began before the one before had ended."""
    words = [line.split()[0] for line in lines(log)]
    return words == ["begin", "end"] * (len(words) // 2)


# ---- add


def test_add_starts_nothing_and_knows_the_next_run(pool):
    ex = pool(1)
    before = (threading.active_count(), sorted(os.listdir("/proc/self/fd")))
    began = now()
    handle = ex.add(deeds.double, "one", interval="1h", args=(1,))
    ex.add(deeds.double, "once", start_time="1h", args=(1,))
    assert (threading.active_count(), sorted(os.listdir("/proc/self/fd"))) == before
    assert ex.state is State.INITIALIZED
    assert began - MS <= handle.next_run <= now() + MS
    assert list(ex.tasks) == ["one", "once"]
    assert ex.tasks["one"] is handle
    assert (handle.name, handle.runs, handle.last_outcome) == ("one", 0, None)
    assert ex.tasks["once"].next_run > began + timedelta(minutes=59)
    assert "one" in repr(handle)
    with pytest.raises(TypeError):
        ex.tasks["two"] = handle


@pytest.mark.parametrize("start", ["150ms", timedelta(milliseconds=150), "instant"])
def test_a_task_without_recurrence_runs_once_and_not_before_its_time(pool, start):
    ex = pool(1)
    start = now() + timedelta(milliseconds=150) if start == "instant" else start
    handle = ex.add(deeds.double, "once", start, args=[4])
    due = handle.next_run
    assert ex.start().join(CAP_S)
    assert (handle.runs, handle.next_run, handle.last_outcome.result()) == (1, None, 8)
    assert handle.last_outcome.started >= due - MS
    assert handle.last_outcome.name == "once"


def test_a_start_time_that_has_passed_is_now(pool):
    ex = pool(1)
    once = ex.add(deeds.double, "once", now() - timedelta(hours=1), args=(4,))
    assert once.next_run is None
    assert ex.start().join(CAP_S)
    assert once.last_outcome.result() == 8


def test_a_name_is_used_once_also_after_its_task_has_ended(pool):
    ex = pool(1)
    ex.add(deeds.double, "one", args=(1,))
    assert ex.start().join(CAP_S)
    with pytest.raises(InvalidOption, match="named 'one' is there already"):
        ex.options(priority=1).add(deeds.double, "one", args=(1,))
    with pytest.raises(InvalidType, match="needs a name"):
        ex.add(deeds.double, args=(1,))
    assert list(ex.tasks) == ["one"]


def test_a_task_brings_options_and_a_name_and_arguments_of_add_win(pool):
    ex = pool(1)
    handle = ex.add(deeds.twice_doubled)
    other = ex.add(deeds.twice_doubled, "other", max_runs=1, args=(5,), timeout=9)
    assert (handle.name, other.name) == ("twice_doubled", "other")
    seen = Seen(handle)
    assert ex.start().join(CAP_S)
    assert seen.values == [40, 40]
    assert (other.runs, other.last_outcome.result(), other.last_outcome.name) == (1, 10, "other")


def test_options_of_views_stand_between_those_of_the_task_and_of_add(pool):
    ex = pool(1)
    view = ex.options(timeout="200ms", name="nobody").options(priority=1)
    slow = view.add(deeds.hang, "slow", args=("sleep", os.devnull))
    slower = view.add(deeds.nap, "slower", args=(0.4,), timeout=None)
    assert ex.start().join(CAP_S)
    assert slow.last_outcome.status == "timeout"
    assert slower.last_outcome.result() == 0.4


def test_batches_and_what_cannot_be_called_are_refused(pool):
    ex = pool(1)
    with pytest.raises(InvalidType, match="is a batch"):
        ex.add(task(name="batch").map(deeds.double, [1, 2]), "batch")
    with pytest.raises(InvalidType, match="needs a function"):
        ex.add(5, "five")
    assert not ex.tasks


@pytest.mark.parametrize(
    ("call", "part"),
    [({"args": (1, threading.Lock())}, "argument 2"), ({"kwargs": {"x": threading.Lock()}}, "keyword x")],
)
def test_a_call_that_cannot_be_pickled_is_refused_and_leaves_the_name_free(pool, call, part):
    ex = pool(1)
    with pytest.raises(NotPicklable, match=f"task 'one': its {part} cannot be pickled") as caught:
        ex.add(deeds.total, "one", interval=1, **call)
    assert caught.value.part == part
    assert ex.add(deeds.total, "one", args=(1, 2))


def test_arguments_are_frozen_when_they_are_added(pool):
    ex, numbers = pool(1), [1, 2]
    handle = ex.add(deeds.same, "same", args=(numbers,), interval="30ms", max_runs=2)
    numbers.append(3)
    seen = Seen(handle)
    assert ex.start().join(CAP_S)
    assert seen.values == [[1, 2]] * 2


def test_large_arguments_serve_every_run(pool):
    ex, data = pool(1), b"x" * (3 << 20)
    seen = Seen(ex.add(deeds.check_size, "size", args=(data,), interval="30ms", max_runs=3))
    assert ex.start().join(CAP_S)
    assert seen.values == [(3 << 20, b"xxx")] * 3


def test_pickling_may_use_the_pool(pool):
    """Regression: `add` held the pool's lock while it pickled, and another thread waited for it."""
    ex = pool(1).start()
    future = ex.submit(deeds.double, 1)
    done: list[Any] = []

    class Asks:
        def __reduce__(self) -> Any:
            other = threading.Thread(target=lambda: done.append(ex.submit(deeds.add, 1, 2).result(CAP_S)))
            other.start()
            other.join(CAP_S)
            return int, (7,)

    assert ex.add(deeds.double, "asks", args=(Asks(),))
    assert done == [3]
    assert future.result(CAP_S) == 2
    assert ex.join(CAP_S)
    assert ex.tasks["asks"].last_outcome.result() == 14


# ---- when


def test_an_interval_is_counted_from_the_first_slot_on(pool):
    ex = pool(1)
    handle = ex.add(deeds.double, "one", interval="40ms", args=(1,))
    first, found = handle.next_run, set()
    ex.start()
    until(lambda: found.add(handle.next_run) or len(found) > 8, "slots")
    handle.cancel()
    assert ex.join(CAP_S)
    for slot in found:
        apart = (slot - first) / timedelta(milliseconds=40)
        assert abs(apart - round(apart)) < 1e-3


def test_a_past_start_time_anchors_an_interval(pool):
    ex, anchor = pool(1), now() - timedelta(hours=10, seconds=1)
    handle = ex.add(deeds.double, "one", anchor, "3h", args=(1,))
    assert handle.next_run == anchor + timedelta(hours=12)  # what was before there was a task was not missed by it
    assert ex.start().drain(CAP_S)
    assert handle.runs == 0


def test_no_run_starts_before_its_slot(pool):
    ex = pool(1)
    handle = ex.add(deeds.double, "one", "100ms", "70ms", args=(1,), max_runs=6)
    seen = Seen(handle)
    first = handle.next_run
    assert ex.start().join(CAP_S)
    assert seen.statuses == ["succeeded"] * 6
    assert handle.runs == 6
    assert handle.next_run is None
    for number, outcome in enumerate(seen):  # at the earliest: one may have been left out on a busy machine
        assert outcome.started >= first + number * timedelta(milliseconds=70) - MS


def test_a_delay_begins_when_the_run_before_has_ended_retries_included(pool, tmp_path):
    ex = pool(1)
    handle = ex.add(
        deeds.fail_until, "one", delay="120ms", args=(str(tmp_path / "log"), 3), retries=2, max_runs=3, jitter="1ms"
    )
    seen = Seen(handle)
    assert ex.start().join(CAP_S)
    assert [outcome.attempts for outcome in seen] == [3, 1, 1]
    for before, after in pairwise(seen):
        assert after.started - before.finished >= timedelta(milliseconds=120) - MS


def test_there_is_no_run_after_until(pool):
    ex, end = pool(1), now() + timedelta(milliseconds=450)
    handle = ex.add(deeds.double, "one", interval="100ms", args=(1,), until=end)
    seen = Seen(handle)
    assert ex.start().join(CAP_S)
    assert handle.next_run is None
    assert 1 <= handle.runs <= 5
    assert all(outcome.released <= end for outcome in seen)
    with pytest.raises(InvalidOption, match="would never run"):
        ex.add(deeds.double, "two", interval=1, until=now() - timedelta(seconds=1))
    assert "two" not in ex.tasks


def test_a_cron_line_gives_the_next_run(pool):
    pytest.importorskip("cronsim", reason="the extra [cron] is not installed here")
    ex = pool(1)
    handle = ex.add(deeds.double, "nightly", cron="30 2 * * *", tz="UTC", args=(1,))
    assert (handle.next_run.hour, handle.next_run.minute, handle.next_run.second) == (2, 30, 0)
    assert now() < handle.next_run <= now() + timedelta(days=1)
    far = ex.add(deeds.double, "far", datetime(2090, 1, 1, tzinfo=UTC), cron="0 0 * * *", tz="UTC", args=(1,))
    assert far.next_run == datetime(2090, 1, 1, tzinfo=UTC)
    with pytest.raises(InvalidOption):
        ex.add(deeds.double, "never", datetime.max.replace(tzinfo=UTC), cron="0 0 * * *", tz="Asia/Tokyo", args=(1,))


# ---- overlap


def test_skip_leaves_out_what_comes_while_a_run_goes_on(pool, gate, tmp_path, caplog):
    log, ex = tmp_path / "log", pool(2)
    handle = ex.add(deeds.gated, "one", interval="20ms", args=(str(log), gate.path, 1))
    ex.start()
    wait_for_lines(log, 1)
    slots_pass(handle, 5)
    assert len(lines(log)) == 1
    gate.open()
    wait_for_lines(log, 3)
    handle.cancel()
    gate.open()
    assert ex.join(CAP_S)
    assert len(lines(log)) == 4
    assert alternate(log)
    told = [record for record in caplog.records if "the run before it is not over" in record.getMessage()]
    assert told
    assert [record.levelno for record in told].count(logging.WARNING) <= 2  # one for each run, the rest is INFO


def test_queue_lets_one_wait(pool, gate, tmp_path):
    log, ex = tmp_path / "log", pool(2)
    handle = ex.add(deeds.gated, "one", interval="20ms", args=(str(log), gate.path, 1), overlap="queue", max_runs=3)
    ex.start()
    wait_for_lines(log, 1)
    slots_pass(handle, 5)
    assert handle.next_run is not None  # two of three are given away: one waits, not two
    gate.open(2)
    wait_for_lines(log, 5)
    assert handle.next_run is None
    gate.open()
    assert ex.join(CAP_S)
    assert alternate(log)
    assert (len(lines(log)), handle.runs) == (6, 3)


def test_allow_lets_runs_go_on_beside_each_other(pool, gate, tmp_path):
    log, ex = tmp_path / "log", pool(3)
    handle = ex.add(deeds.gated, "one", interval="20ms", args=(str(log), gate.path, 1), overlap="allow", max_runs=3)
    ex.start()
    assert [line.split()[0] for line in wait_for_lines(log, 3)] == ["begin"] * 3
    assert handle.runs == 0
    gate.open(3)
    assert ex.join(CAP_S)
    assert handle.runs == 3


def test_replace_kills_the_run_before(pool, tmp_path):
    log, ex = tmp_path / "log", pool(1)
    handle = ex.add(deeds.hang, "one", delay=None, interval="200ms", args=("loop", str(log)), overlap="replace")
    seen = Seen(handle)
    ex.start()
    wait_for_lines(log, 3)
    handle.cancel(kill=True)
    assert ex.join(CAP_S)
    assert set(seen.statuses) == {"cancelled"}
    assert len(seen) == handle.runs >= 3
    until(lambda: not any(alive(int(line.split()[0])) for line in lines(log)), "their ends")


def test_replace_kills_all_that_the_run_has(pool, gate, tmp_path):
    log, ex = tmp_path / "log", pool(2)
    root = ex.add(deeds.same, "root", interval="250ms", args=(1,), overlap="replace", max_runs=2)
    below = ex.add(deeds.gated, "below", args=(str(log), gate.path, root))
    alarm = ex.add(deeds.note, "alarm", args=(str(tmp_path / "alarm"), "!"), after=[root, below], run_if="failure")
    seen, alarms = Seen(below), Seen(alarm)
    ex.start()
    until(lambda: root.next_run is None, "the second run")
    gate.open(2)  # one that is being killed may still take one
    assert ex.join(CAP_S)
    assert seen.statuses == ["cancelled", "succeeded"]
    assert alarms.statuses == ["cancelled", "skipped"]  # it is replaced, not failed
    assert (root.runs, below.runs, alarm.runs) == (2, 2, 2)


# ---- misfire


def missed(pool, misfire, interval, max_runs) -> tuple[Executor, Recurring, Seen, datetime]:
    """Let slots pass while the pool is paused, and go on with it."""
    ex = pool(1)
    ex.pause()
    handle = ex.add(deeds.double, "one", interval=interval, args=(1,), misfire=misfire, max_runs=max_runs)
    seen, first = Seen(handle), handle.next_run
    ex.start()
    is_late(handle, 1.3)
    assert (handle.next_run, handle.runs) == (first, 0)
    resumed = now()
    ex.resume()
    until(lambda: handle.next_run != first, "a look at it")
    return ex, handle, seen, resumed


def test_what_was_missed_gets_one_run_in_all(pool):
    _ex, handle, seen, resumed = missed(pool, "run_once", "1h", None)
    until(lambda: seen, "its run")
    assert seen.statuses == ["succeeded"]
    assert seen[0].released >= resumed - MS  # it is released when it can be: deadlines count from there
    assert handle.next_run > resumed + timedelta(minutes=59)


def test_of_several_that_were_missed_one_runs_and_the_others_are_told(pool, caplog):
    ex, _handle, seen, _resumed = missed(pool, "run_once", "300ms", 2)
    assert ex.join(CAP_S)
    assert seen.statuses == ["succeeded"] * 2
    assert seen[1].released - seen[0].released >= timedelta(milliseconds=290)
    assert "one: no run of its own for" in caplog.text
    assert ": missed" in caplog.text


def test_what_was_missed_gets_one_run_each(pool, caplog):
    ex, handle, seen, _ = missed(pool, "run_all", "300ms", 4)
    assert handle.next_run is None
    assert ex.join(CAP_S)
    assert seen.statuses == ["succeeded"] * 4
    assert "missed" not in caplog.text


def test_what_was_missed_is_left_out_and_told(pool, caplog):
    ex, handle, seen, _ = missed(pool, "skip", "1h", None)
    assert ex.drain(CAP_S)
    assert (seen, handle.runs) == ([], 0)
    assert "one: no run of its own for" in caplog.text
    assert ": missed" in caplog.text


def test_a_task_is_paused_by_its_handle(pool, tmp_path):
    ex, log = pool(1), tmp_path / "log"
    one = ex.add(deeds.counted, "one", interval="40ms", args=(str(log),))
    other = ex.add(deeds.double, "other", interval="40ms", args=(1,))
    ex.start()
    wait_for_lines(log, 2)
    one.pause()
    is_late(one, 0.3)
    runs, others = len(lines(log)), other.runs
    is_late(one, 1.2)
    assert len(lines(log)) == runs
    assert other.runs > others
    assert not ex.join(0.01)
    one.resume()
    wait_for_lines(log, runs + 2)
    assert ex.state is State.RUNNING


def test_a_paused_task_takes_what_hangs_on_it_along(pool):
    ex = pool(1)
    root = ex.add(deeds.same, "root", interval="30ms", args=(1,))
    middle = ex.add(deeds.same, "middle", args=(root,))
    leaf = ex.add(deeds.same, "leaf", after=middle, args=(1,))
    side = ex.add(deeds.same, "side", after=root, args=(1,))
    middle.pause()
    ex.start()
    until(lambda: root.runs >= 3, "runs")
    assert side.runs >= 3
    assert (middle.runs, leaf.runs) == (0, 0)
    middle.resume()
    until(lambda: leaf.runs >= 2, "its runs")
    middle.cancel()
    until(lambda: ex.submit(deeds.double, 1).result(CAP_S), "a look at the loop")
    runs = root.runs
    until(lambda: root.runs > runs + 1, "runs without it")
    ended = leaf.runs
    until(lambda: root.runs > runs + 3, "runs without it")
    assert leaf.runs == ended
    assert middle.next_run is None
    with pytest.raises(InvalidOption, match="runs once"):
        ex.add(deeds.same, "once", "1h", args=(1,)).pause()
    ex.tasks["once"].cancel()


# ---- runs of tasks that hang on each other


def test_a_run_passes_values_at_any_depth(pool, tmp_path):
    ex = pool(2)
    root = ex.add(deeds.counted, "root", interval="40ms", args=(str(tmp_path / "log"),), max_runs=4)
    left = ex.add(deeds.double, "left", args=(root,))
    right = ex.add(deeds.deep, "right", args=({"inner": ["x", left]},))
    both = ex.add(deeds.same, "both", kwargs={"x": [root, left, right]})
    seen = Seen(both)
    assert both.next_run == root.next_run
    assert ex.start().join(CAP_S)
    assert seen.values == [[n, 2 * n, (["str", "int"], 2 * n)] for n in (1, 2, 3, 4)]  # of its own run each
    assert {task.runs for task in ex.tasks.values()} == {4}
    assert both.last_outcome.result()[0] == 4
    assert root.last_outcome.released == seen[3].released  # the root's instant is everybody's


@pytest.mark.parametrize("how", ["name", "handle", "task", "several"])
def test_after_takes_names_handles_and_tasks(pool, tmp_path, how):
    ex, log = pool(2), tmp_path / "log"
    first = ex.add(deeds.plain_task, interval="40ms", max_runs=2, args=(1,))
    ex.add(deeds.logged, "second", after=first, args=(str(log), 2))
    after = {
        "name": "second", "handle": ex.tasks["second"], "task": deeds.plain_task,
        "several": iter([deeds.plain_task, "second", first]),
    }[how]  # fmt: skip
    third = ex.add(deeds.logged, "third", after=after, args=(str(log), 3))
    assert ex.start().join(CAP_S)
    assert third.runs == 2
    if how != "task":
        assert [line.split()[1] for line in lines(log)] == ["2", "2", "3", "3"] * 2


def test_run_if_gets_the_outcome(pool):
    ex = pool(1)
    root = ex.add(deeds.fail, "root", interval="40ms", max_runs=2)
    next_ = ex.add(deeds.same, "next", args=(root,))
    alarm = ex.add(deeds.described, "alarm", args=(root,), run_if="failure")
    report = ex.add(deeds.described, "report", args=(next_, alarm), run_if="done")
    seen = [Seen(one) for one in (root, next_, alarm, report)]
    assert ex.start().join(CAP_S)
    assert [one.statuses for one in seen] == [["failed"] * 2, ["dependency"] * 2, ["succeeded"] * 2, ["succeeded"] * 2]
    assert seen[2].values == ["failed"] * 2
    assert seen[3].values == ["dependency"] * 2


def test_a_one_shot_task_and_a_job_serve_every_run(pool):
    ex = pool(2)
    once = ex.add(deeds.double, "once", "100ms", args=(20,))
    future = ex.submit(deeds.double, 1)
    seen = Seen(ex.add(deeds.total, "sum", interval="40ms", args=(once, future), max_runs=3))
    last = Seen(ex.add(deeds.total, "last", args=(once, 1), after=[future]))
    assert ex.join(CAP_S)
    assert seen.values == [42] * 3
    assert last.values == [41]


def test_what_hangs_on_two_that_recur_is_refused(pool):
    ex, other = pool(1), pool(1)
    one = ex.add(deeds.double, "one", interval=1, args=(1,))
    two = ex.add(deeds.double, "two", delay=1, args=(1,))
    foreign = other.add(deeds.double, "foreign", interval=1, args=(1,))
    cases = [
        (InvalidOption, "'one' and 'two', which recur each by itself", {"args": (one, two)}),
        (InvalidOption, "recurs by itself, and hangs on 'one'", {"args": (one,), "interval": 1}),
        (InvalidOption, "start_time: 'three' is released with 'one'", {"args": (one,), "start_time": "1s"}),
        (InvalidOption, "must be a duration", {"args": (one,), "deadline": now() + timedelta(days=1)}),
        (InvalidOption, "max_runs without interval", {"args": (one,), "max_runs": 2}),
        (InvalidOption, "no task or job named 'ones' is known here; did you mean 'one'", {"after": "ones"}),
        (InvalidType, "this one is of another", {"args": (foreign,)}),
        (InvalidType, "this one is of another", {"after": foreign}),
        (InvalidType, "not int", {"after": 5}),
        (InvalidType, "not int", {"after": ["one", 5]}),
    ]
    for error, words, options in cases:
        with pytest.raises(error, match=words):
            ex.add(deeds.total, "three", **options)
    assert list(ex.tasks) == ["one", "two"]
    assert [entry.use.name for entry in foreign._entry.root.entries] == ["foreign"]


# ---- what goes wrong


def test_no_end_of_a_run_ends_a_recurrence(pool, tmp_path):
    ex = pool(1)
    handle = ex.add(deeds.moody, "moody", interval="50ms", args=(str(tmp_path / "log"),), timeout="300ms", max_runs=7)
    seen = Seen(handle)
    assert ex.start().join(CAP_S)
    assert seen.statuses == ["failed", "crashed", "timeout", "failed", "succeeded", "succeeded", "succeeded"]
    assert handle.runs == 7
    assert handle.last_outcome.result() == 7


def test_a_deadline_counts_from_each_release(pool, tmp_path):
    ex = pool(1)
    args = ("loop", str(tmp_path / "log"))
    handle = ex.add(deeds.hang, "late", interval="50ms", args=args, deadline=0.25, max_runs=3)
    seen = Seen(handle)
    assert ex.start().join(CAP_S)
    assert seen.statuses == ["deadline"] * 3
    for outcome in seen:
        assert outcome.deadline - outcome.released == timedelta(milliseconds=250)
    assert len({outcome.deadline for outcome in seen}) == 3


# ---- the handle


def test_cancel_lets_a_run_go_on(pool, gate, tmp_path):
    log, ex = tmp_path / "log", pool(1)
    handle = ex.add(deeds.gated, "one", interval="20ms", args=(str(log), gate.path, 1))
    below = ex.add(deeds.same, "below", args=(handle,))
    ex.start()
    wait_for_lines(log, 1)
    handle.cancel()
    assert (handle.next_run, below.next_run) == (None, None)
    assert not ex.join(0.05)
    gate.open(2)
    assert ex.join(CAP_S)
    assert len(lines(log)) == 2
    assert handle.last_outcome.ok
    assert below.last_outcome.result() == 1
    handle.cancel(kill=True)  # again: nothing


def test_cancel_may_kill_the_whole_run(pool, gate, tmp_path):
    log, ex = tmp_path / "log", pool(1)
    handle = ex.add(deeds.gated, "one", interval="20ms", args=(str(log), gate.path, 1))
    alarm = ex.add(deeds.note, "alarm", args=(str(tmp_path / "alarm"), "!"), after=handle, run_if="failure")
    ex.start()
    pid = int(wait_for_lines(log, 1)[0].split()[2])
    handle.cancel(kill=True)
    assert ex.join(CAP_S)
    assert (handle.last_outcome.status, alarm.last_outcome.status) == ("cancelled", "cancelled")
    assert not lines(tmp_path / "alarm")
    until(lambda: not alive(pid), "its end")


@pytest.mark.parametrize("kill", [False, True])
def test_cancel_of_a_task_that_has_not_come(pool, kill):
    ex = pool(1)
    once = ex.add(deeds.double, "once", "1h", args=(1,))
    below = ex.add(deeds.double, "below", args=(once,))
    every = ex.add(deeds.double, "every", "1h", "1h", args=(1,))
    for handle in (once, every):
        handle.cancel(kill=kill)
        assert handle.next_run is None
    assert ex.start().join(CAP_S)
    assert once.last_outcome.status == "cancelled"
    assert below.last_outcome.status == "dependency"
    assert (every.runs, every.last_outcome) == (0, None)


def test_runs_and_last_outcome_speak_of_whole_runs(pool, gate, tmp_path):
    log, ex = tmp_path / "log", pool(2)
    root = ex.add(deeds.double, "root", interval="30ms", args=(1,), max_runs=2)
    ex.add(deeds.gated, "below", args=(str(log), gate.path, root))
    done: list[Any] = []
    root.add_done_callback(done.append)
    ex.start()
    wait_for_lines(log, 1)
    assert len(done) == 1
    slots_pass(root, 2)
    assert (root.runs, root.last_outcome, len(done)) == (0, None, 1)
    gate.open(2)
    assert ex.join(CAP_S)
    assert (root.runs, root.last_outcome.result(), len(done)) == (2, 2, 2)


def test_callbacks_are_called_for_each_job_in_the_callback_thread(pool, gate, tmp_path, caplog):
    log, ex = tmp_path / "log", pool(1)
    handle = ex.add(deeds.gated, "one", interval="20ms", args=(str(log), gate.path, 1), max_runs=3)
    threads: list[str] = []

    def wrong(_future):
        raise ZeroDivisionError

    handle.add_done_callback(lambda _future: threads.append(threading.current_thread().name))
    handle.add_done_callback(wrong)
    ex.start()
    wait_for_lines(log, 1)
    late = Seen(handle)  # while a job is out
    gate.open(3)
    assert ex.join(CAP_S)
    assert threads == [f"{ex._pool.name}-callbacks"] * 3
    assert late.statuses == ["succeeded"] * 3
    assert caplog.text.count("ZeroDivisionError") >= 3
    after = Seen(handle)
    assert after == []
    once = ex.add(deeds.double, "once", args=(1,))
    assert ex.join(CAP_S)
    assert Seen(once).values == [2]  # at once: it has ended
    caplog.clear()


def test_callbacks_may_add_cancel_and_submit(pool):
    ex, names = pool(2), []

    def follow(future):
        name = f"{future.result()}"
        names.append(name)
        if future.result() < 16:
            added = ex.add(deeds.double, name, args=(future.result(),))
            added.add_done_callback(follow)
        else:
            ex.tasks["forever"].cancel()

    ex.add(deeds.double, "forever", interval="30ms", args=(1,))
    ex.add(deeds.double, "one", args=(1,)).add_done_callback(follow)
    assert ex.start().join(CAP_S)
    assert names == ["2", "4", "8", "16"]
    assert ex.tasks["8"].last_outcome.result() == 16
