"""Bad moments for large values and for chunks: a fork of the program, its end, Ctrl-C, and inputs that call back."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import warnings
from concurrent.futures import CancelledError
from typing import Any

import deeds
import inner
import psutil
import pytest
from support import CAP_S, lines, until, wait_gone, within

from ptss_mp import ExecutorClosed, TaskInterrupted

MIB = 1 << 20
LONG = 256 * MIB  # 50 ms on its way at least
BEYOND = (2 << 30) + 12_345
FORM = pytest.mark.parametrize("chunksize", [1, 50])


def freight() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "ptss-mp-freight"]


def under_way(ex: Any, size: int, way: str) -> Any:
    """Return a Future whose value is being moved."""
    assert ex.submit(abs, -1).result(CAP_S) == 1
    channel = next(iter(ex._pool.channels.values()))
    future = ex.submit(len, b"x" * size) if way == "there" else ex.submit(deeds.give, size)
    until(lambda: channel.move or future.done(), "a move")
    return future


# ---- large values


@pytest.mark.parametrize("way", ["there", "back"])
def test_a_fork_of_the_program_takes_nothing_from_a_transfer(pool, way):
    ex = pool(1, spares=0)
    future = under_way(ex, LONG, way)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a program with threads that forks is warned
        child = os.fork()
    if not child:
        with contextlib.suppress(BaseException):
            ex.shutdown(wait=False)
        os._exit(5)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 5
    value = future.result(CAP_S)
    assert (value if way == "there" else len(value)) == LONG
    assert ex.submit(abs, -2).result(CAP_S) == 2


@pytest.mark.parametrize("way", ["there", "back"])
def test_a_shutdown_waits_for_a_transfer(pool, way):
    ex = pool(1, spares=0)
    future = under_way(ex, LONG, way)
    within(CAP_S, lambda: ex.shutdown(cancel_futures=True))
    assert future.outcome(0).ok
    until(lambda: not freight(), "the end of the move")


@pytest.mark.parametrize("way", ["there", "back"])
def test_a_stop_without_grace_does_not(pool, way):
    ex = pool(1, spares=0)
    future = under_way(ex, LONG, way)
    within(CAP_S, lambda: ex.stop(grace=0))
    assert future.outcome(0).status in ("interrupted", "cancelled", "succeeded")
    until(lambda: not freight(), "the end of the move")


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.skipif(
    psutil.virtual_memory().available < 6 << 30,
    reason=f"needs 6 GiB of free memory, here are {psutil.virtual_memory().available >> 20} MiB",
)
def test_a_worker_that_dies_amid_more_than_2_gib(pool):
    """What has come by then is let go of, and the room that was kept for the rest."""
    from ptss_mp.shell.freight import coming

    ex = pool(1, spares=0)
    assert ex.submit(abs, -1).result(CAP_S) == 1
    channel = next(iter(ex._pool.channels.values()))
    before = psutil.Process().memory_info().rss
    future = ex.submit(deeds.give, BEYOND)
    until(lambda: future.done() or (channel.move and channel.move.rest < BEYOND - 256 * MIB), "a part of it", 120)
    os.kill(future.worker_pid, signal.SIGKILL)
    assert future.outcome(CAP_S).status == "crashed"
    until(lambda: not freight(), "the end of the move")
    assert coming() == 0
    until(lambda: psutil.Process().memory_info().rss < before + 64 * MIB, "memory as before")
    assert ex.submit(abs, -2).result(CAP_S) == 2


# ---- maps


@FORM
def test_a_map_that_nobody_asks_for_its_values_is_made_all_the_same(pool, tmp_path, chunksize):
    """As the standard library's: `ex.map(f, xs)` alone is what many programs say."""
    log = tmp_path / "log"
    with pool(1) as ex:
        ex.map(deeds.note, [str(log)] * 300, range(300), chunksize=chunksize)
    assert sorted(map(int, lines(log))) == list(range(300))


@FORM
def test_a_map_that_is_left_cancels_what_has_not_started(pool, tmp_path, gate, chunksize):
    ex, log = pool(1), tmp_path / "log"
    ex.submit(deeds.gate, gate.path)
    values = ex.map(deeds.note, [str(log)] * 3_000, range(3_000), chunksize=chunksize)
    thread = threading.Thread(target=next, args=(values,), daemon=True)
    thread.start()
    until(lambda: ex.status().ready > 0, "jobs in line")
    gate.open()
    thread.join(CAP_S)
    values.close()
    assert ex.drain(CAP_S)
    assert len(lines(log)) < 3_000


class Interrupted(KeyboardInterrupt):
    """Ctrl-C, at the place where the test wants it."""


@FORM
def test_ctrl_c_in_the_consumer_of_a_map(pool, tmp_path, chunksize):
    ex, log = pool(1), tmp_path / "log"

    def consume() -> None:
        calls = [str(log)] * 400, range(400), [0.01] * 400
        for i, _ in enumerate(ex.map(deeds.log_and_nap, *calls, chunksize=chunksize)):
            if i == 3:
                raise Interrupted

    with pytest.raises(Interrupted):
        consume()
    assert ex.drain(CAP_S)
    assert len(lines(log)) < 400
    assert ex.submit(abs, -1).result(CAP_S) == 1


@FORM
def test_ctrl_c_in_the_input_of_a_map(pool, tmp_path, chunksize):
    """Nobody will ever ask for what came before: it is cancelled as far as it has not started."""
    ex = pool(1)

    def items() -> Any:
        yield from range(300)
        raise Interrupted

    with pytest.raises(Interrupted):
        ex.map(deeds.double, items(), chunksize=chunksize)
    assert ex.drain(CAP_S)
    assert ex.submit(abs, -1).result(CAP_S) == 1


@FORM
def test_an_input_that_submits_and_waits_itself(pool, chunksize):
    ex = pool(1)

    def items() -> Any:
        for i in range(150):
            yield ex.submit(deeds.double, i).result(CAP_S)
        yield from ex.map(deeds.double, range(150, 300), chunksize=chunksize)

    found = within(CAP_S, lambda: list(ex.map(deeds.double, items(), chunksize=chunksize)))
    assert found == [4 * i for i in range(300)]


@FORM
def test_an_input_that_shuts_its_pool_down(pool, chunksize):
    """What was accepted before is made and given back; then the refusal."""
    ex = pool(1)

    def items() -> Any:
        for i in range(300):
            if i == 200:
                ex.shutdown(wait=False)
            yield i

    with pytest.raises(ExecutorClosed):
        within(CAP_S, lambda: list(ex.map(deeds.double, items(), chunksize=chunksize)))


def test_chunks_in_a_job_in_a_job(pool):
    assert pool(1, preload=["inner"]).submit(inner.chunks, 2).result(CAP_S) == [2 * i for i in range(3_000)]


@pytest.mark.parametrize(
    "options",
    [
        {"mp_context": "spawn"},
        {"initializer": deeds.double, "initargs": (1,)},
        {"max_tasks_per_child": 3},
        {"mp_context": "spawn", "initializer": deeds.double, "initargs": (1,), "max_tasks_per_child": 12},
    ],
    ids=["spawn", "initializer", "few tasks", "all"],
)
def test_chunks_with_other_workers(pool, options):
    ex = pool(2, **options)
    [f.result(CAP_S) for f in [ex.submit(abs, 1) for _ in range(2)]]  # workers are there: else none goes in a chunk
    assert list(ex.map(deeds.double, range(300), chunksize=25)) == [2 * i for i in range(300)]


def test_a_fork_of_the_program_amid_chunks(pool):
    ex = pool(2)
    values = ex.map(deeds.double, range(200_000), chunksize=None)
    found = [next(values) for _ in range(1_000)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        child = os.fork()
    if not child:
        with contextlib.suppress(BaseException):
            values.close()
        os._exit(5)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 5
    assert [*found, *values] == [2 * i for i in range(200_000)]


def test_a_stop_amid_chunks(pool):
    ex = pool(2)
    pids = {ex.submit(deeds.pid).result(CAP_S)}
    values = ex.map(deeds.double, range(200_000), chunksize=None)
    next(values)
    within(CAP_S, lambda: ex.stop(grace=0))
    with pytest.raises((TaskInterrupted, CancelledError)):
        list(values)
    wait_gone(pids, CAP_S)
