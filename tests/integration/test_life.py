"""Life (API section 3): start, pause, drain, join, serve, and what a name stands for after its job."""

from __future__ import annotations

import copy
import gc
import inspect
import os
import signal
import threading
import weakref

import deeds
import pytest
from support import CAP_S, until, wait_for_lines, within

from ptss_mp import DeadlineMissed, Executor, ExecutorClosed, InvalidOption, NotPicklable
from ptss_mp import pool as pools
from ptss_mp.pool import State

SIGNALS = {signal.SIGINT: 130, signal.SIGTERM: 143, signal.SIGHUP: 129}
OWN_VERBS = ("start", "pause", "stop", "terminate_workers", "kill_workers")


# ---- start, pause, views


def test_start_may_be_called_again_until_the_end(pool):
    ex = pool(1)
    assert ex.start() is ex
    thread = ex._pool.thread
    assert ex.start() is ex
    with ex as entered:
        assert entered is ex
        assert ex._pool.thread is thread
        assert ex.submit(deeds.double, 1).result(CAP_S) == 2
        assert ex._pool.wardens == 1
    with pytest.raises(ExecutorClosed):
        ex.start()
    with pytest.raises(ExecutorClosed):
        ex.__enter__()


def test_pause_and_resume_start_nothing(pool):
    ex = pool(1)
    threads = threading.active_count()
    ex.pause()
    assert (ex.state, threading.active_count()) == (State.INITIALIZED, threads)
    ex.resume()
    assert (ex.state, threading.active_count()) == (State.INITIALIZED, threads)
    assert ex.submit(deeds.double, 1).result(CAP_S) == 2


def test_a_pool_that_was_paused_before_its_start_is_paused_from_then_on(pool):
    ex = pool(1)
    ex.pause()
    assert ex.start().state is State.PAUSED
    future = ex.submit(deeds.double, 1)
    until(lambda: ex.status().ready == 1, "its acceptance")
    assert not ex.join(0.05)
    assert not future.running()
    ex.options(priority=1).resume()
    assert future.result(CAP_S) == 2


@pytest.mark.parametrize("verb", OWN_VERBS)
def test_verbs_of_the_whole_pool_are_refused_on_a_view(pool, verb):
    ex = pool(1)
    view = ex.options(priority=1).options(timeout=9)
    assert callable(getattr(view, verb))
    with pytest.raises(TypeError, match=rf"{verb}\(\) concerns the whole pool"):
        getattr(view, verb)()
    with pytest.raises(TypeError, match="on the Executor itself"):
        getattr(view, verb)(1, grace=2)
    assert ex.state is State.INITIALIZED


def test_a_view_can_be_looked_at_and_copied(pool):
    ex = pool(1)
    view = ex.options(priority=1)
    assert set(OWN_VERBS) <= set(dir(view))
    assert {name for name, _ in inspect.getmembers(view)} >= set(OWN_VERBS)
    assert not hasattr(view, "no_such_thing")
    twin = copy.copy(view)
    assert twin.submit(deeds.double, 1).result(CAP_S) == 2
    assert view.drain(CAP_S)
    assert view.join(CAP_S)
    twin.shutdown()
    with pytest.raises(ExecutorClosed):  # they are one view
        view.submit(deeds.double, 1)
    assert ex.submit(deeds.double, 2).result(CAP_S) == 4


def test_a_stop_in_the_midst_of_a_start_stays_one(pool, monkeypatch):
    """A signal handler may run between any two instructions of `start`."""
    ex = pool(1)
    start = ex._pool.callbacks.start
    monkeypatch.setattr(ex._pool.callbacks, "start", lambda rested: (ex._stop(0), start(rested)))
    with pytest.raises(ExecutorClosed):
        ex.start()
    within(CAP_S, ex.shutdown)
    assert ex.state is State.STOPPED


# ---- drain and join


def test_join_waits_for_what_is_not_released_yet_and_closes_nothing(pool):
    ex = pool(1)
    assert ex.join(0)
    later = ex.options(start_time="400ms").submit(deeds.double, 1)
    assert ex.submit(deeds.double, 1).result(CAP_S) == 2
    assert ex.drain(CAP_S)
    assert not later.done()
    assert not ex.join(0.01)
    assert ex.join(CAP_S)
    assert later.result(0) == 2
    assert ex.submit(deeds.double, 2).result(CAP_S) == 4
    ex.shutdown()
    assert ex.join(0)
    assert ex.drain(0)


def test_join_from_many_threads(pool, gate):
    ex = pool(2)
    future = ex.submit(deeds.gate, gate.path)
    joined = []
    threads = [threading.Thread(target=lambda: joined.append((ex.join(CAP_S), future.done()))) for _ in range(8)]
    for thread in threads:
        thread.start()
    assert not ex.join(0.05)
    assert joined == []
    gate.open()
    for thread in threads:
        thread.join(CAP_S)
    assert joined == [(True, True)] * 8


@pytest.mark.parametrize("verb", ["drain", "join"])
def test_callbacks_that_submit_are_waited_for(pool, verb):
    """Regression: drain returned between a job's end and the job that its callback was about to submit."""
    ex = pool(1)
    for _ in range(30):
        seen = []

        def follow(future, seen=seen):
            seen.append(future.result())
            if future.result() < 1 << 6:
                ex.submit(deeds.double, future.result()).add_done_callback(follow)

        ex.submit(deeds.double, 1).add_done_callback(follow)
        assert getattr(ex, verb)(CAP_S)
        assert seen == [2, 4, 8, 16, 32, 64]


@pytest.mark.parametrize("verb", ["drain", "join"])
def test_a_callback_may_not_wait_for_itself(pool, gate, verb):
    ex = pool(1)
    told = []

    def inside(_future):
        with pytest.raises(RuntimeError, match=rf"{verb}\(\) inside a done-callback"):
            getattr(ex, verb)()
        told.append(verb)

    ex.submit(deeds.gate, gate.path).add_done_callback(inside)  # not ended yet: it will run on the callback thread
    gate.open()
    assert getattr(ex, verb)(CAP_S)
    assert told == [verb]


def test_drain_counts_what_is_released_and_no_more(pool):
    """Regression: it waited for jobs with open prerequisites whose own start time had not come either."""
    ex = pool(1)
    first = ex.options(start_time="1h").submit(deeds.double, 1)
    second = ex.options(start_time="2h").submit(deeds.double, first)
    assert ex.submit(deeds.double, 1).result(CAP_S) == 2
    assert ex.drain(CAP_S)
    released = ex.submit(deeds.double, first)  # at once, though it has to wait
    assert not ex.drain(0.05)
    released.cancel()
    assert ex.drain(CAP_S)
    assert not second.done()
    assert first.cancel()
    assert second.outcome(CAP_S).status == "dependency"
    assert ex.join(CAP_S)


def test_drain_waits_for_a_pause_between_two_attempts(pool, tmp_path):
    ex = pool(1)
    future = ex.options(retries=1).submit(deeds.fail_until, str(tmp_path / "log"), 2)
    until(lambda: future.running() and ex.status().delayed, "the pause")
    assert not ex.drain(0.05)
    assert ex.drain(CAP_S)
    assert future.result(0) == 2


@pytest.mark.parametrize("how", ["executor", "view"])
def test_shutdown_leaves_a_job_that_pauses_between_two_attempts(pool, tmp_path, how):
    """Regression: `cancel_futures` cancelled it, though it had started."""
    ex = pool(1)
    view = ex.options(retries=1)
    future = view.submit(deeds.fail_until, str(tmp_path / "log"), 2)
    behind = view.submit(deeds.double, future)
    until(lambda: future.running() and ex.status().delayed, "the pause")
    within(CAP_S, lambda: (ex if how == "executor" else view).shutdown(cancel_futures=True))
    assert future.result(0) == 2
    assert behind.cancelled()


# ---- names


class Unpicklable:
    def __reduce__(self):
        raise ValueError("never")


ENDS = {
    "succeeds": ("succeeded", None),
    "fails": ("dependency", ValueError),
    "fails with much to say": ("dependency", None),
    "is cancelled": ("dependency", None),
    "misses its deadline": ("dependency", DeadlineMissed),
    "cannot be sent": ("dependency", NotPicklable),
}


@pytest.mark.parametrize("end", ENDS)
def test_a_name_stands_for_its_job_also_when_its_future_is_gone(pool, end):
    """Regression: `after="name"` was refused once nobody held the Future of a settled job."""
    ex = pool(1)
    named = ex.options(name="first")
    if end == "succeeds":
        assert named.submit(deeds.double, 1).result(CAP_S) == 2
    elif end == "fails":
        named.submit(deeds.fail).exception(CAP_S)
    elif end == "fails with much to say":
        named.submit(deeds.fail, "x" * 100_000).exception(CAP_S)
    elif end == "is cancelled":
        named.submit(deeds.nap, 60).cancel()
    elif end == "misses its deadline":
        assert named.options(deadline=0.1).submit(deeds.nap, 60).exception(CAP_S)
    else:
        named.submit(deeds.double, Unpicklable())
    assert ex.drain(CAP_S)
    until(lambda: "first" not in ex._pool.names, "end of its Future")
    future = ex.options(after="first").submit(deeds.double, 4)
    status, cause = ENDS[end]
    outcome = future.outcome(CAP_S)
    assert (outcome.status, outcome.root) == (status, None if status == "succeeded" else "first")
    if cause:
        assert isinstance(future.exception().__cause__, cause)
    assert ex.options(after=["first"], run_if="done").submit(deeds.double, 4).result(CAP_S) == 8
    ex.shutdown()


def test_what_is_remembered_of_a_job_holds_nothing_of_the_program(pool):
    ex = pool(1)
    payload = Unpicklable()
    gone = weakref.ref(payload)
    ex.options(name="first").submit(deeds.double, payload)
    del payload
    gc.collect()
    assert gone() is None
    assert ex.options(after="first").submit(deeds.double, 4).outcome(CAP_S).root == "first"


def test_a_name_stands_for_its_latest_job(pool):
    ex = pool(1)
    assert ex.options(name="n").submit(deeds.fail).exception(CAP_S)
    assert ex.options(after="n").submit(deeds.double, 1).outcome(CAP_S).status == "dependency"
    assert ex.options(name="n").submit(deeds.double, 1).result(CAP_S) == 2
    assert ex.options(after="n").submit(deeds.double, 1).outcome(CAP_S).status == "succeeded"
    with pytest.raises(InvalidOption, match="no job named 'm'"):
        ex.options(after="m").submit(deeds.double, 1)


def test_names_are_remembered_within_a_bound_and_without_values(pool, monkeypatch):
    monkeypatch.setattr(pools, "NAMES_MAX", 3)
    ex = pool(1)
    for i in range(6):
        assert ex.options(name=f"n{i}").submit(deeds.sized, 100_000).result(CAP_S)
    assert ex.drain(CAP_S)
    kept = ex._pool.ended_names
    assert sorted(kept) == ["n3", "n4", "n5"]
    assert len(ex._pool.ended_order) == 3
    assert all(future._result is None for future in kept.values())
    with pytest.raises(InvalidOption):
        ex.options(after="n0").submit(deeds.double, 1)


# ---- serve


def test_serve_needs_the_main_thread(pool):
    ex = pool(1)
    with pytest.raises(RuntimeError, match="main thread"):
        within(CAP_S, ex.serve)
    with pytest.raises(InvalidOption):
        ex.serve(grace=-1)
    assert ex.state is State.INITIALIZED


def test_serve_starts_waits_and_restores(pool):
    ex = pool(1)
    before = [signal.getsignal(number) for number in SIGNALS]
    assert ex.serve() == 0
    assert ex.state is State.RUNNING
    later = ex.options(start_time="200ms").submit(deeds.double, 1)
    assert ex.serve() == 0
    assert later.done()
    assert ex.submit(deeds.double, 1).result(CAP_S) == 2
    assert [signal.getsignal(number) for number in SIGNALS] == before
    ex.shutdown()
    with pytest.raises(ExecutorClosed):
        ex.serve()
    assert [signal.getsignal(number) for number in SIGNALS] == before


def succeeds(ex):
    ex.submit(deeds.double, 1)


def is_late(ex):
    ex.options(deadline=0.05, on_miss="finish").submit(deeds.nap, 0.2)


def is_in_time(ex):
    ex.options(deadline="1h", on_miss="finish").submit(deeds.nap, 0.01)


def misses(ex):
    missed = ex.options(deadline=0.1).submit(deeds.nap, 60)
    ex.submit(deeds.double, missed)


def is_skipped(ex):
    ex.options(after=ex.submit(deeds.double, 1), run_if="failure").submit(deeds.double, 1)


def fails(ex):
    ex.submit(deeds.fail)


def crashes(ex):
    ex.submit(deeds.crash, "exit 0")


def is_cancelled(ex):
    ex.submit(deeds.nap, 60).cancel()


def cannot_be_sent(ex):
    ex.submit(deeds.double, Unpicklable())


@pytest.mark.parametrize(
    ("jobs", "status"),
    [
        ((succeeds, is_in_time, is_skipped), 0),
        ((is_late,), 3),
        ((misses,), 3),
        ((fails,), 1),
        ((crashes,), 1),
        ((is_cancelled,), 1),
        ((cannot_be_sent,), 1),
        ((misses, succeeds, fails, is_late), 1),
    ],
    ids=lambda value: "+".join(job.__name__ for job in value) if isinstance(value, tuple) else str(value),
)
def test_serve_returns_the_exit_status_of_the_jobs(pool, jobs, status):
    ex = pool(2)
    for job in jobs:
        job(ex)
    assert ex.serve() == status


def test_serve_returns_1_when_the_pool_breaks(pool):
    ex = pool(1, initializer=deeds.refuse, initargs=("never",))
    ex.submit(deeds.double, 1)
    assert ex.serve() == 1


@pytest.mark.parametrize("number", SIGNALS)
def test_the_first_signal_stops(pool, gate, tmp_path, number):
    """What runs has the grace, nothing new starts; the handlers are back afterwards."""
    ex = pool(1)
    log = tmp_path / "log"
    before = signal.getsignal(number)
    running = ex.submit(deeds.gated, str(log), gate.path, 1)
    waiting = ex.submit(deeds.double, 1)
    later = ex.options(start_time="1h").submit(deeds.double, 1)
    helper = threading.Thread(target=_send_when_it_runs, args=(ex, log, [number], gate))
    helper.start()
    assert ex.serve(grace=CAP_S) == SIGNALS[number]
    helper.join()
    assert ex.state is State.STOPPED
    assert running.result(0) == 1
    assert waiting.cancelled()
    assert later.cancelled()
    assert signal.getsignal(number) == before


@pytest.mark.parametrize("number", SIGNALS)
def test_the_second_signal_kills(pool, gate, tmp_path, number):
    ex = pool(1)
    log = tmp_path / "log"
    running = ex.submit(deeds.gated, str(log), gate.path, 1)
    helper = threading.Thread(target=_send_when_it_runs, args=(ex, log, [number, signal.SIGTERM], None))
    helper.start()
    assert ex.serve(grace=600) == SIGNALS[number]
    helper.join()
    assert running.outcome(0).status == "interrupted"


def test_the_grace_of_serve_ends(pool, gate, tmp_path):
    ex = pool(1)
    log = tmp_path / "log"
    running = ex.submit(deeds.gated, str(log), gate.path, 1)
    helper = threading.Thread(target=_send_when_it_runs, args=(ex, log, [signal.SIGTERM], None))
    helper.start()
    assert ex.serve(grace=0.2) == 143
    helper.join()
    assert running.outcome(0).status == "interrupted"


def _send_when_it_runs(ex: Executor, log, numbers, gate) -> None:
    wait_for_lines(log, 1)
    until(lambda: signal.getsignal(numbers[0]) not in (signal.SIG_DFL, signal.default_int_handler), "serve")
    for number in numbers:
        os.kill(os.getpid(), number)
        until(lambda: ex.state is not State.RUNNING, "the stop")
    if gate is not None:
        gate.open()
