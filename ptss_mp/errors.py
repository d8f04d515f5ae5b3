"""The exception tree.

First fork: whose fault.  `TaskFailed` and what derives from it is the job's
affair and carries its `Outcome`; the rest is the caller's or the machine's.
Every error derives from the standard library's class that callers already
catch, carries its facts as attributes, and survives pickle.

This room imports nothing of ours: every other room may raise.
"""

from __future__ import annotations

import pickle
import queue
from concurrent.futures import CancelledError
from concurrent.futures.process import BrokenProcessPool
from typing import Any, NamedTuple


class PtssError(Exception):
    """Root of everything that this library raises on purpose.

    Args:
        message: one text: what was observed, what was allowed, what to try.
        facts: become attributes of the error (and travel with it by pickle,
            for they stand in its `__dict__`).
    """

    def __init__(self, message: str = "", **facts: Any) -> None:
        super().__init__(message)
        self.__dict__.update(facts)


class InvalidOption(PtssError, ValueError):
    """An option has a value that can never be right."""


class InvalidType(PtssError, TypeError):
    """An option or argument is of a kind that can never be right."""


class ExecutorClosed(PtssError, RuntimeError):
    """The executor, or this view of it, accepts nothing more: it was shut down or stopped."""


class QueueFull(PtssError, queue.Full):
    """`max_pending` jobs are held, and blocking here would freeze the caller's loop."""


class PoolBroken(PtssError, BrokenProcessPool):
    """Workers cannot be started; the pool gave up (restart intensity).

    Its text says how often within what time, and what the last of them raised, printed, or where it hung.

    Attributes:
        pool_usable: always False.
    """

    pool_usable = False


class JournalError(PtssError, OSError):
    """The journal, or what `stop(save=)` shall leave, cannot be used, or not at the moment.

    Attributes:
        reason: "bad" (it is no journal of ours, or damaged), "busy" (it has an owner), "used" (it holds outcomes, and
            `resume` was not asked for), "create", "permission", or "io" (it cannot be read or written now).
        path: the journal.
    """

    reason: str = "io"
    path: str = ""


class InternalError(PtssError):
    """A promise of ours is broken: please report, with the text."""


class TaskFailed(PtssError):
    """A job did not succeed.

    Attributes:
        outcome: the job's `Outcome`, or None where the error was rebuilt without one.
    """

    outcome: Any = None


class TaskRaised(TaskFailed):
    """The job raised something that is not raised here as itself.

    That is every exception that cannot be rebuilt from its pickle, and every
    `BaseException` that is not an `Exception` (raised as itself it would end
    the program or its event loop).

    Attributes:
        type_name: qualified name of the exception's class.
        text: its message.
        traceback: the worker's traceback as text.
        exit_code: n after `sys.exit(n)` in the job, else None.
    """

    type_name: str = ""
    text: str = ""
    traceback: str = ""
    exit_code: int | None = None


class WorkerCrashed(TaskFailed, BrokenProcessPool):
    """The worker process died under the job.  The pool goes on.

    Attributes:
        signal: the fatal signal as an int, or None if the process ended by itself.
        exit_code: its exit status 0..255, or None if a signal ended it.
        pool_usable: True: this error concerns this job alone.
    """

    pool_usable = True
    signal: int | None = None
    exit_code: int | None = None


class ProtocolViolated(WorkerCrashed):
    """The worker sent bytes that no worker of ours sends; it was killed."""


class TaskTimeout(TaskFailed, TimeoutError):
    """The attempt ran longer than its `timeout` and was killed.

    Attributes:
        limit: the timeout, seconds.
        observed: how long the attempt had run when it was condemned, seconds.
    """

    limit: float | None = None
    observed: float | None = None


class LimitExceeded(TaskFailed):
    """The attempt went beyond a limit of its options and was killed.

    Attributes:
        limit, observed: allowed and seen, in the limit's unit (bytes; seconds of CPU time; processes).
    """

    limit: float | None = None
    observed: float | None = None


class MemoryLimitExceeded(LimitExceeded, MemoryError):
    """It and what it started held more memory than `memory` allows; bytes."""


class CpuLimitExceeded(LimitExceeded):
    """It and what it started used more CPU time than `cpu_time` allows; seconds."""


class DeadlineMissed(TaskFailed, TimeoutError):
    """The deadline passed before the job had finished.

    Attributes:
        limit: seconds from release to deadline, or None.
        observed: seconds from release to the end, or None.
    """

    limit: float | None = None
    observed: float | None = None


class Root(NamedTuple):
    """The job that failed first, as those that wait for it name it."""

    name: str
    key: str


class DependencyFailed(TaskFailed):
    """A prerequisite did not succeed, so the job never started.

    `__cause__` is the root's own error.

    Attributes:
        root: (name, key) of the job that failed first.
    """

    root: Root = Root("", "")


class TaskSkipped(PtssError, CancelledError):
    """The job's `run_if` condition did not come true, or a prerequisite was skipped."""

    outcome: Any = None


class NotPicklable(TaskFailed, pickle.PicklingError):
    """A part of the call cannot be pickled.

    Attributes:
        part: which: "function", "argument 2", "keyword x".
    """

    part: str = ""


class ResultNotPicklable(NotPicklable):
    """The job's result cannot be pickled, or cannot be rebuilt from its pickle."""


class NotLoadable(TaskFailed, BrokenProcessPool):
    """Bytes could not be decoded: the call in the worker, or the result in the asking thread."""


class TaskInterrupted(TaskFailed):
    """The job was running when its grace ended, and was killed."""


class RemoteTraceback(Exception):
    """The worker's traceback as text; stands as `__cause__` of a job's own exception."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text

    def __str__(self) -> str:
        return f'\n"""\n{self.text}"""'
