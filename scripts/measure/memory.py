"""By how much jobs pass their limit of memory, weighed from outside.

    python scripts/measure/memory.py [--limit-mib 256] [--runs 5] [--preload-mib 0] [KIND…]

Hogs of all kinds (tests/integration/hogs.py) fill memory as fast as they can, each in a pool of two workers with a
quiet neighbour.  This process adds up the resident memory of the worker and all below it about a thousand times a
second, less what the warden had at the fork, as the contract counts.  With --preload-mib that is so much more.
"""

import argparse
import contextlib
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

JOBS = Path(__file__).parents[2] / "tests" / "integration"
MIB, PAGE = 1 << 20, os.sysconf("SC_PAGE_SIZE")
CAP_S = 60


# ---- the product's side


def pool(limit_mib, preload):
    """Read "kind log" lines, run each hog with its limit beside a quiet neighbour; say how both ended."""
    import hogs

    from ptss_mp import Executor

    with Executor(max_workers=2, preload=["hogs", *preload]) as ex:
        limited = ex.options(memory=f"{limit_mib}MiB", timeout=CAP_S / 2)
        for line in sys.stdin:
            kind, log = line.rstrip().split("\t")
            neighbour = limited.submit(time.sleep, 0.2)
            ended = limited.submit(hogs.hog, kind, log).outcome()
            told = (ended.observed or 0) if ended.status == "memory" else 0
            print(ended.status.value, neighbour.outcome().status.value, round(told / MIB, 2), flush=True)


# ---- the measurement


def resident(pid):
    try:
        return int(Path(f"/proc/{pid}/statm").read_bytes().split()[1]) * PAGE
    except (OSError, IndexError):
        return 0


def tree(pid):
    found = [pid]
    for one in found:
        try:
            for thread in os.listdir(f"/proc/{one}/task"):
                found += map(int, Path(f"/proc/{one}/task/{thread}/children").read_text().split())
        except OSError:
            pass
    return found


def stat(pid, field):
    """Return a field of /proc/pid/stat, counted as in proc_pid_stat(5); 0 if it is gone."""
    try:
        return int(Path(f"/proc/{pid}/stat").read_bytes().rpartition(b") ")[2].split()[field - 3])
    except (OSError, IndexError):
        return 0


def weight(pid, warden, base):
    """Return what a tree holds; a fork that has not called exec (its stack tells) has the warden's memory too."""
    stack, total = stat(warden, 28), 0
    for one in tree(pid):
        before, held = stat(one, 28), resident(one)
        if before == stat(one, 28):  # else it has ended, or called exec, while it was weighed
            total += held - base * (before == stack)
    return total


def weigh(program, log):
    """Return (peak in bytes, what the program said of the end)."""
    os.set_blocking(program.stdout.fileno(), False)
    pid, warden, base, most, said, end = 0, 0, 0, 0, b"", time.monotonic() + CAP_S
    while time.monotonic() < end:
        if pid:
            most = max(most, weight(pid, warden, base))
        elif log.exists() and (text := log.read_text()):
            pid = int(text)
            warden = stat(pid, 4)
            base = resident(warden)
        with contextlib.suppress(BlockingIOError):
            said += os.read(program.stdout.fileno(), 1000)
        if said.endswith(b"\n"):
            return most, said.decode().split()
        time.sleep(0.0003)
    raise SystemExit(f"no end within {CAP_S} s")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("kinds", nargs="*")
    parser.add_argument("--limit-mib", type=int, default=256)
    parser.add_argument("--preload-mib", type=int, default=0)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--pool", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    sys.path.insert(0, str(JOBS))
    if args.pool:
        return pool(args.limit_mib, ["heavy"] if args.preload_mib else [])
    import hogs

    environ = os.environ | {"HEAVY_MIB": str(args.preload_mib)}
    command = [sys.executable, __file__, "--pool", "--limit-mib", str(args.limit_mib)]
    command += ["--preload-mib", str(args.preload_mib)]
    allowed = max(16, args.limit_mib / 10)
    bad = 0
    with (
        tempfile.TemporaryDirectory() as folder,
        subprocess.Popen(command, env=environ, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as program,
    ):
        print(f"limit {args.limit_mib} MiB, preloaded {args.preload_mib} MiB; over the limit, MiB: median (max)")
        for kind in args.kinds or hogs.HOGS:
            over, told, ends = [], [], set()
            for run in range(args.runs):
                log = Path(folder, f"{kind}-{run}".replace(" ", "-"))
                program.stdin.write(f"{kind}\t{log}\n")
                program.stdin.flush()
                most, (status, neighbour, observed) = weigh(program, log)
                over.append(most / MIB - args.limit_mib)  # the last weight before its end is the highest
                told.append(float(observed) - args.limit_mib)
                ends.add(f"{status}, neighbour {neighbour}")
            good = ends == {"memory, neighbour succeeded"} and max(over) <= allowed
            bad += not good
            seen, said = (f"{statistics.median(some):6.1f} ({max(some):.1f})" for some in (over, told))
            print(f"{kind:15} {seen}; by its outcome {said}; {'; '.join(ends)}{'' if good else '  <-- NOT AS ASKED'}")
        program.stdin.close()
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
