"""A main module that is slow to import is imported by the warden, once, and costs no job its time."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """\
import os, time
from ptss_mp import Executor
if __name__ != "__main__":
    time.sleep(0.5)
    print("imported", flush=True)

def square(n):
    return n * n

if __name__ == "__main__":
    with Executor(max_workers=2) as ex:  # the first submit comes while the warden is being started
        for job in [ex.options(timeout=0.4).submit(square, n) for n in range(4)]:
            os.write(1, f"{job.outcome().status} {job.outcome().error}\\n".encode())
"""


LATER = """\
import math, os, time
from ptss_mp import Executor
if __name__ != "__main__":
    time.sleep(0.5)

def square(n):
    return n * n

if __name__ == "__main__":
    with Executor(CONTEXT) as ex:
        print(sorted(ex.map(math.sqrt, [16, 4])))  # workers are there, and do not know the main module
        before = {ex.submit(os.getpid).result() for _ in range(20)}
        for job in [ex.options(timeout=0.4).submit(square, n) for n in range(20)]:
            if not job.outcome().ok or job.outcome().worker_pid in before:
                os.write(1, f"{job.outcome().status} {job.outcome().error}\\n".encode())
        print(ex.submit(os.getpid).result() in before)
"""


@pytest.mark.parametrize("context", ["2", "2, 'spawn'", "8", "1, fresh=True"])
def test_nor_that_of_workers_that_came_before(tmp_path: Path, context: str):
    (tmp_path / "program.py").write_text(LATER.replace("CONTEXT", context))
    run = subprocess.run(
        [sys.executable, tmp_path / "program.py"], capture_output=True, text=True, timeout=60, check=False,
        env=os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])},
    )  # fmt: skip
    assert (run.returncode, run.stderr) == (0, "")
    assert run.stdout.splitlines() == ["[2.0, 4.0]", "False"]


@pytest.mark.parametrize("context", ["", ", mp_context='spawn'"])
def test_its_import_is_not_the_first_jobs_time(tmp_path: Path, context: str):
    (tmp_path / "program.py").write_text(PROGRAM.replace("max_workers=2", "max_workers=2" + context))
    run = subprocess.run(
        [sys.executable, tmp_path / "program.py"], capture_output=True, text=True, timeout=60, check=False,
        env=os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])},
    )  # fmt: skip
    assert (run.returncode, run.stderr) == (0, "")
    said = run.stdout.splitlines()
    assert said.count("succeeded None") == 4
    assert 1 <= said.count("imported") <= (3 if context else 1), "each new interpreter has to"
