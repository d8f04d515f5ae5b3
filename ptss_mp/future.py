"""The Future: a `concurrent.futures.Future` that costs little until somebody needs more.

Condition, waiters and callbacks are made when first touched, in an object of
their own; the call and, when it has ended, the result share one place.  The
result stays bytes until it is asked for and is decoded in the asking thread.

Who settles?  Whoever takes the Future out of the pool's `futures` dict owns
its end (`dict.pop` is atomic), so no lock is needed between the loop thread
and a `cancel()`.  The owner stores the result, then `_state`, then looks for
waiters; a waiter announces itself, then looks at `_state`: one of the two sees
the other.  Where a condition exists, `_state` is stored while it is held, for
the standard library counts finished Futures under it; a thread that makes the
condition while the Future is being settled waits until `_state` is there.
"""

from __future__ import annotations

import concurrent.futures as cf
import copy
import os
import threading
import time
from collections.abc import Callable, Generator
from concurrent.futures._base import CANCELLED_AND_NOTIFIED, FINISHED, PENDING
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar

from . import wire
from .outcome import Outcome, Status, load
from .shell.report import Extra, Report, finished_at, make_outcome

if TYPE_CHECKING:
    from .shell.use import Use

T = TypeVar("T")

_MAKING = threading.RLock()  # of a condition or of the list of locks; re-entrant for signal handlers
_ENDED = frozenset((FINISHED, CANCELLED_AND_NOTIFIED))
_UNDECODED = object()

ERROR_BYTES = 16 << 10  # a larger pickled error is remembered by its text alone (`remains`)
CALL = -1  # `Future._kind`: there is no result yet, and what stands in its place is the call
SOON, CRITICAL = 0.30, 0.05  # of the window release…deadline that is left


class _Submitting(threading.local):
    """The Futures met while this thread pickles a call, with their numbers; None outside `submit`."""

    needs: dict[Future[Any], int] | None = None


submitting = _Submitting()


class Waits:
    """Who waits for a Future, and how; each part is made when first touched, None until then."""

    __slots__ = ("callbacks", "condition", "locks", "waiters")

    condition: threading.Condition | None
    waiters: list[Any] | None
    callbacks: list[Callable[[Any], Any]] | None
    locks: list[Any] | None

    def __init__(self) -> None:
        self.condition = self.waiters = self.callbacks = self.locks = None


class Future(cf.Future, Generic[T]):  # type: ignore[type-arg]
    """Stands for one job.

    As in the standard library, but `cancel()` kills a running job, and
    `outcome()` gives the facts.  Made by `submit` only.
    """

    __slots__ = (
        "_due", "_extra", "_id", "_kind", "_pid", "_release", "_report", "_result", "_state", "_submitted", "_use",
        "_value", "_waits",
    )  # fmt: skip

    _waits: Waits | None
    _extra: Extra | None
    _report: Report | tuple[int, int, int, int] | None  # a bare row of facts after a cheap success
    _result: Any  # under `_kind` CALL: bytes of a pickled call, a tuple of plain arguments, or a number: the only one
    _value: Any  # the decoded object, once somebody asked for a pickled one; of a job that failed its error

    def __init__(self, job: int, call: Any, use: Use, submitted: int, release: int, due: int) -> None:
        self._state = PENDING
        self._waits = self._extra = self._report = None
        self._kind, self._result = CALL, call
        self._value = _UNDECODED
        self._pid = 0
        self._id, self._use = job, use
        self._submitted, self._release, self._due = submitted, release, due

    # ---- what the standard library's functions touch, made on demand

    def _who_waits(self) -> Waits:
        """Return the record of those who wait, made if need be (with `_MAKING` held)."""
        if self._waits is None:
            self._waits = Waits()
        return self._waits

    @property
    def _condition(self) -> threading.Condition:  # type: ignore[override]
        cond = self._waits.condition if self._waits else None
        if cond is None:
            with _MAKING:
                waits = self._who_waits()
                if waits.condition is None:
                    waits.condition = threading.Condition()
                cond = waits.condition
            pool = self._use.pool
            while self._state not in _ENDED and self._id not in pool.futures and self._id not in pool.uncommitted:
                time.sleep(0)  # its owner may not have seen the condition: a few µs until `_state` is stored
        return cond

    @property
    def _waiters(self) -> list[Any]:  # type: ignore[override]
        with _MAKING:
            waits = self._who_waits()
            if waits.waiters is None:
                waits.waiters = []
            return waits.waiters

    @property
    def _done_callbacks(self) -> list[Callable[[Any], Any]]:
        with _MAKING:
            waits = self._who_waits()
            if waits.callbacks is None:
                waits.callbacks = []
            return waits.callbacks

    # ---- the public face

    def cancel(self) -> bool:
        """Settle the job as cancelled, whether it waits or runs; never blocks.

        A running job is killed with all that it started.

        Returns:
            True if it is cancelled now (or was before), False if it had ended otherwise.
        """
        return self._use.pool.cancel(self)

    def cancelled(self) -> bool:
        """Return True if the job was cancelled."""
        return self._state == CANCELLED_AND_NOTIFIED

    def running(self) -> bool:
        """Return True from the first sending to a worker until the end, pauses before retries included."""
        return self._state == PENDING and (self._pid != 0 or bool(self._extra and self._extra.tries))

    def done(self) -> bool:
        """Return True if the job is settled."""
        return self._state in _ENDED

    @property
    def _key(self) -> str:
        return self._use.key

    @property
    def worker_pid(self) -> int | None:
        """Pid of the worker that runs the job or ran it last, None if none did."""
        return self._pid or None

    @property
    def deadline_status(self) -> Literal["ok", "soon", "critical", "exceeded"] | None:
        """How much of the window from release to deadline is left; None without a deadline."""
        if self._due >= self._use.pool.never:
            return None
        end, facts = time.monotonic_ns(), self._report
        if self.done() and facts is not None:
            end = finished_at(facts)
        left = (self._due - end) / max(1, self._due - self._release)
        if left <= 0:
            return "exceeded"
        return "critical" if left <= CRITICAL else "soon" if left <= SOON else "ok"

    def result(self, timeout: float | None = None) -> T:
        """Return the job's value, decoded in this thread; `timeout` (seconds) only waits.

        Raises:
            TimeoutError: it is not settled after `timeout`.
            CancelledError: it was cancelled.
            Exception: what `exception` returns.
        """
        if self._state is not FINISHED:
            self._settled(timeout)
        if self._good():
            return self._result if self._kind <= wire.BOOL else self._decoded()  # type: ignore[no-any-return]
        try:
            raise self._error()
        finally:
            self = None  # type: ignore[assignment]  # noqa: PLW0642 - no cycle error, traceback, frame, Future

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Return the error that `result` would raise, None if the job succeeded; waits as `result` does."""
        if self._state is not FINISHED:
            self._settled(timeout)
        if not self._good():
            return self._error()
        if self._kind > wire.BOOL:
            try:
                self._decoded()
            except Exception as error:
                return error
        return None

    def outcome(self, timeout: float | None = None) -> Outcome[T]:
        """Return how the job ended, with its facts; never raises for what the job did.

        Raises:
            TimeoutError: it is not settled after `timeout` seconds.
        """
        if self._state not in _ENDED and not self._wait(timeout):
            raise TimeoutError()
        return make_outcome(self)

    def add_done_callback(self, fn: Callable[[Any], object]) -> None:
        """Call `fn(future)` when the job is settled, on the pool's callback thread; now, if it is."""
        super().add_done_callback(fn)

    def __await__(self) -> Generator[Any, None, T]:
        import asyncio

        return asyncio.wrap_future(self).__await__()

    def __repr__(self) -> str:
        state = self.status() if self.done() else "running" if self.running() else "pending"
        return f"<Future of job {self._use.name!r}, {state}>"

    def __reduce_ex__(self, _protocol: Any) -> tuple[Any, ...]:
        """Inside `submit` a Future pickles as the value it will have; elsewhere it does not."""
        needs = submitting.needs
        if needs is None:
            raise TypeError("a Future can be pickled only as an argument of submit, where it becomes its value")
        return wire.prerequisite, (needs.setdefault(self, len(needs)),)

    # ---- settling (whoever owns the end) and waiting

    def status(self) -> str:
        """Return the status of a settled job, "" of an unsettled one."""
        if self._state == CANCELLED_AND_NOTIFIED:
            return Status.CANCELLED.value
        if self._state != FINISHED:
            return ""
        return self._report.status if isinstance(self._report, Report) else Status.SUCCEEDED.value

    def _good(self) -> bool:
        report = self._report
        return not isinstance(report, Report) or report.status == "succeeded"

    def _end(self, state: str) -> bool:
        """Store the state and wake who waits; return True if there are callbacks to be run."""
        if self._kind == CALL:
            self._kind, self._result = 0, None
        if self._extra is not None and self._extra.named:
            self._use.pool.remember(self, state)
        self._extra = None
        waits = self._waits
        if waits is None or waits.condition is None:
            self._state = state
        else:
            with waits.condition:  # once: a waiter that came between state and word would count this Future twice
                self._state = state
                for waiter in waits.waiters or ():
                    if state == FINISHED:
                        waiter.add_result(self) if self._good() else waiter.add_exception(self)
                    else:
                        waiter.add_cancelled(self)
                waits.condition.notify_all()
        waits = self._waits  # again: who waits on a bare lock, and came in between, has not seen the state
        if waits is None:
            return False
        for lock in list(waits.locks or ()):  # one C call: who gives up waiting takes its lock out
            if lock.locked():
                lock.release()
        return bool(waits.callbacks)

    def _wait(self, timeout: float | None) -> bool:
        """Wait on a bare lock (12 µs of a round trip cheaper than a Condition); return False if it took too long."""
        self._check_process()
        lock = threading.Lock()
        lock.acquire()
        with _MAKING:
            waits = self._who_waits()
            if waits.locks is None:
                waits.locks = []
            waits.locks.append(lock)
        try:
            if self._state not in _ENDED:
                lock.acquire(True, -1 if timeout is None else max(0.0, min(timeout, threading.TIMEOUT_MAX)))
        finally:
            ended = self._state in _ENDED
            if not ended:  # who polls with a short timeout must not leave a lock each time
                with _MAKING:
                    waits.locks.remove(lock)
        return ended

    def _check_process(self) -> None:
        """Refuse to wait in a fork of the program: there it would be for ever."""
        if self._use.pool.pid != os.getpid() and self._state not in _ENDED:
            raise RuntimeError(f"job {self._use.name!r} is of the process before its fork: here it will never settle")

    def _settled(self, timeout: float | None) -> None:
        if self._state not in _ENDED and not self._wait(timeout):
            raise TimeoutError()
        if self._state == CANCELLED_AND_NOTIFIED:
            raise cf.CancelledError()

    def _decoded(self) -> Any:
        """Return the value; a pickle is decoded once, the bytes stay for Outcomes and dependents."""
        if self._value is not _UNDECODED:
            return self._value
        value = load((self._kind, self._result), lambda: make_outcome(self))
        if self._kind == wire.PICKLE:
            self._value = value
        return value

    def _error(self) -> BaseException:
        if self._value is _UNDECODED:
            self._value = make_outcome(self).exception()
        assert self._value is not None
        return self._value  # type: ignore[no-any-return]

    def _error_or_cancelled(self) -> BaseException:
        return cf.CancelledError() if self.cancelled() else self._error()


def remains(future: Future[Any], state: str) -> Future[Any]:
    """Return what a later job must know of a prerequisite that ends: how, and why; not its value or output."""
    use = future._use
    if use.function.number < 0:  # it travels by value, and may hold anything
        use = copy.copy(use)
        use.fn, use.function = None, type(use.function)(None, use.function.number, b"")
    kept = type(future)(future._id, None, use, future._submitted, future._release, future._due)
    if kept._key != future._key:
        kept._key = future._key  # type: ignore[misc]  # a Keyed has a place for it
    kept._state, kept._report, kept._pid = state, future._report, future._pid
    if isinstance(kept._report, Report):
        kept._report = copy.copy(kept._report)
        kept._report.out = kept._report.err = None
        kept._report.cause = _bare(kept._report.cause)
        if kept._report.status != "succeeded" and len(future._result or b"") <= ERROR_BYTES:
            kept._kind, kept._result = future._kind, future._result
    return kept


def _bare(error: BaseException | None) -> BaseException | None:
    """Return an error without its traceback, whose frames hold what a program had at hand; None if it resists."""
    try:
        return copy.copy(error)
    except Exception:
        return None
