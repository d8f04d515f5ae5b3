"""From the arguments of `add` to an Entry: what is frozen, what it waits for, on whose slots it hangs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import Future as AnyFuture
from datetime import datetime
from typing import Any

from .core.recurrence import Rule
from .declare import Options
from .errors import InvalidOption, InvalidType, NotPicklable
from .future import Future
from .keys import default_key, given_key
from .outcome import brief
from .parcel import parts_of
from .recurring import Entry, Recurring, Root
from .shell.use import Use
from .submission import guilty_part, pickled_call
from .tasks import Task
from .units import nearest


def make_entry(use: Use, options: Options, rule: Rule | None, tasks: Mapping[str, Recurring]) -> Entry:
    """Pickle a call with its prerequisites, and find on whose slots it hangs.

    Raises:
        NotPicklable: the function or an argument cannot be pickled.
        InvalidOption: prerequisites that cannot be, or a name that nobody bears.
        InvalidType: a prerequisite of a wrong kind.
    """
    met: dict[Any, int] = {}
    args, kwargs = options.get("args") or (), options.get("kwargs") or {}
    try:
        call = pickled_call(use, args, kwargs, met)
    except Exception as error:
        part = guilty_part(use, args, kwargs)
        raise NotPicklable(f"task {use.name!r}: its {part} cannot be pickled: {brief(error)}", part=part) from error
    use.pool.notice_main(parts_of(call)[0])
    needs = tuple(map(_entry_of, met))
    after = tuple(dict.fromkeys((*needs, *_asked(use, options.get("after"), tasks))))
    for one in after:
        there = one.use if isinstance(one, Entry) else one._use if isinstance(one, Future) else None
        if there is None or there.pool is not use.pool:
            raise InvalidType(f"{use.name!r}: a prerequisite must be of this executor; this one is of another")
    return Entry(use, call, needs, after, _key(use, options, args, kwargs), _root(use.name, options, rule, after))


def _key(use: Use, options: Options, args: Any, kwargs: Any) -> str:
    """Return the task's key, to which each release adds its instant; "" if nobody asks for one."""
    given = options.get("key")
    if given is not None:
        return given_key(given, args, kwargs)
    return default_key(use.fn, args, kwargs) if use.pool.journal else ""


def _root(name: str, options: Options, rule: Rule | None, after: Iterable[Any]) -> Root | None:
    """Return whose runs a task is part of by what it waits for."""
    roots = {one.root for one in after if isinstance(one, Entry) and one.root}
    if len(roots) > 1:
        names = " and ".join(sorted(repr(root.name) for root in roots))
        raise InvalidOption(f"{name!r} hangs on {names}, which recur each by itself: no run of both is ever made")
    root = roots.pop() if roots else None
    if root and rule:
        what = f"{name!r} recurs by itself, and hangs on {root.name!r}, which does too"
        raise InvalidOption(f"{what}; a recurring task may wait for tasks that run once")
    if root and options.get("start_time") is not None:
        raise InvalidOption(f"start_time: {name!r} is released with {root.name!r}")
    if root and isinstance(options.get("deadline"), datetime):
        raise InvalidOption(f"the deadline of {name!r} must be a duration, counted from each release: it recurs")
    return root


def _entry_of(one: Any) -> Any:
    return one._entry if isinstance(one, Recurring) else one


def _asked(use: Use, after: Any, tasks: Mapping[str, Recurring]) -> Iterator[Any]:
    """Yield what `after` asks for."""
    alone = isinstance(after, str) or not isinstance(after, Iterable)
    for one in () if after is None else [after] if alone else after:
        key = one.name if isinstance(one, Task) else one
        if isinstance(key, str):
            found = tasks.get(key) or use.pool.named(key)
            if found is None:
                hint = nearest(key, [*tasks, *use.pool.names])
                raise InvalidOption(f"after: no task or job named {key!r} is known here{hint}")
            yield _entry_of(found)
        elif isinstance(key, Recurring | AnyFuture):
            yield _entry_of(key)
        else:
            raise InvalidType(f"after takes added tasks, Futures, Tasks and names, not {type(one).__name__}")
