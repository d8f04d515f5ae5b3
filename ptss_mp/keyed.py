"""The Future of a job that has a key of its own: one that a journal keeps, or that was given `key=`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from .future import Future
from .shell.report import Extra, Resumed

if TYPE_CHECKING:
    from .outcome import Outcome
    from .shell.use import Use

T = TypeVar("T")


class Keyed(Future[T]):
    """A Future whose end is told when it is on disk, if its pool has a journal.

    Attributes:
        _key: of the job.
        _verdict: how it has ended, though that is not on disk yet: what waits for it may start.
        _began_ns: when its first attempt was sent; 0: none was.
    """

    __slots__ = ("_began_ns", "_key", "_verdict")

    _key: str

    def __init__(self, job: int, call: Any, use: Use, submitted: int, release: int, due: int) -> None:
        super().__init__(job, call, use, submitted, release, due)
        self._extra = Extra()  # so that its key is told to the worker (rows.tell_about)
        self._key = use.key
        self._verdict, self._began_ns = "", 0

    def status(self) -> str:
        """Return how the job has ended, though it may not be told yet."""
        return super().status() or self._verdict

    def _end(self, state: str) -> bool:
        journal = self._use.pool.journal
        return journal.settle(self, state) if journal else super()._end(state)

    def _settle_from(self, outcome: Outcome[T]) -> bool:
        """Settle it as an earlier run has; it never was in the pool.  Return True if there are callbacks to be run."""
        self._kind, self._result = outcome._value
        self._report = Resumed(outcome, self._submitted)
        return Future._end(self, "FINISHED")
