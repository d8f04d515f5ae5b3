"""Each storage call of a run made to fail once: what was told stays true, and the next run does the rest."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

from tests.journal import commits, graph
from tests.journal.strace import REPOSITORY, calls, traced

CALLS = ("openat", "pread64", "pwrite64", "write", "fdatasync", "fsync", "ftruncate", "unlink", "unlinkat")
CAP_S = 60.0


def counted(folder: Path, jobs: int) -> Counter[str]:
    """Return how many of each call the busiest thread makes on the files of the journal (strace counts by thread)."""
    trace = traced(folder, [commits.__file__, str(folder), str(jobs)], ["-e", f"trace={','.join(CALLS)}"])
    by_thread = Counter((call.name, call.pid) for call in calls(trace))
    most: Counter[str] = Counter()
    for (name, _), count in by_thread.items():
        most[name] = max(most[name], count)
    return most


def with_fault(folder: Path, jobs: int, name: str, number: int, error: str) -> None:
    """Let one call fail, then run once more without faults, and check both."""
    fault = ["-e", f"trace={name}", "-e", f"inject={name}:error={error}:when={number}"]
    traced(folder, [commits.__file__, str(folder), str(jobs)], fault)
    again = subprocess.run(
        [sys.executable, commits.__file__, folder, str(jobs)],
        env=os.environ | {"PYTHONPATH": str(REPOSITORY)}, capture_output=True, text=True, timeout=CAP_S, check=False,
    )  # fmt: skip
    assert again.returncode == 0, again
    ends = graph.check(folder, jobs, "fail", needs=lambda _number: [])
    assert set(ends) <= {"succeeded", "interrupted"}, ends


def main(jobs: int, errors: tuple[str, ...] = ("EIO", "ENOSPC")) -> None:
    """Let every call fail once, each in a run of its own."""
    import tempfile

    began, runs = time.monotonic(), 0
    with tempfile.TemporaryDirectory() as folder:
        most = counted(Path(folder), jobs)
    print(f"calls of a run of {jobs} jobs: {dict(most)}", flush=True)
    for name, count in most.items():
        for error in errors:
            for number in range(1, count + 1):
                with tempfile.TemporaryDirectory() as folder:
                    with_fault(Path(folder), jobs, name, number, error)
                runs += 1
            print(f"{name} {error}: {count} runs, no wrong outcome", flush=True)
    print(f"{runs} runs in {time.monotonic() - began:.0f} s: no outcome wrong, lost or invented")
