"""The worker's half of jobs files: import one, find a function in it, say what it declares.

To import a file is to run it, and it may raise, hang or crash like any job; so
it happens in a worker, and the parent gets plain data (`jobsfile.compile_jobs`).
"""

from __future__ import annotations

import contextlib
import importlib.util
import inspect
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, fields
from datetime import UTC, datetime, timedelta
from types import ModuleType
from typing import Any, NamedTuple

from . import tasks
from .errors import InvalidOption, PtssError
from .keys import form, given_key
from .pickling import dumps
from .retrying import Detached, Retry
from .tasks import Declared, Task

PREFIX = "jobsfile_"  # of the module's name, where an import of the file's stem would find something else


class Refused(Exception):
    """The file cannot be used; `where` is "file:line" or ""."""

    def __init__(self, text: str, where: str = "") -> None:
        super().__init__(text, where)
        self.text = text
        self.where = where

    def __str__(self) -> str:
        return self.text


class Found(NamedTuple):
    """A task of a file, and where it was declared: "file:line"."""

    task: Task
    where: str


@dataclass(frozen=True, slots=True)
class Loaded:
    """An imported jobs file."""

    module: ModuleType
    tasks: list[Found]


_loaded: dict[str, Loaded] = {}  # one import of a file per worker


def resolve(path: str, index: int, function: str) -> Callable[..., Any]:
    """Return the function of a file's task number `index`; import the file if this worker has not yet.

    Raises:
        Refused: the file is not the one that was described.
    """
    tasks = load(path).tasks
    there = function_name(tasks[index].task.fn) if index < len(tasks) else None
    if there != function:
        raise Refused(
            f"{path} declares other tasks now than when it was read: number {index} was {function!r} "
            f"and is {there!r}; was it edited, or does it depend on chance?"
        )
    return tasks[index].task.fn


def load(path: str) -> Loaded:
    """Import a jobs file, once per process, and return its module and tasks."""
    if path not in _loaded:
        with StdoutToStderr():
            _loaded[path] = _import(path)
    return _loaded[path]


def load_silently(path: str) -> None:
    """Import a jobs file for what it leaves in memory; what it prints was heard at its first import."""
    with silently():
        load(path)


@contextlib.contextmanager
def silently() -> Iterator[None]:
    """While the block lasts, what is written to stderr is lost."""
    null = os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)
    kept = os.dup(2)
    os.dup2(null, 2)
    os.close(null)
    try:
        yield
    finally:
        sys.stderr.flush()
        os.dup2(kept, 2)
        os.close(kept)


class StdoutToStderr:
    """While a file is imported its prints go to stderr: stdout is for what its jobs say.

    By descriptor, so that whatever keeps `sys.stdout` at import keeps the real one.
    """

    def __enter__(self) -> None:
        sys.stdout.flush()
        self.saved = os.dup(1)
        os.dup2(2, 1)

    def __exit__(self, *_: object) -> None:
        sys.stdout.flush()
        os.dup2(self.saved, 1)
        os.close(self.saved)


def _import(path: str) -> Loaded:
    folder, name = os.path.dirname(path), _module_name(path)
    if folder not in sys.path[:1]:
        sys.path.insert(0, folder)
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise Refused("a jobs file's name ends in .py", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # before it runs: pickle and dataclasses look there
    declared: list[Declared] = []
    tasks.collect(declared)
    try:
        spec.loader.exec_module(module)
    except BaseException:
        sys.modules.pop(name, None)
        raise
    finally:
        tasks.collect(None)
    return Loaded(module, list(_tasks_of(module, declared, path)))


def _module_name(path: str) -> str:
    """Return the file's stem, or a prefixed one where an import of the stem would find something else."""
    stem = os.path.basename(path).rpartition(".")[0]
    if not stem.isidentifier():
        return PREFIX + re.sub(r"\W", "_", stem)
    try:
        found = importlib.util.find_spec(stem)
        free = found is None or (found.origin is not None and os.path.samefile(found.origin, path))
    except (ImportError, ValueError, OSError):
        free = False
    return stem if free else PREFIX + stem


def _tasks_of(module: ModuleType, declared: list[Declared], path: str) -> Iterator[Found]:
    """Yield a file's tasks: declared by its own code, in that order; then imported ones bound to a name."""
    seen = set()
    for entry in declared:
        if entry.module == module.__name__:
            seen.add(id(entry.task))
            yield Found(entry.task, f"{path}:{entry.line}")
    for value in list(vars(module).values()):
        if isinstance(value, Task) and id(value) not in seen:
            seen.add(id(value))
            code = getattr(inspect.unwrap(value.fn), "__code__", None)
            file, line = getattr(code, "co_filename", path), getattr(code, "co_firstlineno", 1)
            yield Found(value, f"{file}:{line}")


def describe(path: str) -> dict[str, Any]:
    """Import a jobs file and return what it declares as plain data (for `jobsfile.compile_jobs`).

    What is wrong with the file is returned too: `{"error": text, "where": "file:line"}`.

    Args:
        path: the file, absolute.
    """
    try:
        return {"path": path, "tasks": list(_rows(load(path)))}
    except Refused as refused:
        return {"error": refused.text, "where": refused.where or path}
    except BaseException as error:  # SystemExit and KeyboardInterrupt too: they are the file's, not ours
        return {"error": told_of(error), "where": _where(error, path)}


def told_of(error: BaseException) -> str:
    """Return what an error says, in words for one line; never raises."""
    if isinstance(error, SystemExit):
        return f"it called sys.exit({error.code!r}) while it was imported"
    try:
        text = str(error.msg if isinstance(error, SyntaxError) else error)
    except Exception:
        text = "(its text cannot be had)"
    if isinstance(error, PtssError):
        return text
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def _where(error: BaseException, path: str) -> str:
    """Return "file:line" of an error: of the jobs file's own line that led to it."""
    if isinstance(error, SyntaxError) and error.filename and error.lineno:
        return f"{error.filename}:{error.lineno}"
    where, trace = path, error.__traceback__
    while trace:
        if trace.tb_frame.f_code.co_filename == path:
            where = f"{path}:{trace.tb_lineno}"
        trace = trace.tb_next
    return where


def _rows(loaded: Loaded) -> Iterator[dict[str, Any]]:
    variables: dict[int, list[str]] = {}
    for variable, value in vars(loaded.module).items():
        if isinstance(value, Task):
            variables.setdefault(id(value), []).append(variable)
    names = {id(task): _name(task, variables.get(id(task), [])) for task, _ in loaded.tasks}
    for index, (task, where) in enumerate(loaded.tasks):
        try:
            row = _row(task, names)
        except Refused as refused:
            raise Refused(f"task {names[id(task)]!r}: {refused}", where) from None
        yield row | {"index": index, "where": where, "variables": variables.get(id(task), [])}


def _name(task: Task, variables: list[str]) -> str:
    return plain(task.options.get("name")) or (variables[0] if variables else function_name(task.fn))


def function_name(fn: Callable[..., Any]) -> str:
    """Return a callable's name; of an object without one its class's."""
    return str(getattr(fn, "__name__", type(fn).__name__))


def _row(task: Task, names: Mapping[int, str]) -> dict[str, Any]:
    options = task.options
    args, kwargs = list(options.get("args") or ()), dict(options.get("kwargs") or {})
    given = [name for name in options.given() if name not in ("name", "after", "args", "kwargs")]
    items, width = None, len(args)
    if task.items is not None:
        items = [_stored_all(item, f" of item {n}") for n, item in enumerate(task.items)]
        width = len(task.items[0]) if items else -1
    required = _required(task, width, kwargs) if width >= 0 else []
    return {
        "name": names[id(task)],
        "keys": _keys(options.get("key"), task.items, args, kwargs, required),
        "function": function_name(task.fn),
        "options": {name: plain(getattr(options, name)) for name in given if not callable(getattr(options, name))},
        "after": [_named(one, names) for one in _several(options.get("after"))],
        "args": _stored_all(args),
        "kwargs": {plain(name): _stored(value, f"argument {name!r}") for name, value in kwargs.items()},
        "items": items,
        "required": required,
    }


def plain(value: Any) -> Any:
    """Return an option's value as an exact built-in type: the parent has no class of the file's."""
    if isinstance(value, datetime):
        at = value.astimezone(UTC)
        return datetime(*at.timetuple()[:6], at.microsecond, UTC)
    if isinstance(value, timedelta):
        return timedelta(value.days, value.seconds, value.microseconds)
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, int) and not isinstance(value, bool):
        return int(value)
    if isinstance(value, Retry):
        given = {field.name: plain(getattr(value, field.name)) for field in fields(value)}
        return Retry(**given | {"only": Detached(dumps(value.only)) if value.only else ()})
    return float(value) if isinstance(value, float) else value


def _keys(key: Any, items: list[Any] | None, args: Any, kwargs: Any, required: list[Any]) -> list[str] | None:
    """Return what a callable `key` makes of each job's arguments; they are objects here only."""
    if items is not None and isinstance(key, str):
        raise Refused("a key that is a text serves one job, and a batch has many; give a callable of an item")
    if not callable(key):
        return None
    if required:
        text = f"has no value for {required[0][0]!r} then"
        raise Refused(f"key= is called when the file is read, and {text}; give a text")
    try:
        return [given_key(key, tuple(item), kwargs) for item in ([args] if items is None else items)]
    except Exception as error:
        raise Refused(f"its key= cannot be made: {told_of(error)}") from None


def _stored_all(args: Iterable[Any], of: str = "") -> list[tuple[bytes, bytes]]:
    return [_stored(value, f"argument {n}{of}") for n, value in enumerate(args, 1)]


def _stored(value: Any, what: str) -> tuple[bytes, bytes]:
    """Return a value's pickle, and the digest of its canonical form (keys.py), empty if it has none."""
    try:
        data = dumps(value)
    except Exception as error:
        raise Refused(f"{what} cannot be pickled: {told_of(error)}") from None
    try:
        return data, form(value)
    except InvalidOption:
        return data, b""


def _several(after: Any) -> Iterable[Any]:
    """Return what `after=` holds as an iterable."""
    if after is None:
        return ()
    if isinstance(after, str | Task):
        return (after,)
    if not isinstance(after, Iterable):
        raise Refused(f"after must hold tasks and names, not {type(after).__name__}")
    return after


def _named(one: Any, names: Mapping[int, str]) -> str:
    if isinstance(one, str):
        return str(plain(one))
    if not isinstance(one, Task):
        raise Refused(f"after must hold tasks and names, not {type(one).__name__}")
    if id(one) not in names:
        raise Refused(f"after holds the task {one.name!r}, not one of this file; bind it to a name there")
    return names[id(one)]


def _required(task: Task, width: int, kwargs: Mapping[str, Any]) -> list[tuple[str, bool]]:
    """Return the parameters that have neither default nor argument: (name, positional only).

    Args:
        width: how many arguments are given by position.
        kwargs: those given by name.
    """
    try:
        signature = inspect.signature(task.fn)
    except (ValueError, TypeError):
        return []  # a built-in without one: it takes what it is given
    try:
        bound = signature.bind_partial(*(None,) * width, **kwargs).arguments
    except TypeError as error:
        raise Refused(f"its arguments do not fit {function_name(task.fn)}{signature}: {error}") from None
    return [
        (p.name, p.kind is p.POSITIONAL_ONLY)
        for p in signature.parameters.values()
        if p.default is p.empty and p.name not in bound and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)
    ]
