"""The seven tests of PTSS, in its own words and order.  Each can be read alone."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest

from ptss_mp import DeadlineMissed, DependencyFailed, Executor, WorkerCrashed

CAP_S = 30.0  # no wait takes longer; nothing here needs a tenth of it


def note(path: Path, word: object) -> None:
    """Append a word to a file: the order in which jobs ran."""
    with path.open("ab", buffering=0) as f:
        f.write(f"{word} ".encode())


def meet(path: Path, everybody: int) -> int:
    """Come to a meeting; return once all are there.  Alone it would wait for ever."""
    (path / str(os.getpid())).touch()
    while len(os.listdir(path)) < everybody:
        time.sleep(0.001)
    return os.getpid()


def square(x: int) -> int:
    return x * x


def linger(seconds: float) -> float:
    time.sleep(seconds)
    return seconds


def crash() -> None:
    os.kill(os.getpid(), signal.SIGSEGV)


def test_priority_ordering(tmp_path):
    """The earliest deadline first; among equals the higher priority, then the first submitted."""
    order = tmp_path / "order"
    with Executor(max_workers=1) as ex:
        ex.pause()
        ex.submit(note, order, "last")
        ex.options(priority=-1).submit(note, order, "after-last")
        ex.options(deadline=60).submit(note, order, "third")
        ex.options(priority=9).submit(note, order, "important-but-no-deadline")
        ex.options(deadline=20).submit(note, order, "first")
        ex.options(deadline=40).submit(note, order, "second")
        ex.resume()
    assert order.read_text().split() == [
        "first", "second", "third", "important-but-no-deadline", "last", "after-last",
    ]  # fmt: skip


def test_deadline_enforcement():
    """A job ends at its deadline, running or waiting; with on_miss="finish" it goes on and is reported."""
    with Executor(max_workers=2) as ex:
        running = ex.options(deadline=0.2).submit(linger, 60)
        with pytest.raises(DeadlineMissed):
            running.result(CAP_S)
        assert running.outcome().attempts == 1
        assert running.deadline_status == "exceeded"

        ex.pause()
        waiting = ex.options(deadline=0.05).submit(square, 3)
        with pytest.raises(DeadlineMissed):
            waiting.result(CAP_S)
        assert waiting.outcome().attempts == 0  # never started
        ex.resume()

        late = ex.options(deadline=0.05, on_miss="finish").submit(linger, 0.2)
        assert late.result(CAP_S) == 0.2
        assert late.outcome().tardiness > 0.1


def test_concurrent_execution(tmp_path):
    """Four jobs run at the same time in four processes: each waits for all others."""
    with Executor(max_workers=4) as ex:
        pids = list(ex.map(meet, [tmp_path] * 4, [4] * 4, timeout=CAP_S))
    assert len(set(pids)) == 4


def test_dependency_chains(tmp_path):
    """A job starts when what it needs is done, with its value; a failure upstream stops what hangs on it."""
    with Executor(max_workers=4) as ex:
        value = ex.submit(square, 2)
        for _ in range(3):
            value = ex.submit(square, value)
        assert value.result(CAP_S) == 2**16

        order = tmp_path / "order"
        one = ex.submit(note, order, 1)
        two = ex.options(after=one).submit(note, order, 2)
        ex.options(after=[one, two]).submit(note, order, 3).result(CAP_S)
        assert order.read_text().split() == ["1", "2", "3"]

        root = ex.submit(crash)
        leaf = ex.submit(square, ex.submit(square, root))
        with pytest.raises(DependencyFailed, match="crash"):
            leaf.result(CAP_S)
        assert leaf.outcome().root == "crash"


def test_graceful_shutdown():
    """Running jobs have the grace; what has not started is cancelled; nothing more is accepted."""
    ex = Executor(max_workers=1)
    quick, slow, never = (ex.submit(linger, seconds) for seconds in (0.1, 60, 0))
    quick.result(CAP_S)
    began = time.monotonic()
    ex.stop(grace=0.2)
    assert 0.15 < time.monotonic() - began < 10
    assert quick.result() == 0.1
    assert slow.outcome().status == "interrupted"
    assert never.cancelled()
    with pytest.raises(RuntimeError):
        ex.submit(square, 1)


def test_error_recovery():
    """Exceptions and crashes fail their own job; the workers are back at once."""
    with Executor(max_workers=2) as ex:
        for _ in range(5):
            with pytest.raises(WorkerCrashed) as caught:
                ex.submit(crash).result(CAP_S)
            assert caught.value.signal == signal.SIGSEGV
            with pytest.raises(TypeError):
                ex.submit(square, "no number").result(CAP_S)
            assert ex.submit(square, 5).result(CAP_S) == 25


def test_high_load():
    """A hundred jobs on four workers: all done, each once."""
    done: list[int] = []
    with Executor(max_workers=4) as ex:
        futures = [ex.submit(square, i) for i in range(100)]
        for future in futures:
            future.add_done_callback(lambda f: done.append(f.result()))
    assert sorted(done) == [i * i for i in range(100)]
