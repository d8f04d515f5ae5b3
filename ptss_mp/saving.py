"""What a stopped pool has left, as JSON: which jobs are to be run again, by name, key, call and options.

The file is written by the callback thread when all has ended, whoever stopped the pool and wherever from.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Iterator, Mapping
from dataclasses import fields
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from . import atomic
from .core.job import NEVER
from .depict import call_text
from .errors import InvalidOption, InvalidType, JournalError
from .future import CALL
from .outcome import instant_text
from .parcel import parts_of
from .retrying import Retry
from .shell.clock import wall

if TYPE_CHECKING:
    from .future import Future

SCHEMA = 1
INT_BITS_MAX = 2_000  # 602 digits: the least bound that sys.set_int_max_str_digits may set is 640
_PLAIN = (str, int, float, bool, type(None))

log = logging.getLogger("ptss_mp")


class Saving:
    """One `stop(save=...)`.

    Args:
        path: of the file to be; what is there is replaced.
        pool: its name.

    Attributes:
        error: why the file could not be written.

    Raises:
        InvalidOption: it could not be written; said before anything is stopped.
    """

    def __init__(self, path: Any, pool: str) -> None:
        try:
            self._path = os.path.abspath(os.fsdecode(path))  # now: the program may change its folder
        except TypeError:
            raise InvalidType(f"save takes the path of a file, not {type(path).__name__}") from None
        try:
            atomic.check(self._path)
        except (OSError, ValueError) as error:
            why = getattr(error, "strerror", None) or error
            raise InvalidOption(f"save: cannot create {self._path!r}: {why}; nothing was stopped") from None
        self._pool, self._left = pool, list[tuple[Any, ...]]()
        self.error: JournalError | None = None

    def take(self, future: Future[Any], status: str) -> None:
        """Note a job that is about to end so (loop thread); its call and what it comes after are still there."""
        call = future._result if future._kind == CALL else None
        self._left.append((future, status, call, future._extra))

    def write(self) -> None:
        """Write the file; what goes wrong is kept, and logged for those who do not wait."""
        try:
            atomic.write(self._path, self._pieces())
        except Exception as error:  # also of an option whose text cannot be had: who waits must not think it is there
            why = getattr(error, "strerror", None) or error
            text = f"what the stopped pool has left cannot be written to {self._path!r}: {why}"
            self.error = JournalError(text)
            log.error("%s", text)

    def _pieces(self) -> Iterator[str]:
        """Yield the text, a line for each job."""
        now = instant_text(datetime.now(UTC))
        head = {"schema": SCHEMA, "pool": self._pool, "stopped": now, "left": len(self._left)}
        yield json.dumps(head)[:-1] + ', "jobs": ['
        self._left.sort(key=lambda left: left[0]._id)  # as they were submitted
        for number, left in enumerate(self._left):
            yield (",\n" if number else "\n") + json.dumps(_facts(*left))
        yield "\n]}\n"


def _facts(future: Future[Any], status: str, call: Any, extra: Any) -> dict[str, Any]:
    """Return what is told of one job."""
    use, options = future._use, future._use.scope.options
    results = [need._use.name for need in extra.needs] if extra else []
    facts: dict[str, Any] = {
        "number": future._id,
        "name": use.name,
        "key": use.key,
        "status": status,
        "submitted": instant_text(wall(future._submitted)),
        "start": instant_text(wall(future._release)),
        "deadline": instant_text(wall(future._due)) if future._due < NEVER else None,
        "attempts": extra.tries if extra else 0,
        "after": [other._use.name for other in extra.after] if extra else [],
        "options": {name: readable(options.get(name)) for name in options.given() if name not in _TOLD},
    }
    if extra and extra.run:
        left = len(extra.run) - extra.run.at
        return facts | {"call": f"{use.name}(... {left} items)", "args": None, "items": left}
    shown = parts_of(call) if isinstance(call, bytes) or not isinstance(call, (tuple, *_PLAIN)) else call
    facts["call"] = call_text(use.name, shown, results)
    args = call if isinstance(call, tuple) else (call,)
    facts["args"] = list(args) if all(map(_told_plainly, args)) else None
    return facts


def _told_plainly(arg: Any) -> bool:
    """Return True for what JSON holds as it is; a number may have more digits than Python writes."""
    return isinstance(arg, _PLAIN) and not (isinstance(arg, int) and arg.bit_length() > INT_BITS_MAX)


_TOLD = frozenset(("name", "after", "args", "kwargs"))  # elsewhere, or part of the call


def readable(value: Any) -> Any:
    """Return an option's value as JSON has it: durations in seconds, instants with Z, what is neither as text."""
    if isinstance(value, _PLAIN):
        return value
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, datetime):
        return instant_text(value)
    if isinstance(value, Mapping):
        return {str(name): readable(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [readable(item) for item in value]
    if isinstance(value, Retry):
        return {field.name: readable(getattr(value, field.name)) for field in fields(value)}
    return getattr(value, "__qualname__", None) or str(value)
