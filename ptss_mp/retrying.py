"""`Retry`: after which failures a job is made again, how often, and after what pause."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields
from datetime import timedelta
from typing import Any

from .errors import InvalidOption, InvalidType
from .pickling import dumps, dumps_for_worker
from .units import duration_ns, number, shown, whole

RETRIES_MAX = 1000  # a job that died a thousand times will not live
FACTOR_MAX = 1000.0  # by it a second becomes more than an hour in three pauses
CAUSES = ("exception", "crash", "timeout", "memory", "cpu")

Classes = type[BaseException] | Iterable[type[BaseException]]


@dataclass(frozen=True, slots=True)
class Detached:
    """Pickled exception classes of a module that this process shall not import (a jobs file's)."""

    data: bytes


@dataclass(frozen=True, kw_only=True, slots=True)
class Retry:
    """A budget for each cause of failure; an attempt that failed for a cause with budget left is made again.

    Attributes:
        exception: how often after an exception of the job; 0..1000, as all budgets.
        crash: after the death of its worker.
        timeout: after an attempt that ran longer than `timeout`.
        memory, cpu: after one that went beyond `memory`, `cpu_time`.
        only: exception classes, one or several: others are not followed by another attempt. Judged by `isinstance`
            in the worker, so these classes must be importable there.
        backoff: the first pause, seconds or a duration; 0: at once.
        factor: how much longer each further pause is, whatever the causes; 1..1000.
        jitter: share of a pause by which it is made longer or shorter by chance; 0..1.
        max_delay: no pause is longer, jitter aside; seconds or a duration.

    Raises:
        InvalidOption: a value that can never be right.
        InvalidType: a value of a wrong kind.
    """

    exception: int = 0
    crash: int = 0
    timeout: int = 0
    memory: int = 0
    cpu: int = 0
    only: Classes | Detached = ()
    backoff: float | timedelta | str = 1.0
    factor: float = 2.0
    jitter: float = 0.1
    max_delay: float | timedelta | str = 60.0

    def __post_init__(self) -> None:
        for cause in CAUSES:
            whole(getattr(self, cause), f"{cause} of Retry", 0, RETRIES_MAX)
        number(self.factor, "factor of Retry", 1, FACTOR_MAX)
        number(self.jitter, "jitter of Retry", 0, 1)
        duration_ns(self.backoff, "backoff of Retry", zero=True)
        duration_ns(self.max_delay, "max_delay of Retry", zero=True)
        if not isinstance(self.only, Detached):
            object.__setattr__(self, "only", _classes(self.only))

    def __repr__(self) -> str:
        given = (f"{f.name}={getattr(self, f.name)!r}" for f in fields(self) if getattr(self, f.name) != f.default)
        return f"Retry({', '.join(given)})"

    @property
    def backoff_ns(self) -> int:
        """The first pause."""
        return duration_ns(self.backoff, "backoff", zero=True)

    @property
    def max_delay_ns(self) -> int:
        """The longest pause, jitter aside."""
        return duration_ns(self.max_delay, "max_delay", zero=True)

    def pickled_only(self) -> bytes:
        """Return `only` as a worker can load it, empty if every exception will do.

        Raises:
            InvalidOption: no worker could.
        """
        if isinstance(self.only, Detached):
            return self.only.data
        if not self.only or not self.exception:
            return b""
        try:
            return dumps_for_worker(self.only)
        except Exception as error:
            raise InvalidOption(f"no worker could load the classes of {self!r}: {error}") from error


def retries(value: Any, what: str) -> None:
    """Raise unless `value` is a number of retries or a Retry."""
    if isinstance(value, Retry):
        return
    if not isinstance(value, int):
        raise InvalidType(f"{what} must be a whole number or Retry(...), not {type(value).__name__}")
    whole(value, what, 0, RETRIES_MAX)


def _classes(given: Any) -> tuple[type[BaseException], ...]:
    if isinstance(given, str | bytes) or not isinstance(given, type | Iterable):
        raise InvalidType(f"only of Retry takes exception classes, not {type(given).__name__}")
    classes: tuple[Any, ...] = (given,) if isinstance(given, type) else tuple(given)
    for kind in classes:
        if not isinstance(kind, type) or not issubclass(kind, BaseException):
            raise InvalidType(f"only of Retry takes exception classes, not {shown(kind)}")
        try:
            dumps(kind)
        except Exception as error:
            what = f"only of Retry: a worker could not load the class {kind.__qualname__}"
            raise InvalidOption(f"{what}; define it at the top of a module ({error})") from error
    return classes
