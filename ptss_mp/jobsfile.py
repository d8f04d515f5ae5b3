"""Jobs files: what a Python file full of `@task` says shall be done.

The parent's half, on plain data: names, dependencies, order.  The file itself
is imported in a worker only (jobsimport.py).  A function travels as its place
in the file (`TaskRef`), an argument as bytes (`Stored`); the parent decodes neither.
"""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from itertools import starmap
from typing import Any, ClassVar, NoReturn

from .core.graph import order
from .declare import Options
from .errors import InvalidOption
from .jobsimport import describe, resolve
from .keys import Formed
from .resources import check_held, fitted
from .rules import rule_of, rules
from .units import nearest

__all__ = ["Plan", "Planned", "Stored", "TaskRef", "compile_jobs", "describe", "resolve"]


@dataclass(frozen=True)
class TaskRef:
    """A task's function, as its place in a jobs file; pickles to `resolve(...)`.

    Attributes:
        path: the file, absolute.
        index: which of its tasks.
        function: the function's name, by which a file that was changed meanwhile is noticed.
        task: the task's name, unique in the file.
    """

    path: str
    index: int
    function: str
    task: str = field(default="", compare=False)

    by_reference: ClassVar[bool] = True  # equal ones have equal pickles: the executor keeps them

    def __post_init__(self) -> None:
        stem = os.path.basename(self.path).rpartition(".")[0]
        named = {"__name__": self.function, "__qualname__": self.task or self.function, "__module__": stem}
        for name, value in named.items():  # what a job's default name and key are made of
            object.__setattr__(self, name, value)

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return resolve, (self.path, self.index, self.function)

    def __call__(self, *_args: Any, **_kwargs: Any) -> NoReturn:
        raise TypeError(f"{self.function!r} of {self.path} runs in workers only; here it is a reference")


@dataclass(frozen=True, slots=True)
class Stored(Formed):
    """A pickled argument; pickles to the object that it stands for."""

    data: bytes
    form: bytes = b""

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[bytes]]:
        return pickle.loads, (self.data,)


@dataclass(frozen=True, slots=True)
class Planned:
    """A task that may be submitted: everything about it is known and fits.

    Attributes:
        name: its name, unique in the file.
        where: "file:line".
        ref: its function.
        options: without name and after.
        args, kwargs: bound arguments.
        keys: what a callable `key` makes of each job's arguments; None: there is none.
        items: of a batch: the arguments of each job; else None.
        takes: (parameter, task, positional only) for each value that comes from another task.
        after: further tasks that must be settled first.
        chosen: of a batch: the numbers of the jobs that shall run; None: all.
        root: the task with whose releases it recurs, its own name if it recurs by itself; "" if it runs once.
    """

    name: str
    where: str
    ref: TaskRef
    options: Options
    args: tuple[Stored, ...] = ()
    kwargs: Mapping[str, Stored] = field(default_factory=dict)
    items: tuple[tuple[Stored, ...], ...] | None = None
    takes: tuple[tuple[str, str, bool], ...] = ()
    after: tuple[str, ...] = ()
    chosen: tuple[int, ...] | None = None
    root: str = ""
    keys: tuple[str, ...] | None = None

    @property
    def needs(self) -> tuple[str, ...]:
        """Names of all tasks that come before it, each once."""
        return tuple(dict.fromkeys((*(task for _, task, _ in self.takes), *self.after)))

    @property
    def numbers(self) -> Sequence[int]:
        """The numbers of its jobs; of a task that is no batch there is one."""
        return range(1 if self.items is None else len(self.items)) if self.chosen is None else self.chosen

    @property
    def jobs(self) -> int:
        """How many jobs it is."""
        return len(self.numbers)

    def job_name(self, number: int) -> str:
        """Return what a job of it is called."""
        return self.name if self.items is None else f"{self.name}[{number}]"


@dataclass(frozen=True, slots=True)
class Plan:
    """A jobs file that can be run: its tasks, each after what it needs."""

    tasks: tuple[Planned, ...]

    @property
    def jobs(self) -> int:
        """How many jobs there are, those of recurring tasks not counted."""
        return sum(task.jobs for task in self.tasks if not task.root)

    @property
    def recurs(self) -> bool:
        """Some task recurs: a run of it ends when it is told to."""
        return any(task.root for task in self.tasks)


def compile_jobs(description: Mapping[str, Any]) -> Plan:
    """Return the plan of a described jobs file.

    Args:
        description: what `describe` returned.

    Raises:
        InvalidOption: the file cannot be used; one line says why and where.
    """
    if "error" in description:
        raise InvalidOption(f"{description['where']}: {description['error']}")
    path, rows = description["path"], description["tasks"]
    _check_names(rows)
    by_variable = {variable: row["name"] for row in rows for variable in row["variables"]}
    by_name = {row["name"]: row for row in rows}
    planned = {row["name"]: _planned(path, row, by_variable, by_name) for row in rows}
    for task in planned.values():
        if task.name in task.needs:
            raise InvalidOption(f"{task.where}: task {task.name!r} waits for itself")
    try:
        names = order({name: task.needs for name, task in planned.items()})
    except InvalidOption as error:
        raise _bad(by_name[error.cycle[0]], str(error)) from None  # type: ignore[attr-defined]
    for name in names:
        planned[name] = _rooted(planned[name], planned)
    return Plan(tuple(planned[name] for name in names))


def _rooted(task: Planned, planned: Mapping[str, Planned]) -> Planned:
    """Return a task with the name of the one that it recurs with; all that it needs have theirs."""
    roots = sorted({root for name in task.needs if (root := planned[name].root)})
    own = rule_of(task.options) is not None
    why = ""
    if own and roots:
        why = f"recurs by itself, and comes after {roots[0]!r}, which does too; it may wait for tasks that run once"
    elif len(roots) > 1:
        why = f"comes after {roots[0]!r} and {roots[1]!r}, which recur each by itself: no run of both is ever made"
    elif (own or roots) and task.items is not None:
        why = f"is a batch{f' after {roots[0]!r}' if roots else ''}, and a batch does not recur; make it one task"
    elif roots and task.options.get("start_time") is not None:
        why = f"is released with {roots[0]!r}; it has no start_time of its own"
    if why:
        raise InvalidOption(f"{task.where}: task {task.name!r} {why}")
    return replace(task, root=task.name if own else roots[0] if roots else "")


def _bad(row: Mapping[str, Any], text: str) -> InvalidOption:
    return InvalidOption(f"{row['where']}: {text}")


def _check_names(rows: list[dict[str, Any]]) -> None:
    """Refuse a name given twice, and one that is a job's of a batch (`pages[3]`)."""
    first: dict[str, dict[str, Any]] = {}
    for row in rows:
        other = first.setdefault(row["name"], row)
        if other is not row:
            what = f"a task named {row['name']!r} is declared at {other['where']} already"
            raise _bad(row, f"{what}; give one of them another name=")
    for row in rows:
        batch, bracket, number = row["name"].removesuffix("]").rpartition("[")
        if bracket and number.isdecimal() and first.get(batch, row)["items"] is not None:
            what = f"{row['name']!r} names a job of the batch at {first[batch]['where']}"
            raise _bad(row, f"{what}; give one of them another name=")


def _planned(
    path: str, row: dict[str, Any], by_variable: Mapping[str, str], by_name: Mapping[str, Any]
) -> Planned:
    for name in row["after"]:
        if name not in by_name:
            hint = nearest(name, by_name)
            raise _bad(row, f"task {row['name']!r} comes after {name!r}, which is no task of this file{hint}")
    items = row["items"]
    return Planned(
        name=row["name"],
        where=row["where"],
        ref=TaskRef(path, row["index"], row["function"], row["name"]),
        options=_options(row),
        args=tuple(starmap(Stored, row["args"])),
        kwargs={name: Stored(*pair) for name, pair in row["kwargs"].items()},
        items=None if items is None else tuple(tuple(starmap(Stored, item)) for item in items),
        takes=tuple(_takes(row, by_variable)),
        after=tuple(row["after"]),
        keys=None if row["keys"] is None else tuple(row["keys"]),
    )


def _takes(row: dict[str, Any], by_variable: Mapping[str, str]) -> Iterator[tuple[str, str, bool]]:
    for parameter, positional in row["required"]:
        if parameter not in by_variable:
            what = f"task {row['name']!r} has no value for its parameter {parameter!r}"
            why = "no default, not in args or kwargs, and no task is bound to a top-level name like it"
            raise _bad(row, f"{what} ({why}){nearest(parameter, by_variable)}")
        yield parameter, by_variable[parameter], positional


def _options(row: dict[str, Any]) -> Options:
    """Return a task's options; its longest job name must be a legal one, its limits such as can be had here."""
    last = "" if row["items"] is None else f"[{len(row['items'])}]"
    try:
        Options(name=row["name"] + last)
        options = Options(**row["options"])
        rule_of(options)
        ruled = rules(options)  # also what this process may not allow
        check_held(ruled.env, fitted(ruled.resources, ruled.memory_bytes, {}), {})  # no pool of a command has tokens
    except (InvalidOption, TypeError) as error:
        raise _bad(row, f"task {row['name']!r}: {error}") from None
    start, deadline = options.get("start_time"), options.get("deadline")
    if isinstance(start, datetime) and isinstance(deadline, datetime) and start >= deadline:
        what = f"its start_time {start.isoformat()} is not before its deadline {deadline.isoformat()}"
        raise _bad(row, f"task {row['name']!r}: {what}")
    return options
