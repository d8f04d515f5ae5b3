"""`current()`: what a job may ask about itself, and tell.

The facts are those that the worker has anyway: the row of the job, the last
`wire.ABOUT`, the marker page.  They are put together when somebody asks, so a
job that does not ask pays nothing.
"""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Any

from . import marker

if TYPE_CHECKING:
    from datetime import datetime

    from .worker import Loop

_pid = 0  # of the worker; what a job forks is none
_loop: Loop | None = None  # not yet in an initializer
_state: dict[Any, Any] = {}


class Attempt:
    """The attempt that asks.

    Attributes:
        name, key: the job's, as in its outcome.
        attempt: which one this is, from 1.
        tokens: what the attempt holds of the pool's resources: token -> the names of its units, or an amount as int.
        state: a dict of this worker, kept between its jobs; an initializer may fill it.
    """

    __slots__ = ("_due", "_job", "_page", "_until", "attempt", "key", "name", "state", "tokens")

    name: str
    key: str
    attempt: int
    tokens: dict[str, tuple[str, ...] | int]

    def __init__(self, loop: Loop | None) -> None:
        self.state = _state
        if loop is None:
            return
        words = loop.words
        self._job, self._page = words[marker.RUNNING], loop.page
        self.name, self.key, self.attempt, timeout_ns, self._due, tokens = loop.about[:6]
        self.tokens = dict(tokens)  # a job may do with it what it likes
        self._due = self._due or next((row[4] for row in loop.rows if row[0] == self._job), 0)
        limits = [words[marker.STARTED] + timeout_ns] if timeout_ns else []
        self._until = min([*limits, self._due] if self._due else limits, default=0)

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"no {name!r} here: an initializer belongs to no job, it has only .state")

    @property
    def deadline(self) -> datetime | None:
        """The instant (UTC) by which the job must have finished, None if there is none."""
        if not self._due:
            return None
        from datetime import UTC, datetime, timedelta

        return datetime.now(UTC) + timedelta(microseconds=(self._due - time.monotonic_ns()) // 1_000)

    def remaining(self) -> float | None:
        """Return the seconds until the earlier of timeout and deadline, 0.0 behind it; None without both."""
        return max(0, self._until - time.monotonic_ns()) / 1e9 if self._until else None

    def progress(self, done: float, total: float | None = None, text: str = "") -> None:
        """Tell how far the job is; never blocks, costs microseconds, and the last word counts.

        Subscribers of the executor and the command line show it, about twice a second.

        Args:
            done: in any unit, from 0.
            total: in the same unit, None if nobody knows.
            text: what it is at; cut to 200 bytes.

        Raises:
            InvalidOption, InvalidType: no finite number from 0, or no text.
        """
        _check("done", done)
        if total is not None:
            _check("total", total)
        _check_text(text)
        if os.getpid() == _pid:  # a fork of the job has another's page no more
            marker.report(self._page, self._job, done, -1 if total is None else total, text)


def _check(what: str, value: Any) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        _refuse("InvalidType", f"{what} must be a number, not {type(value).__name__}")
    if not 0 <= value <= marker.PROGRESS_MAX:  # NaN too
        from .units import shown

        _refuse("InvalidOption", f"{what} must be within 0 and {marker.PROGRESS_MAX:g}, not {shown(value)}")


def _check_text(text: Any) -> None:
    if not isinstance(text, str):
        _refuse("InvalidType", f"text must be text, not {type(text).__name__}")


def _refuse(kind: str, text: str) -> None:
    from . import errors  # a worker has no use for it otherwise

    raise getattr(errors, kind)(text)


def current() -> Attempt | None:
    """Return what runs here: in a job its attempt, in an initializer only `.state`, None outside a worker."""
    if _pid == 0 or os.getpid() != _pid:
        return None
    if _loop is not None:
        words = _loop.words
        if not words[marker.RUNNING] or words[marker.NUMBER] != words[marker.COMPLETED]:
            return None  # between two jobs: a thread that one left behind
    return Attempt(_loop)


def begin() -> None:
    """This process is a worker from now on."""
    global _pid  # noqa: PLW0603 - a fact of the process
    _pid = os.getpid()


def serve(loop: Loop) -> None:
    """Jobs are taken from now on."""
    global _loop  # noqa: PLW0603 - a fact of the process
    _loop = loop
