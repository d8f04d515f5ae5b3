"""A graph of a million edges: how long other work waits for its answer while it is built, runs and fails.

    python scripts/measure/graph.py [--edges 1000000] [CASE…]

A thread of its own sends urgent jobs, one after another, and times their round trips; asked for is at most 50 ms all
the while.  The collector is off (`--collect`: on); the program's own threads share the interpreter lock with the loop,
so each round trip may wait for some turns of 5 ms of theirs.
"""

import argparse
import gc
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time

from common import ROOT, load, ms, wait
from million import noop

CAP_S = 300
ASKED_NS = 50_000_000
PAUSE_S = 0.002  # between two urgent jobs


class Urgent:
    """Round trips from another thread, noted by phase."""

    def __init__(self, ex):
        self.view, self.phase, self.took = ex.options(priority=9, deadline=3_600), "start", {}
        self.over = threading.Event()
        self.thread = threading.Thread(target=self._run)
        self.thread.start()

    def _run(self):
        while not self.over.wait(PAUSE_S):
            phase, began = self.phase, time.monotonic_ns()
            assert self.view.submit(noop, 1).result(CAP_S) == 1
            self.took.setdefault(phase, []).append(time.monotonic_ns() - began)

    def end(self):
        """Print what was seen; return how many phases had a round trip beyond what is asked."""
        self.over.set()
        self.thread.join(CAP_S)
        for phase, took in self.took.items():
            more = "  <-- MORE" if max(took) > ASKED_NS else ""
            print(f"    {phase:20} {len(took):6} round trips, ms p50 / p90 / p99 / max {ms(took)}{more}")
        return sum(max(took) > ASKED_NS for took in self.took.values())


class Graph:
    """A pool, its turns, its urgent thread; the root of the graph ends when it is built."""

    def __init__(self):
        from turns import Turns

        from ptss_mp import Executor

        self.turns = Turns()
        self.ex = Executor(max_workers=3).start()
        for future in [self.ex.submit(nap) for _ in range(9)]:  # all workers are there, and know this module
            future.result(CAP_S)
        self.urgent = Urgent(self.ex)

    def root(self, fails):
        """Submit a job that ends when `run` says so, and how."""
        self.fails, self.fifo = fails, os.path.join(tempfile.mkdtemp(), "gate")
        os.mkfifo(self.fifo)
        return self.ex.submit(waits_for, self.fifo)

    def phase(self, name, act, over):
        """Do something and wait until it is over; tell turns."""
        self.urgent.phase = name
        with self.turns.told(name):
            act()
            assert wait(over, CAP_S, 0.005), name
        self.urgent.phase = "after"

    def build(self, act):
        pool = self.ex._pool
        self.phase("build", act, lambda: not (pool.inbox or pool.gathering or pool.core.behind))

    def run(self, last, how):
        """Let the root end; wait for the last Future."""

        def go():
            with open(self.fifo, "w") as file:
                file.write("fail" if self.fails else "go")

        self.phase(how, go, last.done)
        shutil.rmtree(os.path.dirname(self.fifo))
        if last.outcome().status != ("dependency" if self.fails else "succeeded"):
            raise SystemExit(f"the last job ended {last.outcome()}")

    def measure(self, build, kept, fails):
        """Build it, let the last of what was kept end, and end."""
        self.build(build)
        self.run(kept[-1], "fails" if fails else "runs")
        return self.end()

    def end(self):
        bad = self.urgent.end()
        self.ex.stop(0)
        return bad


def nap():
    time.sleep(0.2)


def waits_for(path):
    """End when somebody writes there; fail if that is what it says."""
    with open(path) as file:
        if file.read() == "fail":
            raise ValueError("as asked")


# ---- cases: (edges, fails)


def layers(edges, fails):
    """Jobs with ten prerequisites each, the ten before them."""
    graph, kept = Graph(), []

    def build():
        kept.append(graph.root(fails))
        for i in range(edges // 10):
            kept.append(graph.ex.options(after=kept[-10:]).submit(noop, i))

    return graph.measure(build, kept, fails)


def fan(edges, fails):
    """One job that all others wait for."""
    graph, kept = Graph(), []

    def build():
        kept.append(graph.root(fails))
        view = graph.ex.options(after=kept[0])
        kept.extend(view.submit(noop, i) for i in range(edges // 10))

    return graph.measure(build, kept, fails)


def chain(edges, fails):
    """Each waits for the one before; then one with a deadline lends it to all of them, and takes it back."""
    graph, kept = Graph(), []

    def build():
        kept.append(graph.root(fails))
        for i in range(edges // 10):
            kept.append(graph.ex.options(after=kept[-1]).submit(noop, i))

    graph.build(build)
    pool = graph.ex._pool
    urgent = graph.ex.options(after=kept[-1], deadline=3_000)
    hurry = []
    graph.phase("lends a deadline", lambda: hurry.append(urgent.submit(noop, 1)), lambda: caught_up(pool, hurry))
    graph.phase("takes it back", hurry[0].cancel, lambda: not (pool.gone or pool.core.behind))
    graph.run(kept[-1], "fails" if fails else "runs")
    return graph.end()


def caught_up(pool, futures):
    """The core has heard of these jobs, and done all that follows."""
    return all(f._id in pool.core.jobs for f in futures) and not pool.core.behind


def many(edges, fails):
    """One job that waits for all others."""
    graph, kept = Graph(), []

    def build():
        root = graph.root(fails)
        later = graph.ex.options(start_time="60s" if fails else "1ms", after=root)
        kept.extend(later.submit(noop, i) for i in range(edges - 1))
        kept.append(graph.ex.options(after=[*kept, root]).submit(noop, 0))

    return graph.measure(build, kept, fails)


CASES = {function.__name__: function for function in (layers, fan, chain, many)}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("cases", nargs="*", choices=[*CASES, []], metavar="CASE", help=", ".join(CASES))
    parser.add_argument("--edges", type=int, default=1_000_000)
    parser.add_argument("--collect", action="store_true", help="leave the garbage collector on")
    parser.add_argument("--here", choices=("fails", "runs"), help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.here:
        if not args.collect:
            gc.disable()
        return 1 if CASES[args.cases[0]](args.edges, args.here == "fails") else 0
    bad = 0
    print(f"{args.edges} edges, Python {sys.version.split()[0]}, {load()}", flush=True)
    for case in args.cases or CASES:
        for how in ("runs", "fails"):
            print(f"{case}, {how}", flush=True)
            command = [sys.executable, __file__, "--here", how, "--edges", str(args.edges), case]
            command += ["--collect"] * args.collect
            bad += subprocess.run(command, env=os.environ | {"PYTHONPATH": str(ROOT)}, check=False).returncode != 0
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
