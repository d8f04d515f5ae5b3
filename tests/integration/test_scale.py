"""Many jobs at once: the loop goes on hearing others, what a job costs stays small, nobody's queue grows for ever.

The figures of a million are scripts/measure/million.py's and graph.py's; here are a tenth of it, and wide margins.
"""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import threading
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import deeds
import pytest
from support import CAP_S, until, wait

from ptss_mp import DependencyFailed
from ptss_mp.observe import story
from ptss_mp.shell import desk
from ptss_mp.shell.poller import Poller

MANY = 60_000
SHARE = 0.1  # of a piece of work that one turn may take; what is done in one go takes all of it

BYTES = """\
import gc, os
from pathlib import Path
from ptss_mp import Executor

def rss():
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE")

if __name__ == "__main__":
    gc.disable()
    with Executor(max_workers=1) as ex:
        ex.submit(pow, 2, 2).result()
        ex.pause()
        before = rss()
        futures = [ex.submit(abs, i) for i in range(COUNT)]
        while ex._pool.inbox:
            pass
        print((rss() - before) // len(futures))
        ex.kill_workers()
"""


def test_bytes_of_a_pending_job(tmp_path):
    """Asked are 450 at a million; tables that have just grown may stand half empty."""
    program = tmp_path / "program.py"
    program.write_text(BYTES.replace("COUNT", "200_000"))
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])}
    run = subprocess.run([sys.executable, program], env=environment, capture_output=True, timeout=CAP_S, check=True)
    assert 100 < int(run.stdout) < 675


@pytest.fixture
def turns(monkeypatch):
    """Processor time of the loop's turns, ns."""
    taken, began, ready = [], [], Poller.ready

    def timed(poller, at, busy, exact):
        if began:
            taken.append(time.thread_time_ns() - began.pop())
        found = ready(poller, at, busy, exact)
        began.append(time.thread_time_ns())
        return found

    monkeypatch.setattr(Poller, "ready", timed)
    gc.collect()
    gc.disable()
    yield taken
    gc.enable()


def at_once(turns, act, over):
    """Do something about many jobs; assert that the loop did it in many turns."""
    turns.clear()
    act()
    until(over, "all is done")
    assert max(turns) < SHARE * sum(turns), f"a turn took {max(turns) / 1e6:.0f} of {sum(turns) / 1e6:.0f} ms"


def test_cancels_stops_and_deadlines_are_done_in_slices(pool, turns):
    ex = pool(1)
    ex.pause()
    core = ex._pool.core
    at = datetime.now(UTC) + timedelta(seconds=6)
    futures = [ex.options(deadline=at).submit(deeds.double, i) for i in range(MANY // 4)]
    futures += [ex.submit(deeds.double, i) for i in range(MANY)]
    until(lambda: len(core.jobs) == len(futures), "all are known")
    assert datetime.now(UTC) < at, "the machine is too slow for this test"
    at_once(turns, lambda: None, lambda: len(core.jobs) == MANY)
    assert {f.outcome().status for f in futures[: MANY // 4]} == {"deadline"}
    at_once(turns, lambda: ex.shutdown(cancel_futures=True), lambda: not core.jobs)
    assert all(f.cancelled() for f in futures[MANY // 4 :])


def test_a_failure_that_decides_for_many_is_told_in_slices(pool, turns, gate):
    ex = pool(1)
    root = ex.submit(deeds.gate, gate.path)
    below = ex.options(after=root)
    futures = [below.submit(deeds.double, i) for i in range(MANY // 2)]
    until(lambda: len(ex._pool.core.graph.waiting) == len(futures), "all wait")
    at_once(turns, root.cancel, lambda: futures[-1].done())
    assert {f.outcome(CAP_S).status for f in futures} == {"dependency"}


@pytest.mark.parametrize("fails", [False, True])
def test_a_job_with_many_prerequisites_lets_others_pass(pool, fails):
    ex = pool(2)
    ex.pause()
    above = [ex.submit(deeds.double, i) for i in range(20 * desk.SLICE)]
    if fails:
        above[-3] = ex.submit(deeds.fail, "as asked")
    last = ex.options(after=above).submit(deeds.double, 21)
    assert ex._pool.linked
    behind = ex.options(after=last).submit(deeds.double, 4)
    ex.resume()
    if fails:
        with pytest.raises(DependencyFailed, match="as asked"):
            behind.result(CAP_S)
        assert last.outcome(CAP_S).status == "dependency"
    else:
        assert behind.result(CAP_S) == 8
        assert last.outcome().finished >= max(f.outcome().finished for f in above)
    wait(above, CAP_S)


def test_jobs_that_are_cancelled_while_they_stand_aside(pool):
    ex = pool(1)
    ex.pause()
    above = [ex.submit(deeds.double, i) for i in range(3 * desk.SLICE)]
    below = [ex.options(after=above).submit(deeds.double, i) for i in range(20)]
    assert all(future.cancel() for future in below[1:])
    ex.resume()
    assert below[0].result(CAP_S) == 0
    until(lambda: not ex._pool.core.jobs, "nothing is left")
    assert ex.drain(CAP_S)
    assert not ex._pool.early


def test_a_control_waits_for_those_that_stand_aside(pool):
    ex = pool(1)
    above = [ex.submit(deeds.double, i) for i in range(3 * desk.SLICE)]
    below = [ex.options(after=above).submit(deeds.double, i) for i in range(5)]
    ex.shutdown()
    assert [f.result(0) for f in below] == [0, 2, 4, 6, 8]


def test_a_subscriber_that_hangs_misses_events_and_hears_how_many(pool, monkeypatch):
    monkeypatch.setattr(story, "LINES_MAX", 200)
    ex = pool(1)
    told, go_on = [], threading.Event()

    def subscriber(event):
        assert go_on.wait(CAP_S)
        told.append(event)

    with ex.subscribe(subscriber):
        for i in range(500):
            assert ex.submit(deeds.double, i).result(CAP_S) == 2 * i
        narrator = ex._pool.observers[0]
        until(lambda: narrator._missed, "some are missed")
        go_on.set()
        until(lambda: told and told[-1].what == "missed", "it hears of it")
        future = ex.submit(deeds.double, 7)
        until(lambda: any(e.job == future._id and e.what == "succeeded" for e in told), "it hears what comes then")
    missed = sum(int(event.detail.split()[0]) for event in told if event.what == "missed")
    heard = [event for event in told if event.what != "missed"]
    assert len(heard) + missed >= 4 * 501
    assert len(heard) < 300
    assert {event.name for event in heard} == {"double"}
    assert len(narrator._names) == 0
