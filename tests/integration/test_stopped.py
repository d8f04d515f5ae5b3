"""Whoever is stopped (SIGSTOP, a debugger): worker, warden or program; one verdict, and no job waits for ever."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import deeds
from support import CAP_S, alive, lines, parent_of, until, wait_for_lines, wait_gone

HERE = str(Path(__file__).parent)


def state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]


def stop(pid: int) -> None:
    os.kill(pid, signal.SIGSTOP)
    until(lambda: state(pid) in "TZ", f"stop of {pid}")


# ---- a worker


def test_a_job_sent_to_a_stopped_worker_is_made_by_another(pool, tmp_path):
    """Nobody continues it, and the job has no limit of its own."""
    ex = pool(1)
    worker = ex.submit(deeds.pid).result(CAP_S)
    stop(worker)
    log = tmp_path / "log"
    outcome = ex.submit(deeds.logged, str(log), 1).outcome(5)
    assert outcome.ok
    assert outcome.attempts == 1
    assert outcome.worker_pid != worker
    wait_gone([worker], 1)
    assert len(lines(log)) == 2


def test_a_worker_that_is_stopped_only_for_a_moment_makes_its_job(pool):
    """As a program that slows others down by stopping them does (cpulimit)."""
    ex = pool(1)
    worker = ex.submit(deeds.pid).result(CAP_S)
    stop(worker)
    future = ex.submit(deeds.pid)
    time.sleep(0.3)
    os.kill(worker, signal.SIGCONT)
    assert future.result(CAP_S) == worker


def test_a_running_job_that_is_stopped_waits_for_whoever_stopped_it(pool, gate, tmp_path):
    """It has begun, and no limit of its own says that it may not take its time."""
    ex = pool(1)
    future = ex.submit(deeds.gated, str(tmp_path / "log"), gate.path, 1)
    worker = int(wait_for_lines(tmp_path / "log", 1)[0].split()[2])
    stop(worker)
    time.sleep(2)
    assert not future.done()
    assert alive(worker)
    os.kill(worker, signal.SIGCONT)
    gate.open()
    assert future.result(CAP_S) == 1


# ---- the program

PROGRAM = """
import json, sys
import deeds
from ptss_mp import Executor

log = sys.argv[1]
ex = Executor(2, preload=["deeds"], capture=True)
view = ex.options(timeout=0.6)
jobs = [view.submit(deeds.hang, "native", log), view.submit(deeds.nap_noted, log, 0.3)]
jobs += [view.submit(deeds.double, i) for i in range(3)] + [ex.options(deadline=0.7).submit(deeds.nap, 0.1)]
json.dump([(o.status.value, o.attempts, o.observed) for o in (job.outcome() for job in jobs)], sys.stdout)
sys.stdout.flush()
ex.kill_workers()
"""


@contextmanager
def program(log: Path) -> Iterator[subprocess.Popen[str]]:
    path = os.pathsep.join([HERE, os.environ.get("PYTHONPATH", "")])
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(log)],
        env=os.environ | {"PYTHONPATH": path}, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def test_a_stopped_program_frees_no_job_and_wrongs_none(tmp_path):
    """As by a debugger: what is over its limit dies meanwhile, what ended in time is not judged by a later look."""
    log = tmp_path / "log"
    with program(log) as process:
        hung, napping = (int(line.split()[0]) for line in wait_for_lines(log, 2))
        stop(process.pid)
        wait_gone([hung], 0.6 + 0.3)
        assert state(process.pid) == "T"
        until(lambda: len(lines(log)) == 3, "end of the nap")
        time.sleep(1)  # far beyond every limit, and beyond the patience for the warden's word
        assert alive(napping)
        os.kill(process.pid, signal.SIGCONT)
        told = json.loads(process.communicate(timeout=CAP_S)[0])
    assert [(status, attempts) for status, attempts, _ in told[:2]] == [("timeout", 1), ("succeeded", 1)]
    assert 0.6 <= told[0][2] < 0.9
    for status, attempts, _ in told[2:5]:  # without a deadline: they ran before the stop, or ran after it
        assert (status, attempts) == ("succeeded", 1)
    assert told[5][:2] in (["succeeded", 1], ["deadline", 0])


# ---- the warden


def test_a_stopped_warden_frees_no_job(pool, tmp_path):
    """The program ends it by itself: 50 ms after the limit it has had no word."""
    ex = pool(1)
    ex.submit(deeds.double, 1).result(CAP_S)
    log = tmp_path / "log"
    future = ex.options(timeout=0.4).submit(deeds.hang, "native", str(log))
    pid = int(wait_for_lines(log, 1)[0].split()[0])
    warden = parent_of(pid)
    began = float(lines(log)[0].split()[1])
    stop(warden)
    until(lambda: not alive(pid), "its end", 2)
    late = time.monotonic() - began - 0.4
    assert 0 < late < 0.3, "150 ms are asked for; a busy machine adds to it"
    outcome = future.outcome(CAP_S)
    assert (outcome.status, outcome.attempts) == ("timeout", 1)
    assert 0.4 <= outcome.observed < 0.7
    assert ex.submit(deeds.double, 4).result(CAP_S) == 8
    assert parent_of(ex.submit(deeds.pid).result(CAP_S)) == warden
