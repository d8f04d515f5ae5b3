"""From a call to a job: names, instants, pickles, and what is said of a call that cannot be pickled."""

from __future__ import annotations

from concurrent.futures._base import FINISHED
from datetime import datetime
from pickle import PickleBuffer
from typing import Any

from .core.job import NEVER
from .declare import Options
from .errors import InvalidOption, NotPicklable
from .future import Future, submitting
from .outcome import brief
from .parcel import Apart, Parcel, set_apart
from .pickling import dumps_for_worker
from .shell.clock import monotonic, monotonic_ns
from .shell.report import Report
from .shell.use import Use
from .units import duration_ns


def name_of(fn: Any) -> str:
    """Return what a function is called; a partial is called what it wraps."""
    inner = getattr(fn, "func", None)  # functools.partial
    return getattr(fn, "__qualname__", None) or (name_of(inner) if inner else type(fn).__qualname__)


def instants(given: Options, deadline_ns: int, now: int) -> tuple[int, int]:
    """Return (release, deadline) of a job submitted now, as instants of the monotonic clock.

    What lies before its beginning counts as 0, what lies beyond the core's range as NEVER.

    Args:
        deadline_ns: a relative deadline, as in `Rules`; 0: none.
    """
    start, deadline = given.get("start_time"), given.get("deadline")
    release = now
    if isinstance(start, datetime):
        release = monotonic(start)
    elif start is not None:
        release = now + duration_ns(start, "start_time")
    due = NEVER
    if isinstance(deadline, datetime):
        due = monotonic(deadline)
    elif deadline_ns:
        due = release + deadline_ns
    return min(max(0, release), NEVER), min(max(0, due), NEVER)


def pickled_call(use: Use, args: Any, kwargs: Any, needs: dict[Future[Any], int]) -> bytes | Parcel:
    """Pickle a call, as it is now; Futures met on the way are noted in `needs`."""
    outer, submitting.needs, apart = submitting.needs, needs, Apart()
    call = tuple(map(set_apart, args)), {name: set_apart(value) for name, value in kwargs.items()}
    try:
        pickled = dumps_for_worker((use.fn, *call) if use.function.number < 0 else call, apart)
    finally:
        submitting.needs = outer
    if not apart:
        return pickled
    apart.own()
    return Parcel([pickled, *apart])


def pickled_by_itself(value: Any) -> tuple[Any, ...] | None:
    """Return the pickle of a part of a call and the buffers set apart from it; None: it cannot be, or needs Futures."""
    needs: dict[Future[Any], int] = {}
    outer, submitting.needs, apart = submitting.needs, needs, Apart()
    try:
        pickled = dumps_for_worker(value, apart)
    except Exception:
        return None
    finally:
        submitting.needs = outer
    return None if needs else (pickled, *map(PickleBuffer, apart))


def pickled_initializer(initializer: Any, initargs: tuple[Any, ...]) -> bytes:
    """Pickle an initializer with its arguments.

    Raises:
        InvalidOption: it cannot be.
    """
    try:
        return dumps_for_worker((initializer, initargs))
    except Exception as error:
        name = name_of(initializer)
        raise InvalidOption(f"initializer {name!r} or its initargs cannot be pickled: {brief(error)}") from error


def guilty_part(use: Use, args: Any, kwargs: Any) -> str:
    """Return which part of a call cannot be pickled, in words."""
    parts: list[tuple[str, Any]] = [("function", use.fn)] if use.function.number < 0 else []
    parts += [(f"argument {i}", arg) for i, arg in enumerate(args, 1)]
    parts += [(f"keyword {name}", value) for name, value in kwargs.items()]
    outer = submitting.needs  # of a call whose arguments submit while they are pickled
    for part, value in parts:
        submitting.needs = {}
        try:
            dumps_for_worker(value)
        except BaseException:
            return part
        finally:
            submitting.needs = outer
    return "call"


def born_failed(future: Future[Any], known: bool, args: Any, kwargs: Any, error: BaseException) -> Future[Any]:
    """Return a Future that is settled: a part of its call cannot be pickled.

    Args:
        known: its job is known by a name.
    """
    use = future._use
    guilty = guilty_part(use, args, kwargs)
    text = f"job {use.name!r}: its {guilty} cannot be pickled: {brief(error)}"
    cause = NotPicklable(text, part=guilty)
    cause.__cause__ = error if isinstance(error, Exception) else None
    report = Report("not_picklable", monotonic_ns())
    report.error, report.cause = f"its {guilty} cannot be pickled: {brief(error)}", cause
    future._report = report
    if known:
        use.pool.know(future)
    use.pool.weights.add(1)
    use.pool.control(lambda _now: use.pool.ends.update(("not_picklable",)))
    future._end(FINISHED)
    return future
