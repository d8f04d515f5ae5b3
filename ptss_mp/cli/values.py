"""What the values of options may be: from text, or `argparse.ArgumentTypeError`.  Imports little."""

from __future__ import annotations

import argparse
from datetime import datetime, timedelta
from datetime import time as clock_time

WORKERS_MAX = 1000  # as pool.WORKERS_MAX (a test compares), which would have to be imported for --help
TASKS_MAX = 100_000_000
RETRIES_MAX, FILES_MAX, PROCESSES_MAX = 1000, 1 << 20, 1 << 22  # as retrying and declare have them (likewise)


def halt(given: str) -> str:
    """Check when a run halts."""
    from .halt import Halt

    try:
        Halt(given)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{error}, not {given[:40]!r}") from None
    return given


def pid(given: str) -> int:
    return _whole(given, PROCESSES_MAX)


def retries(given: str) -> int:
    return 0 if given == "0" else _whole(given, RETRIES_MAX)


def files(given: str) -> int:
    return _whole(given, FILES_MAX)


def processes(given: str) -> int:
    return _whole(given, PROCESSES_MAX)


def workers(given: str) -> int:
    return _whole(given, WORKERS_MAX)


def max_tasks(given: str) -> int:
    return _whole(given, TASKS_MAX)


def _whole(given: str, most: int) -> int:
    if not (given.isascii() and given.isdigit() and len(given) <= 12 and 1 <= int(given) <= most):
        raise argparse.ArgumentTypeError(f"must be a whole number within 1 and {most}, not {given[:40]!r}")
    return int(given)


def size(given: str) -> int:
    from ..errors import InvalidOption
    from ..units import size_bytes

    try:
        return size_bytes(given, "it", bare_strings=True)
    except InvalidOption as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def duration(given: str) -> float:
    from ..errors import InvalidOption
    from ..units import SECOND_NS, duration_ns

    try:
        return duration_ns(given, "it", bare_strings=True) / SECOND_NS
    except InvalidOption as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def instant(given: str) -> datetime:
    """Read an instant: a date with a time, or a time within the next day; of the machine's zone if it names none."""
    from ..timetable import zone

    try:
        if "T" in given or " " in given or "-" in given:
            at = datetime.fromisoformat(given)
            return at if at.tzinfo else at.replace(tzinfo=zone(None))
        now = datetime.now(zone(None))
        at = datetime.combine(now.date(), clock_time.fromisoformat(given), now.tzinfo)
        return at if at > now else at + timedelta(days=1)
    except ValueError:
        raise argparse.ArgumentTypeError(f"must look like 18:30 or 2030-01-31T18:30, not {given[:40]!r}") from None


def grace(given: str) -> float:
    return 0.0 if given in ("0", "0s") else duration(given)
