"""Options in the core's terms: integers of nanoseconds and bytes, flags and tuples."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple

from . import rlimits
from .declare import RECURRENCE, Options
from .errors import InvalidOption
from .resources import Need, needs, templates
from .retrying import Retry
from .units import duration_ns, size_bytes

if TYPE_CHECKING:
    from .core.recurrence import Rule


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


def rule_of(options: Options) -> Rule | None:
    """Return how a task recurs, None if it does not.

    Raises:
        InvalidOption: these options do not go together; the cron line or the zone is none.
        InvalidType: a value of a wrong kind.
    """
    kinds = [name for name in ("interval", "delay", "cron") if options.get(name) is not None]
    if len(kinds) > 1:
        raise InvalidOption(f"{kinds[0]} and {kinds[1]} do not go together: a task recurs in one way")
    if not kinds:
        alone = [name for name in RECURRENCE if options.get(name) is not None]
        if alone:
            raise InvalidOption(f"{alone[0]} without interval, delay or cron says nothing: the task runs once")
        return None
    if options.get("tz") is not None and not options.get("cron"):
        raise InvalidOption(f"tz goes with cron: {kinds[0]} is a duration, whatever the zone")
    if isinstance(options.get("deadline"), datetime):
        raise InvalidOption("the deadline of a task that recurs must be a duration, counted from each release")
    numbers = {name: duration_ns(value, name) if (value := options.get(name)) is not None else 0
               for name in ("interval", "delay", "jitter")}  # fmt: skip
    if numbers["interval"] and numbers["jitter"] >= numbers["interval"]:
        raise InvalidOption("jitter must be shorter than interval, or releases would overtake each other")
    from .core.recurrence import Rule  # here: few programs have tasks that recur
    from .timetable import CronTable, wall_ns

    return Rule(
        every_ns=numbers["interval"],
        delay_ns=numbers["delay"],
        table=CronTable(options.cron, options.get("tz")) if options.get("cron") is not None else None,
        overlap=options.get("overlap", "skip"),
        misfire=options.get("misfire", "run_once"),
        jitter_ns=numbers["jitter"],
        max_runs=options.get("max_runs") or 0,
        until=wall_ns(options.get("until")) if options.get("until") is not None else None,
    )
