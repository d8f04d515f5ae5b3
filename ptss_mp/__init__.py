"""Runs jobs in supervised worker processes, earliest deadline first, and survives whatever a job does.

The names are loaded when they are first used: this module is imported in every worker.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from .attempt import Attempt, current
    from .declare import Options
    from .errors import (
        CpuLimitExceeded,
        DeadlineMissed,
        DependencyFailed,
        ExecutorClosed,
        InternalError,
        InvalidOption,
        InvalidType,
        JournalError,
        LimitExceeded,
        MemoryLimitExceeded,
        NotLoadable,
        NotPicklable,
        PoolBroken,
        ProtocolViolated,
        PtssError,
        QueueFull,
        RemoteTraceback,
        ResultNotPicklable,
        TaskFailed,
        TaskInterrupted,
        TaskRaised,
        TaskSkipped,
        TaskTimeout,
        WorkerCrashed,
    )
    from .executor import Executor
    from .future import Future
    from .host import capabilities
    from .observe.story import Event
    from .outcome import Outcome, Status
    from .pool import State
    from .retrying import Retry
    from .tasks import Task, task
    from .view import ExecutorView, Snapshot, Subscription

__all__ = [
    "Attempt",
    "CpuLimitExceeded",
    "DeadlineMissed",
    "DependencyFailed",
    "Event",
    "Executor",
    "ExecutorClosed",
    "ExecutorView",
    "Future",
    "InternalError",
    "InvalidOption",
    "InvalidType",
    "JournalError",
    "LimitExceeded",
    "MemoryLimitExceeded",
    "NotLoadable",
    "NotPicklable",
    "Options",
    "Outcome",
    "PoolBroken",
    "ProtocolViolated",
    "PtssError",
    "QueueFull",
    "RemoteTraceback",
    "ResultNotPicklable",
    "Retry",
    "Snapshot",
    "State",
    "Status",
    "Subscription",
    "Task",
    "TaskFailed",
    "TaskInterrupted",
    "TaskRaised",
    "TaskSkipped",
    "TaskTimeout",
    "WorkerCrashed",
    "capabilities",
    "current",
    "task",
]

_ROOM_OF = {
    "Attempt": "attempt",
    "current": "attempt",
    "Options": "declare",
    "Event": "observe.story",
    "Executor": "executor",
    "Future": "future",
    "capabilities": "host",
    "Outcome": "outcome",
    "Status": "outcome",
    "State": "pool",
    "Retry": "retrying",
    "Task": "tasks",
    "task": "tasks",
    "ExecutorView": "view",
    "Snapshot": "view",
    "Subscription": "view",
}  # the others are errors


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    value = getattr(import_module(f".{_ROOM_OF.get(name, 'errors')}", __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
