"""Runs jobs in supervised worker processes, earliest deadline first, and survives whatever a job does.

The names are loaded when they are first used: this module is imported in every worker.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

_ROOMS = {
    "executor": ("Executor", "ExecutorView", "Event", "Snapshot", "State", "Subscription"),
    "future": ("Future",),
    "declare": ("Options", "Task", "task"),
    "outcome": ("Outcome", "Status"),
    "errors": (
        "DeadlineMissed", "DependencyFailed", "ExecutorClosed", "InternalError", "InvalidOption", "InvalidType",
        "NotLoadable", "NotPicklable", "PoolBroken", "ProtocolViolated", "PtssError", "QueueFull",
        "RemoteTraceback", "ResultNotPicklable", "TaskFailed", "TaskInterrupted", "TaskRaised", "TaskSkipped",
        "TaskTimeout", "WorkerCrashed",
    ),
}  # fmt: skip
_ROOM_OF = {name: room for room, names in _ROOMS.items() for name in names}
__all__ = sorted(_ROOM_OF)

if TYPE_CHECKING:
    from .declare import Options, Task, task
    from .errors import (
        DeadlineMissed,
        DependencyFailed,
        ExecutorClosed,
        InternalError,
        InvalidOption,
        InvalidType,
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
    from .executor import Event, Executor, ExecutorView, Snapshot, State, Subscription
    from .future import Future
    from .outcome import Outcome, Status


def __getattr__(name: str) -> Any:
    room = _ROOM_OF.get(name)
    if room is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    value = getattr(import_module(f".{room}", __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
