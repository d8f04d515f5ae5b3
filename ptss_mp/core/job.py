"""A job's life.  In the core a job is an id.

Rule 1.  What all jobs of one function and options share stands in one `Spec`;
what few jobs have stands in sparse columns of the scheduler.  So a million
waiting jobs cost an int, a dict entry and a key each, and no object that the
garbage collector has to visit (131 B and 0.8 µs; one object per job: 243 B and
2.1 µs, and collector pauses five times as long).

Rule 2.  The state of a job is the container that holds its id
(`Scheduler.state_of`).  `TRANSITIONS` says which moves are legal; the
simulator holds every step of every job against it.
"""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

from .restart import Retries
from .tokens import Needs, Template

ID_BITS, RELEASE_BITS, PRIORITY_BITS = 40, 62, 16
RELEASE_SHIFT = ID_BITS
PRIORITY_SHIFT = RELEASE_SHIFT + RELEASE_BITS
DUE_SHIFT = PRIORITY_SHIFT + PRIORITY_BITS
ID_MASK = (1 << ID_BITS) - 1
PENDING_MAX = 1 << (ID_BITS - 1)  # jobs held at once, as a bound that anybody may ask for
RELEASE_MASK = (1 << RELEASE_BITS) - 1
NEVER = 1 << 61  # ns; 73 years after boot: later than any instant that a clock here can show
PRIORITY_MIDDLE = 1 << (PRIORITY_BITS - 1)


class State(StrEnum):
    """Where a job stands; each is one container of the scheduler."""

    WAITING = "waiting"  # graph.waiting: prerequisites are open
    DELAYED = "delayed"  # delayed: its start time, or the pause before a retry, is not over
    READY = "ready"  # ready: may start as soon as a worker is free
    SENT = "sent"  # some worker's queue: running there, or next in its pipe
    SETTLED = "settled"  # none: it has its outcome


# SENT -> READY is an innocent return (its worker died before it began).  SENT -> DELAYED is a retry.
TRANSITIONS: dict[State, frozenset[State]] = {
    State.WAITING: frozenset((State.DELAYED, State.READY, State.SENT, State.SETTLED)),
    State.DELAYED: frozenset((State.READY, State.SENT, State.SETTLED)),
    State.READY: frozenset((State.SENT, State.SETTLED)),
    State.SENT: frozenset((State.READY, State.DELAYED, State.SENT, State.SETTLED)),
    State.SETTLED: frozenset(),
}


class Spec:
    """What all jobs of one function with equal options share; never changed once made.

    Attributes:
        fn: number of the function, for the run-time estimate.
        timeout_ns: longest run of one attempt; 0: none.
        kill_at_deadline: False: a deadline orders and is reported, nothing more.
        run_if: "success", "done" or "failure" of the prerequisites.
        retries: which failures are followed by another attempt; a number is one budget for all causes.
        fresh: each attempt needs a process that has run nothing yet.
        base: the key of a job without deadline, less release and id.
        memory_bytes, cpu_ns: limits of one attempt; 0: none.  The warden's affair.
        metered: one of these is set.
        alone: nothing may be queued at its worker beside it: what it takes away is not to be a neighbour's loss.
        on_failure: `run_if` is "failure": without a prerequisite that failed it is skipped, also without any.
        needs: tokens that an attempt holds while it runs.
        env: of the process that it needs, with places for the tokens (tokens.expand).
        bound: it has needs or an environment; its place is a line of its own (lines.py), by `line`.
        picky: not any worker will do.
        special: it goes another way than straight into the ready queue.
    """

    __slots__ = (
        "alone", "base", "bound", "cpu_ns", "env", "fn", "fresh", "kill_at_deadline", "line", "memory_bytes", "metered",
        "needs", "on_failure", "picky", "priority", "retries", "run_if", "special", "timeout_ns",
    )  # fmt: skip

    def __init__(
        self,
        fn: int,
        priority: int = 0,
        timeout_ns: int = 0,
        kill_at_deadline: bool = True,
        run_if: str = "success",
        retries: int | Retries = 0,
        fresh: bool = False,
        memory_bytes: int = 0,
        cpu_ns: int = 0,
        alone: bool = False,
        needs: Needs = (),
        env: Template = (),
    ) -> None:
        self.fn = fn
        self.priority = (PRIORITY_MIDDLE - priority) << PRIORITY_SHIFT
        self.base = (NEVER << DUE_SHIFT) + self.priority
        self.timeout_ns = timeout_ns
        self.kill_at_deadline = kill_at_deadline
        self.run_if = run_if
        self.on_failure = run_if == "failure"
        self.retries = Retries(retries) if isinstance(retries, int) else retries
        self.fresh = fresh
        self.memory_bytes, self.cpu_ns = memory_bytes, cpu_ns
        self.metered = bool(memory_bytes or cpu_ns)
        self.needs, self.env = needs, env
        self.line: object = needs[0][0] if len(needs) == 1 else needs
        self.bound = bool(needs or env)
        self.picky = fresh or self.bound
        self.alone = alone or self.picky or self.metered
        self.special = self.on_failure or self.bound


class Prerequisite(NamedTuple):
    """One edge of the graph, as the submission tells it.

    `status` is how it ended if its Future was already settled, else "".
    `release` and `due` are its own, so that its key can be built again.
    """

    id: int
    status: str
    release: int
    due: int


class Row(NamedTuple):
    """One submitted job.  `due`: its own deadline or NEVER; `after`: None for most."""

    id: int
    spec: Spec
    due: int
    release: int
    after: tuple[Prerequisite, ...] | None


def key_of(spec: Spec, due: int, release: int, job: int) -> int:
    """Return the place of a job in the order of P3: due, then priority, then release, then id.

    One int, so that heaps compare in C: 4 to 7 times faster than tuples.
    """
    return due << DUE_SHIFT | spec.priority | release << RELEASE_SHIFT | job
