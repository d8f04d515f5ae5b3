"""The only reader of time in the parent.

Instants are integer nanoseconds of the machine's monotonic clock, which all
processes share; wall time is derived from them when somebody asks.
"""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta

monotonic_ns = time.monotonic_ns

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


READ_NS = 5_000  # in which both clocks are read, unless the thread was put aside meanwhile
TRIES = 10
STEP_NS = 50_000  # two readings of the clocks' difference lie within READ_NS; more: it was set, or is slewed
_difference = 0


def difference() -> int:
    """Return wall clock less monotonic clock: the same number until somebody sets the clock.

    So equal dates are equal instants, whenever they are asked for: the earliest deadline would else be anybody's.
    """
    global _difference  # noqa: PLW0603 - a fact of the machine, not of an executor
    if -STEP_NS < time.time_ns() - time.monotonic_ns() - _difference < STEP_NS:
        return _difference
    for _ in range(TRIES):
        before, now, after = time.monotonic_ns(), time.time_ns(), time.monotonic_ns()
        if after - before <= READ_NS:
            break
    found = now - (before + after) // 2
    if abs(found - _difference) > max(STEP_NS, after - before):
        _difference = found
    return _difference


def wall(at_ns: int) -> datetime:
    """Return an instant of the monotonic clock as an aware UTC datetime, by today's difference of the clocks."""
    return _EPOCH + timedelta(microseconds=(difference() + at_ns) // 1_000)


def monotonic(at: datetime) -> int:
    """Return an aware datetime as an instant of the monotonic clock; negative before the machine's start."""
    wall_ns = (at - _EPOCH) // timedelta(microseconds=1) * 1_000
    return wall_ns - difference()
