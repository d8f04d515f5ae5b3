"""A storage call that fails: no outcome is wrong, lost or invented (scripts/measure/journal.py tries them all)."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import journal_deeds as deeds
import pytest

from tests.journal import strace
from tests.journal.faults import with_fault

WHY = strace.missing()


@pytest.mark.skipif(bool(WHY), reason=WHY or "strace is there")
@pytest.mark.parametrize(
    ("name", "number", "error"),
    [
        ("pwrite64", 40, "EIO"), ("pwrite64", 41, "ENOSPC"), ("pwrite64", 52, "EIO"), ("fdatasync", 4, "EIO"),
        ("fdatasync", 9, "ENOSPC"), ("write", 5, "ENOSPC"), ("pread64", 4, "EIO"), ("openat", 3, "EIO"),
        ("unlink", 1, "EIO"),
    ],
)  # fmt: skip
def test_one_call_fails(tmp_path, name, number, error):
    with_fault(tmp_path, 15, name, number, error)


FULL = """\
import resource, sys, time
import journal_deeds as deeds
from ptss_mp import Executor, JournalError, PoolBroken
from ptss_mp.journal import writer

def until(true):
    end = time.monotonic() + 30
    while not true():
        assert time.monotonic() < end
        time.sleep(0.005)

def refused():
    try:
        ex.submit(deeds.add, time.monotonic())
    except JournalError as error:
        assert error.reason == "io" and "no job is accepted" in str(error), error
        return True

if __name__ == "__main__":
    journal, calls, other, way = sys.argv[1:]
    hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
    writer.PATIENCE_S = 1.0
    with Executor(max_workers=1, spares=0, journal=journal) as ex:
        assert ex.submit(deeds.add, 1).result(30) == 1
        running, waiting = ex.submit(deeds.sleep, calls, 0.3), ex.submit(deeds.count, other)
        until(lambda: deeds.times(calls))
        resource.setrlimit(resource.RLIMIT_FSIZE, (1_000, hard))  # the disk is full: EFBIG, and no signal (Python)
        until(refused)
        time.sleep(0.5)
        assert not running.done() and not waiting.done() and not deeds.times(other)
        if way == "recovers":
            resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
            running.result(30), waiting.result(30)
            assert deeds.times(other) == 1
            assert ex.submit(deeds.add, 2).result(30) == 2
    if way == "stays":
        assert "not on disk" in str(running.exception()) and isinstance(running.exception(), PoolBroken)
        assert waiting.cancelled()
"""


@pytest.mark.parametrize("way", ["recovers", "stays"])
def test_a_disk_that_takes_nothing(tmp_path, pool, way):
    program = tmp_path / "program.py"
    program.write_text(FULL)
    paths = [str(tmp_path / name) for name in ("journal.db", "calls", "other")]
    run = subprocess.run(
        [sys.executable, program, *paths, way], capture_output=True, text=True, timeout=60, check=False,
        env=os.environ | {"PYTHONPATH": f"{strace.REPOSITORY}:{Path(__file__).parent}"},
    )  # fmt: skip
    assert (run.returncode, run.stderr) == (0, "")
    with pool() as ex:
        running, waiting = ex.submit(deeds.sleep, paths[1], 0.3), ex.submit(deeds.count, paths[2])
        ends = [future.outcome(30).status.value for future in (running, waiting)]
    assert ends == (["succeeded"] * 2 if way == "recovers" else ["interrupted", "succeeded"])
    assert (deeds.times(paths[1]), deeds.times(paths[2])) == (1, 1)
