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


def start(folder: Path, jobs: int, policy: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, graph.__file__, folder, str(jobs), policy],
        env=os.environ | {"PYTHONPATH": str(REPOSITORY)},
        stdin=subprocess.DEVNULL,
    )


def until_done(folder: Path, jobs: int, policy: str, chance: random.Random, kills_max: int) -> tuple[int, Counter[str]]:
    """Kill the program up to so many times, let it end, check what it did; return (kills, how jobs ended)."""
    kills = 0
    while True:
        program = start(folder, jobs, policy)
        try:
            if kills < kills_max:
                try:
                    program.wait(chance.uniform(0.15, 0.15 + jobs / 2_000))
                except subprocess.TimeoutExpired:
                    program.kill()
                    kills += 1
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
