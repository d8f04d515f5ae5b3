"""What users give (durations, instants, numbers, names): read, checked, refused in one sentence.

A check takes the value and what the user calls it.  It raises InvalidType for
a wrong kind, InvalidOption for a value that can never be right.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any

from .errors import InvalidOption, InvalidType

SECOND_NS = 1_000_000_000
DURATION_MAX_NS = 10 * 366 * 86_400 * SECOND_NS  # ten years: beyond it a duration is a mistake
KEY_MAX = 4_096  # characters of a key: a path is one

_UNITS_NS = {
    "ns": 1, "us": 1_000, "µs": 1_000, "ms": 1_000_000, "s": SECOND_NS,
    "m": 60 * SECOND_NS, "min": 60 * SECOND_NS, "h": 3_600 * SECOND_NS, "d": 86_400 * SECOND_NS,
}  # fmt: skip
_PART = re.compile(r"(\d+(?:\.\d+)?)([a-zµ]+)")


def shown(value: Any) -> str:
    """Return what a refused value looks like, in at most 80 characters; Python shows no number of 4301 digits."""
    try:
        return f"{value!r:.80}"
    except Exception:
        return f"{type(value).__name__} too long or odd to be shown"


def duration_ns(
    value: float | timedelta | str, what: str, *, bare_strings: bool = False, zero: bool = False
) -> int:
    """Return a duration in nanoseconds.

    Args:
        value: seconds, a timedelta, or text such as "250ms", "90s", "1h30m", "2d".
        what: the option's name, for the error.
        bare_strings: take "90" as seconds (the command line does).
        zero: take 0 too.

    Raises:
        InvalidType: another type, bool included.
        InvalidOption: NaN, infinite, zero, negative, above ten years, or unreadable.
    """
    if isinstance(value, bool) or not isinstance(value, int | float | timedelta | str):
        raise InvalidType(
            f"{what} must be seconds, a timedelta or text like '90s', not {type(value).__name__}"
        )
    if isinstance(value, timedelta):
        ns = value // timedelta(microseconds=1) * 1_000
    elif isinstance(value, str):
        ns = _read_duration(value, what, bare_strings)
    else:
        if not -math.inf < value < math.inf:  # NaN too
            raise InvalidOption(f"{what} must be a finite number of seconds, not {shown(value)}")
        ns = round(max(-1, min(value, DURATION_MAX_NS)) * SECOND_NS)  # an absurd number must not overflow
    if ns < 0 or (ns == 0 and not zero):
        raise InvalidOption(f"{what} must {'not be negative' if zero else 'be above zero'}, not {shown(value)}")
    if ns > DURATION_MAX_NS:
        raise InvalidOption(f"{what} must be at most ten years, not {shown(value)}")
    return ns


def shown_duration(ns: int) -> str:
    """Return a duration as people write it, to three places or so: "250ms", "1.5s", "12m5s", "1h30m", "2d"."""
    if ns < 60 * SECOND_NS:
        return f"{ns / 1e6:.3g}ms" if ns < SECOND_NS else f"{ns / 1e9:.3g}s"
    parts = []
    for unit in ("d", "h", "m", "s"):
        count, ns = divmod(ns, _UNITS_NS[unit])
        parts.append(f"{count}{unit}" if count else "")
    first = next(i for i, part in enumerate(parts) if part)
    return "".join(parts[first : first + 2])


def _read_duration(text: str, what: str, bare: bool) -> int:
    stripped = text.strip().lower()
    if bare and re.fullmatch(r"\d+(\.\d+)?", stripped):
        return round(min(float(stripped), DURATION_MAX_NS) * SECOND_NS)
    parts = _PART.findall(stripped)
    known = parts and all(unit in _UNITS_NS for _, unit in parts)
    if not known or "".join(n + u for n, u in parts) != stripped:
        raise InvalidOption(f"{what} must look like '250ms', '90s', '1h30m' or '2d', not {shown(text)}")
    return round(sum(min(float(number), DURATION_MAX_NS) * _UNITS_NS[unit] for number, unit in parts))


_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([a-z]*)")
_SIZES = {"b": 1} | {
    prefix + unit: base**power
    for power, prefix in enumerate("kmgt", 1)
    for unit, base in (("b", 1000), ("ib", 1024), ("", 1024))
}
SIZE_MAX_BYTES = 1 << 50  # a pebibyte: beyond it a size is a mistake


def size_bytes(value: int | str, what: str, *, bare_strings: bool = False) -> int:
    """Return a size in bytes.

    Args:
        value: bytes, or text: KB MB GB TB are decimal, KiB MiB GiB TiB and bare K M G T binary.
        what: the option's name, for the error.
        bare_strings: take "4096" as bytes (the command line does).

    Raises:
        InvalidType: another type, bool and float included.
        InvalidOption: zero, negative, above a pebibyte, or unreadable.
    """
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise InvalidType(f"{what} must be bytes or text like '512MiB', not {type(value).__name__}")
    size = value if isinstance(value, int) else _read_size(value, what, bare_strings)
    if size <= 0:
        raise InvalidOption(f"{what} must be above zero, not {shown(value)}")
    if size > SIZE_MAX_BYTES:
        raise InvalidOption(f"{what} must be at most {SIZE_MAX_BYTES >> 40} TiB, not {shown(value)}")
    return size


def _read_size(text: str, what: str, bare: bool) -> int:
    found = _SIZE.fullmatch(text.strip().lower())
    number, unit = found.groups() if found else ("", "")
    if not found or (unit not in _SIZES if unit else not bare):
        raise InvalidOption(f"{what} must look like '512MiB', '2GiB' or '1.5GB', not {shown(text)}")
    return math.floor(min(float(number), SIZE_MAX_BYTES) * (_SIZES[unit] if unit else 1))


def shown_size(number: int) -> str:
    """Return bytes in binary units: "12.3 MiB"."""
    value, unit = float(number), "B"
    for larger in ("KiB", "MiB", "GiB", "TiB"):
        if value < 1024:
            break
        value, unit = value / 1024, larger
    return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"


def aware(value: datetime, what: str) -> datetime:
    """Return `value` if it carries a time zone; else raise."""
    if value.tzinfo is None or value.utcoffset() is None:
        raise InvalidOption(f"{what} must carry a time zone; {value.isoformat()} has none")
    return value


def moment(value: Any, what: str) -> None:
    """Raise unless `value` is an aware datetime."""
    if not isinstance(value, datetime):
        raise InvalidType(f"{what} must be an aware datetime, not {type(value).__name__}")
    aware(value, what)


def instant(value: Any, what: str) -> None:
    """Raise unless `value` is an aware datetime or a duration."""
    if isinstance(value, datetime):
        aware(value, what)
    else:
        duration_ns(value, what)


def start(value: Any, what: str) -> None:
    """Raise unless `value` is an aware datetime or a duration that is no bare number."""
    if not isinstance(value, datetime | timedelta | str):
        raise InvalidType(
            f"{what} must be an aware datetime, a timedelta or text like '90s', not {type(value).__name__}"
        )
    instant(value, what)


def flag(value: Any, what: str) -> None:
    """Raise unless `value` is True or False."""
    if not isinstance(value, bool):
        raise InvalidType(f"{what} must be True or False, not {type(value).__name__}")


def one_of(*legal: str) -> Callable[[Any, str], None]:
    """Return a check that takes these words alone."""

    def check(value: Any, what: str) -> None:
        if value not in legal:
            raise InvalidOption(f"{what} must be one of {', '.join(map(repr, legal))}, not {value!r}")

    return check


def sequence(value: Any, what: str) -> None:
    """Raise unless `value` is a tuple or a list."""
    if not isinstance(value, tuple | list):
        raise InvalidType(f"{what} must be a tuple, not {type(value).__name__}")


def keywords(value: Any, what: str) -> None:
    """Raise unless `value` is a mapping with text keys."""
    if not isinstance(value, Mapping) or not all(isinstance(k, str) for k in value):
        raise InvalidType(f"{what} must be a mapping with text keys, not {type(value).__name__}")


def text(value: Any, what: str) -> None:
    """Raise unless `value` is printable text of 1 to 1000 characters."""
    if not isinstance(value, str):
        raise InvalidType(f"{what} must be text, not {type(value).__name__}")
    if not value or len(value) > 1000:
        raise InvalidOption(f"{what} must have 1 to 1000 characters, not {len(value)}")
    bad = next((c for c in value if not c.isprintable()), None)
    if bad is not None:
        raise InvalidOption(f"{what} must be printable, {shown(value)} is not")


def key(value: Any, what: str) -> None:
    """Raise unless `value` is a text that can be a job's key, or a callable that may return one."""
    if isinstance(value, str):
        if not 1 <= len(value) <= KEY_MAX:
            raise InvalidOption(f"{what} must have 1 to {KEY_MAX} characters, not {len(value)}")
    elif not callable(value):
        raise InvalidType(f"{what} must be text or a callable of the job's arguments, not {type(value).__name__}")


def whole(value: Any, what: str, low: int, high: int) -> int:
    """Return `value` if it is an int (no bool) within low..high; else raise."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise InvalidType(f"{what} must be a whole number, not {type(value).__name__}")
    if not low <= value <= high:
        raise InvalidOption(f"{what} must be within {low} and {high}, not {shown(value)}")
    return value


def number(value: Any, what: str, low: float, high: float) -> None:
    """Raise unless `value` is an int (no bool) or float within low..high."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InvalidType(f"{what} must be a number, not {type(value).__name__}")
    if not low <= value <= high:  # NaN too
        raise InvalidOption(f"{what} must be within {low:g} and {high:g}, not {shown(value)}")


def nearest(word: str, words: Iterable[str]) -> str:
    """Return "; did you mean 'x'?" for the nearest of `words`, or ""."""
    import difflib

    close = difflib.get_close_matches(word, list(words), 1)
    return f"; did you mean {close[0]!r}?" if close else ""
