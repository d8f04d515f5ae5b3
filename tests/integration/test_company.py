"""Executors among others: side by side, from many threads, within jobs; signals to their processes."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import sys
import threading
from concurrent.futures import CancelledError, wait
from pathlib import Path

import deeds
import inner
import pytest
from programs import running
from support import CAP_S, Settled, lines, until, wait_for_lines, wait_gone, within

from ptss_mp.pool import State, cpus

CONTEXTS = pytest.mark.parametrize("context", [None, "spawn"])


# ---- within jobs


@CONTEXTS
@pytest.mark.parametrize("within_it", [None, "spawn", "forkserver"])
@pytest.mark.parametrize("kind", inner.KINDS)
def test_a_job_may_have_workers_of_its_own(pool, context, within_it, kind):
    if within_it == "forkserver" and kind.startswith("executor"):
        within_it = None  # the same thing there
    ex = pool(2, context, preload=["inner"])
    mine = ex.submit(inner.run, kind, within_it)
    others = [ex.submit(deeds.double, i) for i in range(8)]
    assert mine.result(CAP_S) == [0, 2, 4, 6]
    assert [f.result(CAP_S) for f in others] == [2 * i for i in range(8)]
    ex.shutdown()


@CONTEXTS
def test_the_workers_of_a_job_die_with_it(pool, context, tmp_path):
    ex = pool(2, context, preload=["inner"])
    log = tmp_path / "log"
    future = ex.submit(inner.hang_with_workers, str(log), context)
    told = wait_for_lines(log, 3)
    future.cancel()
    wait_gone([int(line.split()[0]) for line in told if line != "both"], 5)
    assert ex.submit(deeds.double, 4).result(CAP_S) == 8


def test_an_executor_in_a_job_shares_the_cpus(pool):
    assert pool(2).submit(inner.usable_cpus).result(CAP_S) == max(1, cpus() // 2)


# ---- side by side


def test_executors_that_feed_each_other(pool):
    """Callbacks of one submit to the next; each has its own workers, threads and end."""
    pools = [pool(1) for _ in range(4)]
    over, ends = threading.Event(), []

    def pass_on(future, at=0):
        ends.append(future.result())
        if len(ends) < 40:
            at = (at + 1) % len(pools)
            pools[at].submit(deeds.add, future.result(), 1).add_done_callback(lambda f: pass_on(f, at))
        else:
            over.set()

    pools[0].submit(deeds.add, 0, 0).add_done_callback(pass_on)
    assert over.wait(CAP_S)
    assert ends == list(range(40))
    for i, ex in enumerate(pools):
        ex.shutdown()
        assert [other.state for other in pools[i + 1 :]] == [State.RUNNING] * (len(pools) - i - 1)


def test_a_callback_may_call_everything_that_does_not_wait_for_it(pool, tmp_path):
    ex = pool(2)
    told = []

    def inside(future):
        view = ex.options(priority=1)
        told.append(view.submit(deeds.double, 1).result(CAP_S))
        told.append(list(ex.map(deeds.double, [1, 2])))
        running = ex.submit(deeds.nap, 60)
        told.append((running.cancel(), future.done(), ex.state))
        told.append((ex.status().running >= 0, len(ex.story(future)) > 0))
        ex.pause()
        ex.resume()
        view.shutdown()
        ex.shutdown()

    ex.submit(deeds.double, 1).add_done_callback(inside)
    until(lambda: len(told) == 4, "the callback")
    assert told == [2, [2, 4], (True, True, State.RUNNING), (True, True)]
    within(CAP_S, ex.shutdown)


def test_everything_from_many_threads_at_once(pool):
    ex = pool(2)
    settled, errors = Settled(), []
    lock = threading.Lock()

    def work(seed):
        chance = random.Random(seed)
        view = ex.options(priority=seed % 3)
        try:
            for i in range(60):
                kind = chance.randrange(6)
                if kind == 0:
                    assert list(view.map(deeds.double, range(5))) == [0, 2, 4, 6, 8]
                elif kind == 1:
                    with lock:
                        future = settled.watch(ex.submit(deeds.nap, 0.001))
                    future.cancel()
                elif kind == 2:
                    assert ex.drain(CAP_S)
                elif kind == 3:
                    ex.status(), ex.state, view.join(0.001)
                elif kind == 4:
                    with ex.options(timeout=30) as inner_view:
                        inner = inner_view.submit(deeds.double, i)
                    assert inner.result(0) == 2 * i
                else:
                    futures = [view.submit(deeds.double, k) for k in range(20)]
                    done, _ = wait(futures, CAP_S)
                    assert len(done) == 20
        except BaseException as error:  # told by the test
            errors.append(error)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not errors, errors
    assert not any(thread.is_alive() for thread in threads)
    assert ex.join(CAP_S)
    settled.check(ex)


# ---- a `with` that is left


class Odd(BaseException):
    pass


@pytest.mark.parametrize("error", [ValueError, MemoryError, GeneratorExit, asyncio.CancelledError, CancelledError, Odd])
@pytest.mark.parametrize("how", ["executor", "view"])
def test_a_with_that_is_left_by_an_exception_finishes(pool, tmp_path, error, how):
    ex = pool(1)
    log = tmp_path / "log"
    entered = ex if how == "executor" else ex.options(priority=1)

    def body():
        with entered as inside:
            inside.submit(deeds.nap, 0.05)
            inside.submit(deeds.note, str(log), "done")
            raise error()

    with pytest.raises(error):
        body()
    assert lines(log) == ["done"]
    assert (ex.state is State.STOPPED) == (how == "executor")


class Pressed(KeyboardInterrupt):
    pass


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit, Pressed])
@pytest.mark.parametrize("how", ["executor", "view"])
def test_a_with_that_is_left_by_what_ends_the_program_kills_its_own(pool, gate, tmp_path, error, how):
    ex = pool(2)
    log = tmp_path / "log"
    other = ex.submit(deeds.gate, gate.path) if how == "view" else None
    mine = []

    def body():
        with ex if how == "executor" else ex.options(priority=1) as inside:
            mine.append(inside.submit(deeds.gated, str(log), gate.path, 1))
            mine.append(inside.options(start_time="1h").submit(deeds.double, 1))
            wait_for_lines(log, 1)
            raise error()

    with pytest.raises(error):
        body()
    assert mine[0].outcome(CAP_S).status in ("interrupted", "cancelled")
    assert mine[1].cancelled()
    wait_gone([int(lines(log)[0].split()[2])], 5)
    if other is not None:
        assert not other.done()
        gate.open()
        assert other.outcome(CAP_S).ok


# ---- signals to our processes


@CONTEXTS
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_signals_to_the_warden_are_nothing(pool, gate, tmp_path, context, number):
    ex = pool(1, context)
    log = tmp_path / "log"
    future = ex.submit(deeds.gated, str(log), gate.path, 1)
    wait_for_lines(log, 1)
    os.kill(ex._pool.warden.process.pid, number)
    os.killpg(ex._pool.warden.process.pid, number)  # it leads a group; its workers have their own
    gate.open()
    assert future.result(CAP_S) == 1
    assert ex.submit(deeds.crash, "exit 3").outcome(CAP_S).exit_code == 3
    assert ex._pool.wardens == 1


@CONTEXTS
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGINT])
def test_signals_to_a_worker_concern_its_job_alone(pool, gate, tmp_path, context, number):
    ex = pool(1, context)
    log = tmp_path / "log"
    future = ex.submit(deeds.gated, str(log), gate.path, 1)
    pid = int(wait_for_lines(log, 1)[0].split()[2])
    assert os.getsid(pid) == pid
    os.kill(pid, number)
    if number == signal.SIGINT:  # a Ctrl-C that the job did not ask for
        gate.open()
        assert future.result(CAP_S) == 1
    else:
        outcome = future.outcome(CAP_S)
        assert (outcome.status, outcome.signal) == ("crashed", number)
    assert ex.submit(deeds.double, 4).result(CAP_S) == 8


def test_an_idle_worker_that_is_killed_costs_nothing(pool):
    ex = pool(1, spares=0)
    for number in (signal.SIGTERM, signal.SIGKILL, signal.SIGSEGV):
        pid = ex.submit(deeds.pid).result(CAP_S)
        os.kill(pid, number)
        until(lambda pid=pid: not Path(f"/proc/{pid}").exists(), "its end")
        assert ex.submit(deeds.double, 4).result(CAP_S) == 8


def test_cancel_stop_and_kill_from_a_signal_handler(pool, gate, tmp_path):
    """While the main thread is anywhere, also within `submit` and `result`."""
    ex = pool(1)
    log = tmp_path / "log"
    future = ex.submit(deeds.gated, str(log), gate.path, 1)
    wait_for_lines(log, 1)
    hits = []

    def handler(_number, _frame):
        hits.append(future.cancel())
        if len(hits) == 200:
            ex.kill_workers()
            ex.stop(0)

    before = signal.signal(signal.SIGALRM, handler)
    signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)
    try:
        while len(hits) < 200:
            for waiting in [ex.submit(deeds.double, i) for i in range(20) if ex.state is State.RUNNING]:
                waiting.exception(CAP_S) if not waiting.cancelled() else None
    except (RuntimeError, CancelledError):
        pass  # it was stopped
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert len(hits) >= 200
    assert all(hits)
    until(lambda: ex.state is State.STOPPED, "the end: in a handler nobody waits for it")


FORKS_IN_A_CALLBACK = """
import os, sys, warnings
warnings.simplefilter("ignore")  # a program with threads that forks is warned
from ptss_mp import Executor
import deeds
def callback(how):
    def call(future):
        if not (pid := os.fork()):
            print("child", how)
            if how == "exit": sys.exit(7)
            if how == "text": sys.exit("said")
            if how == "raise": raise ValueError("in the child")
            return
        print(how, os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)
    return call
if __name__ == "__main__":
    with Executor(1) as ex:
        for how in ("exit", "text", "raise", "return"):
            ex.pause()  # else it may have ended before, and this thread would call
            ex.submit(deeds.double, 1).add_done_callback(callback(how))
            ex.resume()
            ex.drain()
"""


def test_forks_that_a_callback_makes_come_to_an_end(tmp_path):
    """Regression: they hung in the loop of callbacks, and whoever waited for them too."""
    with running(tmp_path, [sys.executable, "-c", FORKS_IN_A_CALLBACK]) as process:
        out, err = process.communicate(timeout=CAP_S)
    assert out.splitlines() == [
        "child exit", "exit 7", "child text", "text 1", "child raise", "raise 1", "child return", "return 0"
    ]  # fmt: skip
    assert err.startswith("said\nTraceback")
    assert err.endswith("ValueError: in the child\n")
