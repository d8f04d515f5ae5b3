"""What it costs to watch workers with limits, in processor time of the program and of its warden, seen from outside.

    python scripts/measure/supervision.py [--workers 64] [--seconds 8] [LIMITS…]

All workers sleep in a job; LIMITS are none, timeout, memory, cpu and all.  Asked for is at most 2 % of one processor.
"""

import argparse
import subprocess
import sys
import time

from common import children, load

OPTIONS = {
    "none": {},
    "timeout": {"timeout": 600},
    "memory": {"timeout": 600, "memory": "1GiB"},
    "cpu": {"timeout": 600, "cpu_time": 600},
    "all": {"timeout": 600, "memory": "1GiB", "cpu_time": 600, "processes": 100},
}
AT_MOST = 2.0
CAP_S = 120


def pool(workers, limits):
    """Keep all workers busy until standard input ends; say so once they are."""
    from ptss_mp import Executor

    with Executor(max_workers=workers) as ex:
        futures = [ex.options(**OPTIONS[limits]).submit(time.sleep, CAP_S) for _ in range(workers)]
        while not all(future.running() for future in futures):
            time.sleep(0.05)
        print("busy", flush=True)
        sys.stdin.read()
        ex.kill_workers()


def cpu_ns(pid):
    return time.clock_gettime_ns((~pid << 3) | 2)



def warden(pid):
    """Return the pid of the process below `pid` that has the most children: it has forked the workers."""
    return max(children(pid), key=lambda one: len(children(one)))


def measure(workers, limits, seconds):
    """Return the shares of a processor that warden and program take, in percent."""
    command = [sys.executable, __file__, "--pool", "--workers", str(workers), limits]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as program:
        assert program.stdout.readline() == "busy\n"
        time.sleep(1)  # what starting has left to do
        pids = warden(program.pid), program.pid
        before, began = [cpu_ns(pid) for pid in pids], time.monotonic_ns()
        time.sleep(seconds)
        after, took = [cpu_ns(pid) for pid in pids], time.monotonic_ns() - began
        program.stdin.close()
    return [100 * (b - a) / took for a, b in zip(before, after, strict=True)]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("limits", nargs="*", choices=[*OPTIONS, []])
    parser.add_argument("--workers", type=int, default=64)
    parser.add_argument("--seconds", type=float, default=8)
    parser.add_argument("--pool", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.pool:
        return pool(args.workers, args.limits[0])
    bad = 0
    print(f"{args.workers} busy workers, % of one processor, {load()}")
    for limits in args.limits or OPTIONS:
        shares = measure(args.workers, limits, args.seconds)
        bad += sum(shares) > AT_MOST
        more = "  <-- MORE" if sum(shares) > AT_MOST else ""
        print(f"{limits:8} warden {shares[0]:5.2f}  program {shares[1]:5.2f}{more}")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
