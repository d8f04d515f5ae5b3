"""How late timed starts are, beyond what a bare timerfd is late in the same run; and whether any is early.

    python scripts/measure/lateness.py [--starts 10000] [--apart 2.0]

Jobs get a start time each, some milliseconds apart, and return the clock as their first act; a process that does
nothing but sleep on a timerfd is woken at instants of the same kind, in blocks by turns.  Asked for: a median of at
most 0.1 ms beyond that process's, and no start before its instant.
"""

import argparse
import os
import random
import statistics
import subprocess
import sys
import time
from datetime import timedelta

from common import ROOT, load

BLOCK = 500
LEAD_NS = 200_000_000  # from the submission of a block to its first instant
CAP_S = 120


def clock():
    return time.monotonic_ns()


def instants(count, apart_ns, rng):
    """Return instants about so far apart, at odd places."""
    at = time.monotonic_ns() + LEAD_NS
    return [at + i * apart_ns + rng.randrange(apart_ns // 2) for i in range(count)]


def timed(ex, ats):
    """Return how late jobs started, ns; less than 0: early."""
    futures = []
    for at in ats:
        view = ex.options(start_time=timedelta(microseconds=(at - time.monotonic_ns()) // 1_000))
        futures.append(view.submit(clock))
    return [future.result(CAP_S) - future._release for future in futures]


def bare():
    """Sleep on a timerfd until each instant that comes by standard input; answer how late that was."""
    from ptss_mp.warden import kernel

    fd = kernel.timerfd()
    os.set_blocking(fd, True)
    for line in sys.stdin:
        late = []
        for at in map(int, line.split()):
            kernel.set_timer(fd, at)
            os.read(fd, 8)
            late.append(time.monotonic_ns() - at)
        print(*late, flush=True)


def asked(process, ats):
    process.stdin.write(" ".join(map(str, ats)) + "\n")
    process.stdin.flush()
    return [int(word) for word in process.stdout.readline().split()]


def told(name, late):
    late = sorted(late)
    p50, p99 = statistics.median(late), late[len(late) * 99 // 100]
    early = sum(1 for ns in late if ns < 0)
    figures = f"p50 {p50 / 1e6:.3f}, p99 {p99 / 1e6:.3f}, max {late[-1] / 1e6:.3f} ms; {early} early"
    print(f"{name:12} {len(late)} starts: {figures}")
    return p50


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("mode", nargs="?", default="all")
    parser.add_argument("--starts", type=int, default=10_000)
    parser.add_argument("--apart", type=float, default=2.0, help="milliseconds")
    args = parser.parse_args()
    sys.path.insert(0, str(ROOT))
    if args.mode == "bare":
        return bare()
    from ptss_mp import Executor

    rng, apart_ns, ours, theirs = random.Random(5), round(args.apart * 1e6), [], []
    with subprocess.Popen([sys.executable, __file__, "bare"], stdin=-1, stdout=-1, text=True) as process:
        with Executor(max_workers=1) as ex:
            [future.result(CAP_S) for future in [ex.submit(clock) for _ in range(200)]]
            for _ in range(-(-args.starts // BLOCK)):
                ours += timed(ex, instants(BLOCK, apart_ns, rng))
                theirs += asked(process, instants(BLOCK, apart_ns, rng))
        process.stdin.close()
    print(load())
    mine, bare_ = told("ptss_mp", ours), told("timerfd", theirs)
    beyond = (mine - bare_) / 1e6
    print(f"p50 beyond a bare timerfd: {beyond:.3f} ms (asked for: 0.1)")
    return int(beyond > 0.1 or min(ours) < 0)


if __name__ == "__main__":
    sys.exit(main())
