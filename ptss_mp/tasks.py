"""Functions declared with their options: `@task`, and what collects them while a jobs file is imported."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, overload

from .declare import Options
from .declare import options as make_options
from .errors import InvalidOption, InvalidType


class Task:
    """A declared function with its options; what `@task` returns.

    Calling it calls the function here and now, without the options.  It
    pickles by reference, like the function that it replaces.

    Attributes:
        fn: the function.
        name: `name=` of the options, else the function's name.
        options: the declared `Options`.
    """

    def __init__(self, fn: Callable[..., Any], options: Options, items: list[Any] | None = None) -> None:
        if not callable(fn):
            raise InvalidType(f"a task needs a function, not {type(fn).__name__}")
        self.fn = fn
        self.options = options
        self.items = items  # arguments of each job of a batch (`map`), else None
        functools.update_wrapper(self, fn, updated=())
        self.name: str = options.get("name") or getattr(fn, "__name__", type(fn).__name__)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.fn(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<Task {self.name!r}>"

    def __reduce__(self) -> str | tuple[Any, ...]:
        module, name = getattr(self, "__module__", ""), getattr(self, "__qualname__", "")
        found: Any = sys.modules.get(module)
        for part in name.split("."):
            found = getattr(found, part, None)
        if found is self:
            return str(name)
        return Task, (self.fn, self.options, self.items)


class _Declaration:
    """What `task(**options)` returns: a decorator, with `.map` for batches."""

    def __init__(self, options: Options) -> None:
        self.options = options

    def __call__(self, fn: Callable[..., Any]) -> Task:
        return _declare(Task(fn, self.options))

    def map(self, fn: Callable[..., Any], /, *iterables: Iterable[Any]) -> Task:
        """Declare a batch: one job for each tuple of items, like `map` (the shortest ends it)."""
        if not iterables:
            raise InvalidType("a batch needs at least one iterable")
        if self.options.get("args") or self.options.get("kwargs"):
            raise InvalidOption("a batch takes its arguments from the iterables; args and kwargs do not go with it")
        return _declare(Task(fn, self.options, list(zip(*iterables, strict=False))))


class Declared(NamedTuple):
    """One entry of the collection: the Task, and where it was declared."""

    task: Task
    module: str
    line: int


_collection: list[Declared] | None = None  # only while a jobs file is imported (jobsfile.load)


def collect(into: list[Declared] | None) -> None:
    """Note every Task declared from now on in `into`; None ends it."""
    global _collection  # noqa: PLW0603 - one import at a time, in a worker that has one thread
    _collection = into


def _declare(declared: Task) -> Task:
    if _collection is not None:
        frame = sys._getframe(2)
        _collection.append(Declared(declared, frame.f_globals.get("__name__", ""), frame.f_lineno))
    return declared


@overload
def task(fn: Callable[..., Any], /) -> Task: ...
@overload
def task(fn: None = None, /, **given: Any) -> _Declaration: ...


def task(fn: Callable[..., Any] | None = None, /, **given: Any) -> Task | _Declaration:
    """Declare a function as a task: bare, or with options.

    `@task` · `@task(timeout="10m", retries=1)` · `task(name="n", args=(7,))(fn)` ·
    `task(timeout="60s").map(fn, items)` for a batch.

    Raises:
        InvalidOption, InvalidType: as `Options`.
    """
    if fn is None:
        return _Declaration(make_options(**given))
    if given:
        raise InvalidType("options go before the function: task(timeout=5)(fn)")
    return _declare(Task(fn, Options()))
