"""The core alone, against pretended workers that answer all they were given: microseconds per job.

    python scripts/bench_core.py [repetitions]

Prints medians; each job is submitted, dispatched and answered.
"""

import random
import statistics
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from ptss_mp.core.commands import Dispatch, Settle, StartWorker
from ptss_mp.core.events import Answered, Submitted, WorkerReady
from ptss_mp.core.job import NEVER, Prerequisite, Spec
from ptss_mp.core.scheduler import Scheduler

RUN_NS = 3_000  # what a pretended no-op takes


def drive(count, slice_, due=None, after=None, timeout_ns=0):
    """Run `count` jobs through a core with 8 workers; return (seconds in the core, worst step)."""
    core, spec = Scheduler(8, 0), Spec(1, timeout_ns=timeout_ns)
    core.estimates[1] = RUN_NS
    now, next_id, settled, total, worst = 1, 1, 0, 0.0, 0.0
    commands = []
    while settled < count:
        now += 100_000
        events = []
        for command in commands:
            if type(command) is Dispatch:
                rows = [(job, 0, now - RUN_NS, RUN_NS) for job in command.ids]
                events.append(Answered(now, command.worker, rows))
            elif type(command) is StartWorker:
                events.append(WorkerReady(now, command.worker))
        if next_id <= count:
            last = min(count + 1, next_id + slice_)
            rows = [
                (i, spec, due(i) if due else NEVER, now, after(i) if after else None)
                for i in range(next_id, last)
            ]
            events.append(Submitted(now, rows))
            next_id = last
        began = time.perf_counter()
        commands = core.step(events)
        took = time.perf_counter() - began
        total, worst = total + took, max(worst, took)
        settled += sum(len(c.ids) for c in commands if type(c) is Settle)
    assert not core.jobs
    return total, worst


def main():
    repetitions = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    rng = random.Random(3)
    deadlines = [rng.randrange(10**15, 10**16) for _ in range(1_000_001)]

    def chain(i):
        return (Prerequisite(i - 1, "", 0, NEVER),) if i > 1 else None

    cases = [
        ("plain, slices of 256", 200_000, {"slice_": 256}),
        ("plain, timeout on all", 200_000, {"slice_": 256, "timeout_ns": 30 * 10**9}),
        ("random deadlines, slices of 256", 200_000, {"slice_": 256, "due": deadlines.__getitem__}),
        ("chain, one after another", 50_000, {"slice_": 256, "after": chain}),
        ("1,000,000 plain, slices of 4,000", 1_000_000, {"slice_": 4000}),
        ("1,000,000 random deadlines pending", 1_000_000, {"slice_": 4000, "due": deadlines.__getitem__}),
    ]
    print(f"{'case':40} {'us/job':>8} {'min':>8} {'max':>8} {'worst step ms':>14}")
    for name, count, how in cases:
        runs = [drive(count, **how) for _ in range(min(repetitions, 3) if count == 1_000_000 else repetitions)]
        per_job = sorted(total / count * 1e6 for total, _ in runs)
        worst = max(step for _, step in runs) * 1e3
        median = statistics.median(per_job)
        print(f"{name:40} {median:8.2f} {per_job[0]:8.2f} {per_job[-1]:8.2f} {worst:14.1f}", flush=True)


if __name__ == "__main__":
    main()
