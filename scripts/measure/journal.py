"""The journal in full: kill -9, losses of power, faults of each storage call, and what it costs.

    python scripts/measure/journal.py kills [--count 500] [--jobs 2000]
    python scripts/measure/journal.py power [--count 2000] [--jobs 300]        (needs strace)
    python scripts/measure/journal.py faults [--jobs 50]                       (needs strace; twenty minutes)
    python scripts/measure/journal.py speed [--jobs 20000]

The first three are those of tests/journal, at their full size.
"""

import argparse
import sys
import tempfile
import time
from pathlib import Path

from common import ROOT, load

sys.path.insert(0, str(ROOT))

import noops

from ptss_mp import Executor


def rate(job, count, **journal):
    """Return (accepted, done) jobs per second."""
    with Executor(max_workers=2, **journal) as ex:
        ex.submit(job, -1).result()
        began = time.perf_counter()
        futures = [ex.submit(job, n) for n in range(count)]
        accepted = time.perf_counter()
        for future in futures:
            future.result()
        return count / (accepted - began), count / (time.perf_counter() - began)


def speed(jobs, rounds=5):
    """Print medians of interleaved rounds: without a journal, and with one under both policies."""
    kinds = {"no journal": None, "journal": "fail", "journal, rerun": "rerun"}
    for name, job, count in (("no-op", noops.nothing, jobs), ("10 ms", noops.ten_ms, max(1, jobs // 40))):
        found = {kind: [] for kind in kinds}
        for _ in range(rounds):
            for kind, policy in kinds.items():
                with tempfile.TemporaryDirectory(dir=Path.cwd()) as folder:
                    kept = {"journal": f"{folder}/j.db", "on_interrupted": policy} if policy else {}
                    found[kind].append(rate(job, count, **kept))
        for kind, rates in found.items():
            accepted, done = (sorted(column)[rounds // 2] for column in zip(*rates, strict=True))
            print(f"{name:6} {kind:15} accepted {accepted:9,.0f}/s, done {done:9,.0f}/s   ({load()})", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("kills", "power", "faults", "speed"))
    parser.add_argument("--count", type=int)
    parser.add_argument("--jobs", type=int)
    args = parser.parse_args()
    if args.what == "speed":
        speed(args.jobs or 20_000)
        return
    from tests.journal import faults, kills, power

    if args.what == "kills":
        kills.main(args.count or 500, args.jobs or 2_000)
    elif args.what == "power":
        power.main(args.count or 2_000, args.jobs or 300, runs=8)
    else:
        faults.main(args.jobs or 50)


if __name__ == "__main__":
    main()
