"""What a user may ask, valid by construction.

`Options` says how a job shall run.  Whatever is wrong is refused here, with a sentence, before
anything has been started.  Only fields that were given count, so that two
sets of options merge (`a | b`): the later wins, and None means "explicitly none".
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields
from datetime import datetime, timedelta
from typing import Any, Literal

from .errors import InvalidOption, InvalidType
from .resources import check_env, check_needs
from .retrying import Retry, retries
from .units import (
    duration_ns,
    flag,
    instant,
    keywords,
    moment,
    nearest,
    one_of,
    sequence,
    size_bytes,
    start,
    text,
    whole,
)
from .units import key as key_text

PRIORITY_MAX = (1 << 15) - 1  # the core's key has 16 bits for it
FILES_MAX = 1 << 20  # as many as Linux lets a process open, unless its administrator raised that (fs.nr_open)
RUNS_MAX = 1 << 39  # as many jobs as there can be
PROCESSES_MAX = 1 << 22  # as many as there can be (kernel.pid_max)


class _Unset:
    """The value of a field that was not given."""

    _instance: _Unset | None = None

    def __new__(cls) -> _Unset:
        cls._instance = cls._instance or super().__new__(cls)
        return cls._instance

    def __repr__(self) -> str:
        return "<not given>"

    def __reduce__(self) -> tuple[type[_Unset], tuple[()]]:
        return _Unset, ()


UNSET: Any = _Unset()


_CHECKS: dict[str, Callable[[Any, str], Any]] = {
    "name": text,
    "key": key_text,
    "priority": lambda v, w: whole(v, w, -PRIORITY_MAX, PRIORITY_MAX),
    "start_time": start,
    "deadline": instant,
    "on_miss": one_of("kill", "finish"),
    "timeout": duration_ns,
    "cpu_time": duration_ns,
    "memory": size_bytes,
    "file_size": size_bytes,
    "open_files": lambda v, w: whole(v, w, 1, FILES_MAX),
    "processes": lambda v, w: whole(v, w, 1, PROCESSES_MAX),
    "after": lambda _v, _w: None,  # the executor knows Futures and names, and refuses the rest
    "run_if": one_of("success", "done", "failure"),
    "retries": retries,
    "resources": check_needs,
    "env": check_env,
    "fresh": flag,
    "keep_result": flag,
    "args": sequence,
    "kwargs": keywords,
    "interval": duration_ns,
    "delay": duration_ns,
    "cron": text,
    "tz": text,
    "jitter": duration_ns,
    "max_runs": lambda v, w: whole(v, w, 1, RUNS_MAX),
    "until": moment,
    "overlap": one_of("skip", "queue", "allow", "replace"),
    "misfire": one_of("run_once", "run_all", "skip"),
}
NULLABLE = frozenset((
    "name", "key", "start_time", "deadline", "timeout", "cpu_time", "memory", "file_size", "open_files", "processes",
    "after", "resources", "env", "args", "kwargs", "interval", "delay", "cron", "tz", "jitter", "max_runs", "until",
))  # fmt: skip
RECURRENCE = ("interval", "delay", "cron", "tz", "jitter", "max_runs", "until", "overlap", "misfire")
DECLARED_ONLY = ("args", "kwargs", *RECURRENCE)  # for `task` and `add`, not for `submit`


@dataclass(frozen=True, kw_only=True, slots=True, repr=False)
class Options:
    """How a job shall run.  Only given fields count; `a | b` merges, the later wins.

    Attributes:
        name: what the job is called in outcomes, errors and `after`; default the function's.
        key: what the journal knows the job by: a text, for one job, or a callable that makes it of the job's arguments
            (of a Future among them: its job's key); default: the function and a digest of the arguments.
        priority: -32767..32767, higher is more important; breaks ties of equal deadlines.
        start_time: the release: an aware datetime, or a duration from the submission.
        deadline: an aware datetime, or a duration from the release.
        on_miss: "kill" ends the job at its deadline; "finish" only orders and reports.
        timeout: the longest that one attempt may run; over, it is killed.
        cpu_time: the most user and system time of one attempt and of what it started; over, it is killed.
        memory: the most resident memory of the worker and of what it started, less what the warden had at the
            fork, so that preloads are free: bytes, or text such as "512MiB"; over, the attempt is killed.
        file_size: the longest that a file may become by a write of the attempt, or of a process that it starts; beyond
            it OSError (EFBIG).  What Python code prints or logs does not count; of what others print, as much is kept.
        open_files: how many descriptors the attempt, or a process that it starts, may open beyond those that its
            worker has open when it begins; beyond it OSError (EMFILE).  Who closes one of the worker's gains one.
        processes: how many live processes the attempt may be at once, itself included, threads not; counted about
            every 10 ms; over, it is killed ("crashed", with `limit` and `observed`).
        after: Futures, Tasks or names that must be settled first (no value is passed).
        run_if: "success", "done" or "failure" of the prerequisites.
        retries: how often an attempt is made again that failed, crashed, or went beyond `timeout`, `memory` or
            `cpu_time`: 0..1000 in all, or a `Retry` with a budget for each of these causes.
        resources: tokens of the pool that an attempt holds while it runs: how many units, or how much ("2GiB").
        env: variables of the process that runs it, set before its initializer; "{gpu}" stands for the units of
            the token "gpu" that the attempt holds, joined by commas, and "{{" for a brace.
        fresh: True: a process of its own for each attempt.
        keep_result: False: the journal keeps that the job succeeded, not its value.
        args, kwargs: bound arguments (with `task` and `add` only, as all that follows).
        interval: the task recurs: each release comes so long after the release before.
        delay: the task recurs: each release comes so long after the end of the run before.
        cron: the task recurs at the local times of such a line ("0 2 * * *") in the zone `tz`, default the machine's.
        jitter: each release is later by up to so much.
        max_runs, until: so many runs, and none after that instant (an aware datetime).
        overlap: a release while the run before goes on is left out ("skip", the default), waits ("queue", one does),
            comes all the same ("allow"), or has that run killed ("replace").
        misfire: what was missed (paused, suspended, the clock was set) gets one run in all ("run_once", the default),
            one each ("run_all", the last 1000), or none ("skip").

    Raises:
        InvalidOption: a value that can never be right.
        InvalidType: a value of a wrong kind.
    """

    name: str | None = UNSET
    key: str | Callable[..., str] | None = UNSET
    priority: int = UNSET
    start_time: datetime | timedelta | str | None = UNSET
    deadline: float | timedelta | str | datetime | None = UNSET
    on_miss: Literal["kill", "finish"] = UNSET
    timeout: float | timedelta | str | None = UNSET
    cpu_time: float | timedelta | str | None = UNSET
    memory: int | str | None = UNSET
    file_size: int | str | None = UNSET
    open_files: int | None = UNSET
    processes: int | None = UNSET
    after: Any = UNSET
    run_if: Literal["success", "done", "failure"] = UNSET
    retries: int | Retry = UNSET
    resources: Mapping[str, int | str] | None = UNSET
    env: Mapping[str, str] | None = UNSET
    fresh: bool = UNSET
    keep_result: bool = UNSET
    args: tuple[Any, ...] | None = UNSET
    kwargs: Mapping[str, Any] | None = UNSET
    interval: float | timedelta | str | None = UNSET
    delay: float | timedelta | str | None = UNSET
    cron: str | None = UNSET
    tz: str | None = UNSET
    jitter: float | timedelta | str | None = UNSET
    max_runs: int | None = UNSET
    until: datetime | None = UNSET
    overlap: Literal["skip", "queue", "allow", "replace"] = UNSET
    misfire: Literal["run_once", "run_all", "skip"] = UNSET

    def __post_init__(self) -> None:
        for field in self.given():
            value = getattr(self, field)
            if value is None:
                if field not in NULLABLE:
                    raise InvalidType(f"{field} cannot be None")
                continue
            _CHECKS[field](value, field)
            if field == "after" and isinstance(value, Iterable) and not isinstance(value, str):
                object.__setattr__(self, field, tuple(value))  # now: it may be a generator, or changed later
            elif field in ("resources", "env"):
                object.__setattr__(self, field, dict(value))

    def given(self) -> tuple[str, ...]:
        """Return the names of the fields that were given, in order of declaration."""
        return tuple(f for f in _FIELDS if getattr(self, f) is not UNSET)

    def get(self, field: str, default: Any = None) -> Any:
        """Return a field's value, `default` if it was not given."""
        value = getattr(self, field)
        return default if value is UNSET else value

    def __or__(self, later: Options) -> Options:
        if not isinstance(later, Options):
            return NotImplemented
        merged = object.__new__(Options)  # both are valid, so this is
        for field in _FIELDS:
            value = getattr(later, field)
            object.__setattr__(merged, field, getattr(self, field) if value is UNSET else value)
        return merged

    def __repr__(self) -> str:
        return f"Options({', '.join(f'{f}={getattr(self, f)!r}' for f in self.given())})"


_FIELDS = tuple(f.name for f in fields(Options))


def options(**given: Any) -> Options:
    """Return `Options(**given)`; an unknown name is refused with the nearest legal one."""
    for name in given:
        if name not in _FIELDS:
            raise InvalidOption(f"no option {name!r}{nearest(name, _FIELDS)}")
    return Options(**given)
