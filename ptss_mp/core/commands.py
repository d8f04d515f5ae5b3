"""What the core asks for: its only output.  To be obeyed in this order; the answer is a later event.

A verdict comes before the kill that it orders, so that whoever watches learns
the cause first.  A command that names a worker which died in the same turn is
to be ignored: its death is on its way as an event.
"""

from __future__ import annotations

from typing import NamedTuple

from .tokens import NOTHING, Environment, Holding


class StartWorker(NamedTuple):
    """Make a process, with these variables in its environment, and call it `worker`.

    Answer: `WorkerReady`, or `WorkerDied`.
    """

    worker: int
    env: Environment = ()


class Dispatch(NamedTuple):
    """Send these jobs to the worker; it makes them one after another.  `tokens`: what the one job holds, if it does."""

    worker: int
    ids: list[int]
    tokens: Holding = NOTHING


class Waits(NamedTuple):
    """Nothing to do: these jobs are ready but for these tokens.  Said so that somebody can tell."""

    tokens: tuple[str, ...]
    ids: list[int]


class TellDeadline(NamedTuple):
    """Nothing to do: these jobs' deadlines are "soon", "critical" or "exceeded".  Said so that somebody can tell."""

    status: str
    ids: list[int]
    dues: list[int]


class Settle(NamedTuple):
    """These jobs have ended so.  `blame`: per job the prerequisite that decided, if one did, else empty."""

    status: str
    ids: list[int]
    blame: list[int]


class Postpone(NamedTuple):
    """An attempt of this job ended with `status`; another one is made, not before `until`."""

    job: int
    status: str
    until: int


class Revoke(NamedTuple):
    """See to it that this job, sent to that worker, does not run (any more).  If it ran: `Condemned`."""

    worker: int
    job: int


class Peek(NamedTuple):
    """The worker is silent with more than one job out: read finished answers from its page."""

    worker: int


class Recall(NamedTuple):
    """Take back what the worker has not begun, for others are idle.  Answer: `Recalled`."""

    worker: int
    ids: list[int]


class KillWorker(NamedTuple):
    """Kill the worker and all it started.  `why`: the status of the attempt that runs there, if one does."""

    worker: int
    why: str
    job: int


class RetireWorker(NamedTuple):
    """The worker has nothing to do and gets nothing more: let it end by itself."""

    worker: int


class Halt(NamedTuple):
    """All is settled and nothing more will come.  End the workers, then the loop.

    `broken`: empty, or why no worker can be had: then the jobs left are to be failed for that reason.
    """

    broken: str


Command = (
    StartWorker | Dispatch | Waits | TellDeadline | Settle | Postpone | Revoke | Peek | Recall | KillWorker
    | RetireWorker | Halt
)  # fmt: skip
