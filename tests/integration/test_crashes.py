"""The crash matrix: whatever a job does, it alone fails, with the cause named; its neighbours finish."""

from __future__ import annotations

from concurrent.futures.process import BrokenProcessPool
from pickle import PicklingError
from signal import Signals
from typing import Any, NamedTuple

import deeds
import pytest
from support import CAP_S, beside_healthy, lines, until, wait_for_lines

from ptss_mp import (
    NotLoadable,
    ProtocolViolated,
    ResultNotPicklable,
    TaskRaised,
    WorkerCrashed,
)

CONTEXTS = pytest.mark.parametrize("context", [None, "spawn"])


class Crash(NamedTuple):
    """What is to be seen of a kind of crash."""

    signal: int | None
    exit_code: int | None
    said: str
    stack: str  # in the Python stack; "": Python cannot see it


CRASHES = {
    "segv": Crash(Signals.SIGSEGV, None, "SIGSEGV", "string_at"),
    "abort": Crash(Signals.SIGABRT, None, "SIGABRT", "in crash"),
    "fpe": Crash(Signals.SIGFPE, None, "SIGFPE", "in crash"),
    "bus": Crash(Signals.SIGBUS, None, "SIGBUS", "in _bus"),
    "overflow": Crash(Signals.SIGSEGV, None, "SIGSEGV", "in _overflow"),
    "term": Crash(Signals.SIGTERM, None, "SIGTERM", ""),
    "kill": Crash(Signals.SIGKILL, None, "SIGKILL", ""),
    "exit 0": Crash(None, 0, "exited with status 0", ""),
    "exit 3": Crash(None, 3, "exited with status 3", ""),
}


def expect_crash(future: Any, row: Crash, kind: str) -> None:
    """The outcome and the error tell everything that can be known."""
    outcome, error = future.outcome(), future.exception()
    assert outcome.status == "crashed"
    assert (outcome.signal, outcome.exit_code) == (row.signal, row.exit_code)
    assert row.said in outcome.error
    assert str(outcome.worker_pid) in outcome.error
    assert row.stack in (outcome.stack or "")
    assert bool(outcome.stack) == bool(row.stack)
    if row.signal:  # an exit by os._exit may lose what stands in a stream's buffer, a line never
        assert outcome.stdout == f"stdout before {kind}\n"
    assert outcome.stdout.startswith("stdout before")
    assert outcome.stderr.startswith(f"stderr before {kind}\n")
    assert outcome.attempts == 1
    assert outcome.wall_time > 0
    assert outcome.max_rss is not None
    assert outcome.cpu_time is not None
    assert outcome.started is not None
    assert outcome.started <= outcome.finished
    assert isinstance(error, WorkerCrashed)
    assert isinstance(error, BrokenProcessPool)
    assert error.pool_usable
    assert (error.signal, error.exit_code) == (row.signal, row.exit_code)
    assert row.said in str(error)
    assert error.outcome == outcome


@CONTEXTS
@pytest.mark.parametrize("kind", CRASHES)
def test_a_crash_in_the_call(pool, context, kind):
    ex = pool(2, context)
    future, _ = beside_healthy(ex, lambda: ex.submit(deeds.crash, kind))
    expect_crash(future, CRASHES[kind], kind)


@CONTEXTS
@pytest.mark.parametrize("kind", ["segv", "abort", "exit 0", "exit 3"])
def test_a_crash_while_the_arguments_are_decoded(pool, context, kind):
    ex = pool(2, context)
    future, _ = beside_healthy(ex, lambda: ex.submit(deeds.same, deeds.Bad(kind)))
    row = CRASHES[kind]
    expect_crash(future, row._replace(stack=row.stack and "in _rebuild"), kind)


@CONTEXTS
@pytest.mark.parametrize("kind", ["segv", "exit 3"])
def test_a_crash_while_the_result_is_pickled(pool, context, kind):
    ex = pool(2, context)
    future, _ = beside_healthy(ex, lambda: ex.submit(deeds.unready_result, kind))
    expect_crash(future, CRASHES[kind], kind)


@CONTEXTS
@pytest.mark.parametrize("kind", ["segv", "exit 3"])
def test_a_result_that_crashes_whoever_decodes_it_does_so_in_the_worker(pool, context, kind):
    ex = pool(2, context)
    future, _ = beside_healthy(ex, lambda: ex.submit(deeds.bad_result, kind))
    expect_crash(future, CRASHES[kind], kind)


@CONTEXTS
def test_sys_exit_fails_the_job_and_leaves_the_worker(pool, context):
    ex = pool(1, context, spares=0)
    before = ex.submit(deeds.pid).result(CAP_S)
    future, outcome = beside_healthy(ex, lambda: ex.submit(deeds.leave, 4))
    assert (outcome.status, outcome.exit_code, outcome.signal) == ("failed", 4, None)
    assert "SystemExit" in outcome.error
    assert outcome.stdout == "leaving\n"
    error = future.exception()
    assert isinstance(error, TaskRaised)
    assert (error.exit_code, error.type_name) == (4, "SystemExit")
    assert ex.submit(deeds.pid).result(CAP_S) == before


@pytest.mark.parametrize(("status", "code"), [(None, 0), (0, 0), ("text", 1)])
def test_other_values_of_sys_exit(pool, status, code):
    assert pool(1).submit(deeds.leave, status).outcome(CAP_S).exit_code == code


@pytest.mark.parametrize("kind", ["keyboard", "generator"])
def test_what_would_end_the_program_arrives_as_text(pool, kind):
    ex = pool(2)
    future, outcome = beside_healthy(ex, lambda: ex.submit(deeds.stop_all, kind))
    assert outcome.status == "failed"
    assert isinstance(future.exception(), TaskRaised)


@CONTEXTS
def test_an_exception_arrives_as_itself_with_the_workers_traceback(pool, context):
    ex = pool(2, context)
    future, outcome = beside_healthy(ex, lambda: ex.submit(deeds.fail, "gone wrong"))
    assert (outcome.status, outcome.error, outcome.attempts) == ("failed", "ValueError: gone wrong", 1)
    assert "in fail" in outcome.stack
    assert "worker.py" not in outcome.stack
    error = future.exception()
    assert type(error) is ValueError
    assert "in fail" in str(error.__cause__)
    with pytest.raises(ValueError, match="gone wrong"):
        future.result()


@CONTEXTS
def test_an_exception_that_cannot_be_rebuilt_arrives_as_text(pool, context):
    ex = pool(2, context)
    future, outcome = beside_healthy(ex, lambda: ex.submit(deeds.stubborn))
    assert (outcome.status, outcome.error) == ("failed", "Stubborn: this and that")
    assert "in stubborn" in outcome.stack
    error = future.exception()
    assert isinstance(error, TaskRaised)
    assert (error.type_name, error.text) == ("Stubborn", "this and that")
    assert "in stubborn" in error.traceback


@CONTEXTS
def test_a_lock_as_result(pool, context):
    ex = pool(2, context)
    future, outcome = beside_healthy(ex, lambda: ex.submit(deeds.lock))
    assert outcome.status == "not_picklable"
    assert "result" in outcome.error
    assert "lock" in outcome.error
    assert isinstance(future.exception(), ResultNotPicklable)
    assert isinstance(future.exception(), PicklingError)


@CONTEXTS
def test_a_result_whose_unpickling_raises(pool, context):
    ex = pool(2, context)
    future, outcome = beside_healthy(ex, lambda: ex.submit(deeds.bad_result, "raises"))
    assert outcome.status == "not_picklable"
    assert "result" in outcome.error
    assert "ValueError: no" in outcome.error
    assert "in _rebuild" in outcome.stack
    assert isinstance(future.exception(), ResultNotPicklable)


@CONTEXTS
def test_an_argument_whose_unpickling_raises(pool, context):
    ex = pool(2, context)
    future, outcome = beside_healthy(ex, lambda: ex.submit(deeds.same, deeds.Bad("raises")))
    assert outcome.status == "not_picklable"
    assert "cannot be decoded in the worker: ValueError: no" in outcome.error
    assert "in _rebuild" in outcome.stack
    assert isinstance(future.exception(), NotLoadable)
    assert isinstance(future.exception(), BrokenProcessPool)


@CONTEXTS
def test_a_job_that_kills_the_worker_beside_it(pool, context, tmp_path, gate):
    ex = pool(2, context)
    log = tmp_path / "log"
    victim = ex.submit(deeds.gated, str(log), gate.path, "victim")
    pid = int(wait_for_lines(log, 1)[0].split()[2])
    future, outcome = beside_healthy(ex, lambda: ex.submit(deeds.kill, pid))
    assert future.result() == "killed"
    assert outcome.ok
    assert victim.outcome(CAP_S).status == "crashed"
    assert victim.outcome().signal == Signals.SIGKILL
    assert victim.worker_pid == pid


@CONTEXTS
def test_a_job_that_forks_and_falls_through_answers_once(pool, context, tmp_path):
    ex = pool(2, context)
    log = tmp_path / "log"
    future, outcome = beside_healthy(ex, lambda: ex.submit(deeds.fork_and_fall_through, str(log)))
    assert outcome.ok
    assert future.result() == "parent"
    assert len(set(lines(log))) == 2


@CONTEXTS
def test_a_job_that_closes_all_descriptors(pool, context):
    ex = pool(2, context)
    _, outcome = beside_healthy(ex, lambda: ex.submit(deeds.crash, "closed"))
    assert outcome.status == "crashed"
    assert outcome.exit_code == 1
    assert outcome.stdout == "stdout before closed\n"
    assert "Bad file descriptor" in outcome.stderr
    assert outcome.max_rss is not None


@CONTEXTS
def test_a_job_that_writes_noise_to_all_descriptors(pool, context):
    ex = pool(2, context)
    future, outcome = beside_healthy(ex, lambda: ex.submit(deeds.crash, "noise"))
    assert outcome.status == "protocol"
    assert "no answer" in outcome.error
    assert isinstance(future.exception(), ProtocolViolated)
    assert outcome.stdout.startswith("stdout before noise\n")


@CONTEXTS
def test_a_worker_that_dies_while_a_large_result_is_on_its_way(pool, context):
    ex = pool(2, context)
    future, outcome = beside_healthy(ex, lambda: ex.submit(deeds.dies_while_sending, 64 << 20))
    assert (outcome.status, outcome.signal) == ("crashed", Signals.SIGKILL)
    assert future.outcome().max_rss > 60 << 20  # its 64 MiB, less what the warden had


@CONTEXTS
def test_a_crash_is_tried_again_if_asked(pool, context, tmp_path):
    ex = pool(2, context)
    _future, outcome = beside_healthy(ex, lambda: ex.options(retries=1).submit(deeds.crash, "abort"))
    assert (outcome.status, outcome.attempts, outcome.signal) == ("crashed", 2, Signals.SIGABRT)


def test_twenty_crashes_in_a_row_break_nothing(pool):
    ex = pool(2)
    crashes = [ex.submit(deeds.crash, kind) for kind in ["segv", "exit 0"] * 10]
    healthy = [ex.submit(deeds.double, i) for i in range(20)]
    assert [f.result(CAP_S) for f in healthy] == [2 * i for i in range(20)]
    assert {f.outcome(CAP_S).status for f in crashes} == {"crashed"}


def test_a_crash_costs_what_was_queued_behind_it_nothing(pool, tmp_path):
    """Short jobs travel in batches; those behind a crash go back, and run exactly once."""
    ex = pool(1)
    assert [f.result(CAP_S) for f in [ex.submit(deeds.double, i) for i in range(300)]] == [2 * i for i in range(300)]
    log = tmp_path / "log"
    futures = [
        ex.submit(deeds.crash, "kill") if i % 40 == 7 else ex.submit(deeds.note, str(log), i) for i in range(400)
    ]
    for i, future in enumerate(futures):
        assert future.outcome(CAP_S).status == ("crashed" if i % 40 == 7 else "succeeded")
    assert sorted(map(int, lines(log))) == [i for i in range(400) if i % 40 != 7]


def test_long_output_is_kept_by_its_end(pool):
    ex = pool(1, capture=True)
    outcome = ex.submit(print, "x" * 200_000 + "end").outcome(CAP_S)
    assert len(outcome.stdout) == 64 << 10
    assert outcome.stdout.endswith("end\n")


@pytest.mark.parametrize("kind", deeds.FORGERIES)
def test_a_forged_answer_harms_nobody_else(pool, kind):
    """It counts, or ends its worker; the job has one outcome that can be told, and the pool goes on."""
    ex = pool(2)
    future, outcome = beside_healthy(ex, lambda: ex.options(fresh=True).submit(deeds.forge, kind))
    assert outcome.status in ("succeeded", "failed", "protocol")
    if outcome.status == "protocol":
        assert "no answer" in outcome.error
        assert isinstance(future.exception(), ProtocolViolated)
    assert outcome.ok or future.exception() is not None
    assert outcome.as_dict()["finished"] >= outcome.as_dict()["submitted"]


def test_a_forged_answer_is_not_blamed_on_the_next_job(pool):
    ex = pool(1, spares=0)
    forged = ex.submit(deeds.forge, "none")
    assert forged.outcome(CAP_S).status in ("succeeded", "protocol")
    assert [f.outcome(CAP_S).status for f in [ex.submit(deeds.double, i) for i in range(4)]] == ["succeeded"] * 4


def test_an_answer_that_comes_twice_is_not_blamed_on_whoever_runs_by_then(pool, tmp_path):
    """The first one counts, and lets the next job be sent before the worker has told of its own end."""
    ex = pool(1, spares=0)
    log = tmp_path / "log"
    for _ in range(3):
        assert ex.submit(deeds.forge_and_answer_late, 0.1).outcome(CAP_S).status == "succeeded"
        assert ex.submit(deeds.nap_noted, str(log), 0.1).outcome(CAP_S).status == "succeeded"
        assert [f.result(CAP_S) for f in [ex.submit(deeds.double, i) for i in range(4)]] == [0, 2, 4, 6]
    assert len(lines(log)) == 6, "none ran twice"


@pytest.mark.parametrize("last", [False, True])
def test_a_job_cannot_say_that_the_main_module_cannot_be_imported(pool, last):
    """Only a worker that runs no job can; that breaks the pool, so nobody may forge it."""
    ex = pool(2, max_tasks_per_child=3)
    _, outcome = beside_healthy(ex, lambda: ex.submit(deeds.forge_failure, last))
    assert outcome.status == "protocol"


def test_noise_before_a_death_counts_whichever_is_heard_first(pool):
    """The parent is held up until both are there; the warden's word of the death may then be read first."""
    ex = pool(1)
    ex.submit(deeds.double, 1).result(CAP_S)
    for _ in range(3):
        future = ex.submit(deeds.forge_failure_late)
        until(lambda future=future: future.running(), "running")
        deeds.holding.usleep(400_000)
        outcome = future.outcome(CAP_S)
        assert outcome.status == "protocol"
        assert outcome.exit_code in (3, None), "it was killed for the noise before its end was heard of"


def test_a_job_that_empties_the_marker_and_dies_is_not_made_for_ever(pool, tmp_path):
    ex = pool(1)
    log = tmp_path / "log"
    future = ex.submit(deeds.scribble, str(log))
    until(lambda: future.done() or len(lines(log)) > 20, "an end", 5)
    made = len(lines(log))
    future.cancel()
    assert made <= 20


def test_an_answer_for_another_workers_job_stands_for_nothing(pool, gate):
    ex = pool(2)
    first = ex.submit(deeds.gate, gate.path)
    waiting = ex.submit(deeds.same, first)
    assert ex.submit(deeds.answer_for, waiting._id).outcome(CAP_S).status == "protocol"
    assert not waiting.done()
    first.cancel()
    outcome = waiting.outcome(CAP_S)
    assert (outcome.status, outcome.root, outcome.started) == ("dependency", "gate", None)
