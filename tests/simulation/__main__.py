"""Run simulated histories by seed.

    python -m tests.simulation --count 20000          many; the first that fails is told
    python -m tests.simulation --seed 8123            one, with the digest of its whole history
"""

from __future__ import annotations

import argparse
import os
import sys
import time
import traceback
from concurrent.futures import ProcessPoolExecutor
from itertools import islice

from ptss_mp.core.story import story

from .world import World, show

TOLD_STEPS = 25  # of a failed run, the last ones
CHUNK = 250


def failure(seed: int) -> str:
    """Run one seed; return what went wrong, "" if nothing did."""
    try:
        World(seed).run()
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return ""


def tell(seed: int) -> bool:
    """Run one seed and print its digest; if it fails, its parameters, last steps and the story of the job."""
    world = World(seed, keep=True)
    kept = world.kept
    assert kept is not None
    try:
        world.run()
    except Exception as error:
        print(world.swarm)
        for events, commands in kept[-TOLD_STEPS:]:
            print("\n".join(f"  {show(event)}" for event in events))
            print("\n".join(f"      -> {command}" for command in commands))
        job = getattr(error, "job", 0)
        for line in story(((e, c, 0) for e, c in kept), job) if job else ():
            print(f"{line.at:>16} {line.what:12} worker {line.worker:<3} {line.detail}")
        traceback.print_exc(limit=-3, file=sys.stdout)
        print(f"seed {seed}, step {world.steps}: {error}")
        return False
    print(f"seed {seed}: {len(world.plans)} jobs, {world.steps} steps, sha256 {world.digest()}")
    return True


def chunk(first: int, last: int) -> list[tuple[int, str]]:
    """Return the failures among the seeds from `first` to before `last`."""
    return [(seed, why) for seed in range(first, last) if (why := failure(seed))]


def main() -> int:
    """Parse the arguments, run, print; 1 if a seed failed."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--seed", type=int)
    parser.add_argument("--start", type=int, default=0)
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--processes", type=int, default=os.cpu_count())
    given = parser.parse_args()
    if given.seed is not None:
        return 0 if tell(given.seed) else 1
    began, end = time.perf_counter(), given.start + given.count
    firsts = range(given.start, end, CHUNK)
    failed: list[tuple[int, str]] = []
    with ProcessPoolExecutor(given.processes) as pool:
        for found in pool.map(chunk, firsts, [min(end, first + CHUNK) for first in firsts]):
            failed += found
    for seed, why in islice(failed, 20):
        print(f"seed {seed}: {why}")
    took = time.perf_counter() - began
    print(f"{given.count} schedules in {took:.1f} s ({given.count / took:.0f}/s), {len(failed)} failed")
    if failed:
        tell(failed[0][0])
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
