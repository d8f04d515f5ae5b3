"""A million pending jobs: bytes of each, rates, and the longest turn of the loop whatever is done with them.

    python scripts/measure/million.py [--jobs 1000000] [CASE…]

Each case runs in a process of its own, with the collector off but for `collector`.  Asked for: at most 450 bytes a job
(the call is `submit(fn, i)`, the Futures stand in a list), a dispatch rate that falls less than twofold from a thousand
pending jobs to a million, the same speed of `submit` from the first to the last, no turn above 100 ms.  Turns are in
processor time of the loop's thread, so that neighbours do not count; wall time beside it counts waits for the
interpreter lock.
"""

import argparse
import asyncio
import concurrent.futures as cf
import gc
import os
import statistics
import subprocess
import sys
import threading
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

from common import ROOT, load, wait

CAP_S = 300
LINE = 10_000  # submissions timed together
FURTHER = 20_000  # jobs that are done while the others wait


def noop(number):
    return number


def rss():
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE")


class Pool:
    """A pool that has run something and is paused now, and what is pending there."""

    def __init__(self):
        from turns import Turns

        from ptss_mp import Executor

        self.turns = Turns()
        self.ex = Executor(max_workers=2).start()
        cf.wait([self.ex.submit(noop, i) for i in range(1_000)], CAP_S)
        self.ex.pause()
        self.core = self.ex._pool.core

    def fill(self, count, view=None, what="submitted"):
        """Submit so many; return their Futures once the core has them."""
        submit = (view or self.ex).submit
        with self.turns.told(what):
            futures = [submit(noop, i) for i in range(count)]
            self.taken()
        return futures

    def taken(self):
        """Wait until the core has heard all."""
        pool = self.ex._pool
        assert wait(lambda: not (pool.inbox or pool.gone or pool.gathering or self.core.behind), CAP_S, 0.01)

    def gone(self, what, act, left=lambda core: core.jobs):
        """Do something about what is pending; wait until that has had its effect on all."""
        with self.turns.told(what):
            act()
            assert wait(lambda: not left(self.core), CAP_S, 0.01)

    def end(self):
        self.ex.stop(0)


# ---- cases


def memory(count):
    pool = Pool()
    before = rss()
    futures = pool.fill(count)
    print(f"  bytes a job: {(rss() - before) / len(futures):.0f}")
    with pool.turns.told("status and metrics"):
        began = time.perf_counter()
        pool.ex.status(), pool.ex.metrics(), pool.ex.story(futures[-1])
        print(f"  status, metrics and a story: {(time.perf_counter() - began) * 1e3:.1f} ms")
    pool.end()


def memory_stdlib(count):
    ex = cf.ProcessPoolExecutor(1)
    ex.submit(noop, 1).result()
    hold = [ex.submit(time.sleep, 1_000) for _ in range(3)]
    time.sleep(0.2)
    before = rss()
    futures = [ex.submit(noop, i) for i in range(count)]
    print(f"  bytes a job, ProcessPoolExecutor: {(rss() - before) / len(futures):.0f}")
    for process in ex._processes.values():
        process.kill()
    cf.wait(hold)
    os._exit(0)


def submit(count):
    pool = Pool()
    kept, rates = [], []
    for start in range(0, count, LINE):
        began = time.perf_counter()
        kept += [pool.ex.submit(noop, i) for i in range(start, start + LINE)]
        rates.append(LINE / (time.perf_counter() - began))
    tenth = max(1, len(rates) // 10)
    first, last = (statistics.median(part) for part in (rates[:tenth], rates[-tenth:]))
    told = f"first tenth {first:,.0f}, last tenth {last:,.0f} (x {last / first:.2f}), least {min(rates):,.0f}"
    print(f"  submit/s: {told}")
    pool.taken()
    pool.end()


def dispatch(count):
    rates = {}
    for pending in (1_000, count):
        pool = Pool()
        futures, runs = pool.fill(pending, what=f"{pending} submitted"), []
        for _ in range(5):
            pool.ex.pause()
            urgent = pool.ex.options(priority=9)
            further = [urgent.submit(noop, i) for i in range(FURTHER)]
            pool.taken()
            began = time.perf_counter()
            pool.ex.resume()
            further[-1].result(CAP_S)
            runs.append(FURTHER / (time.perf_counter() - began))
            pool.ex.pause()
            pool.taken()
            futures += pool.fill(pending - len(pool.core.jobs), what="submitted again") if runs else []
        rates[pending] = statistics.median(runs)
        print(f"  {FURTHER} further jobs beside {pending} pending: {rates[pending]:,.0f} jobs/s")
        pool.end()
    few, many = rates.values()
    print(f"  the rate falls {few / many:.2f} fold")


def cancel(count):
    pool = Pool()
    futures = pool.fill(count)
    pool.gone("cancelled, one by one", lambda: [f.cancel() for f in futures])
    pool.end()


def cancel_some(count):
    pool = Pool()
    views = [pool.ex.options(deadline=1_000 + i % 997) for i in range(997)]
    with pool.turns.told("submitted with a thousand deadlines"):
        futures = [views[i * 7919 % 997].submit(noop, i) for i in range(count)]
        pool.taken()
    pool.gone("three quarters cancelled", lambda: [f.cancel() for f in [*futures[::2], *futures[1::4]]],
              lambda core: len(core.jobs) > count - len(futures[::2]) - len(futures[1::4]))  # fmt: skip
    with pool.turns.told("the others run"):
        pool.ex.resume()
        cf.wait(futures[3::400], CAP_S)
    pool.end()


def cancel_first(count):
    """Cancel the earlier half from the back: then all dead ones stand together at the head."""
    pool = Pool()
    views = [pool.ex.options(deadline=1_000 + i) for i in range(1_000)]
    with pool.turns.told("submitted, the last due first"):
        futures = [views[999 - i * 1_000 // count].submit(noop, i) for i in range(count)]
        pool.taken()
    half = futures[count // 2 :]
    pool.gone("the more urgent half cancelled", lambda: [f.cancel() for f in half],
              lambda core: len(core.jobs) > count - len(half))  # fmt: skip
    with pool.turns.told("the first of the others runs"):
        pool.ex.resume()
        futures[count // 2 - 1].result(CAP_S)
    pool.end()


def shutdown(count):
    pool = Pool()
    pool.fill(count)
    pool.gone("shutdown(cancel_futures=True)", lambda: pool.ex.shutdown(cancel_futures=True))


def stop(count):
    pool = Pool()
    pool.fill(count)
    pool.gone("stop(0)", lambda: pool.ex.stop(0))


def view_shutdown(count):
    pool = Pool()
    view = pool.ex.options(priority=1)
    pool.fill(count, view)
    pool.gone("a view's shutdown(cancel_futures=True)", lambda: view.shutdown(cancel_futures=True))
    pool.end()


def in_an_instant(count, option, left):
    """Let the same instant come for all."""
    pool = Pool()
    at = datetime.now(UTC) + timedelta(seconds=5 + count / 40_000)
    futures = pool.fill(count, pool.ex.options(**{option: at}))
    before = (at - datetime.now(UTC)).total_seconds()
    assert before > 0, "the machine is too slow: the instant has passed"
    time.sleep(before)
    pool.gone(f"the {option} of all comes", lambda: None, left)
    del futures
    pool.end()


def deadlines(count):
    in_an_instant(count, "deadline", lambda core: core.jobs)


def starts(count):
    in_an_instant(count, "start_time", lambda core: core.delayed)


def retries(count):
    pool = Pool()
    pool.ex.options(retries=1)
    from ptss_mp import Retry

    view = pool.ex.options(retries=Retry(exception=1, backoff=1.0, jitter=0.0))
    count //= 10
    futures = [view.submit(int, "no number") for _ in range(count)]
    with pool.turns.told(f"{count} jobs fail twice"):
        pool.ex.resume()
        cf.wait(futures[-1:], CAP_S)
        pool.ex.drain(CAP_S)
    assert {f.outcome().attempts for f in futures} == {2}
    pool.end()


def broken(count):
    pool = Pool()
    futures = pool.fill(count)
    with pool.turns.told("the pool breaks"):
        pool.ex._pool.control(lambda _now: pool.ex._pool._break("this was asked for"))
        cf.wait(futures[-1:], CAP_S)
    print(f"  the last Future: {futures[-1].exception()}")
    pool.end()


def callbacks(count):
    pool = Pool()
    called, slow = [], threading.Event()
    futures = pool.fill(count)
    futures[0].add_done_callback(lambda _: slow.wait(CAP_S))
    for future in futures:
        future.add_done_callback(called.append)
    with pool.turns.told("all cancelled, the first callback hangs"):
        for future in futures:
            future.cancel()
        pool.taken()
    pool.ex.resume()
    print(f"  a round trip meanwhile: {round_trip(pool.ex):.2f} ms")
    with pool.turns.told("all callbacks run"):
        slow.set()
        assert wait(lambda: len(called) == count, CAP_S, 0.01)
    pool.end()


def round_trip(ex):
    """Return the median of ten round trips in ms."""
    took = []
    for i in range(10):
        began = time.perf_counter()
        ex.submit(noop, i).result(CAP_S)
        took.append(time.perf_counter() - began)
    return statistics.median(took) * 1e3


def subscriber(count):
    pool = Pool()
    told, hang = [], threading.Event()
    pool.ex.subscribe(lambda event: (hang.wait(CAP_S), told.append(event)))
    before = rss()
    futures = pool.fill(count, what="submitted, the subscriber hangs")
    print(f"  bytes a job: {(rss() - before) / count:.0f}")
    hang.set()
    with pool.turns.told("it goes on"):
        assert wait(lambda: told and told[-1].what == "missed", CAP_S, 0.01)
    missed = sum(int(event.detail.split()[0]) for event in told if event.what == "missed")
    kept = sum(event.what == "submitted" for event in told)
    print(f"  told {kept} submissions, missed {missed}: {told[-1].detail}")
    assert kept + missed >= count
    del futures
    pool.end()


def awaited(count):
    """A tenth of them awaited by asyncio at once."""
    pool = Pool()

    async def main():
        futures = [pool.ex.submit(noop, i) for i in range(count // 10)]
        gathering = asyncio.gather(*futures)
        pool.ex.resume()
        return await gathering

    with pool.turns.told(f"{count // 10} awaited together"):
        assert asyncio.run(main()) == list(range(count // 10))
    pool.end()


CASES = {
    function.__name__: function
    for function in (
        memory, memory_stdlib, submit, dispatch, cancel, cancel_some, cancel_first, shutdown, stop, view_shutdown,
        deadlines, starts, retries, broken, callbacks, subscriber, awaited,
    )
}  # fmt: skip


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("cases", nargs="*", choices=[*CASES, []], metavar="CASE", help=", ".join(CASES))
    parser.add_argument("--jobs", type=int, default=1_000_000)
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.here:
        gc.disable()
        CASES[args.cases[0]](args.jobs)
        return 0
    bad = 0
    print(f"{args.jobs} jobs, Python {sys.version.split()[0]}, {load()}", flush=True)
    for case in args.cases or CASES:
        print(case, flush=True)
        command = [sys.executable, __file__, "--here", "--jobs", str(args.jobs), case]
        bad += subprocess.run(command, env=os.environ | {"PYTHONPATH": str(ROOT)}, check=False).returncode != 0
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
