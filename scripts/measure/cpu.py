"""How exactly a limit of CPU time is held, by a page in which the job itself stamps what it has used.

    python scripts/measure/cpu.py [--kills 200] [--limit 0.1]

Each kill is of a worker that has run another job before, which used almost the whole of the same limit.  Printed is
what the guilty one had used at its last stamp, less the limit: a negative number was a kill too early.
"""

import argparse
import mmap
import os
import statistics
import struct
import sys
import tempfile
import time
from pathlib import Path

from common import load

sys.path.insert(0, str(Path(__file__).resolve().parent))
CAP_S = 60
TOO_EARLY_S = 0.001  # from the attempt's start to the function's first line


def burn(path, cpu_s):
    """Use so much CPU time, and stamp it all the while."""
    with open(path, "r+b") as file:
        stamp = memoryview(mmap.mmap(file.fileno(), 4096)).cast("d")
    start = time.process_time()
    while (used := time.process_time() - start) < cpu_s:
        stamp[0] = used  # one store: whoever is killed in it leaves the one or the other
    return os.getpid()


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--limit", type=float, default=0.1)
    args = parser.parse_args()
    from cpu import burn as job  # by the name under which a worker finds it

    from ptss_mp import Executor

    beyond, reused = [], 0
    with tempfile.TemporaryDirectory() as folder, Executor(max_workers=1, preload=["cpu"]) as ex:
        path = os.path.join(folder, "page")
        Path(path).write_bytes(bytes(4096))
        limited = ex.options(cpu_time=args.limit)
        for _ in range(args.kills):
            before = limited.submit(job, path, args.limit * 0.9).outcome(CAP_S)
            killed = limited.submit(job, path, CAP_S).outcome(CAP_S)
            if (before.status, killed.status) != ("succeeded", "cpu"):
                raise SystemExit(f"not as asked: {before}\n{killed}")
            reused += killed.worker_pid == before.worker_pid
            used = struct.unpack_from("<d", Path(path).read_bytes())[0]
            beyond.append((used - args.limit) * 1000)
    early = sum(1 for ms in beyond if ms < -TOO_EARLY_S * 1000)
    p99 = statistics.quantiles(beyond, n=100)[98]
    print(f"{args.kills} kills at {args.limit} s, {reused} in reused workers, {load()}")
    print(f"used beyond the limit, ms: p50 {statistics.median(beyond):.2f}, p99 {p99:.2f}, least {min(beyond):.2f}")
    print(f"early: {early}")
    return 1 if early else 0


if __name__ == "__main__":
    sys.exit(main())
