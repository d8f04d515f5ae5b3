"""What `check` says of a task that recurs."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..jobsfile import Planned

RUNS_SHOWN = 5


def recurrence(task: Planned) -> str:
    """Return the lines of the next runs of a task that recurs by itself; else "" (`check`)."""
    if task.root != task.name:
        return ""
    from ..timetable import next_runs
    from ..units import SECOND_NS, duration_ns

    options = task.options
    start, delay = options.get("start_time"), options.get("delay")
    now = datetime.now(UTC)
    first = start if isinstance(start, datetime) else now + timedelta(
        microseconds=duration_ns(start, "start_time") // 1_000 if start is not None else 0
    )  # fmt: skip
    if delay is not None:
        pause = duration_ns(delay, "delay") / SECOND_NS
        return f"    at {shown_instant(first)}, then {pause:g} s after the end of each run\n"
    interval = options.get("interval")
    if interval is not None:
        every = timedelta(microseconds=duration_ns(interval, "interval") // 1_000)
        first = max(first, first + every * math.ceil((now - first) / every))
    runs = next_runs(options.get("cron"), interval, options.get("tz"), first, RUNS_SHOWN)
    until, most = options.get("until"), options.get("max_runs")
    runs = [at for at in runs[:most] if until is None or at <= until]
    return "    next: " + ("\n          ".join(map(shown_instant, runs)) or "none") + "\n"


def shown_instant(at: datetime) -> str:
    """Return an instant as people of its zone read it."""
    return f"{at:%Y-%m-%d %H:%M:%S} {at.tzname()}"
