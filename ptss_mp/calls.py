"""Which call is legal in which state of an Executor, as a table; a test makes every call in every state.

A cell is the state after the call, or the name of the error that it raises and that changes nothing.
SHUTTING_DOWN goes on to STOPPED by itself, when all is settled.
"""

from __future__ import annotations

from types import MappingProxyType

from .pool import State

INITIALIZED, RUNNING, PAUSED, SHUTTING_DOWN, STOPPED = State
CLOSED, OWN = "ExecutorClosed", "TypeError"

_starts = (RUNNING, RUNNING, PAUSED, CLOSED, CLOSED)
_looks = (INITIALIZED, RUNNING, PAUSED, SHUTTING_DOWN, STOPPED)
_ends = (STOPPED,) * 5
_own = (OWN,) * 5

# Of the Executor, by call; the cells in the order of State.
EXECUTOR = MappingProxyType({
    "submit": _starts,
    "map": _starts,
    "map_outcomes": _starts,
    "add": (INITIALIZED, RUNNING, PAUSED, CLOSED, CLOSED),
    "start": _starts,
    "with": (STOPPED, STOPPED, STOPPED, CLOSED, CLOSED),
    "pause": (INITIALIZED, PAUSED, PAUSED, CLOSED, CLOSED),
    "resume": (INITIALIZED, RUNNING, RUNNING, CLOSED, CLOSED),
    "drain": _looks,
    "join": _looks,
    "serve": _starts,
    "stop": _ends,
    "shutdown": _ends,
    "terminate_workers": _ends,
    "kill_workers": _ends,
    "options": _looks,
    "state": _looks,
    "tasks": _looks,
    "status": _looks,
    "metrics": _looks,
    "story": _looks,
    "subscribe": _looks,
    "capabilities": _looks,
})  # fmt: skip

# Of a view of it: the pool's own verbs are not there, and its end is no end of the pool.
VIEW = EXECUTOR | {
    "start": _own,
    "with": _looks,
    "pause": _own,
    "stop": _own,
    "shutdown": _looks,
    "terminate_workers": _own,
    "kill_workers": _own,
}
