"""How late a job at its timeout dies, seen from outside, beside a bare loop of timerfd, SIGKILL and pidfd.

    python scripts/measure/kills.py [idle|busy|held|stopped|warden|million] [kills]

The program that has the pool is idle, busy in Python, inside a C call of 2 s that holds the interpreter lock, or
stopped by SIGSTOP; `warden`: it is idle, and the warden is stopped; `million`: it holds a million Futures that wait for
their start time, and collects all garbage again and again.  Each job stamps the clock in a shared page, so
its last instruction is known; its end is told by a pidfd in this process.

Of each kill: `last`, the last instruction after the limit; `gone`, the pidfd after the limit.  The limit counts from
the job's first instruction, which is what it takes to decode the job (0.05 ms, or a time slice) later than the product
counts it; so `early` is only who was gone before its limit counted from the moment at which it was asked for.  The
bare loop kills as many processes of the same job, in turns with the pool.
"""

import gc
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import jobs
from common import children, deaths, kill, load, ms, percentile, run, wait

JOBS = 12  # at a time; their limits are STEP_NS apart
FIRST_NS, STEP_NS = 600_000_000, 40_000_000
ROUND_S = 60
PENDING = 1_000_000


def limits():
    """Return the limits of one round."""
    return [FIRST_NS + i * STEP_NS for i in range(JOBS)]


# ---- the product's side


def pool(condition, page):
    """Run rounds of jobs, as this process's parent says: a line for a round, a line for the condition."""
    from ptss_mp import Executor

    words = jobs.beats(page, JOBS)
    with Executor(max_workers=JOBS, spares=0, preload=["jobs"]) as ex:
        for _ in [ex.submit(os.getpid).result() for _ in range(JOBS)]:
            pass
        later = ex.options(start_time="1h")
        kept = [later.submit(pow, 2, i) for i in range(PENDING if condition == "million" else 0)]
        while sys.stdin.readline():
            futures = []
            for i, limit in enumerate(limits()):  # one after another: a job that waits for a core begins late
                words[4 * i + 3] = time.monotonic_ns()
                futures.append(ex.options(timeout=limit / 1e9).submit(jobs.beat, page, JOBS, i, limit))
                wait(lambda i=i: words[4 * i], ROUND_S)
            sys.stdin.readline()  # all have begun
            if condition == "held":
                jobs.holding.poll(0, 0, 2_000)
            while condition == "million" and not all(future.done() for future in futures):
                gc.collect()
            while condition == "busy" and not all(future.done() for future in futures):
                sum(range(1000))
            print(*sorted({future.outcome().status.value for future in futures}), flush=True)
        if kept:
            ex.kill_workers()


def bare(page):
    """The bare loop: forks, a timer, SIGKILL."""
    from ptss_mp.warden import kernel

    timer = kernel.timerfd()
    os.set_blocking(timer, True)
    words = jobs.beats(page, JOBS)
    while sys.stdin.readline():
        children = []
        for i, limit in enumerate(limits()):
            words[4 * i + 3] = time.monotonic_ns()
            pid = os.fork()
            if not pid:
                jobs.beat(page, JOBS, i, limit)
            children.append((pid, os.pidfd_open(pid)))
            wait(lambda i=i: words[4 * i], ROUND_S)
        for i in sorted(range(JOBS), key=lambda i: words[4 * i + 1] + limits()[i]):
            kernel.set_timer(timer, words[4 * i + 1] + limits()[i])
            os.read(timer, 8)
            signal.pidfd_send_signal(children[i][1], signal.SIGKILL)
        for pid, fd in children:
            os.waitpid(pid, 0)
            os.close(fd)
        print("done", flush=True)


# ---- the measurement


class Side:
    """One who runs jobs and has them killed, and what was seen of it."""

    def __init__(self, page, *args):
        self.process = run(__file__, *args, page, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.words = jobs.beats(page, JOBS)
        self.last, self.gone, self.early, self.left, self.missed = [], [], 0, 0, 0

    def say(self):
        self.process.stdin.write("\n")
        self.process.stdin.flush()

    def hear(self):
        if not select.select([self.process.stdout], [], [], ROUND_S)[0]:
            raise SystemExit("no answer: the round hangs")
        return self.process.stdout.readline().strip()

    def begin(self):
        """Start a round; return the pids once all jobs run."""
        for i in range(4 * JOBS):
            self.words[i] = 0
        self.say()
        if not wait(lambda: all(self.words[4 * i] for i in range(JOBS)), ROUND_S):
            raise SystemExit("jobs did not begin")
        return [self.words[4 * i] for i in range(JOBS)]

    def note(self, pids, gone):
        """Take down how late each died."""
        for i, (pid, limit) in enumerate(zip(pids, limits(), strict=True)):
            at = self.words[4 * i + 1] + limit
            if pid not in gone:
                self.left += 1
                continue
            if not gone[pid]:  # the twelfth began after the first was killed: when that was nobody saw
                self.missed += 1
                continue
            self.last.append(self.words[4 * i + 2] - at)
            self.gone.append(gone[pid] - at)
            self.early += gone[pid] < self.words[4 * i + 3] + limit

    def end(self):
        self.process.stdin.close()
        self.process.wait()


def product_round(side, condition):
    """One round of the pool under the condition."""
    pids = side.begin()
    warden = children(side.process.pid)[0]
    if condition == "stopped":
        side.process.send_signal(signal.SIGSTOP)
    else:
        side.say()
    stop = (lambda: kill(warden, signal.SIGSTOP)) if condition == "warden" else None
    gone = deaths(pids, ROUND_S, stop)
    kill(warden, signal.SIGCONT)
    if condition == "stopped":
        side.process.send_signal(signal.SIGCONT)
        side.say()
    side.note(pids, gone)
    statuses = side.hear()
    if statuses != "timeout":
        print(f"statuses: {statuses}")


def bare_round(side):
    """One round of the bare loop."""
    pids = side.begin()
    gone = deaths(pids, ROUND_S)
    side.note(pids, gone)
    side.hear()


def measure(condition, kills):
    """Run rounds in turns; print one condition's lines."""
    with tempfile.TemporaryDirectory() as folder:
        pages = [str(Path(folder) / name) for name in ("pool", "bare")]
        for page in pages:
            Path(page).write_bytes(bytes(JOBS * jobs.BEATS))
        product, plain = Side(pages[0], condition), Side(pages[1], "bare")
        while len(product.gone) + product.left < kills:
            product_round(product, condition)
            bare_round(plain)
        product.end()
        plain.end()
    print(f"{condition}: {len(product.gone)} kills ({load()}); ms after the limit, p50 / p90 / p99 / max")
    for name, side in (("pool", product), ("bare", plain)):
        told = f"early {side.early}, never {side.left}, missed {side.missed}"
        print(f"  {name}  last {ms(side.last)}   gone {ms(side.gone)}   {told}")
    for name, share in (("p50", 0.5), ("p99", 0.99)):
        beyond = percentile(product.gone, share) - percentile(plain.gone, share)
        print(f"  gone beyond the bare loop, {name}: {beyond / 1e6:.2f} ms")
    sys.stdout.flush()


def main(argv):
    if argv[:1] == ["pool"]:
        return bare(argv[2]) if argv[1] == "bare" else pool(*argv[1:])
    kills = int(argv[1]) if len(argv) > 1 else 1_000
    for condition in argv[:1] or ["idle", "busy", "held", "stopped", "warden", "million"]:
        began = time.monotonic()
        measure(condition, kills)
        print(f"  took {time.monotonic() - began:.0f} s", flush=True)
    return None


if __name__ == "__main__":
    main(sys.argv[1:])
