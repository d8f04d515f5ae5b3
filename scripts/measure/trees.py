"""Whether all a job has started dies with it, and how fast.

    python scripts/measure/trees.py [--shape SHAPE] [--how timeout|cancel|crash|mixed] [--kills 200] [--hogs 0]

Without --shape: session, daemon, mover (forks, leaves the session and exits for ever), deaf and fifty (children at
once).  `chain` is eight forks deep with a session of its own at the end.  All that a job starts holds the writing end
of a fifo of its own: end of file there tells that nobody is left, whoever reaped whom.  Who lives a second later is a
survivor; the time is that from the moment at which the program was told the job's end.
"""

import argparse
import contextlib
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import jobs
from common import command, hogs, load, marked, ms, run, stat

FIVE = ("session", "daemon", "mover", "deaf", "fifty")
LEFT_S = 1.0
LIMIT_S = {"fifty": 0.5}
HOWS = ("timeout", "cancel", "crash")


# ---- the product's side


def pool(shape):
    """Read "how fifo" lines and run a job for each; a line "cancel" kills it by cancel()."""
    from ptss_mp import Executor

    with Executor(max_workers=1, preload=["jobs"]) as ex:
        for line in sys.stdin:
            how, fifo = line.split()
            limit = {"timeout": LIMIT_S.get(shape, 0.2)} if how == "timeout" else {}
            future = ex.options(**limit).submit(jobs.tree, shape, fifo, how)
            if how == "cancel":
                sys.stdin.readline()
                future.cancel()
            print(future.outcome().status.value, flush=True)


# ---- the measurement


def until_grown(fd, shape, seconds):
    """Wait until the tree has said that it is there; return True if all of it did."""
    said, poll = 0, select.poll()
    poll.register(fd, select.POLLIN)
    end = time.monotonic() + seconds
    while said < jobs.SIZES[shape] and time.monotonic() < end:
        for _, event in poll.poll(10):
            if event & select.POLLIN:
                said += len(os.read(fd, 100))
            elif event & select.POLLHUP:
                return False  # dead before it was there
    return said == jobs.SIZES[shape]


def until_gone(fd, seconds):
    """Wait for the end of file; return True if it came."""
    poll = select.poll()
    poll.register(fd, select.POLLIN)
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        for _, event in poll.poll(max(1, int((end - time.monotonic()) * 1000))):
            if not event & select.POLLIN or not os.read(fd, 100):
                return True
    return False


def holders(fifo):
    """Return those processes of this measurement that hold a fifo."""
    found = []
    for pid in marked(str(os.getpid())):
        with contextlib.suppress(OSError):
            if fifo in {os.readlink(f"/proc/{pid}/fd/{fd}") for fd in os.listdir(f"/proc/{pid}/fd")}:
                found.append(pid)
    return found


class Count:
    """What was seen of one shape."""

    def __init__(self):
        self.kills = self.grown = 0
        self.survivors, self.after = [], []


def one(process, shape, how, folder, count):
    """One kill."""
    fifo = str(Path(folder) / f"{count.kills}")
    os.mkfifo(fifo)
    fd = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)
    process.stdin.write(f"{how} {fifo}\n")
    process.stdin.flush()
    count.grown += until_grown(fd, shape, 10)
    if how == "cancel":
        process.stdin.write("\n")
        process.stdin.flush()
    if not select.select([process.stdout], [], [], 20)[0]:
        raise SystemExit(f"{how} of {shape}: no outcome")
    status, told = process.stdout.readline().strip(), time.monotonic_ns()
    if status != {"timeout": "timeout", "cancel": "cancelled", "crash": "crashed"}[how]:
        print(f"{how}: {status}")
    if until_gone(fd, LEFT_S):
        count.after.append(time.monotonic_ns() - told)
    else:
        holding = holders(fifo)
        count.survivors.append([f"{pid} {stat(pid)} {command(pid)}" for pid in holding])
        for pid in holding:
            os.kill(pid, signal.SIGKILL)
    count.kills += 1
    os.close(fd)
    os.unlink(fifo)


def measure(shape, how, kills):
    """So many kills of one shape; print its line; return the number of survivors."""
    count, began = Count(), time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        process = run(__file__, shape, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        while count.kills < kills:
            one(process, shape, HOWS[count.kills % 3] if how == "mixed" else how, folder, count)
        process.stdin.close()
        process.wait()
    print(
        f"{shape:8} {how}: {kills} kills ({count.grown} of trees that were all there), "
        f"survivors {len(count.survivors)}; "
        f"ms from the told end to the last death {ms(count.after)} ({load()}, {time.monotonic() - began:.0f} s)"
    )
    for survivor in count.survivors:
        print(f"    {survivor}")
    sys.stdout.flush()
    return len(count.survivors)


def main():
    if sys.argv[1:2] == ["pool"]:
        pool(sys.argv[2])
        return 0
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--shape", choices=jobs.SHAPES, action="append")
    parser.add_argument("--how", choices=(*HOWS, "mixed"), default="mixed")
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--hogs", type=int, default=0)
    args = parser.parse_args()
    with hogs(args.hogs):
        return min(1, sum(measure(shape, args.how, args.kills) for shape in args.shape or FIVE))


if __name__ == "__main__":
    sys.exit(main())
