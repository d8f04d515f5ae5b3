"""The only reader of time in the parent.

Instants are integer nanoseconds of the machine's monotonic clock, which all
processes share; wall time is derived from them when somebody asks.
"""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta

monotonic_ns = time.monotonic_ns

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


STEP_NS = 1_000_000  # two readings of the clocks' difference lie microseconds apart; more is a clock that was set
_difference = 0


def difference() -> int:
    """Return wall clock less monotonic clock: the same number until somebody sets the clock."""
    global _difference  # noqa: PLW0603 - a fact of the machine, not of an executor
    now = time.time_ns() - time.monotonic_ns()
    if abs(now - _difference) > STEP_NS:
        _difference = now
    return _difference


def wall(at_ns: int) -> datetime:
    """Return an instant of the monotonic clock as an aware UTC datetime, by today's difference of the clocks."""
    return _EPOCH + timedelta(microseconds=(difference() + at_ns) // 1_000)


def monotonic(at: datetime) -> int:
    """Return an aware datetime as an instant of the monotonic clock; negative before the machine's start."""
    wall_ns = (at - _EPOCH) // timedelta(microseconds=1) * 1_000
    return wall_ns - time.time_ns() + time.monotonic_ns()
