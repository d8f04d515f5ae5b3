"""The Executor, verb by verb: what a caller sees, with real workers behind it."""

from __future__ import annotations

import asyncio
import concurrent.futures as cf
import functools
import logging
import os
import pickle
import re
import signal
import subprocess
import sys
import threading
import time
import weakref
from datetime import UTC, datetime, timedelta
from typing import Any

import deeds
import pytest
from support import CAP_S, alive, lines, until, wait_for_lines, wait_gone, within, worker_pids

from ptss_mp import (
    DependencyFailed,
    Executor,
    ExecutorClosed,
    InvalidOption,
    InvalidType,
    NotPicklable,
    Options,
    PoolBroken,
    QueueFull,
    State,
    Status,
    TaskInterrupted,
    TaskSkipped,
    task,
)
from ptss_mp.core import commands
from ptss_mp.observe.metrics import METRICS
from ptss_mp.shell import supervisor

# ---- submit and map


def test_submit_takes_arguments_as_they_are(pool):
    ex = pool(2)
    assert ex.submit(deeds.total, 1, 2, a=3, b=4).result(CAP_S) == 10
    assert ex.submit(pow, 2, 10).result(CAP_S) == 1024
    assert ex.submit(functools.partial(deeds.add, 1), 2).result(CAP_S) == 3
    assert ex.submit("a-b".split, "-").result(CAP_S) == ["a", "b"]
    with pytest.raises(InvalidType):
        ex.submit(42)


VALUES = [
    *(None, True, 0, -(1 << 61), 1 << 62, 1 << 70, 0.1, float("inf"), "é\ud800", b"\0x", (), [1, {"a": {2}}], 1j),
    *(datetime(2026, 1, 2, tzinfo=UTC), "x" * 100_000, b"y" * 100_000, range(3)),
]


def test_values_go_there_and_back(pool):
    ex = pool(1)
    futures = [ex.submit(deeds.same, value) for value in VALUES]
    for value, future in zip(VALUES, futures, strict=True):
        back = future.result(CAP_S)
        assert back == value
        assert type(back) is type(value)


@pytest.mark.parametrize("size", [24 << 10, 64 << 10, (64 << 10) + 1, 5 << 20])
def test_large_arguments_and_results(pool, size):
    ex = pool(2)
    data = bytearray(os.urandom(1024) * (size // 1024 + 1))[:size]
    futures = [ex.submit(deeds.same, data) for _ in range(3)]
    assert all(f.result(CAP_S) == data for f in futures)
    assert ex.submit(deeds.check_size, bytes(data)).result(CAP_S) == (size, bytes(data[-3:]))
    assert len(ex.submit(deeds.sized, size).result(CAP_S)) == size


def test_arguments_are_frozen_by_submit(pool, gate, tmp_path):
    ex = pool(1)
    ex.submit(deeds.gated, str(tmp_path / "log"), gate.path, 1)
    items = [1, 2]
    future = ex.submit(deeds.same, items)
    items.append(3)
    gate.open()
    assert future.result(CAP_S) == [1, 2]


def test_map_gives_results_in_order_of_the_input(pool):
    ex = pool(2)
    assert list(ex.map(deeds.add, range(1_000), range(1_000))) == [2 * i for i in range(1_000)]
    assert list(ex.map(deeds.double, range(5), chunksize=2)) == [0, 2, 4, 6, 8]
    assert list(ex.map(deeds.double, range(5), chunksize=None)) == [0, 2, 4, 6, 8]
    assert list(ex.map(deeds.double, [])) == []
    with pytest.raises(InvalidOption):
        ex.map(deeds.double, [1], chunksize=0)


def test_map_raises_at_its_place_and_in_time(pool):
    ex = pool(2)
    results = ex.map(divmod, [4, 1], [2, 0])
    assert next(results) == (2, 0)
    with pytest.raises(ZeroDivisionError):
        next(results)
    with pytest.raises(TimeoutError):
        list(ex.map(deeds.nap, [0.0, 0.5], timeout=0.1))


def test_map_with_a_buffersize_pulls_lazily(pool):
    ex = pool(2)
    taken = []
    items = (taken.append(i) or i for i in range(100))
    results = ex.map(deeds.double, items, buffersize=5)
    assert len(taken) == 5
    assert next(results) == 0
    assert len(taken) <= 6
    assert list(results) == [2 * i for i in range(1, 100)]


@pytest.mark.parametrize("buffersize", [None, 1, 2, 3, 9])
def test_map_does_not_pull_on_at_the_end(pool, buffersize):
    ex = pool(1)
    first = iter(range(100))
    assert list(ex.map(deeds.add, first, [1, 2, 3], buffersize=buffersize)) == [1, 3, 5]
    assert next(first) == 4  # one was pulled to find that the second had no more: as zip does


def test_leaving_map_early_cancels_only_what_has_not_started(pool, gate, tmp_path):
    ex = pool(1)
    log = tmp_path / "log"
    results = ex.map(deeds.gated, [str(log)] * 9, [gate.path] * 9, range(9))
    wait_for_lines(log, 1)
    gate.open()
    assert next(results) == 0
    wait_for_lines(log, 3)  # the second runs
    results.close()
    gate.open()
    assert ex.submit(deeds.double, 1).result(CAP_S) == 2
    assert [line.split()[:2] for line in lines(log)] == [[w, n] for n in "01" for w in ("begin", "end")]


def test_hundreds_of_thousands_of_jobs_arrive_whole(pool):
    """Each tells its number and the process that did it; nobody's answer is another's."""
    ex = pool(2)
    count = 200_000
    futures = [ex.submit(deeds.stamped, i) for i in range(count)]
    values = [f.result(60) for f in futures]
    assert [value >> 22 for value in values] == list(range(count))
    pids = {value & (1 << 22) - 1 for value in values}
    assert len(pids) <= 2
    assert os.getpid() not in pids


def test_many_threads_submit_at_once(pool):
    ex = pool(2)
    with cf.ThreadPoolExecutor(8) as threads:
        sums = threads.map(lambda k: sum(ex.submit(deeds.add, k, i).result(CAP_S) for i in range(300)), range(8))
        assert list(sums) == [300 * k + sum(range(300)) for k in range(8)]


# ---- options and order


def test_options_merge_and_name_the_job(pool):
    ex = pool(1, options=Options(timeout=30, name="all"))
    assert ex.submit(deeds.double, 1).outcome(CAP_S).name == "all"
    view = ex.options(name="view").options(priority=3)
    outcome = view.submit(deeds.double, 1).outcome(CAP_S)
    assert (outcome.name, outcome.key) == ("view", "deeds.double")
    assert ex.options(name=None).submit(deeds.double, 1).outcome(CAP_S).name == "double"
    with pytest.raises(InvalidOption, match="did you mean 'timeout'"):
        ex.options(timeot=1)
    with pytest.raises(TypeError, match="whole pool"):
        view.pause()


def test_jobs_start_in_the_promised_order(pool, gate, tmp_path):
    ex = pool(1)
    log = tmp_path / "log"
    ex.submit(deeds.gated, str(log), gate.path, "first")
    wait_for_lines(log, 1)
    for options, text in [
        ({}, "7 no deadline"),
        ({"priority": 5}, "6 important"),
        ({"priority": -5}, "8 unimportant"),
        ({"deadline": 90}, "5 ninety"),
        ({"deadline": 30, "on_miss": "finish"}, "1 thirty"),
        ({"deadline": 60}, "2 sixty"),
    ]:
        ex.options(**options).submit(deeds.note, str(log), text)
    at = datetime.now(UTC) + timedelta(seconds=70)
    for priority, text in [(1, "4 same instant"), (2, "3 same instant, more important")]:
        ex.options(deadline=at, priority=priority).submit(deeds.note, str(log), text)
    gate.open()
    assert ex.drain(CAP_S)
    assert [line.split()[0] for line in lines(log)[2:]] == list("12345678")


def test_an_urgent_job_lends_its_deadline_to_what_it_waits_for(pool, tmp_path):
    ex = pool(1)
    log = tmp_path / "log"
    ex.pause()
    root = ex.options(name="root").submit(deeds.note, str(log), "root")
    ex.options(deadline=60).submit(deeds.note, str(log), "sixty")
    ex.options(deadline=30, after=root).submit(deeds.note, str(log), "thirty")
    ex.resume()
    assert ex.drain(CAP_S)
    assert lines(log) == ["root", "thirty", "sixty"]


@pytest.mark.parametrize("how", ["duration", "text", "instant"])
def test_no_job_starts_before_its_time(pool, how):
    ex = pool(1)
    ex.submit(deeds.double, 1).result(CAP_S)  # the pool is warm
    at = datetime.now(UTC) + timedelta(seconds=0.5)
    start = {"duration": timedelta(seconds=0.5), "text": "500ms", "instant": at}[how]
    future = ex.options(start_time=start).submit(time.monotonic_ns)
    other = ex.submit(deeds.double, 1)
    assert other.result(CAP_S) == 2
    assert not future.done()
    assert ex.status().delayed == 1
    outcome = future.outcome(CAP_S)
    assert outcome.started >= outcome.released
    assert outcome.started - outcome.released < timedelta(seconds=0.5)
    assert abs(outcome.released - at) < timedelta(seconds=0.2)


def test_tasks_bring_their_options(pool):
    ex = pool(1)
    outcome = ex.submit(deeds.declared, 4).outcome(CAP_S)
    assert (outcome.result(), outcome.name, outcome.attempts) == (8, "declared", 1)
    assert ex.submit(deeds.hangs_by_declaration).outcome(CAP_S).status == "timeout"
    assert list(ex.map(deeds.declared, [1, 2])) == [2, 4]
    with pytest.raises(InvalidType):
        ex.submit(task().map(deeds.double, [1]))


def test_a_tasks_options_stand_between_the_executors_and_a_views(pool):
    ex = pool(1, options=Options(name="executor", timeout=CAP_S, priority=1))
    declared = task(name="task", timeout=0.2)(deeds.nap)
    assert ex.submit(declared, 0.0).outcome(CAP_S).name == "task"
    assert ex.submit(declared, CAP_S).outcome(CAP_S).limit == 0.2
    view = ex.options(timeout=0.1).options(name="view")
    outcome = view.submit(declared, CAP_S).outcome(CAP_S)
    assert (outcome.name, outcome.limit) == ("view", 0.1)
    assert ex.submit(deeds.nap, 0.0).outcome(CAP_S).name == "executor"


def test_start_times_and_deadlines_beyond_every_clock(pool):
    """The core's key has 62 bits for an instant: a later one must not come round again."""
    ex = pool(1)
    view = ex.options(start_time=datetime.max.replace(tzinfo=UTC), deadline="1h")
    late = [view.submit(deeds.double, 1), ex.options(start_time=datetime(2300, 5, 1, tzinfo=UTC)).submit(deeds.pid)]
    assert ex.options(deadline=datetime.max.replace(tzinfo=UTC)).submit(deeds.double, 2).result(CAP_S) == 4
    assert ex.status().delayed == 2
    assert [future.cancel() for future in late] == [True, True]
    assert late[0].outcome().released is None  # it never came to that
    past = datetime.now(UTC) - timedelta(days=3 * 365)  # long before this machine was started
    missed = ex.options(start_time=past, deadline="1d").submit(deeds.double, 1).outcome(CAP_S)
    assert missed.status == "deadline"
    assert ex.options(start_time=past).submit(deeds.double, 1).result(CAP_S) == 2


def test_the_deadline_of_a_job_that_was_in_time_is_not_exceeded_later(pool):
    ex = pool(1)
    view = ex.options(deadline=0.5)
    futures = [view.submit(deeds.double, i) for i in range(300)]  # the last ones are known as quick and clean
    assert ex.drain(CAP_S)
    good = [f for f in futures if f.outcome().ok and f.deadline_status == "ok"]
    until(lambda: ex.options(deadline=0.01).submit(deeds.nap, 0.02).outcome(CAP_S).status == "deadline", "a late one")
    time.sleep(max(0.0, 0.5 - (datetime.now(UTC) - futures[-1].outcome().released).total_seconds()))
    assert {f.deadline_status for f in good} == {"ok"}
    assert len(good) > 200


def test_who_polls_leaves_nothing_behind(pool, gate):
    ex = pool(1)
    future = ex.submit(deeds.gate, gate.path)
    for _ in range(100):
        with pytest.raises(TimeoutError):
            future.result(0.0001)
    assert future._waits.locks == []
    gate.open()
    assert future.result(CAP_S) is None


def test_arguments_stay_with_their_jobs(pool, gate):
    """Large arguments travel behind the rows of a frame: what a revoked job leaves there is not the next one's."""
    ex = pool(1, spares=0)
    [f.result(CAP_S) for f in [ex.submit(deeds.blob, b"w" * 70_000, None) for _ in range(300)]]
    ex.pause()  # so that all go in one frame
    first = ex.submit(deeds.blob, b"0" * 70_000, gate.path)
    others = [ex.submit(deeds.blob, b"%d" % i * 70_000, None) for i in range(1, 8)]
    ex.resume()
    until(first.running, "the first runs")
    assert [others[i].cancel() for i in (0, 3)] == [True, True]
    gate.open()
    assert [f.result(CAP_S) for f in others if not f.cancelled()] == [b"2", b"3", b"5", b"6", b"7"]


def test_a_job_behind_one_that_became_slow_moves_to_an_idle_worker(pool, gate, tmp_path):
    """Depth bends the order by a millisecond (P3), not by as long as a neighbour hangs (P2)."""
    ex = pool(2)
    [f.result(CAP_S) for f in [ex.submit(deeds.gate_or_not, None) for _ in range(1_000)]]
    ex.pause()
    slow = ex.submit(deeds.gate_or_not, gate.path)
    quick = [ex.submit(deeds.gate_or_not, None) for _ in range(20)]
    ex.resume()
    left = cf.wait(quick, 2).not_done
    gate.open()
    slow.result(CAP_S)
    assert not left


def test_what_is_taken_back_leaves_nothing_in_the_page(pool):
    """Regression: who had answered in that very turn kept its place there, of 256; then nothing was taken back."""
    ex = pool(2, spares=0)
    [f.result(CAP_S) for f in [ex.submit(deeds.nap_at, i, -1, 0) for i in range(1_000)]]
    for _ in range(5):
        ex.pause()
        futures = [ex.submit(deeds.nap_at, n % 25, 8, 0.03) for n in range(50)]
        ex.resume()
        assert [f.result(CAP_S) for f in futures] == [*range(25)] * 2
    pages = list(ex._pool.channels.values())
    until(lambda: {(len(p.places), len(p.revoked), len(p.recalled)) for p in pages} == {(256, 0, 0)}, "pages as new")


# ---- dependencies


def test_after_is_copied_at_the_call(pool, gate, tmp_path):
    ex = pool(2)
    log = tmp_path / "log"
    first = ex.submit(deeds.gated, str(log), gate.path, "first")
    named = [first]
    views = [ex.options(after=(f for f in [first])), ex.options(after=named)]
    named.clear()
    futures = [view.submit(deeds.note, str(log), "after") for view in views for _ in range(2)]
    wait_for_lines(log, 1)
    assert ex.status().waiting == 4
    gate.open()
    cf.wait(futures, CAP_S)
    assert [line.split()[0] for line in lines(log)] == ["begin", "end"] + ["after"] * 4


def test_after_takes_futures_names_tasks_and_iterables(pool, gate, tmp_path):
    ex = pool(2)
    log = tmp_path / "log"
    first = ex.options(name="first").submit(deeds.gated, str(log), gate.path, "first")
    second = ex.submit(deeds.declared, 1)
    waits = [
        ex.options(after=after).submit(deeds.note, str(log), text)
        for text, after in [
            ("future", first),
            ("name", "first"),
            ("task", deeds.declared),
            ("iterable", (f for f in [first, second])),
            ("mixed", ["first", second]),
        ]
    ]
    assert waits[2].result(CAP_S) == "task"
    assert [f.done() for f in waits] == [False, False, True, False, False]
    gate.open()
    assert [f.result(CAP_S) for f in waits] == ["future", "name", "task", "iterable", "mixed"]
    with pytest.raises(InvalidOption, match="did you mean 'first'"):
        ex.options(after="frist").submit(deeds.double, 1)
    with pytest.raises(InvalidType):
        ex.options(after=3.5).submit(deeds.double, 1)
    with pytest.raises(InvalidType):
        ex.options(after=cf.Future()).submit(deeds.double, 1)


def test_futures_as_arguments_at_any_depth(pool):
    ex = pool(2)
    one, big = ex.submit(deeds.double, 1), ex.submit(deeds.sized, 200_000)
    nested = ex.submit(deeds.deep, {"inner": [one, (1, [one]), big, ex.submit(deeds.double, "ab")]})
    assert nested.result(CAP_S) == (["int", "tuple", "bytes", "str"], "abab")
    assert ex.submit(deeds.same, {"k": [one, {"again": one}]}).result(CAP_S) == {"k": [2, {"again": 2}]}
    assert ex.submit(deeds.total, one, named=one).result(CAP_S) == 4
    with pytest.raises(TypeError):
        pickle.dumps(one)
    with pytest.raises(InvalidType):
        pool(1).submit(deeds.same, [one])


def test_a_long_chain_of_values(pool):
    ex = pool(2)
    future = ex.submit(deeds.add, 0, 1)
    for _ in range(500):
        future = ex.submit(deeds.add, future, 1)
    assert future.result(CAP_S) == 501


@pytest.mark.parametrize("first", ["raises", "crashes", "is cancelled", "times out"])
def test_what_hangs_on_a_failed_job_fails_with_its_cause(pool, tmp_path, first):
    ex = pool(2)
    root = {
        "raises": lambda: ex.options(name="root").submit(deeds.fail, "deep down"),
        "crashes": lambda: ex.options(name="root").submit(deeds.crash, "abort"),
        "is cancelled": lambda: ex.options(name="root").submit(deeds.nap, 60),
        "times out": lambda: ex.options(name="root", timeout=0.1).submit(deeds.nap, 60),
    }[first]()
    middle = ex.options(name="middle").submit(deeds.double, root)
    leaf = ex.submit(deeds.note, str(tmp_path / "log"), middle)
    if first == "is cancelled":
        assert root.cancel()
    outcome, error = leaf.outcome(CAP_S), leaf.exception()
    assert (outcome.status, outcome.root, outcome.attempts) == ("dependency", "root", 0)
    assert "'root'" in outcome.error
    assert isinstance(error, DependencyFailed)
    assert error.root == ("root", root.outcome(CAP_S).key)
    assert pickle.loads(pickle.dumps(error)).root.key == error.root.key
    assert type(error.__cause__) is type(root.exception()) if first != "is cancelled" else cf.CancelledError
    assert lines(tmp_path / "log") == []
    assert ex.submit(deeds.double, root).outcome(CAP_S).status == "dependency"  # also when it is settled already


def test_run_if(pool):
    ex = pool(2)
    good, bad = ex.submit(deeds.double, 1), ex.submit(deeds.fail)
    done = ex.options(run_if="done").submit(deeds.statuses, [good, bad])
    assert done.result(CAP_S) == ["succeeded", "failed"]
    alarm = ex.options(run_if="failure").submit(deeds.statuses, [good, bad])
    assert alarm.result(CAP_S) == ["succeeded", "failed"]
    quiet = ex.options(run_if="failure", after=good).submit(deeds.double, 1)
    assert quiet.outcome(CAP_S).status == "skipped"
    assert isinstance(quiet.exception(), TaskSkipped)
    assert isinstance(quiet.exception(), cf.CancelledError)
    assert not quiet.cancelled()
    assert ex.options(after=quiet).submit(deeds.double, 1).outcome(CAP_S).status == "skipped"
    assert ex.options(after=quiet, run_if="done").submit(deeds.double, 1).result(CAP_S) == 2


def test_retries_count_attempts(pool, tmp_path):
    ex = pool(2)
    log = tmp_path / "log"
    future = ex.options(retries=1).submit(deeds.fail_until, str(log), 2)
    never = ex.options(retries=1).submit(deeds.fail)
    wait_for_lines(log, 1)
    until(lambda: ex.status().delayed == 2, "the pause")
    assert future.running()
    assert future.result(CAP_S) == 2
    assert future.outcome().attempts == 2
    outcome = never.outcome(CAP_S)
    assert (outcome.status, outcome.attempts, outcome.error) == ("failed", 2, "ValueError: no")


# ---- life


def test_states_and_what_they_accept(pool, tmp_path):
    ex = pool(1)
    assert ex.state is State.INITIALIZED
    log = tmp_path / "log"
    ex.pause()
    assert ex.state is State.INITIALIZED
    future = ex.submit(deeds.note, str(log), "later")
    assert ex.state is State.PAUSED
    until(lambda: ex.status().ready == 1, "its acceptance")
    assert not ex.drain(0.05)
    assert not future.running()
    ex.resume()
    assert ex.state is State.RUNNING
    assert future.result(CAP_S) == "later"
    ex.shutdown()
    assert ex.state is State.STOPPED
    for call in (lambda: ex.submit(deeds.double, 1), ex.start, ex.pause, lambda: ex.map(deeds.double, [1])):
        with pytest.raises(ExecutorClosed):
            call()
    assert issubclass(ExecutorClosed, RuntimeError)


def test_pause_lets_run_what_runs(pool, gate, tmp_path):
    ex = pool(1)
    log = tmp_path / "log"
    running = ex.submit(deeds.gated, str(log), gate.path, 1)
    wait_for_lines(log, 1)
    ex.pause()
    waiting = ex.submit(deeds.double, 2)
    gate.open()
    assert running.result(CAP_S) == 1
    assert not waiting.done()
    assert waiting.cancel()
    ex.resume()


def test_drain_waits_for_jobs_and_callbacks(pool, gate):
    ex = pool(2)
    assert ex.drain(0)
    seen = []
    hold = threading.Event()
    ex.submit(deeds.double, 1).add_done_callback(lambda f: (hold.wait(CAP_S), seen.append(f.result())))
    assert not ex.drain(0.05)
    hold.set()
    assert ex.drain(CAP_S)
    assert seen == [2]
    inside = []
    held = ex.submit(deeds.gate, gate.path)  # had it ended already, the callback would run in this thread
    held.add_done_callback(lambda f: inside.append(_raises(RuntimeError, ex.drain)))
    gate.open()
    assert ex.drain(CAP_S)
    assert inside == [True]


def _raises(kind, call):
    with pytest.raises(kind):
        call()
    return True


def test_drain_leaves_what_is_not_released(pool):
    ex = pool(1)
    future = ex.options(start_time="1h").submit(deeds.double, 1)
    assert ex.submit(deeds.double, 1).result(CAP_S) == 2
    assert ex.drain(CAP_S)
    assert future.cancel()


def test_stop_gives_a_grace_and_no_more(pool, gate, tmp_path):
    ex = pool(2)
    log = tmp_path / "log"
    quick = ex.submit(deeds.nap, 0.2)
    slow = ex.submit(deeds.gated, str(log), gate.path, 1)
    behind = [ex.submit(deeds.double, i) for i in range(5)]
    pid = int(wait_for_lines(log, 1)[0].split()[2])
    began = time.monotonic()
    within(CAP_S, lambda: ex.stop(grace=0.4))
    assert 0.35 < time.monotonic() - began < 5
    assert quick.result() == 0.2
    assert all(f.cancelled() for f in behind)
    outcome = slow.outcome()
    assert (outcome.status, outcome.attempts) == ("interrupted", 1)
    assert "grace" in outcome.error
    assert isinstance(slow.exception(), TaskInterrupted)
    assert not alive(pid)
    with pytest.raises(InvalidOption):
        ex.stop(grace=-1)


def test_stop_ends_as_soon_as_what_runs_has_ended(pool):
    ex = pool(1)
    future = ex.submit(deeds.nap, 0.1)
    until(future.running, "its start")
    began = time.monotonic()
    ex.stop(grace=30)
    assert time.monotonic() - began < 10
    assert future.result() == 0.1


def test_shutdown_finishes_what_was_accepted(pool, gate, tmp_path):
    ex = pool(1)
    log = tmp_path / "log"
    futures = [ex.submit(deeds.gated, str(log), gate.path, i) for i in range(5)]
    chained = ex.submit(deeds.same, futures[-1])
    later = ex.options(start_time="300ms").submit(deeds.double, 1)
    ex.shutdown(wait=False)
    assert ex.state is State.SHUTTING_DOWN
    with pytest.raises(ExecutorClosed):
        ex.submit(deeds.double, 1)
    gate.open(5)
    within(CAP_S, ex.shutdown)
    assert [f.result(0) for f in futures] == list(range(5))
    assert chained.result(0) == 4
    assert later.result(0) == 2
    ex.shutdown()


def test_shutdown_can_cancel_what_has_not_started(pool, gate, tmp_path):
    ex = pool(1)
    log = tmp_path / "log"
    running = ex.submit(deeds.gated, str(log), gate.path, 1)
    wait_for_lines(log, 1)
    waiting = [ex.submit(deeds.double, i) for i in range(50)]
    hanging = ex.submit(deeds.same, running)
    ex.shutdown(wait=False, cancel_futures=True)
    gate.open()
    within(CAP_S, ex.shutdown)
    assert running.result(0) == 1
    assert all(f.cancelled() for f in waiting)
    assert hanging.cancelled()


def test_shutdown_of_a_paused_pool_still_ends(pool):
    ex = pool(1)
    ex.pause()
    future = ex.submit(deeds.double, 4)
    within(CAP_S, ex.shutdown)
    assert future.result(0) == 8


def test_shutdown_from_a_callback(pool):
    ex = pool(1)
    over = threading.Event()
    ex.submit(deeds.double, 1).add_done_callback(lambda f: (ex.shutdown(), over.set()))
    assert over.wait(CAP_S)
    with pytest.raises(ExecutorClosed):
        ex.submit(deeds.double, 1)


def test_shutdown_without_a_start_starts_nothing(pool):
    ex = pool(2)
    threads = threading.active_count()
    ex.shutdown()
    assert threading.active_count() == threads
    assert ex.state is State.STOPPED


def test_the_end_of_a_view_concerns_only_its_own_jobs(pool, gate, tmp_path):
    ex = pool(2)
    log = tmp_path / "log"
    other = ex.submit(deeds.gated, str(log), gate.path, "other")
    with ex.options(priority=1) as view:
        mine = view.options(timeout=30).submit(deeds.double, 4)
    assert mine.done()
    assert not other.done()
    with pytest.raises(ExecutorClosed):
        view.submit(deeds.double, 1)
    gate.open()
    assert other.result(CAP_S) == "other"


def test_views_of_a_view_end_with_it(pool):
    ex = pool(1)
    view = ex.options(priority=1)
    inner = view.options(name="inner")
    assert inner.submit(deeds.double, 1).result(CAP_S) == 2
    view.shutdown()
    for closed in (view, inner, view.options(name="later")):
        with pytest.raises(ExecutorClosed, match="view"):
            closed.submit(deeds.double, 1)
    assert ex.submit(deeds.double, 2).result(CAP_S) == 4
    assert ex.options(priority=1).submit(deeds.double, 2).result(CAP_S) == 4


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit])
def test_with_left_by_what_ends_the_program_kills(pool, gate, tmp_path, error):
    log = tmp_path / "log"
    ex = pool(1)

    def body():
        with ex:
            body.running = ex.submit(deeds.gated, str(log), gate.path, 1)
            body.waiting = ex.submit(deeds.double, 1)
            wait_for_lines(log, 1)
            raise error

    with pytest.raises(error):
        body()
    assert ex.state is State.STOPPED
    assert body.running.outcome(0).status in ("interrupted", "cancelled")
    assert body.waiting.cancelled()
    assert not alive(int(lines(log)[0].split()[2]))


def test_with_left_by_an_exception_finishes(pool):
    future = None

    def body():
        nonlocal future
        with pool(1) as ex:
            future = ex.submit(deeds.nap, 0.1)
            raise ValueError("mine")

    with pytest.raises(ValueError, match="mine"):
        body()
    assert future.result(0) == 0.1


def test_a_dropped_executor_finishes_its_work_then_ends():
    ex = Executor(2, preload=["deeds"])
    futures = [ex.submit(deeds.nap, 0.1) for _ in range(4)]
    thread, gone = ex._pool.thread, weakref.ref(ex)
    pids = worker_pids(ex)
    del ex
    assert gone() is None
    assert [f.result(CAP_S) for f in futures] == [0.1] * 4
    thread.join(CAP_S)
    assert not thread.is_alive()
    wait_gone(pids, 5)


def test_the_exit_of_the_interpreter_finishes_the_work(tmp_path):
    program = """
import sys, deeds
from ptss_mp import Executor
ex = Executor(1)
ex.submit(deeds.nap, 0.2)
for i in range(3):
    ex.submit(deeds.note, sys.argv[1], i).add_done_callback(lambda f: print("done", f.result(), flush=True))
"""
    done = run_program(program, str(tmp_path / "log"))
    assert done.stdout == "done 0\ndone 1\ndone 2\n"
    assert lines(tmp_path / "log") == ["0", "1", "2"]


def run_program(source: str, *args: str) -> subprocess.CompletedProcess[str]:
    here = os.path.dirname(__file__)
    path = os.pathsep.join([here, os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, "-c", source, *args],
        env=os.environ | {"PYTHONPATH": path},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=CAP_S,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done


def test_a_fork_of_the_program(tmp_path):
    """In the child a started executor refuses and does nothing at exit; one not yet started may start there."""
    program = """
import os, sys, deeds, warnings
from ptss_mp import Executor
warnings.simplefilter("ignore")
started, fresh = Executor(1), Executor(1)
future = started.submit(deeds.nap, 0.5)
child = os.fork()
if child == 0:
    try:
        started.submit(deeds.double, 1)
    except RuntimeError as error:
        print("refused", "fork" in str(error))
    started.shutdown()
    print("fresh", fresh.submit(deeds.double, 4).result(10), flush=True)
    sys.exit(0)
print("child", os.waitpid(child, 0)[1], flush=True)
print("parent", future.result(10), fresh.submit(deeds.double, 5).result(10))
"""
    assert run_program(program).stdout.split("\n") == ["refused True", "fresh 8", "child 0", "parent 0.5 10", ""]


def test_executors_share_nothing(pool):
    pools = [pool(1) for _ in range(3)]
    futures = [ex.submit(deeds.pid) for ex in pools]
    assert len({f.result(CAP_S) for f in futures}) == 3
    pools[0].kill_workers()
    assert pools[1].submit(deeds.double, 1).result(CAP_S) == 2


def test_kill_workers_interrupts_what_runs(pool, gate, tmp_path):
    ex = pool(2)
    log = tmp_path / "log"
    running = [ex.submit(deeds.gated, str(log), gate.path, i) for i in range(2)]
    wait_for_lines(log, 2)
    waiting = ex.submit(deeds.double, 1)
    within(10, ex.kill_workers)
    assert {f.outcome(CAP_S).status for f in running} == {"interrupted"}
    assert waiting.cancelled()


# ---- cancel


def test_cancel_of_what_waits(pool, gate, tmp_path):
    ex = pool(1)
    log = tmp_path / "log"
    running = ex.submit(deeds.gated, str(log), gate.path, "runs")
    wait_for_lines(log, 1)
    ready = ex.submit(deeds.note, str(log), "no")
    delayed = ex.options(start_time="1h").submit(deeds.note, str(log), "no")
    waits = ex.submit(deeds.note, str(log), running)
    behind = ex.submit(deeds.same, waits)
    for future in (ready, delayed, waits):
        assert future.cancel()
        assert future.cancelled()
        assert future.done()
        assert future.cancel()
        with pytest.raises(cf.CancelledError):
            future.result()
        outcome = future.outcome()
        assert (outcome.status, outcome.attempts, outcome.started) == ("cancelled", 0, None)
    assert behind.outcome(CAP_S).status == "dependency"
    gate.open()
    assert running.result(CAP_S) == "runs"
    assert not running.cancel()
    assert not running.cancelled()
    assert len(lines(log)) == 2


@pytest.mark.parametrize("kind", ["sleep", "native", "blocked", "stopped"])
def test_cancel_kills_what_runs_and_never_blocks(pool, tmp_path, kind):
    ex = pool(1)
    log = tmp_path / "log"
    future = ex.submit(deeds.hang, kind, str(log))
    pid = int(wait_for_lines(log, 1)[0].split()[0])
    woken = threading.Event()
    waiter = threading.Thread(target=lambda: (cf.wait([future]), woken.set()))
    waiter.start()
    began = time.monotonic()
    assert future.cancel()
    assert time.monotonic() - began < 0.2
    assert future.cancelled()
    assert woken.wait(1)
    waiter.join()
    wait_gone([pid], 1)
    assert future.outcome().status == "cancelled"
    assert future.outcome().attempts == 1
    assert ex.submit(deeds.double, 1).result(CAP_S) == 2


def test_cancel_between_two_attempts(pool, tmp_path):
    ex = pool(1)
    log = tmp_path / "log"
    future = ex.options(retries=5).submit(deeds.fail_until, str(log), 9)
    wait_for_lines(log, 1)
    until(lambda: ex.status().delayed, "the pause")
    assert future.running()
    assert future.cancel()
    assert future.outcome().attempts == 1
    assert ex.drain(CAP_S)
    assert len(lines(log)) == 1


def test_cancel_races_with_the_end(pool):
    """Whoever wins: one end, callbacks once, and the pool goes on."""
    ex = pool(2)
    ended = []
    for i in range(2_000):
        future = ex.submit(deeds.double, i)
        future.add_done_callback(ended.append)
        if i % 7:
            ex.submit(deeds.double, i)
        won = future.cancel()
        assert won == future.cancelled()
        assert won or future.result(CAP_S) == 2 * i
    assert ex.drain(CAP_S)
    assert len(ended) == len(set(ended)) == 2_000


def test_cancel_between_the_decision_and_the_sending(pool, monkeypatch):
    ex = pool(1, spares=0)
    pid = ex.submit(deeds.pid).result(CAP_S)
    send = supervisor._DO[commands.Dispatch]

    def cancel_first(loop: Any, command: Any) -> None:
        for job in command.ids:
            if job in loop.futures:
                loop.futures[job].cancel()
        send(loop, command)

    seen = []
    with ex.subscribe(seen.append):
        monkeypatch.setitem(supervisor._DO, commands.Dispatch, cancel_first)
        assert ex.submit(deeds.double, 1).outcome(CAP_S).status == "cancelled"
        assert ex.drain(CAP_S)
        monkeypatch.undo()
        assert ex.submit(deeds.pid).result(CAP_S) == pid
    first = [event.what for event in seen if event.job == seen[0].job]
    assert first == ["submitted", "sent", "answered", "cancelled", "revoked"]


def test_cancel_of_many_that_were_sent_together(pool):
    """Short jobs travel in batches; what is cancelled of a batch does not run and its neighbours do."""
    ex = pool(1)
    [f.result(CAP_S) for f in [ex.submit(deeds.double, i) for i in range(500)]]
    futures = [ex.submit(deeds.double, i) for i in range(3_000)]
    cancelled = {f for f in futures[::3] if f.cancel()}
    for i, future in enumerate(futures):
        assert future.cancelled() == (future in cancelled)
        assert future in cancelled or future.result(CAP_S) == 2 * i


# ---- workers


def test_fresh_gives_each_attempt_a_process_of_its_own(pool):
    ex = pool(2)
    view = ex.options(fresh=True)
    pids = [f.result(CAP_S) for f in [view.submit(deeds.pid) for _ in range(6)]]
    assert len(set(pids)) == 6
    all_fresh = pool(1, fresh=True)
    assert len({all_fresh.submit(deeds.pid).result(CAP_S) for _ in range(4)}) == 4


def test_fresh_jobs_among_others(pool):
    ex = pool(2)
    fresh = ex.options(fresh=True)
    futures = [(fresh if i % 5 == 0 else ex).submit(deeds.pid) for i in range(40)]
    pids = [f.result(CAP_S) for f in futures]
    mine = pids[::5]
    others = {p for i, p in enumerate(pids) if i % 5}
    assert len(set(mine)) == 8
    assert not others & set(mine)


def test_max_tasks_per_child(pool):
    ex = pool(1, max_tasks_per_child=10)
    pids = [f.result(CAP_S) for f in [ex.submit(deeds.pid) for _ in range(100)]]
    counts = {pid: pids.count(pid) for pid in pids}
    assert set(counts.values()) == {10}


@pytest.mark.parametrize("context", [None, "spawn"])
def test_the_initializer_runs_once_in_each_worker(pool, context):
    ex = pool(2, context, initializer=deeds.remember, initargs=("here",))
    futures = [ex.submit(deeds.remembered) for _ in range(20)]
    assert {str(f.result(CAP_S)) for f in futures} == {"['here']"}


@pytest.mark.parametrize("context", [None, "spawn"])
def test_an_initializer_that_fails_breaks_the_pool_with_its_text(pool, context):
    ex = pool(2, context, initializer=deeds.refuse, initargs=("no model here",), restart_intensity=(2, 60))
    future = ex.submit(deeds.double, 1)
    error = future.exception(CAP_S)
    assert isinstance(error, PoolBroken)
    assert not error.pool_usable
    assert "no model here" in str(error)
    assert "in refuse" in str(error)
    with pytest.raises(PoolBroken):
        ex.submit(deeds.double, 1)
    within(10, ex.shutdown)


def test_workers_that_die_at_their_start_break_the_pool(pool):
    ex = pool(2, initializer=deeds.die_at_start, restart_intensity=(3, 60))
    assert isinstance(ex.submit(deeds.double, 1).exception(CAP_S), PoolBroken)
    within(10, ex.shutdown)


def test_a_worker_that_is_not_ready_in_time(pool):
    ex = pool(1, initializer=time.sleep, initargs=(60,), start_timeout=0.1, restart_intensity=(1, 60))
    error = ex.submit(deeds.double, 1).exception(CAP_S)
    assert isinstance(error, PoolBroken)


@pytest.mark.parametrize("context", [None, "spawn"])
def test_preload_is_imported_before_the_job(pool, tmp_path, monkeypatch, context):
    (tmp_path / "preloaded_by_test.py").write_text("VALUE = 1\n")
    monkeypatch.syspath_prepend(tmp_path)
    ex = pool(1, context, preload=["deeds", "preloaded_by_test"])
    assert ex.submit(deeds.is_imported, "preloaded_by_test").result(CAP_S)


def test_a_preload_that_raises_breaks_the_pool_with_its_traceback(pool, tmp_path, monkeypatch):
    (tmp_path / "broken_preload.py").write_text("def f():\n    raise RuntimeError('no library')\nf()\n")
    monkeypatch.syspath_prepend(tmp_path)
    ex = pool(1, preload=["broken_preload"])
    error = ex.submit(deeds.double, 1).exception(CAP_S)
    assert isinstance(error, PoolBroken)
    assert "no library" in str(error)
    assert "broken_preload.py" in str(error)
    within(10, ex.shutdown)


def test_a_preload_that_kills_the_warden(pool, tmp_path, monkeypatch):
    (tmp_path / "deadly_preload.py").write_text("import os\nos._exit(3)\n")
    monkeypatch.syspath_prepend(tmp_path)
    ex = pool(1, preload=["deadly_preload"])
    error = ex.submit(deeds.double, 1).exception(CAP_S)
    assert isinstance(error, PoolBroken)
    assert "status 3" in str(error)


def test_contexts(pool):
    import multiprocessing

    assert pool(1, multiprocessing.get_context("spawn")).submit(deeds.double, 1).result(CAP_S) == 2
    assert pool(1, "forkserver").submit(deeds.double, 1).result(CAP_S) == 2
    for fork in ("fork", multiprocessing.get_context("fork")):
        with pytest.raises(InvalidOption, match="locked for ever"):
            Executor(1, fork)


@pytest.mark.parametrize(
    ("argument", "value", "error", "words"),
    [
        ("mp_context", 3, InvalidType, "context of multiprocessing"),
        ("mp_context", "thread", InvalidOption, "'forkserver' or 'spawn'"),
        ("initializer", 3, InvalidType, "callable"),
        ("initargs", 3, InvalidType, "a tuple, not int"),
        ("preload", "numpy", InvalidType, "not one text"),
        ("preload", 3, InvalidType, "a list of module names"),
        ("preload", ["numpy", 3], InvalidType, "a name in preload must be text"),
        ("capture", "te", InvalidOption, "'tee', True or False"),
        ("capture", 0, InvalidOption, "'tee', True or False"),
        ("fresh", "yes", InvalidType, "True or False"),
        ("name", "", InvalidOption, "1 to 1000 characters"),
        ("backend", "dask://host:8786", InvalidOption, "must be 'local'"),
        ("name", 3, InvalidType, "must be text"),
        ("restart_intensity", 3, InvalidType, "number of deaths, seconds"),
        ("options", {"timeout": 5}, InvalidType, "Options(...)"),
        ("options", Options(args=(1,)), InvalidOption, "args belongs to a task"),
        ("options", Options(kwargs={"a": 1}), InvalidOption, "kwargs belongs to a task"),
    ],
)
def test_constructing_refuses_what_can_never_be_right(argument, value, error, words):
    with pytest.raises(error, match=re.escape(words)):
        Executor(**{argument: value})


def test_what_a_prompt_shows():
    with Executor(2, name="night") as ex:
        assert repr(ex) == "<Executor night, running, 2 workers>"
        assert repr(ex.options(timeout=5)) == "<view of night, running, Options(timeout=5)>"
    assert repr(ex) == "<Executor night, stopped, 2 workers>"


@pytest.mark.parametrize("what", ["cwd", "env", "umask", "mask", "timer"])
def test_what_a_job_leaves_changed_is_set_back(pool, tmp_path, what):
    ex = pool(1, spares=0)
    clean = ex.submit(deeds.facts).result(CAP_S)
    spoilt, after = ex.submit(deeds.spoil, what, str(tmp_path)), ex.submit(deeds.facts)
    assert spoilt.result(CAP_S) != clean
    assert after.result(CAP_S) == clean
    assert os.getcwd() in clean


def test_each_job_begins_in_the_programs_directory(pool, tmp_path):
    ex = pool(1, spares=0)
    gone = tmp_path / "gone"
    gone.mkdir()
    assert ex.submit(deeds.leave_removed_directory, str(gone)).result(CAP_S) is None
    assert ex.submit(os.getcwd).result(CAP_S) == os.getcwd()


# ---- refusals


def test_an_unpicklable_part_is_named(pool):
    ex = pool(1)
    lock = threading.Lock()
    for args, kwargs, part in [
        ((1, lock), {}, "argument 2"),
        ((), {"x": [lock]}, "keyword x"),
        ((lock,), {}, "argument 1"),
    ]:
        future = ex.submit(deeds.same, *args, **kwargs)
        assert future.done()
        outcome, error = future.outcome(), future.exception()
        assert (outcome.status, outcome.attempts) == ("not_picklable", 0)
        assert part in outcome.error
        assert isinstance(error, NotPicklable)
        assert isinstance(error, pickle.PicklingError)
        assert error.part == part
        assert "lock" in str(error)
    closure = ex.submit(lambda: 1)
    if closure.done() and not closure.outcome().ok:  # cloudpickle may be installed
        assert closure.exception().part == "function"


def test_a_future_born_failed_runs_its_callbacks(pool):
    ex = pool(1)
    future = ex.submit(deeds.same, threading.Lock())
    seen = []
    future.add_done_callback(seen.append)
    assert seen == [future]
    assert cf.wait([future], 0).done == {future}
    assert list(cf.as_completed([future], 0)) == [future]
    assert ex.submit(deeds.same, future).outcome(CAP_S).status == "dependency"


def test_max_pending_blocks(pool, gate, tmp_path):
    ex = pool(1, max_pending=3)
    log = tmp_path / "log"
    for i in range(3):
        ex.submit(deeds.gated, str(log), gate.path, i)
    late = []
    thread = threading.Thread(target=lambda: late.append(ex.submit(deeds.double, 4)))
    thread.start()
    thread.join(0.1)
    assert thread.is_alive()
    gate.open()
    thread.join(CAP_S)
    assert not thread.is_alive()
    gate.open(2)
    assert late[0].result(CAP_S) == 8


def test_max_pending_raises_where_blocking_would_freeze(pool, gate, tmp_path):
    ex = pool(1, max_pending=1)
    log = tmp_path / "log"

    async def in_a_loop():
        with pytest.raises(QueueFull):
            ex.submit(deeds.double, 1)

    running = ex.submit(deeds.gated, str(log), gate.path, 1)
    asyncio.run(in_a_loop())
    seen = []

    def callback(_):
        ex.submit(deeds.nap, 0.1)
        try:
            ex.submit(deeds.double, 1)
        except QueueFull as error:
            seen.append(error)

    running.add_done_callback(callback)
    gate.open()
    assert running.result(CAP_S) == 1
    assert ex.drain(CAP_S)
    assert len(seen) == 1
    assert [ex.submit(deeds.double, i).result(CAP_S) for i in range(20)] == [2 * i for i in range(20)]


@pytest.mark.parametrize("how", ["shutdown", "kill_workers", "cancel"])
def test_whoever_waits_for_room_is_woken(pool, gate, tmp_path, how):
    ex = pool(1, max_pending=1)
    log = tmp_path / "log"
    running = ex.submit(deeds.gated, str(log), gate.path, 1)
    wait_for_lines(log, 1)
    ended = []

    def submit():
        try:
            ended.append(ex.submit(deeds.double, 4).outcome(CAP_S).status)
        except (ExecutorClosed, cf.CancelledError) as error:
            ended.append(type(error))

    thread = threading.Thread(target=submit)
    thread.start()
    thread.join(0.05)
    if how == "cancel":
        running.cancel()
    elif how == "kill_workers":
        ex.kill_workers()
    else:
        ex.shutdown(wait=False)
        gate.open()
    thread.join(CAP_S)
    assert not thread.is_alive()
    assert ended[0] in ({"cancel": ["succeeded"]}.get(how, [ExecutorClosed, "succeeded", "cancelled"]))
    ex.shutdown()


# ---- sight


def test_status_counts(pool, gate, tmp_path):
    ex = pool(1)
    log = tmp_path / "log"
    running = ex.submit(deeds.gated, str(log), gate.path, 1)
    wait_for_lines(log, 1)
    ready = ex.submit(deeds.double, 1)
    ex.options(after=running).submit(deeds.double, 1)
    delayed = ex.options(start_time="1h").submit(deeds.double, 1)
    until(lambda: ex.status().unsettled == 4 and not ex._pool.inbox, "their acceptance")
    status = until(lambda: (s := ex.status()).waiting + s.delayed + s.ready + s.running == 4 and s, "the numbers")
    assert (status.state, status.waiting, status.delayed, status.ready, status.running) == ("running", 1, 1, 1, 1)
    assert status.workers >= 1
    gate.open()
    assert ready.result(CAP_S) == 2
    delayed.cancel()
    assert ex.drain(CAP_S)
    assert ex.status()[1:6] == (0, 0, 0, 0, 0)


def test_metrics_count_each_end_once(pool, gate, tmp_path):
    ex = pool(1)
    log = tmp_path / "log"
    before = ex.metrics()
    assert {number for name, number in before.items()} == {0.0}
    running = ex.submit(deeds.gated, str(log), gate.path, 1)
    wait_for_lines(log, 1)
    behind = [ex.options(after=running).submit(deeds.double, i) for i in range(3)]
    assert behind[0].cancel()
    now = until(lambda: (m := ex.metrics())["jobs_running"] == 1 and m, "the numbers")
    assert (now["jobs_submitted_total"], now["jobs_unsettled"], now["jobs_cancelled_total"]) == (4, 3, 1)
    gate.open()
    assert ex.submit(deeds.fail, "x").outcome(CAP_S).status == "failed"
    assert ex.submit(deeds.crash, "abort").outcome(CAP_S).status == "crashed"
    assert ex.submit(deeds.double, threading.Lock()).outcome(CAP_S).status == "not_picklable"
    assert ex.submit(time.sleep, 0.05).outcome(CAP_S).ok
    assert ex.join(CAP_S)
    ex.shutdown()
    after = ex.metrics()
    ends = {name: number for name, number in after.items() if name.startswith("jobs_") and number}
    assert ends == {
        "jobs_submitted_total": 8, "jobs_settled_total": 8, "jobs_succeeded_total": 4, "jobs_failed_total": 1,
        "jobs_crashed_total": 1, "jobs_not_picklable_total": 1, "jobs_cancelled_total": 1,
    }  # fmt: skip
    assert after["attempts_answered_total"] == 5
    assert 0.05 < after["attempt_seconds_total"] < CAP_S
    assert after["workers_started_total"] >= 2
    assert all(type(number) is float for number in after.values())
    assert set(after) == set(METRICS) | {f"jobs_{status}_total" for status in Status}


def test_story_tells_a_jobs_life(pool):
    ex = pool(1)
    future = ex.options(name="unlucky", retries=1).submit(deeds.crash, "abort")
    assert future.outcome(CAP_S).attempts == 2
    assert ex.drain(CAP_S)
    story = ex.story(future)
    assert [event.what for event in story] == [
        "submitted", "sent", "worker died", "postponed", "sent", "worker died", "crashed",
    ]  # fmt: skip
    assert {event.name for event in story} == {"unlucky"}
    assert [event.at for event in story] == sorted(event.at for event in story)


def test_subscribe_tells_everything_in_order_until_closed(pool):
    ex = pool(1)
    seen = []
    with ex.subscribe(seen.append):
        assert ex.options(name="a").submit(deeds.double, 1).result(CAP_S) == 2
        assert ex.drain(CAP_S)
    assert ex.options(name="b").submit(deeds.double, 1).result(CAP_S) == 2
    assert ex.drain(CAP_S)
    assert [(event.name, event.what) for event in seen] == [
        ("a", what) for what in ("submitted", "sent", "answered", "succeeded")
    ]


def test_subscribe_names_what_ends_at_once(pool):
    ex = pool(1)
    failed = ex.submit(deeds.fail)
    assert failed.exception(CAP_S)
    seen = []
    with ex.subscribe(seen.append):
        assert ex.options(name="c").submit(deeds.double, failed).outcome(CAP_S).status == "dependency"
        assert ex.drain(CAP_S)
    assert [(event.name, event.what) for event in seen] == [("c", "submitted"), ("c", "dependency")]


def test_an_observer_that_raises_harms_nobody(pool, caplog):
    ex = pool(1)
    with caplog.at_level(logging.CRITICAL), ex.subscribe(lambda event: 1 / 0):
        assert ex.submit(deeds.double, 1).result(CAP_S) == 2
        assert ex.drain(CAP_S)


def test_callbacks_run_in_order_of_settling_on_a_thread_of_their_own(pool):
    ex = pool(1)
    ran = []
    futures = [ex.submit(deeds.double, i) for i in range(500)]
    for future in futures:
        future.add_done_callback(lambda f: ran.append((f.result(), threading.get_ident())))
    assert ex.drain(CAP_S)
    here, loop = threading.get_ident(), ex._pool.thread.ident
    assert {i for _, i in ran} - {here} == {i for _, i in ran if i not in (here, loop)}
    in_order = [value for value, thread in ran if thread != here]
    assert in_order == sorted(in_order)
    assert sorted(value for value, _ in ran) == [2 * i for i in range(500)]


def test_a_callback_that_raises_is_logged_and_the_next_one_runs(pool, caplog):
    ex = pool(1)
    seen = []
    future = ex.submit(deeds.nap, 0.1)
    future.add_done_callback(lambda f: 1 / 0)
    future.add_done_callback(seen.append)
    assert ex.drain(CAP_S)
    assert seen == [future]
    assert "exception calling callback" in caplog.text
    caplog.clear()  # the record holds the traceback, and that the pool


@pytest.mark.parametrize("error", [SystemExit, KeyboardInterrupt, asyncio.CancelledError])
def test_whatever_a_callback_raises_the_next_one_runs(pool, caplog, error):
    ex = pool(1)
    seen = []

    def raise_it(_: object) -> None:
        raise error

    future = ex.submit(deeds.nap, 0.1)
    future.add_done_callback(raise_it)
    future.add_done_callback(seen.append)
    assert ex.drain(CAP_S)
    assert seen == [future]
    caplog.clear()


def test_a_slow_callback_delays_no_kill(pool, tmp_path):
    ex = pool(1)
    hold = threading.Event()
    ex.submit(deeds.double, 1).add_done_callback(lambda f: hold.wait(CAP_S))
    future = ex.options(timeout=0.1).submit(deeds.hang, "native", str(tmp_path / "log"))
    assert future.outcome(5).status == "timeout"
    hold.set()


def test_wait_and_as_completed(pool, gate, tmp_path):
    ex = pool(2)
    slow = ex.submit(deeds.gated, str(tmp_path / "log"), gate.path, "slow")
    bad, good = ex.submit(deeds.fail), ex.submit(deeds.double, 1)
    done = cf.wait([slow, bad], CAP_S, cf.FIRST_EXCEPTION).done
    assert done == {bad}
    assert good in cf.wait([slow, good], CAP_S, cf.FIRST_COMPLETED).done
    order = cf.as_completed([slow, bad, good], CAP_S)
    assert {next(order), next(order)} == {bad, good}
    gate.open()
    assert next(order) is slow
    with pytest.raises(TimeoutError):
        list(cf.as_completed([ex.submit(deeds.nap, 0.3)], 0.01))
    futures = [ex.submit(deeds.double, i) for i in range(2_000)]
    assert sorted(f.result() for f in cf.as_completed(futures, CAP_S)) == [2 * i for i in range(2_000)]


def test_asyncio(pool, tmp_path):
    ex = pool(2)
    log = tmp_path / "log"

    async def main():
        loop = asyncio.get_running_loop()
        assert await loop.run_in_executor(ex, deeds.double, 2) == 4
        assert await ex.submit(deeds.double, 3) == 6
        assert await asyncio.wrap_future(ex.submit(deeds.double, 4)) == 8
        assert await asyncio.gather(*(ex.submit(deeds.double, i) for i in range(100))) == [2 * i for i in range(100)]
        with pytest.raises(ValueError, match="no"):
            await ex.submit(deeds.fail)
        waiting = asyncio.ensure_future(_awaited(ex.submit(deeds.hang, "native", str(log))))
        pid = int((await asyncio.to_thread(wait_for_lines, log, 1))[0].split()[0])
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        return pid

    wait_gone([asyncio.run(main())], 1)
    assert ex.submit(deeds.double, 1).result(CAP_S) == 2


async def _awaited(future):
    return await future


# ---- output


@pytest.mark.parametrize("capture", ["tee", True, False])
def test_output(capture):
    program = f"""
import deeds
from ptss_mp import Executor
with Executor(1, capture={capture!r}) as ex:
    future = ex.submit(print, "told")
    outcome = future.outcome()
print(repr(outcome.stdout), repr(outcome.stderr))
"""
    done = run_program(program)
    if capture == "tee":
        assert done.stdout == "told\n'told\\n' ''\n"
    elif capture is True:
        assert done.stdout == "'told\\n' ''\n"
    else:
        assert done.stdout == "told\nNone None\n"


def test_each_jobs_output_is_its_own(pool):
    ex = pool(2, capture=True)
    futures = [ex.submit(print, i, i * "x") for i in range(400)]
    for i, future in enumerate(futures):
        assert future.outcome(CAP_S).stdout == f"{i} {i * 'x'}\n"


def test_the_first_line_of_a_silent_function_is_told(pool):
    """After a hundred silent runs output is looked at once per flush, but Python says when it prints."""
    ex = pool(1, capture=True)
    futures = [ex.submit(deeds.speaks_at, i, 1_500) for i in range(2_000)]
    outputs = [f.outcome(CAP_S).stdout for f in futures]
    assert outputs == ["1500\n" if i == 1_500 else "" for i in range(2_000)]


def speaks_natively_at(number: int, which: int) -> None:
    if number == which:
        os.write(1, b"native\n")


@pytest.mark.parametrize("which", [700, 999])
def test_what_native_code_prints_is_never_lost(pool, capsys, which):
    """Python is not asked, so a later job tells it; or the worker's end, if there is none."""
    ex = pool(1)
    for number in range(1_000):
        ex.submit(speaks_natively_at, number, which)
    ex.shutdown()
    assert capsys.readouterr().out == "native\n"


# ---- outcomes


def test_an_outcome_has_the_facts(pool):
    ex = pool(1)
    future = ex.options(name="facts", deadline=30).submit(deeds.nap, 0.05)
    outcome = future.outcome(CAP_S)
    assert outcome.ok
    assert outcome.result() == 0.05
    assert outcome.exception() is None
    assert 0.05 <= outcome.wall_time < 5
    assert outcome.submitted <= outcome.released <= outcome.started <= outcome.finished < outcome.deadline
    assert (outcome.finished - outcome.started).total_seconds() == pytest.approx(outcome.wall_time, abs=1e-5)
    assert (outcome.attempts, outcome.tardiness, outcome.resumed) == (1, 0.0, False)
    assert outcome.worker_pid == future.worker_pid
    assert outcome == future.outcome()
    copy = pickle.loads(pickle.dumps(outcome))
    assert copy == outcome
    assert copy.result() == 0.05
    assert all(type(f.outcome().worker_pid) is int for f in [future])


@pytest.mark.parametrize(("code", "told"), [(3, 3), (1 << 80, (1 << 31) - 1), (-(1 << 80), 1 - (1 << 31))])
def test_whatever_a_job_exits_with_its_worker_lives_on(pool, code, told):
    ex = pool(1, spares=0)
    pid = ex.submit(deeds.pid).result(CAP_S)
    outcome = ex.submit(deeds.leave_with, code).outcome(CAP_S)
    assert (outcome.status, outcome.exit_code) == ("failed", told)
    assert ex.submit(deeds.pid).result(CAP_S) == pid


def test_a_text_that_speaks_of_main_is_no_reference_to_it(tmp_path):
    """A script without a guard, whose functions live elsewhere, may send any text."""
    script = tmp_path / "unguarded.py"
    script.write_text("""\
import deeds
from ptss_mp import Executor
print(__name__, flush=True)
with Executor(1) as ex:
    text = "if __name__ == '__main__':"
    print(ex.submit(deeds.same, [text]).result(30) == [text])
    ex.submit(deeds.nap, 0.5).result(30)
    print(ex.submit(deeds.same, text).result(30) == text)
""")
    path = os.pathsep.join([os.path.dirname(__file__), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, script],
        env=os.environ | {"PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=CAP_S,
        check=False,
    )
    assert (done.stdout, done.stderr) == ("__main__\nTrue\nTrue\n", "")


def test_a_result_that_only_this_program_cannot_decode(pool, monkeypatch):
    """The job did succeed; each ask tells why it cannot be had here."""
    ex = pool(1)
    future = ex.submit(deeds.bad_result_here, os.getpid())
    assert future.outcome(CAP_S).ok
    for ask in (future.result, future.result):
        with pytest.raises(cf.process.BrokenProcessPool, match="cannot be decoded here"):
            ask()
    assert future.exception() is not None
    assert ex.submit(deeds.same, future).result is not None


def test_a_job_that_sends_itself_sigint_goes_on(pool):
    ex = pool(1)
    assert ex.submit(deeds.signals_itself, signal.SIGINT).result(CAP_S) == "alive"
    assert ex.submit(deeds.signals_itself, signal.SIGTERM).outcome(CAP_S).signal == signal.SIGTERM


def test_what_a_cancelled_job_had_come_to_is_told(pool, gate, tmp_path):
    ex = pool(1)
    [f.result(CAP_S) for f in [ex.submit(deeds.gate_or_not, None) for _ in range(1_000)]]  # sent in twos now
    log = tmp_path / "log"
    running = ex.submit(deeds.gated, str(log), gate.path, "running")
    wait_for_lines(log, 1)
    waiting = ex.submit(deeds.gate_or_not, None)
    assert waiting.cancel()  # first: it would start when the other is gone
    assert running.cancel()
    outcome = running.outcome(0)
    assert outcome.attempts == 1
    assert outcome.started is not None
    assert outcome.wall_time > 0
    assert (waiting.outcome(0).attempts, waiting.outcome(0).started) == (0, None)


def test_a_future_of_the_standard_library_is_refused(pool):
    with pytest.raises(InvalidType, match="another executor"):
        pool(1).submit(deeds.double, cf.Future())
