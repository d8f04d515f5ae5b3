"""The closed set of ends, and the facts of one.

An `Outcome` is what is left of a job: how it ended, why, and what it cost.  Its
value stays bytes until somebody asks (`result()`), and is decoded in the
asking thread: the parent itself decodes nothing that a worker wrote.
"""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Callable, Collection
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, Generic, TypeVar, cast

from . import wire
from .errors import (
    CpuLimitExceeded,
    DeadlineMissed,
    DependencyFailed,
    MemoryLimitExceeded,
    NotLoadable,
    NotPicklable,
    PoolBroken,
    ProtocolViolated,
    PtssError,
    RemoteTraceback,
    ResultNotPicklable,
    Root,
    TaskFailed,
    TaskInterrupted,
    TaskRaised,
    TaskSkipped,
    TaskTimeout,
    WorkerCrashed,
)
from .parcel import Parcel

T = TypeVar("T")


class Status(StrEnum):
    """How a job ended: one of these, for good.  `EXIT_STATUS` says what each counts, `_ERRORS` what it raises."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CRASHED = "crashed"
    TIMEOUT = "timeout"
    MEMORY = "memory"
    CPU = "cpu"
    DEADLINE = "deadline"
    DEPENDENCY = "dependency"
    SKIPPED = "skipped"
    CANCELLED = "cancelled"
    NOT_PICKLABLE = "not_picklable"
    INTERRUPTED = "interrupted"
    PROTOCOL = "protocol"


# What an end counts in the exit status of a run; "dependency" counts as its root.
EXIT_STATUS = {
    Status.SUCCEEDED: 0,
    Status.SKIPPED: 0,
    Status.DEADLINE: 3,
    Status.DEPENDENCY: 1,
} | dict.fromkeys(
    (
        Status.FAILED, Status.CRASHED, Status.TIMEOUT, Status.MEMORY, Status.CPU, Status.CANCELLED,
        Status.NOT_PICKLABLE, Status.INTERRUPTED, Status.PROTOCOL,
    ),
    1,
)  # fmt: skip


def exit_status(weights: Collection[int]) -> int:
    """Return what several ends come to: 1 beats 3."""
    return next((status for status in (1, 3) if status in weights), 0)


@dataclass(frozen=True, slots=True)
class Outcome(Generic[T]):
    """The one final state of a job, with its facts (those of the last attempt).

    Attributes:
        status: a `Status`; `ok` is True if it is "succeeded".
        name, key: the job's; without a journal and `key=` the key is the function's "module.qualname".
        signal: the signal that ended the worker, or None.
        exit_code: the worker's exit status, n of `sys.exit(n)`, or None.
        error: one line of text, None if it succeeded.
        stack: the traceback of an exception, or the Python stack at a crash or hang.
        stdout, stderr: the last 64 KiB of each, None if not captured.
        max_rss: peak resident bytes beyond what the warden had at the fork, None if not measured.
        cpu_time, wall_time: seconds of the last attempt, None if not measured.
        attempts: how many were begun; 0 if it never started.
        worker_pid: pid of the last worker, or None.
        limit, observed: of a limit that was passed, in its unit (seconds, bytes, processes).
        root: of a "dependency" end: the name of the job that failed first.
        resumed: an earlier run has settled it: these are its facts, from the journal.
        submitted, released, started, finished: aware UTC instants; None where it never came to that.
        deadline: aware UTC instant, or None.
        tardiness: seconds by which the end came after the deadline; 0.0 if it did not.
    """

    status: Status
    name: str
    key: str
    submitted: datetime
    finished: datetime
    signal: signal.Signals | None = None
    exit_code: int | None = None
    error: str | None = None
    stack: str | None = None
    stdout: str | None = None
    stderr: str | None = None
    max_rss: int | None = None
    cpu_time: float | None = None
    wall_time: float | None = None
    attempts: int = 0
    worker_pid: int | None = None
    limit: float | None = None
    observed: float | None = None
    root: str | None = None
    resumed: bool = False
    released: datetime | None = None
    started: datetime | None = None
    deadline: datetime | None = None
    tardiness: float = 0.0
    _value: wire.Value = field(default=wire.NOTHING, repr=False, compare=False)
    _cause: BaseException | None = field(default=None, repr=False, compare=False)
    _root_key: str = field(default="", repr=False, compare=False)

    @property
    def ok(self) -> bool:
        """True if the job succeeded."""
        return self.status is Status.SUCCEEDED

    def result(self) -> T:
        """Return the job's value, decoded now in this thread; or raise as the Future would.

        Raises:
            NotLoadable: the value cannot be decoded here.
            TaskFailed: or what the table of statuses says.
        """
        error = self.exception()
        if error is None:
            return cast(T, load(self._value, lambda: self))
        try:
            raise error
        finally:
            del error  # no cycle: error -> traceback -> this frame -> error

    def exception(self) -> BaseException | None:
        """Return the error that the Future raises, or None if it succeeded."""
        if self.ok:
            try:
                load(self._value, lambda: self)
            except NotLoadable as error:
                return error
            return None
        return _ERRORS[self.status](self)

    def as_dict(self) -> dict[str, Any]:
        """Return all facts but the value, ready for JSON: instants as text, the signal as a number and by its name."""
        facts = {name: getattr(self, name) for name in _TOLD}
        for name in _INSTANTS:
            if facts[name] is not None:
                facts[name] = instant_text(facts[name])
        facts["status"] = self.status.value
        facts["signal"] = None if self.signal is None else int(self.signal)
        facts["signal_name"] = None if self.signal is None else signal_name(self.signal)
        facts["ok"] = self.ok
        return facts


_TOLD = tuple(f.name for f in fields(Outcome) if not f.name.startswith("_"))
_INSTANTS = ("submitted", "finished", "released", "started", "deadline")


def instant_text(value: datetime) -> str:
    """Return an instant as ISO 8601 in UTC with Z."""
    return (value if value.tzinfo is UTC else value.astimezone(UTC)).isoformat().replace("+00:00", "Z")


def signal_name(number: int) -> str:
    """Return "SIGSEGV" for 11, "signal 63" for one without a name of its own."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def load(value: wire.Value, told: Callable[[], Outcome[Any]]) -> Any:
    """Decode the value of a succeeded job in this thread.

    Args:
        told: makes its outcome, which takes ten times as long as a small value does.

    Raises:
        NotLoadable: whatever decoding raised; the job itself did succeed.
    """
    kind, payload = value
    try:
        return wire.decode(kind, payload.copy() if type(payload) is Parcel else payload)
    except Exception as error:
        outcome = told()
        text = f"job {outcome.name!r} succeeded, but its result cannot be decoded here: {brief(error)}"
        raise NotLoadable(text, outcome=outcome) from error


def brief(error: BaseException) -> str:
    """Return "TypeName: text" in one line of at most 500 characters; never raises."""
    try:
        text = " ".join(str(error).split())
    except Exception:
        text = "(its text cannot be had)"
    name = type(error).__name__
    return f"{name}: {text}"[:500] if text else name


def _raised(outcome: Outcome[Any]) -> BaseException:
    kind, payload = outcome._value
    facts = wire.unpack_error(payload) if kind in (wire.RAISED, wire.DESCRIBED) else None
    if facts is None:
        return TaskRaised(outcome.error or "failed", outcome=outcome, exit_code=outcome.exit_code)
    if facts.pickled:
        try:
            error = wire.loads(facts.pickled)
        except Exception:
            error = None  # it was rebuilt once in the worker; here it cannot be
        if isinstance(error, Exception):
            with contextlib.suppress(AttributeError, TypeError):  # a frozen dataclass refuses its own `__setattr__`
                BaseException.__setattr__(error, "__cause__", RemoteTraceback(facts.traceback))
            return error
    text = f"job {outcome.name!r} raised {outcome.error}"
    raised = TaskRaised(
        text, outcome=outcome, type_name=facts.type_name, text=facts.text,
        traceback=facts.traceback, exit_code=outcome.exit_code,
    )  # fmt: skip
    raised.__cause__ = RemoteTraceback(facts.traceback)
    return raised


def _plain(kind: type[PtssError], *facts: str) -> Callable[[Outcome[Any]], BaseException]:
    """Return a maker of errors whose text is the outcome's, with some of its facts as attributes."""

    def make(outcome: Outcome[Any]) -> BaseException:
        text = f"job {outcome.name!r}: {outcome.error}"
        if outcome.stderr:
            text += f"\n--- its last output ---\n{outcome.stderr[-2000:].rstrip()}"
        if outcome.stack:
            text += f"\n--- its stack ---\n{outcome.stack[-4000:].rstrip()}"
        return kind(text, outcome=outcome, **{f: getattr(outcome, f) for f in facts})

    return make


def _crashed(outcome: Outcome[Any]) -> BaseException:
    if isinstance(outcome._cause, PoolBroken):
        return outcome._cause
    return _plain(WorkerCrashed, "signal", "exit_code")(outcome)


def _dependency(outcome: Outcome[Any]) -> BaseException:
    root = Root(outcome.root or "", outcome._root_key)
    error = DependencyFailed(f"job {outcome.name!r}: {outcome.error}", outcome=outcome, root=root)
    error.__cause__ = outcome._cause
    return error


def _skipped(outcome: Outcome[Any]) -> BaseException:
    return TaskSkipped(f"job {outcome.name!r}: {outcome.error}", outcome=outcome)


def _cancelled(_outcome: Outcome[Any]) -> BaseException:
    from concurrent.futures import CancelledError

    return CancelledError()


def _not_picklable(outcome: Outcome[Any]) -> BaseException:
    if isinstance(outcome._cause, NotPicklable):
        return type(outcome._cause)(str(outcome._cause), **(outcome._cause.__dict__ | {"outcome": outcome}))
    if outcome._value[0] == wire.UNLOADABLE:
        return _plain(NotLoadable)(outcome)
    return _plain(ResultNotPicklable)(outcome)


_ERRORS: dict[Status, Callable[[Outcome[Any]], BaseException]] = {
    Status.FAILED: _raised,
    Status.CRASHED: _crashed,
    Status.TIMEOUT: _plain(TaskTimeout, "limit", "observed"),
    Status.MEMORY: _plain(MemoryLimitExceeded, "limit", "observed"),
    Status.CPU: _plain(CpuLimitExceeded, "limit", "observed"),
    Status.DEADLINE: _plain(DeadlineMissed, "limit", "observed"),
    Status.DEPENDENCY: _dependency,
    Status.SKIPPED: _skipped,
    Status.CANCELLED: _cancelled,
    Status.NOT_PICKLABLE: _not_picklable,
    Status.INTERRUPTED: _plain(TaskInterrupted),
    Status.PROTOCOL: _plain(ProtocolViolated, "signal", "exit_code"),
}
assert set(_ERRORS) | {Status.SUCCEEDED} == set(Status), "the table is closed"
assert issubclass(ProtocolViolated, TaskFailed)
