"""Options in the core's terms: integers of nanoseconds and bytes, flags and tuples."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any, NamedTuple

from . import rlimits
from .declare import Options
from .errors import InvalidOption
from .resources import Need, needs, templates
from .retrying import Retry
from .units import duration_ns, size_bytes


class Rules(NamedTuple):
    """What all jobs with equal options share; hashable.  0 is none, where a number limits."""

    priority: int
    timeout_ns: int
    deadline_ns: int  # relative to the release; 0 also for an instant of its own
    kill_at_deadline: bool
    run_if: str
    retries: int | Retry
    fresh: bool
    memory_bytes: int
    cpu_ns: int
    file_bytes: int
    open_files: int
    processes: int
    resources: tuple[Need, ...]
    env: tuple[tuple[str, tuple[str, ...]], ...]  # (variable, pieces of which every other one names a token)


RULED = frozenset((  # options that decide the Rules
    "priority", "timeout", "deadline", "on_miss", "run_if", "retries", "fresh", "memory", "cpu_time", "file_size",
    "open_files", "processes", "resources", "env",
))  # fmt: skip


def rules(options: Options) -> Rules:
    """Return the part of `options` that all jobs with equal options share.

    Raises:
        InvalidOption: a kernel limit beyond what this process may allow.
    """
    relative = not isinstance(options.get("deadline"), datetime)
    return Rules(
        priority=options.get("priority", 0),
        timeout_ns=_number(options, "timeout", duration_ns),
        deadline_ns=_number(options, "deadline", duration_ns) if relative else 0,
        kill_at_deadline=options.get("on_miss", "kill") == "kill",
        run_if=options.get("run_if", "success"),
        retries=options.get("retries", 0),
        fresh=options.get("fresh", False),
        memory_bytes=_number(options, "memory", size_bytes),
        cpu_ns=_number(options, "cpu_time", duration_ns),
        file_bytes=_allowed("file_size", _number(options, "file_size", size_bytes)),
        open_files=_allowed("open_files", options.get("open_files") or 0),
        processes=options.get("processes") or 0,
        resources=needs(options.get("resources") or {}, "resources"),
        env=templates(options.get("env") or {}, "env"),
    )


def _allowed(field: str, asked: int) -> int:
    why = rlimits.refusal(field, asked) if asked else ""
    if why:
        raise InvalidOption(why)
    return asked


def _number(options: Options, field: str, read: Callable[[Any, str], int]) -> int:
    value = options.get(field)
    return 0 if value is None else read(value, field)
