"""Kills from outside: each job has exactly one outcome, and only jobs that ran in a killed worker fail."""

from __future__ import annotations

import os
import random
import signal
from collections import Counter
from pathlib import Path
from threading import Event, Thread
from typing import Any

import deeds
from support import CAP_S, Settled, children_of, lines, parent_of, until, wait_for_lines, wait_gone

from ptss_mp import Executor, Future

JOBS, KILLS, SEED = 10_000, 100, 20_261_130


def logged_runs(log: Path) -> tuple[dict[int, list[int]], Counter[int]]:
    """Return, by job: the pids in which it began; how often it ended."""
    began: dict[int, list[int]] = {}
    ended: Counter[int] = Counter()
    for line in lines(log):
        what, job, pid = line.split()
        if what == "begin":
            began.setdefault(int(job), []).append(int(pid))
        else:
            ended[int(job)] += 1
    return began, ended


class Killer:
    """Kills busy workers: a process that has told a begin and no end yet, held by a pidfd before it is shot."""

    def __init__(self, log: Path, kills: int) -> None:
        self.killed: list[int] = []
        self.over = Event()
        self._log, self._kills, self._random = log, kills, random.Random(SEED)
        self._offset = 0
        self._busy: dict[int, str] = {}
        self.thread = Thread(target=self._run)

    def _read(self) -> None:
        with self._log.open("rb") as f:
            f.seek(self._offset)
            data = f.read()
        data = data[: data.rfind(b"\n") + 1]
        self._offset += len(data)
        for line in data.decode().splitlines():
            what, job, pid = line.split()
            if what == "begin":
                self._busy[int(pid)] = job
            else:
                self._busy.pop(int(pid), None)

    def _run(self) -> None:
        next_at = 0
        while len(self.killed) < self._kills and not self.over.is_set():
            self._read()
            if self._offset < next_at or not self._busy:
                continue
            pid = self._random.choice(sorted(self._busy))
            del self._busy[pid]
            try:
                fd = os.pidfd_open(pid)
            except ProcessLookupError:
                continue
            try:
                signal.pidfd_send_signal(fd, signal.SIGKILL)
                self.killed.append(pid)
            except ProcessLookupError:
                pass
            finally:
                os.close(fd)
            next_at = self._offset + self._random.randrange(500, 2_500)  # of some 320,000 bytes of log


def run_chaos(ex: Executor, log: Path) -> tuple[list[Future[Any]], list[int]]:
    """Submit all jobs while the killer is at work; return the settled Futures and the pids that were killed."""
    log.touch()
    settled = Settled()
    killer = Killer(log, KILLS)
    killer.thread.start()
    try:
        futures = [settled.watch(ex.submit(deeds.logged, str(log), i, i % 3 * 0.0002)) for i in range(JOBS)]
        for future in futures:
            future.outcome(60)
    finally:
        killer.over.set()
        killer.thread.join()
    settled.check(ex)
    return futures, killer.killed


def test_a_hundred_kills_of_busy_workers(pool, tmp_path):
    ex = pool(2)
    log = tmp_path / "log"
    futures, killed = run_chaos(ex, log)
    began, ended = logged_runs(log)
    failed = {i: f.outcome() for i, f in enumerate(futures) if not f.outcome().ok}
    print(f"{len(killed)} kills, {len(failed)} jobs failed")
    assert len(killed) == KILLS
    for i, outcome in failed.items():
        assert (outcome.status, outcome.signal, outcome.attempts) == ("crashed", signal.SIGKILL, 1)
        assert outcome.worker_pid in killed, "blamed, though its worker was not killed"
        # killed between its mark and its first line: it ran, but had not said so yet
        assert began.get(i, [outcome.worker_pid])[-1] == outcome.worker_pid
    assert len(failed) <= KILLS, "a kill costs one job"
    assert len({outcome.worker_pid for outcome in failed.values()}) == len(failed)
    for i, future in enumerate(futures):
        assert ended[i] <= 1, "a job ran to its end twice"
        assert len(began.get(i, ())) <= 1, "a job that had begun was given out again"
        if i not in failed:
            assert future.result() == i
            assert ended[i] == 1
            assert began[i] == [future.worker_pid]
    assert ex.submit(deeds.double, 4).result(CAP_S) == 8


def test_one_kill_of_the_warden(pool, tmp_path, gate):
    """What ran fails with that cause; what had not begun runs under the next warden."""
    ex = pool(2)
    log = tmp_path / "log"
    settled = Settled()
    running = [settled.watch(ex.submit(deeds.gated, str(log), gate.path, i)) for i in range(2)]
    workers = [int(line.split()[2]) for line in wait_for_lines(log, 2)]
    waiting = [settled.watch(ex.submit(deeds.logged, str(log), i)) for i in range(2, 1_000)]
    warden = parent_of(workers[0])
    assert warden == parent_of(workers[1])
    os.kill(warden, signal.SIGKILL)
    for future in running:
        outcome = future.outcome(CAP_S)
        assert outcome.status == "crashed"
        assert outcome.worker_pid in workers
        assert outcome.attempts == 1
    assert [f.result(CAP_S) for f in waiting] == list(range(2, 1_000))
    settled.check(ex)
    began, ended = logged_runs(log)
    assert all(len(pids) == 1 for pids in began.values())
    assert ended == Counter(range(2, 1_000))
    wait_gone(workers, 1)


def test_a_kill_of_the_warden_at_work(pool, tmp_path):
    """Anywhere in the middle of ten thousand jobs: at most the two that ran fail."""
    ex = pool(2)
    log = tmp_path / "log"
    settled = Settled()
    futures = [settled.watch(ex.submit(deeds.logged, str(log), i)) for i in range(JOBS)]
    until(lambda: log.exists() and log.stat().st_size > 16 * JOBS, "half of the work")
    worker = int(lines(log)[-1].split()[2])
    warden = parent_of(worker)
    assert warden in children_of(os.getpid())
    os.kill(warden, signal.SIGKILL)
    failed = [f for f in futures if not f.outcome(60).ok]
    settled.check(ex)
    assert len(failed) <= 2
    assert {f.outcome().status for f in failed} <= {"crashed"}
    began, ended = logged_runs(log)
    assert max(map(len, began.values())) == 1
    assert max(ended.values()) == 1
    assert len(ended) >= JOBS - len(failed)


def test_a_job_that_kills_the_warden(pool, tmp_path):
    ex = pool(2)
    outcome = ex.submit(_kill_the_warden).outcome(CAP_S)
    assert outcome.status == "crashed"
    assert [f.result(CAP_S) for f in [ex.submit(deeds.double, i) for i in range(8)]] == [2 * i for i in range(8)]


def _kill_the_warden() -> None:
    os.kill(os.getppid(), signal.SIGKILL)
    deeds.nap(deeds.HANG)
