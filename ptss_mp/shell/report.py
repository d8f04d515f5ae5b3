"""What the shell knows of a job's end, and the Outcome made of it when somebody asks."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING, Any

from .. import wire
from ..errors import Root
from ..outcome import Outcome, Status, signal_name
from .clock import monotonic_ns, wall

if TYPE_CHECKING:
    from ..chunk import Part
    from ..future import Future

KEPT_BYTES = 64 << 10  # of each stream, for the outcome; what is further back is dropped


class Extra:
    """What only some jobs have.

    Attributes:
        needs: Futures among the arguments, by index of `wire.prerequisite`.
        after: all prerequisites.
        tries: failed attempts before the current one.
        named: it is known by a name, also once it has ended and its Future is gone.
        run: what a chunk is made of, and has so far (chunking.Run).
        released: the run of an added task that it is of (recurring.Run).
    """

    __slots__ = ("after", "named", "needs", "released", "run", "tries")

    def __init__(self, needs: tuple[Any, ...] = (), after: tuple[Any, ...] = ()) -> None:
        self.needs, self.after, self.tries, self.named = needs, after, 0, False
        self.run: Any = None
        self.released: Any = None


class Report:
    """Facts of an attempt and of the job's end.

    A job that succeeded cheaply has none: its Future holds the bare row of its answer.
    """

    __slots__ = (
        "attempts", "cause", "cpu_ns", "duration", "err", "error", "exit_code", "finished", "limit", "log", "noted",
        "observed", "out", "peak_bytes", "root", "signal", "stack", "started", "status",
    )  # fmt: skip

    def __init__(self, status: str, finished: int) -> None:
        self.status = status
        self.finished = finished
        self.started = self.duration = 0
        self.attempts = 0
        self.cpu_ns: int | None = None
        self.peak_bytes: int | None = None
        self.out: bytes | None = None
        self.err: bytes | None = None
        self.log: bytes | None = None  # records of its loggers, until they are said (shell.records)
        self.signal = self.exit_code = None  # type: int | None
        self.error: str | None = None
        self.stack: str | None = None
        self.limit: float | None = None
        self.observed: float | None = None
        self.root: Root | None = None
        self.noted: Part | None = None  # of a chunk: what came of the items before the one that was its end
        self.cause: BaseException | None = None

    def exited(self, status: int) -> str:
        """Note how the worker ended, by its wait status; return it in words."""
        if status >= 0 and (status & 0x7F):
            self.signal = status & 0x7F
            core = " (core dumped)" if status & 0x80 else ""
            return f"was killed by {signal_name(self.signal)}{core}"
        if status >= 0:
            self.exit_code = status >> 8 & 0xFF
            return f"exited with status {self.exit_code}"
        return "is gone, and nobody could tell how"


class Resumed(Report):
    """The end of a job as an earlier run has seen it (a journal's row)."""

    __slots__ = ("outcome",)

    def __init__(self, outcome: Outcome[Any], now: int) -> None:
        super().__init__(outcome.status.value, now)
        self.outcome, self.error = outcome, outcome.error
        self.root = Root(outcome.root, outcome._root_key) if outcome.root else None


def finished_at(report: Report | tuple[int, int, int, int]) -> int:
    """Return the instant at which an attempt ended, by its Report or the bare row of its answer."""
    return report.finished if isinstance(report, Report) else report[2] + report[3]


def ran_ns(report: Report | tuple[int, int, int, int] | None) -> int:
    """Return how long a settled job's last attempt ran."""
    return report.duration if isinstance(report, Report) else report[3] if report else 0


def text_of(data: bytes | None) -> str | None:
    """Return captured output as text."""
    return None if data is None else data[-KEPT_BYTES:].decode("utf-8", "replace")


def make_outcome(future: Future[Any], report: Any = None) -> Outcome[Any]:
    """Return the Outcome of a settled Future; of an attempt before the last, if its Report is given."""
    report = report or future._report
    if type(report) is Resumed:
        return report.outcome
    if not isinstance(report, Report):
        row = report
        report = Report(future.status(), finished_at(row) if row else future._submitted)
        if row:
            report.started, report.duration, report.attempts = row[2], row[3], 1
    now = monotonic_ns()  # nothing has ended later, whatever a worker's bytes say
    report.started, report.finished = min(report.started, now), min(report.finished, now)
    report.duration = min(report.duration, report.finished)
    use, due = future._use, future._due
    has_due = due < use.pool.never
    captured = use.pool.captures and report.started
    value = (future._kind, future._result)
    return Outcome(
        status=Status(report.status),
        name=use.name,
        key=future._key,
        submitted=wall(future._submitted),
        released=wall(future._release) if future._release <= report.finished else None,
        started=wall(report.started) if report.started else None,
        finished=wall(report.finished),
        deadline=wall(due) if has_due else None,
        tardiness=max(0, report.finished - due) / 1e9 if has_due else 0.0,
        signal=_signal(report.signal),
        exit_code=report.exit_code,
        error=report.error,
        stack=report.stack,
        stdout=text_of(report.out if report.out is not None or not captured else b""),
        stderr=text_of(report.err if report.err is not None or not captured else b""),
        max_rss=report.peak_bytes,
        cpu_time=None if report.cpu_ns is None else report.cpu_ns / 1e9,
        wall_time=report.duration / 1e9 if report.started else None,
        attempts=report.attempts,
        worker_pid=future._pid or None,
        limit=report.limit,
        observed=report.observed,
        root=report.root.name if report.root else None,
        _value=value if report.status in _WITH_VALUE else wire.NOTHING,
        _cause=report.cause,
        _root_key=report.root.key if report.root else "",
    )


_WITH_VALUE = frozenset(("succeeded", "failed", "not_picklable"))


def _signal(number: int | None) -> Any:
    """Return a Signals member; a real-time signal without a name stays an int."""
    if number is None:
        return None
    try:
        return signal.Signals(number)
    except ValueError:
        return number
