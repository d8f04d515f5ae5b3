"""kill -9 of a program at random instants, until it comes to its end."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

from tests.journal import graph

REPOSITORY = Path(__file__).parents[2]
CAP_S = 60.0
LINE_BYTES = 10  # of the log, about


def start(folder: Path, jobs: int, policy: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, graph.__file__, folder, str(jobs), policy],
        env=os.environ | {"PYTHONPATH": str(REPOSITORY)},
        stdin=subprocess.DEVNULL,
    )


def killed(program: subprocess.Popen[bytes], log: Path, lines: int) -> bool:
    """Kill a program once it has written so many more lines; return False if it ended before.

    How fast it is says nothing then: a random time would be too late on one machine and too early on another.
    """
    there, end = size(log), time.monotonic() + CAP_S
    while program.poll() is None and size(log) < there + lines * LINE_BYTES:
        assert time.monotonic() < end, "it does nothing"
        time.sleep(0.001)
    program.kill()
    return program.wait() != 0


def size(log: Path) -> int:
    return log.stat().st_size if log.exists() else 0


def until_done(folder: Path, jobs: int, policy: str, chance: random.Random, kills_max: int) -> tuple[int, Counter[str]]:
    """Kill the program up to so many times, let it end, check what it did; return (kills, how jobs ended)."""
    kills = 0
    while True:
        program = start(folder, jobs, policy)
        try:
            if kills < kills_max:
                kills += killed(program, folder / "log", chance.randint(1, jobs))
            status = program.wait(CAP_S)
        finally:
            program.kill()
            program.wait()
        if status == 0:
            return kills, graph.check(folder, jobs, policy)
        assert status == -9, f"the program ended with {status}"


def main(kills: int, jobs: int) -> None:
    """Kill so many times, graph after graph, both policies in turn."""
    import tempfile

    done, graphs, ends, began = 0, 0, Counter[str](), time.monotonic()
    chance = random.Random(6)
    while done < kills:
        with tempfile.TemporaryDirectory() as folder:
            policy = "rerun" if graphs % 3 == 2 else "fail"
            killed, ended = until_done(Path(folder), jobs, policy, chance, min(12, kills - done))
            done, graphs, ends = done + killed, graphs + 1, ends + ended
            print(f"{policy}: {killed} kills, {dict(ended)}", flush=True)
    took = time.monotonic() - began
    print(f"{done} kills of {graphs} graphs of {jobs} jobs in {took:.0f} s: none repeated or forgotten")
    print(f"how the jobs ended: {dict(ends)}")
