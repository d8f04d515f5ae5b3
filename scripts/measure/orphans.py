"""What is left when the program is killed by SIGKILL: processes, shared memory, temporary files.

    python scripts/measure/orphans.py [kills] [seed]

At a random moment from the making of the pool on, start-up included, while jobs sleep, hold the interpreter lock and
a core, have stopped themselves, or have grown trees; every third program has a fork of its own that holds all its
descriptors.  Whoever carries the program's mark in its environment is counted, but that fork; /dev/shm and the
folder for temporary files are listed before and after.  Who lives after a second is left.
"""

import contextlib
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import jobs
from common import command, load, marked, ms, run, state, wait

LEFT_S = 1.0
SPANS_S = (0.02, 0.1, 0.2, 1.0)  # within one of them: the warden is started, ready, has workers, is at work
KINDS = ("sleep", "native", "spin", "stopped", "tree", "load")


# ---- the product's side


def pool(kind, fork, folder):
    """Run jobs of one kind until somebody kills this process."""
    from ptss_mp import Executor

    print("now", flush=True)
    ex = Executor(max_workers=2, preload=["jobs"])
    path = str(Path(folder) / "log")
    if kind == "load":
        futures = [ex.submit(jobs.logged, path, i, 0.001) for i in range(1_000_000)]
    elif kind == "tree":
        os.mkfifo(path)
        futures = [ex.submit(jobs.tree, shape, path, "") for shape in ("daemon", "chain")]
        os.open(path, os.O_RDWR)
    else:
        futures = [ex.submit(jobs.hang, kind, path) for _ in range(2)]
    if fork == "fork" and not os.fork():
        (Path(folder) / "fork").write_text(str(os.getpid()))
        time.sleep(jobs.HANG_S)
    futures[0].result()


# ---- the measurement


def fork_of(folder):
    """Return the pid that the program's own fork has told, "" if it has not yet: it may come after the kill."""
    with contextlib.suppress(FileNotFoundError):
        return (Path(folder) / "fork").read_text()
    return ""


def left(mark, folder):
    """Return whoever carries the mark, but the program's own fork."""
    pids = marked(mark)
    return [pid for pid in pids if str(pid) != fork_of(folder)]


def one(number, rng, seen):
    """Start a program, kill it, look; return what was left, in words."""
    kind, forks = KINDS[number % len(KINDS)], number % 3 == 0
    mark, shared = f"{os.getpid()}.{number}", set(os.listdir("/dev/shm"))
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryDirectory() as temporary:
        os.environ["TMPDIR"] = temporary
        program = run(__file__, kind, "fork" if forks else "no", folder, mark=mark, stdout=subprocess.PIPE)
        program.stdout.readline()
        time.sleep(rng.random() * SPANS_S[number % len(SPANS_S)])
        processes = len(marked(mark)) - 1
        program.send_signal(signal.SIGKILL)
        program.wait()
        program.stdout.close()
        at = time.monotonic_ns()
        if fork := fork_of(folder):
            seen["while a fork lives"] += state(int(fork)) not in "XZ"
        gone = wait(lambda: not left(mark, folder), LEFT_S)
        seen[f"{min(processes, 3)} processes of ours or more" if processes else "none of ours yet"] += 1
        found = [f"{kind}: {pid} {state(pid)} {command(pid)}" for pid in left(mark, folder)] if not gone else []
        seen.elapsed.append(time.monotonic_ns() - at)
        found += [f"{kind}: /dev/shm/{name}" for name in set(os.listdir("/dev/shm")) - shared]
        found += [f"{kind}: temporary {name}" for name in os.listdir(temporary)]
        for pid in marked(mark):
            os.kill(pid, signal.SIGKILL)
    return found


class Seen(Counter):
    """How the programs were met, and how long it took until none of ours was left."""

    def __init__(self):
        super().__init__()
        self.elapsed = []


def main(argv):
    if argv[:1] == ["pool"]:
        return pool(*argv[1:])
    kills = int(argv[0]) if argv else 200
    rng, seen, found = random.Random(int(argv[1]) if len(argv) > 1 else 1), Seen(), []
    for number in range(kills):
        found += one(number, rng, seen)
    print(f"{kills} programs killed, left after {LEFT_S:g} s: {len(found)} ({load()})")
    print(f"  met: {dict(seen)}")
    print(f"  ms until none of ours was left, p50 / p90 / p99 / max {ms(seen.elapsed)}")
    for line in found:
        print(f"  {line}")
    return bool(found)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
