"""What is done with a pool, and the numbers that come of it.

A measure takes the class of a peer, how often to do it and how many workers, and returns named numbers.  Pools are
started and warm before the clock runs, unless their start is what is measured.
"""

import contextlib
import os
import random
import statistics
import tempfile
import threading
import time
from collections.abc import Callable
from typing import NamedTuple

from . import bare, jobs
from .usage import Usage

WARM = 200  # jobs before the clock runs: pools that learn have learnt
MIB = 1 << 20
PAYLOAD_BYTES = 64 * MIB
PAYLOAD_TRIPS = 10
SHORT_S = 0.0002


class Figure(NamedTuple):
    """One number of a measure, as a reader wants it told."""

    value: str
    title: str
    unit: str
    more_is_better: bool = False


class Measure(NamedTuple):
    """How a measure is made, and what its numbers are called."""

    run: Callable[..., dict[str, float]]
    count: int  # how often, at full size
    needs: str  # of what a peer offers
    figures: tuple[Figure, ...]
    bare: Callable[..., dict[str, float]] | None = None  # the same without a pool
    numpy: bool = False


@contextlib.contextmanager
def opened(make, workers):
    """Start a pool, and end it whatever comes."""
    pool = make(workers)
    try:
        yield pool
    finally:
        pool.close()


def checked(answers, count):
    """Refuse answers that somebody else's process, or no process, has given."""
    pids = set()
    for number, answer in enumerate(answers):
        if answer >> 22 != number:
            raise SystemExit(f"job {number} was answered by {answer}")
        pids.add(answer & (1 << 22) - 1)
    if number != count - 1 or os.getpid() in pids:
        raise SystemExit(f"{number + 1} of {count} jobs were answered, by {pids}; this is {os.getpid()}")


def run_all(pool, count, fn=jobs.noop, argument=int, **options):
    """Submit so many jobs, then take all results."""
    futures = [pool.submit(fn, argument(number), **options) for number in range(count)]
    return [pool.result(future) for future in futures]


def throughput(make, count, workers, timeout=None):
    """No-op jobs one by one: all submitted, then all results."""
    with opened(make, workers) as pool:
        run_all(pool, WARM, timeout=timeout)
        with Usage() as cost:
            began = time.perf_counter()
            answers = run_all(pool, count, timeout=timeout)
            seconds = time.perf_counter() - began
    checked(answers, count)
    per_job = 1e6 / count
    return {
        "jobs_per_s": count / seconds,
        "all_us": cost.everything * per_job,
        "parent_us": cost.parent * per_job,
        "children_us": cost.children * per_job,
        "below_us": cost.below * per_job,
    }


def with_timeout(make, count, workers):
    return throughput(make, count, workers, timeout=30)


def roundtrip(make, count, workers):
    """One job at a time: submit it, wait for its result."""
    with opened(make, workers) as pool:
        run_all(pool, WARM)
        times = []
        for number in range(count):
            began = time.perf_counter()
            pool.result(pool.submit(jobs.noop, number))
            times.append(time.perf_counter() - began)
    return {"p50_us": statistics.median(times) * 1e6}


def beside_busy(measure):
    """Return the measure, taken while another thread of the program computes in Python."""

    def run(make, count, workers):
        ended = False

        def compute():
            while not ended:
                sum(range(100))

        def busy(workers):
            pool = make(workers)
            thread.start()  # behind the start of the pool: not all of them may fork in a program with threads
            return pool

        thread = threading.Thread(target=compute, daemon=True)
        try:
            return measure(busy, count, workers)
        finally:
            ended = True
            thread.join()

    return run


def urgent(job_s):
    """Return a measure of how soon an urgent job begins, while jobs of that length wait."""

    def run(make, count, workers):
        backlog = min(40_000, int((0.5 + 0.03 * count) * workers / job_s))  # lasts longer than the urgent ones
        delays = []
        with tempfile.TemporaryDirectory() as folder, opened(make, workers) as pool:
            fifo = os.path.join(folder, "gate")
            os.mkfifo(fifo)
            run_all(pool, WARM // 4, jobs.spin, lambda _: job_s)
            gate = os.open(fifo, os.O_RDWR)
            for _ in range(workers):
                pool.submit(jobs.hold, fifo)
            waiting = [pool.submit(jobs.spin, job_s) for _ in range(backlog)]
            os.write(gate, b"." * workers)
            for _ in range(count):
                time.sleep(random.uniform(0.003, 0.010))  # at any moment of the jobs that run
                began = time.monotonic()
                delays.append(pool.result(pool.submit(jobs.started, urgent=True)) - began)
            if waiting[-1].done():
                raise SystemExit("the backlog was done before the urgent jobs were")
            os.close(gate)
        return {"p50_ms": statistics.median(delays) * 1e3}

    return run


def path_of(number):
    return f"/var/spool/inbox/2026-11/{number:06}-invoice.pdf"


def paths(make, count, workers):
    """Jobs that take a path and return a small dictionary."""
    with opened(make, workers) as pool:
        run_all(pool, WARM, jobs.describe, path_of)
        began = time.perf_counter()
        answers = run_all(pool, count, jobs.describe, path_of)
        seconds = time.perf_counter() - began
    if [answer["stem"] for answer in answers] != [f"{number:06}-invoice" for number in range(count)]:
        raise SystemExit("wrong answers")
    return {"jobs_per_s": count / seconds}


def beyond(make, count, workers):
    """Short jobs of 0.2 ms: what all processes use beyond the jobs themselves."""
    with opened(make, workers) as pool:
        run_all(pool, WARM, jobs.spin, lambda _: SHORT_S)
        with Usage() as cost:
            own_s = run_all(pool, count, jobs.spin, lambda _: SHORT_S)
    return {"all_us": (cost.everything - sum(own_s)) * 1e6 / count}


def mapped(make, count, workers):
    """Trivial items in one call of `map`."""
    items = range(count)
    with opened(make, workers) as pool:
        pool.map(jobs.double, range(WARM))
        with Usage() as cost:
            began = time.perf_counter()
            answers = pool.map(jobs.double, items)
            seconds = time.perf_counter() - began
    if answers != [2 * item for item in items]:
        raise SystemExit("wrong answers")
    return {"items_per_s": count / seconds, "all_us": cost.everything * 1e6 / count}


def some_bytes(share):
    return bytes(range(256)) * int(PAYLOAD_BYTES * share // 256)


def some_array(share):
    import numpy

    return numpy.arange(int(PAYLOAD_BYTES * share // 8), dtype=numpy.float64)


def payload(value_of):
    """Return a measure of a large value to a worker and back; few trips are fewer bytes."""

    def run(make, count, workers):
        value = value_of(min(1.0, count / PAYLOAD_TRIPS))
        with opened(make, workers) as pool:
            times = []
            for _ in range(PAYLOAD_TRIPS + 1):
                began = time.perf_counter()
                back = pool.result(pool.submit(jobs.echo, value))
                times.append(time.perf_counter() - began)
                if len(back) != len(value) or back[-1] != value[-1]:
                    raise SystemExit("another value came back")
        return {"ms": statistics.median(times[1:]) * 1e3}

    return run


def bare_payload(value_of):
    return lambda count, _workers: bare.payload(value_of(min(1.0, count / PAYLOAD_TRIPS)), PAYLOAD_TRIPS)


def crash(make, count, _workers, **settings):
    """A job kills its worker, the only one; the clock runs from there until the next job is done."""
    times = []
    with tempfile.NamedTemporaryFile() as stamp, opened(lambda n: make(n, **settings), 1) as pool:
        for _ in range(count):
            pool.result(pool.submit(jobs.noop, 0))
            time.sleep(0.3)  # a spare may have to come first, and no pool's start shall disturb
            try:
                pool.submit(jobs.die, stamp.name)
                pool.result(pool.submit(jobs.noop, 0))
            except Exception:  # the crash was another job's too: that one is made again
                pool.again()
                pool.result(pool.submit(jobs.noop, 0))
            times.append(time.monotonic() - float(os.pread(stamp.fileno(), 64, 0)))
    return {"ms": statistics.median(times) * 1e3}


def crash_cold(make, count, workers):
    """The same, and no worker stands by."""
    settings = {"executor": {"spares": 0}} if "fresh" in make.offers else {}
    return crash(make, count, workers, **settings)


def fresh(make, count, _workers):
    """A new worker that has imported numpy, to its first result."""
    executor = {"preload": ["numpy"], "fresh": True, "spares": 0}
    times = []
    with opened(lambda workers: make(workers, executor=executor), 1) as pool:
        for _ in range(count + 2):
            began = time.perf_counter()
            if pool.result(pool.submit(jobs.total)) != 4:
                raise SystemExit("wrong answer")
            times.append(time.perf_counter() - began)
    return {"ms": statistics.median(times[2:]) * 1e3}


def first(make, _count, workers):
    """From the constructor to the first result; modules are imported before."""
    __import__(make.module)
    if "fresh" in make.offers:
        from ptss_mp import Executor  # noqa: F401 - it is imported when it is first asked for
    began = time.perf_counter()
    with opened(make, workers) as pool:
        if "futures" in pool.offers:
            pool.result(pool.submit(jobs.noop, 0))
        else:
            pool.map(jobs.noop, [0])
        return {"ms": (time.perf_counter() - began) * 1e3}


def _urgent(name, job_s):
    title = f"an urgent job behind a backlog of {name} jobs: delay to its start, median"
    return Measure(urgent(job_s), 20, "urgent", (Figure("p50_ms", title, "ms"),))


MEASURES = {
    "noop": Measure(
        throughput, 20_000, "futures",
        (
            Figure("jobs_per_s", "no-op jobs through futures", "jobs/s", True),
            Figure("parent_us", "processor time of the program per no-op job", "µs"),
            Figure("all_us", "processor time of all processes per no-op job", "µs"),
        ),
    ),
    "noop-timeout": Measure(
        with_timeout, 20_000, "futures",
        (Figure("jobs_per_s", "no-op jobs with timeout=30 on each, where there is such a thing", "jobs/s", True),),
    ),
    "noop-busy": Measure(
        beside_busy(throughput), 4_000, "futures",
        (Figure("jobs_per_s", "no-op jobs while a thread of the program computes", "jobs/s", True),),
    ),
    "roundtrip": Measure(
        roundtrip, 2_000, "futures",
        (Figure("p50_us", "submit one job and wait for its result, median", "µs"),),
        bare=bare.roundtrip,
    ),
    "roundtrip-busy": Measure(
        beside_busy(roundtrip), 100, "futures",
        (Figure("p50_us", "the same while a thread of the program computes", "µs"),),
    ),
    "urgent-20us": _urgent("20 µs", 20e-6),
    "urgent-200us": _urgent("200 µs", 200e-6),
    "urgent-2ms": _urgent("2 ms", 2e-3),
    "urgent-20ms": _urgent("20 ms", 20e-3),
    "path": Measure(
        paths, 10_000, "futures",
        (Figure("jobs_per_s", "jobs that take a path and return a small dict", "jobs/s", True),),
    ),
    "beyond": Measure(
        beyond, 2_000, "futures",
        (Figure("all_us", "processor time beyond the job's own, jobs of 0.2 ms", "µs"),),
    ),
    "map": Measure(
        mapped, 100_000, "map",
        (
            Figure("items_per_s", "map over trivial items", "items/s", True),
            Figure("all_us", "processor time of all processes per item of map", "µs"),
        ),
    ),
    "bytes": Measure(
        payload(some_bytes), PAYLOAD_TRIPS, "futures",
        (Figure("ms", "64 MiB of bytes to a worker and back", "ms"),),
        bare=bare_payload(some_bytes),
    ),
    "array": Measure(
        payload(some_array), PAYLOAD_TRIPS, "futures",
        (Figure("ms", "64 MiB of float64 array to a worker and back", "ms"),),
        bare=bare_payload(some_array), numpy=True,
    ),
    "crash": Measure(
        crash, 10, "crash",
        (Figure("ms", "a worker crashes: until the next job is done, one worker", "ms"),),
    ),
    "crash-cold": Measure(
        crash_cold, 10, "crash",
        (Figure("ms", "the same, no spare worker stands by (spares=0)", "ms"),),
    ),
    "fresh": Measure(
        fresh, 20, "fresh",
        (Figure("ms", "a new worker with numpy preloaded, to its first result", "ms"),),
        bare=bare.fresh, numpy=True,
    ),
    "first": Measure(
        first, 1, "start",
        (Figure("ms", "from the constructor to the first result", "ms"),),
    ),
}  # fmt: skip
