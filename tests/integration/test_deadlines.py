"""Deadlines that come near: seen by subscribers, the story and the log, and how late each task was."""

from __future__ import annotations

import logging
import threading

import deeds
import pytest
from support import CAP_S, until

NEAR = ("soon", "critical", "exceeded")


class Seen:
    """A subscriber that keeps what it heard."""

    def __init__(self) -> None:
        self.events = []
        self.over = threading.Event()

    def __call__(self, event) -> None:
        self.events.append(event)

    def whats(self, job):
        return [event.what for event in self.events if event.job == job and event.what in NEAR]


@pytest.fixture
def warnings():
    """What is logged under "ptss_mp"."""
    found: list[logging.LogRecord] = []
    handler = logging.Handler()
    handler.emit = found.append
    logger = logging.getLogger("ptss_mp")
    level = logger.level
    logger.setLevel(logging.INFO)
    logger.addHandler(handler)
    yield found
    logger.removeHandler(handler)
    logger.setLevel(level)


def test_a_running_and_a_waiting_job_are_seen_coming_near(pool, gate, warnings):
    ex, seen = pool(1, name="p"), Seen()
    with ex.subscribe(seen):
        late = ex.options(deadline=0.2, on_miss="finish")
        runs = late.options(name="runs").submit(deeds.gate, gate.path)
        waits = late.options(name="waits").submit(deeds.double, 1)
        until(lambda: "exceeded" in seen.whats(waits._id), "the deadline of the one that waits")
        until(lambda: "exceeded" in seen.whats(runs._id), "the deadline of the one that runs")
        gate.open()
        assert waits.result(CAP_S) == 2
        assert ex.drain(CAP_S)
    for future, does in ((runs, "runs"), (waits, "waits")):
        assert seen.whats(future._id) == list(NEAR)
        story = {event.what: event for event in ex.story(future)}
        window = future.outcome().deadline - future.outcome().released
        left = [(future.outcome().deadline - story[what].at) / window for what in NEAR]
        assert left[0] <= 0.3001
        assert left[1] <= 0.0501
        assert left[2] <= 0.0001
        told = [(r.levelno, r.getMessage()) for r in warnings if repr(future._use.name) in r.getMessage()]
        assert [level for level, _ in told] == [logging.WARNING, logging.WARNING, logging.INFO]
        assert all(does in text for _, text in told)
    late = ex.status().late
    assert set(late) == {"runs", "waits"}
    assert late["runs"].jobs == 1
    assert late["runs"].worst == pytest.approx(runs.outcome().tardiness, abs=1e-6)
    numbers = ex.metrics()
    assert numbers["jobs_late_total"] == 2
    tardiness = sum(future.outcome().tardiness for future in (runs, waits))
    assert numbers["tardiness_seconds_total"] == pytest.approx(tardiness, abs=1e-6)


def test_a_job_that_its_deadline_kills_ends_instead(pool, gate):
    ex, seen = pool(1), Seen()
    with ex.subscribe(seen):
        urgent = ex.options(deadline=0.3)
        runs, waits = urgent.submit(deeds.gate, gate.path), urgent.options(name="waits").submit(deeds.double, 1)
        assert [f.outcome(CAP_S).status for f in (runs, waits)] == ["deadline", "deadline"]
        assert ex.drain(CAP_S)
    assert [seen.whats(f._id) for f in (runs, waits)] == [["soon", "critical"]] * 2
    assert ex.status().late["waits"].jobs == 1


def test_a_thousand_are_summed_up(pool, warnings):
    ex = pool(1, name="p")
    ex.pause()
    urgent = ex.options(deadline=0.5)
    futures = [urgent.submit(deeds.double, i) for i in range(1_000)]
    assert futures[-1].outcome(CAP_S).status == "deadline"
    until(lambda: any("more jobs" in r.getMessage() for r in warnings), "the sum")
    assert ex.drain(CAP_S)
    assert len(warnings) <= 40  # ten and a sum, of each kind, in two periods at most


def test_jobs_without_a_deadline_are_not_watched(pool):
    ex = pool(1)
    assert ex.submit(deeds.double, 2).result(CAP_S) == 4
    assert len(ex._pool.core.nearing) == 0
    assert ex.status().late == {}
