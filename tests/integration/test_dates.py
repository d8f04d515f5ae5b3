"""Start times and deadlines told as dates, while the wall clock is set.  It is this process's view of it that is."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace

import deeds
import pytest
from support import CAP_S, until

from ptss_mp import Status
from ptss_mp.shell import clock

HOUR = timedelta(hours=1)


@pytest.fixture
def set_clock(monkeypatch):
    """Return a function that sets the wall clock, for this program's parent only, by so many seconds."""
    offset = [0]

    def time_ns():
        return time.time_ns() + offset[0]

    monkeypatch.setattr(clock, "time", SimpleNamespace(time_ns=time_ns, monotonic_ns=time.monotonic_ns))

    def set_by(seconds):
        offset[0] += round(seconds * 1e9)

    yield set_by
    monkeypatch.undo()
    clock.difference()


def now():
    return clock.wall(clock.monotonic_ns())


def test_a_start_time_comes_when_the_clock_is_set_forward(pool, set_clock):
    ex = pool(1).start()
    at = now() + HOUR
    view = ex.options(start_time=at, deadline="1h")
    future, later = view.submit(deeds.double, 4), ex.options(start_time="1h").submit(deeds.double, 5)
    until(lambda: ex.status().delayed == 2, "their acceptance")
    set_clock(3_600)
    assert future.result(CAP_S) == 8
    outcome = future.outcome()
    assert abs(outcome.released - at) < timedelta(milliseconds=2)
    assert abs(outcome.deadline - at - HOUR) < timedelta(milliseconds=2)
    assert outcome.started >= outcome.released
    assert not later.done(), "a duration is of the monotonic clock"
    assert "redated" in [event.what for event in ex.story(future)]
    later.cancel()


def test_a_clock_that_is_set_back_in_the_last_moment_lets_nothing_start_early(pool, set_clock):
    ex = pool(1).start()
    future = ex.options(start_time=now() + timedelta(seconds=0.5)).submit(deeds.double, 4)
    until(lambda: ex.status().delayed == 1, "its acceptance")
    set_clock(-0.6)
    assert future.result(CAP_S) == 8
    assert future.outcome().started >= future.outcome().released
    assert future.outcome().started - future.outcome().submitted >= timedelta(seconds=1)


def test_a_deadline_as_a_date(pool, set_clock):
    ex = pool(1)
    ex.pause()
    future = ex.options(deadline=now() + HOUR).submit(deeds.double, 4)
    until(lambda: ex.status().ready == 1, "its acceptance")
    assert future.deadline_status == "ok"
    set_clock(3_601)
    assert future.outcome(CAP_S).status is Status.DEADLINE


def test_nobody_looks_once_no_such_job_is_pending(pool, set_clock):
    ex = pool(1)
    futures = [ex.options(start_time=datetime.now(UTC)).submit(deeds.double, i) for i in range(5)]
    assert [f.result(CAP_S) for f in futures] == [0, 2, 4, 6, 8]
    until(lambda: not ex._pool.dates._held, "the next look")
    assert ex._pool.dates.look_at == ex._pool.never
