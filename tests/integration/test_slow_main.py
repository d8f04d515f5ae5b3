"""A main module that is slow to import is imported by the warden, once, and costs no job its time."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

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
            print(job.outcome().status, job.outcome().error)
"""


def test_its_import_is_not_the_first_jobs_time(tmp_path: Path):
    (tmp_path / "program.py").write_text(PROGRAM)
    run = subprocess.run(
        [sys.executable, tmp_path / "program.py"], capture_output=True, text=True, timeout=60, check=False,
        env=os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])},
    )  # fmt: skip
    assert (run.returncode, run.stderr) == (0, "")
    assert sorted(run.stdout.splitlines()) == ["imported", *["succeeded None"] * 4]
