"""Whether a worker is fit for a job with limits: what earlier jobs left in it must not be charged to this one.

Looked at from outside, at the dispatch: the worker has nothing to do then, and cannot lie.
It costs 16 µs, and only jobs with a limit of memory, CPU time or processes pay it.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from ..units import shown_size
from ..warden import proc
from .clock import monotonic_ns
from .report import Report

if TYPE_CHECKING:
    from ..future import Future
    from .channel import Channel

GROWTH_SHARE = 10  # a worker may hold a tenth of the job's limit more than when it became ready


def is_worn(channel: Channel, limit_bytes: int) -> bool:
    """Return True if jobs have left more in the worker than the next one should have to answer for."""
    try:
        children = set(proc.children(channel.pid))
    except OSError:  # no descriptor is left here
        return False
    if not channel.sent:
        channel.kept = children  # its initializer's
        return False
    if children - channel.kept:
        return True
    grown = proc.resident_bytes(channel.pid) - channel.ready_bytes
    return bool(limit_bytes and channel.ready_bytes and grown > limit_bytes // GROWTH_SHARE)


def company(channel: Channel, sent: int) -> int:
    """Return how many processes of earlier jobs, or of the initializer, the warden will count as the next job's own.

    Births are told by the hundredth of a second, so it takes whoever was born in the same one as the dispatch for the
    job's (warden.census); but nothing of the job is there yet.
    """
    since = sent + time.clock_gettime_ns(time.CLOCK_BOOTTIME) - monotonic_ns()
    try:
        lives = [proc.life(pid) for pid in proc.descendants(channel.pid)]
    except OSError:  # no descriptor is left here
        return 0
    return sum(1 for state, born in lives if state not in "ZX" and born + proc.TICK_NS > since)


def too_small(channel: Channel, future: Future[object], now: int) -> Report | None:
    """Return why a job ends before its start: a worker that has run nothing yet holds more than it may."""
    limit_bytes = future._use.spec.memory_bytes
    if not limit_bytes:
        return None
    held = (channel.ready_bytes or proc.resident_bytes(channel.pid)) - channel.base_bytes
    if held <= limit_bytes:
        return None
    report = Report("memory", now)
    report.limit, report.observed = limit_bytes, held
    report.error = f"a fresh worker holds {shown_size(held)} before it started, allowed are {shown_size(limit_bytes)} "
    report.error += "(memory): preload what its initializer or spawn loads, or raise the limit"
    return report
