"""Instants of the wall clock at which a cron line says that something shall run.

A line speaks of local times; a zone makes instants of them.  Local times are enumerated as if there were no summer
time, and each is then placed: one that the zone leaves out is the first instant after the gap, one that comes twice
is its first coming.  So a daily job runs once on both nights, and never twice for one slot.  (cron itself, and cronsim
when it is given a zone, treat lines with a `*` for the hour otherwise: they run in both comings.)
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, tzinfo
from itertools import islice
from typing import Any

from .errors import InvalidOption, InvalidType
from .units import duration_ns, moment, whole

COUNT_MAX = 10_000
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_US = timedelta(microseconds=1)
# Python has the years 1 to 9999; cronsim looks fifty years ahead or back, a zone a day.
FIRST, LAST = datetime(100, 1, 1, tzinfo=UTC), datetime(9900, 1, 1, tzinfo=UTC)


def wall_ns(at: datetime) -> int:
    """Return an aware datetime as ns since 1970."""
    return (at - _EPOCH) // _US * 1_000


def utc(wall: int) -> datetime:
    """Return ns since 1970 as an aware datetime, UTC."""
    return _EPOCH + timedelta(microseconds=wall // 1_000)


def zone(name: Any, what: str = "tz") -> tzinfo:
    """Return the zone of a name such as "Europe/Prague"; None: the machine's own.

    Raises:
        InvalidType: no text.
        InvalidOption: no such zone is known here.
    """
    from zoneinfo import ZoneInfo

    if name is None:
        return _local()
    if not isinstance(name, str):
        raise InvalidType(f"{what} must be the name of a zone such as 'Europe/Prague', not {type(name).__name__}")
    try:
        return ZoneInfo(name)
    except Exception as error:  # of many kinds: ValueError, OSError, ZoneInfoNotFoundError
        how = "where the system has no zones, pip install 'ptss_mp[cron]' brings them"
        raise InvalidOption(f"{what}: no zone {name!r:.80} is known here ({how})") from error


def _local() -> tzinfo:
    """Return the machine's zone as it is set: by TZ, by /etc/localtime, else UTC."""
    from zoneinfo import ZoneInfo

    try:
        if name := os.environ.get("TZ", "").lstrip(":"):
            return ZoneInfo(name)
        with open("/etc/localtime", "rb") as file:
            return ZoneInfo.from_file(file)
    except Exception:  # a TZ of another form, no such file
        return UTC


def _cronsim() -> Any:
    try:
        import cronsim
    except ImportError:
        raise InvalidOption("cron lines need cronsim: pip install 'ptss_mp[cron]'") from None
    return cronsim


class CronTable:
    """The slots of a cron line in a zone (core.done.Timetable).

    Raises:
        InvalidType: no text.
        InvalidOption: the line is none, or names a date that never comes; no such zone; cronsim is not there.
    """

    def __init__(self, line: Any, tz: Any = None) -> None:
        if not isinstance(line, str):
            raise InvalidType(f"cron must be a line such as '0 2 * * *', not {type(line).__name__}")
        self._parse = _cronsim().CronSim
        self.line, self.zone = line, zone(tz)
        if len(line.split()) != 5:
            fields = "minute, hour, day of month, month, day of week"
            raise InvalidOption(f"cron {line!r:.80} must have five fields: {fields}")
        try:
            next(self._parse(line, datetime(2024, 1, 1)))
        except StopIteration:
            raise InvalidOption(f"cron {line!r:.80} names a date that never comes") from None
        except Exception as error:
            raise InvalidOption(f"cron {line!r:.80} is no cron line: {error}") from None

    def after(self, wall: int) -> int | None:
        """Return the first slot after an instant, ns since 1970; None if none follows within fifty years."""
        if wall >= wall_ns(LAST):
            return None
        local = utc(wall).astimezone(self.zone).replace(tzinfo=None)
        for at in self._placed(local, False):
            if at > wall:
                return at
        return None

    def before(self, wall: int) -> int:
        """Return the last slot not after an instant; the instant itself if none is within fifty years."""
        local = utc(wall).astimezone(self.zone)
        if local.fold:  # local times after this one have come already, an hour ago
            local = utc(wall).astimezone(UTC) + (local.replace(fold=0).utcoffset() or timedelta())
        this_minute_too = local.replace(tzinfo=None) + timedelta(minutes=1)
        for at in self._placed(this_minute_too, True):
            if at <= wall:
                return at
        return wall

    def _placed(self, local: datetime, reverse: bool) -> Iterator[int]:
        """Yield the instants of the local times of the line after one, or before it; some may be equal."""
        for naive in self._parse(self.line, local, reverse=reverse):
            there = naive.replace(tzinfo=self.zone)
            at = wall_ns(there)
            if utc(at).astimezone(self.zone).replace(tzinfo=None) != naive:
                at = self._after_gap(at, there)
            yield at

    def _after_gap(self, at: int, there: datetime) -> int:
        """Return the first instant after the gap into which a local time falls."""
        # By PEP 495 fold=0 uses the offset before the gap, fold=1 the one after it; the change is where both meet.
        later, sooner = at, wall_ns(there.replace(fold=1))
        while later - sooner > 1_000_000_000:
            middle = (later + sooner) // 2 // 1_000_000_000 * 1_000_000_000
            before = utc(middle).astimezone(self.zone).utcoffset() == there.utcoffset()
            sooner, later = (middle, later) if before else (sooner, middle)
        return later


def next_runs(
    cron: str | None = None,
    interval: float | timedelta | str | None = None,
    tz: str | None = None,
    start: datetime | None = None,
    count: int = 5,
) -> list[datetime]:
    """Return when a task would run: the next instants of a cron line, or of an interval.

    Args:
        cron: five fields, as of cron(8): minute, hour, day of month, month, day of week.
        interval: seconds, a timedelta, or text such as "15m"; the first run is at `start`.
        tz: the zone whose local times the line means, such as "Europe/Prague"; default: this machine's.
        start: an aware datetime; default: now.  Of a cron line the instants after it are returned.
        count: 1..10000; fewer come back where a line ends.

    Returns:
        Aware datetimes in the zone `tz`.  A local time that the zone leaves out stands as the next instant that there
        is, one that comes twice stands once.

    Raises:
        InvalidOption: neither or both of cron and interval; no cron line, or a date that never comes; no such zone;
            a start without zone, or far from all calendars; cronsim is not there (`pip install 'ptss_mp[cron]'`).
        InvalidType: a value of a wrong kind.
    """
    whole(count, "count", 1, COUNT_MAX)
    if (cron is None) == (interval is None):
        raise InvalidOption("next_runs takes either cron or interval")
    there = zone(tz)
    if start is None:
        start = datetime.now(UTC)
    moment(start, "start")
    if not FIRST <= start < LAST:
        raise InvalidOption(f"start must lie in the years {FIRST.year} to {LAST.year - 1}, not {start.year}")
    first = start.astimezone(UTC)
    if cron is not None:
        runs = list(islice(_each(CronTable(cron, tz), wall_ns(first)), count))
    else:
        every = timedelta(microseconds=duration_ns(interval, "interval") // 1_000)  # type: ignore[arg-type]
        runs = []
        while len(runs) < count and first < LAST:
            runs.append(first)
            first += every
    return [at.astimezone(there) for at in runs]


def _each(table: CronTable, wall: int) -> Iterator[datetime]:
    while (at := table.after(wall)) is not None:
        yield utc(wall := at)
