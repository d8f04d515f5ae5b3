"""The acceptance table: nasty jobs, each beside eight healthy ones, under both start methods.

Of each row: the right cause on the right Future, 8 of 8 healthy jobs right, the pool usable afterwards
(`support.beside_healthy`).  Ids begin with what the row is of: `peers` are the rows in which every pool that
was measured for this project failed at least once, `more` the crashes that were asked for beside them,
`also` what occurred to us.  Rows that need a stage of their own:

- peers, the parent is SIGKILLed: test_orphans.py
- more, random bytes on every descriptor: test_crashes.py, test_a_job_that_writes_noise_to_all_descriptors
- more, what a crash tells (stack, output, memory, times): test_crashes.py, test_a_crash_in_the_call
- also, forged answers and pages: test_crashes.py, test_attacks.py; trees of every shape: test_trees.py
"""

from __future__ import annotations

import gc
import os
import threading
from collections.abc import Callable
from signal import Signals
from typing import Any, NamedTuple

import deeds
import nasty
import pytest
from support import CAP_S, Settled, beside_healthy, lines, until, wait_for_lines, wait_gone

from ptss_mp import NotLoadable, ResultNotPicklable, TaskRaised, TaskTimeout, WorkerCrashed

CONTEXTS = pytest.mark.parametrize("context", [None, "spawn"])
LIMIT_S = 0.5  # of the rows that hang


class Row(NamedTuple):
    """A nasty job, and what is to come of it."""

    fn: Callable[..., Any]
    args: tuple[Any, ...]
    status: str
    error: type[BaseException] | None = None
    signal: int | None = None
    exit_code: int | None = None
    value: Any = None
    told: str = ""  # in the outcome's text
    timeout: float | None = None


def crash(kind: str, number: int) -> Row:
    return Row(deeds.crash, (kind,), "crashed", WorkerCrashed, number, told=Signals(number).name)


def exits(fn: Callable[..., Any], *args: Any, code: int) -> Row:
    return Row(fn, args, "crashed", WorkerCrashed, exit_code=code, told=f"exited with status {code}")


def dies(fn: Callable[..., Any], *args: Any, number: int = Signals.SIGSEGV) -> Row:
    return Row(fn, args, "crashed", WorkerCrashed, number, told=Signals(number).name)


def hangs(fn: Callable[..., Any], *args: Any) -> Row:
    return Row(fn, args, "timeout", TaskTimeout, told="timeout", timeout=LIMIT_S)


def raises(fn: Callable[..., Any], *args: Any, told: str) -> Row:
    return Row(fn, args, "failed", TaskRaised, told=told)


TABLE = {
    "peers segfault": crash("segv", Signals.SIGSEGV),
    "peers abort": crash("abort", Signals.SIGABRT),
    "peers SIGKILL of itself": crash("kill", Signals.SIGKILL),
    "peers os._exit(0)": exits(deeds.crash, "exit 0", code=0),
    "peers exception that cannot be rebuilt": raises(deeds.stubborn, told="Stubborn: this and that"),
    "peers result that cannot be pickled": Row(deeds.lock, (), "not_picklable", ResultNotPicklable, told="lock"),
    "peers result that cannot be rebuilt": Row(
        deeds.bad_result, ("raises",), "not_picklable", ResultNotPicklable, told="ValueError: no"
    ),
    "peers closes all descriptors": exits(deeds.crash, "closed", code=1)._replace(told=""),
    "peers forks and returns in both": Row(deeds.fork_and_fall_through, (os.devnull,), "succeeded", value="parent"),
    "peers SIGSTOP of itself": hangs(nasty.stop_itself),
    "peers native hang": hangs(deeds.hang, "native", os.devnull),
    "peers KeyboardInterrupt": raises(deeds.stop_all, "keyboard", told="KeyboardInterrupt"),
    "more SIGFPE": crash("fpe", Signals.SIGFPE),
    "more SIGBUS": crash("bus", Signals.SIGBUS),
    "more C stack overflow": crash("overflow", Signals.SIGSEGV),
    "more dies while 64 MiB are on their way": dies(deeds.dies_while_sending, 64 << 20, number=Signals.SIGKILL),
    "more crash at unpickling the call": dies(deeds.same, deeds.Bad("segv")),
    "more crash at pickling the result": dies(deeds.unready_result, "segv"),
    "more crash at unpickling the result": dies(deeds.bad_result, "segv"),
    "more crash at unpickling the exception": dies(nasty.raise_fatal),
    "more crash as the locals go": dies(nasty.drop_sore),
    "more crash as the result goes": dies(nasty.sore_value),
    "more crash at garbage collection": dies(nasty.collect_sore),
    "also argument that cannot be rebuilt": Row(
        deeds.same, (deeds.Bad("raises"),), "not_picklable", NotLoadable, told="ValueError: no"
    ),
    "also exception whose own constructor raises": Row(
        nasty.raise_picky, (), "failed", nasty.Picky, told="Picky: code 7"
    ),
    "also a group of what ends programs": raises(nasty.raise_group, told="several"),
    "also GeneratorExit": raises(deeds.stop_all, "generator", told="GeneratorExit"),
    "also crash in a thread": dies(nasty.crash_in_thread),
    "also os._exit(3)": exits(deeds.crash, "exit 3", code=3),
    "also SIGTERM of itself": crash("term", Signals.SIGTERM),
    "also kills its group": dies(nasty.kill_group, number=Signals.SIGKILL),
    "also signals the warden": Row(nasty.kill_parent_and_go_on, (), "succeeded", value="sent"),
    "also forks and exits in both": exits(nasty.fork_and_exit_in_both, code=5),
    "also forks and raises in both": Row(nasty.fork_and_raise_in_both, (), "failed", ValueError, told="both"),
    "also becomes another program": exits(nasty.turn_into, "false", code=1),
    "also becomes a program that cannot be": Row(
        nasty.turn_into, ("/dev/null/no",), "failed", OSError, told="NotADirectoryError"
    ),
    "also closes its standard descriptors": Row(nasty.spoil_streams, ("gone",), "succeeded", value="gone"),
    "also hangs and blocks every signal": hangs(deeds.hang, "blocked", os.devnull),
    "also hangs and swallows every exception": hangs(nasty.swallow_everything),
}


@CONTEXTS
@pytest.mark.parametrize("row", TABLE)
def test_a_nasty_job_beside_eight_healthy_ones(pool, context, row):
    fn, args, status, error, number, exit_code, value, told, timeout = TABLE[row]
    ex = pool(2, context)
    view = ex.options(timeout=timeout) if timeout else ex
    future, outcome = beside_healthy(ex, lambda: view.submit(fn, *args))
    assert (outcome.status, outcome.signal, outcome.exit_code) == (status, number, exit_code) or timeout
    assert outcome.status == status
    assert outcome.attempts == 1
    assert told in (outcome.error or "")
    if error is None:
        assert future.result() == value
    else:
        assert isinstance(future.exception(), error)
        assert (error is WorkerCrashed) <= (str(outcome.worker_pid) in outcome.error)


# ---- rows that need more than one job


@CONTEXTS
def test_peers_a_child_of_a_job_that_timed_out(pool, context, tmp_path):
    ex = pool(2, context)
    log = tmp_path / "log"
    _, outcome = beside_healthy(ex, lambda: ex.options(timeout=LIMIT_S).submit(nasty.hang_with_child, str(log)))
    assert outcome.status == "timeout"
    wait_gone([int(wait_for_lines(log, 1)[0])], 2)


@CONTEXTS
@pytest.mark.parametrize("seconds", [0, 0.005, 0.2])
def test_peers_a_thread_that_crashes_after_its_job_returned(pool, context, seconds):
    """It is that job's own, or nobody's; never the next one's."""
    ex = pool(1, context, spares=0)
    for _ in range(3):
        _, outcome = beside_healthy(ex, lambda: ex.submit(nasty.crash_later, seconds))
        assert outcome.status in ("succeeded", "crashed")
        assert outcome.ok or outcome.signal == Signals.SIGSEGV


@CONTEXTS
def test_more_killed_by_a_sibling(pool, context, tmp_path, gate):
    ex = pool(2, context)
    log = tmp_path / "log"
    settled = Settled()
    victim = settled.watch(ex.submit(deeds.gated, str(log), gate.path, "victim"))
    pid = int(wait_for_lines(log, 1)[0].split()[2])
    future, outcome = beside_healthy(ex, lambda: ex.submit(deeds.kill, pid))
    assert (outcome.status, future.result()) == ("succeeded", "killed")
    assert (victim.outcome(CAP_S).status, victim.outcome().signal) == ("crashed", Signals.SIGKILL)
    assert victim.worker_pid == pid
    settled.check(ex)


@CONTEXTS
def test_more_garbage_that_crashes_the_collector_is_not_left_to_the_next_job(pool, context):
    ex = pool(1, context, spares=0)
    for _ in range(3):
        _, outcome = beside_healthy(ex, lambda: ex.submit(nasty.leave_sore))
        assert (outcome.status, outcome.signal) == ("crashed", Signals.SIGSEGV)
        assert isinstance(ex.submit(gc.collect).result(CAP_S), int)


@CONTEXTS
@pytest.mark.parametrize("how", ["atexit", "finalizer", "global"])
def test_more_a_crash_at_the_exit_of_a_worker_is_nobodys(pool, context, how):
    """Its job had succeeded; more such ends than the restart intensity allows break nothing."""
    ex = pool(2, context, max_tasks_per_child=1)
    settled = Settled()
    jobs = [settled.watch(ex.submit(nasty.crash_at_exit, how)) for _ in range(14)]
    healthy = [settled.watch(ex.submit(deeds.double, i)) for i in range(8)]
    assert [f.result(CAP_S) for f in healthy] == [2 * i for i in range(8)]
    pids = [f.result(CAP_S) for f in jobs]
    assert len(set(pids)) == 14
    wait_gone(pids, 10)
    assert ex.submit(deeds.double, 21).result(CAP_S) == 42
    settled.check(ex)


@CONTEXTS
@pytest.mark.parametrize("how", ["closed", "replaced", "redirected", "gone"])
def test_also_streams_that_a_job_spoils_are_whole_for_the_next(pool, context, how):
    """Regression: the next job that printed failed for it."""
    ex = pool(1, context, spares=0, capture=True)
    for _ in range(2):
        assert ex.submit(nasty.spoil_streams, how).result(CAP_S) == how
        outcome = ex.submit(nasty.speak, "hello").outcome(CAP_S)
        assert (outcome.status, outcome.stdout) == ("succeeded", "hello\n")


@CONTEXTS
def test_also_a_job_that_uses_up_the_descriptors_of_its_worker(pool, context):
    ex = pool(1, context, spares=0)
    future = ex.submit(nasty.exhaust_descriptors)
    assert future.outcome(CAP_S).status in ("succeeded", "crashed")
    healthy = [ex.submit(deeds.double, i) for i in range(8)]
    assert [f.result(CAP_S) for f in healthy] == [2 * i for i in range(8)]


@CONTEXTS
def test_all_of_them_at_once(pool, context, tmp_path):
    """The whole table thrown at one pool, healthy jobs between; each gets its own."""
    ex = pool(2, context)
    settled = Settled()
    threads = threading.active_count()
    nasty_ones, healthy = {}, []
    for name, row in TABLE.items():
        view = ex.options(timeout=row.timeout, name=name) if row.timeout else ex.options(name=name)
        nasty_ones[name] = settled.watch(view.submit(row.fn, *row.args))
        numbers = range(len(healthy), len(healthy) + 8)
        healthy += [settled.watch(ex.submit(deeds.note, str(tmp_path / "log"), i)) for i in numbers]
    assert [f.result(60) for f in healthy] == list(range(len(healthy)))
    assert {n: str(f.outcome(60).status) for n, f in nasty_ones.items()} == {n: r.status for n, r in TABLE.items()}
    assert sorted(map(int, lines(tmp_path / "log"))) == list(range(len(healthy))), "none ran twice"
    settled.check(ex)
    ex.shutdown()
    until(lambda: threading.active_count() <= threads, "end of its threads")
