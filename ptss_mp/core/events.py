"""What can happen: the core's only input.  Past tense; `now` is whole nanoseconds and never goes back.

Events are batches (one `Answered` per readable worker, one `Submitted` per
turn), so that a job costs the core about a microsecond.  They carry ids,
instants and verdicts, never a byte of anybody's payload.

NamedTuples rather than frozen dataclasses: made in 0.36 against 0.47 µs, and
iterable; there is one per batch, so manners decided as much as speed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from .job import Prerequisite, Row

SENDING = -1  # of Fired.marks: a large answer is on its way, which is not the job's time
# How an attempt ended by the worker's own word: `AnswerRow.end`.
# FAILED_FOR_GOOD: by an exception after which the job is not to be made again.  UNFINISHED: it has made way for others.
OK, FAILED, FAILED_FOR_GOOD, RESULT_NOT_PICKLABLE, CALL_NOT_LOADABLE, REVOKED, EXPIRED, UNFINISHED, LOST = range(9)


class AnswerRow(NamedTuple):
    """One finished attempt, as the worker stamped it (the clock is the machine's monotonic one)."""

    id: int
    end: int
    started: int
    duration: int


class Submitted(NamedTuple):
    """Jobs were accepted, in this order."""

    now: int
    rows: Sequence[Row]


class Linked(NamedTuple):
    """A job with many prerequisites was accepted, and is told in parts: `row` has the part's edges.

    Between two of them time passes, and the job may be cancelled; then the others are not told.
    """

    now: int
    row: Row
    first: bool
    last: bool


class Answered(NamedTuple):
    """A worker told how attempts ended, in the order in which it made them.

    The rows come straight from `Struct.iter_unpack`: plain tuples in the shape of `AnswerRow`.
    """

    now: int
    worker: int
    rows: Sequence[tuple[int, int, int, int]]


class WorkerReady(NamedTuple):
    """A worker that was asked for can take jobs."""

    now: int
    worker: int


class Condemned(NamedTuple):
    """A worker was sentenced for what attempt `job` did (`why`); it gets nothing more.

    Answers of that attempt that end after `at` do not count.  `WorkerDied` follows.
    """

    now: int
    worker: int
    job: int
    why: str
    at: int


class WorkerDied(NamedTuple):
    """Nothing of a worker runs any more.

    `job` is the attempt to blame, 0 if none; `why` the status it earns, "left" if it went by itself, as it was asked;
    `ready` tells whether the worker had ever been able to take a job.
    """

    now: int
    worker: int
    job: int
    why: str
    ready: bool


class Reaped(NamedTuple):
    """A worker whose death was told, perhaps at the word of its kill, has ended, and so has what was left of its jobs.

    What these held is free only now: a process that is dying still has its GPU.
    """

    now: int
    worker: int


class WardenDied(NamedTuple):
    """The process that forks and reaps went away by itself (its workers' deaths are told one by one)."""

    now: int


class Recalled(NamedTuple):
    """These jobs, sent to that worker, had not begun and never will there."""

    now: int
    worker: int
    ids: Sequence[int]


class Unfit(NamedTuple):
    """A worker was to be sent this job alone, and was not: earlier jobs have left too much in it.

    `hopeless`: it has run nothing yet, so none would be fit.
    """

    now: int
    worker: int
    job: int
    hopeless: bool


class Cancelled(NamedTuple):
    """The Futures of these jobs were settled as cancelled by their holders."""

    now: int
    ids: Sequence[int]


class Fired(NamedTuple):
    """`wake_at` came.  `marks`: what runs where, as worker -> (attempt or SENDING, its start), by the marker pages."""

    now: int
    marks: dict[int, tuple[int, int]]


class Redated(NamedTuple):
    """The wall clock was set; of jobs with dates these are (the job as it was told, its release, its deadline)."""

    now: int
    rows: Sequence[tuple[Prerequisite, int, int]]


class Paused(NamedTuple):
    """Nothing shall start until `Resumed`."""

    now: int


class Resumed(NamedTuple):
    """Jobs may start again."""

    now: int


class MemoryLooked(NamedTuple):
    """The machine's free memory was looked at; while it is `short`, nothing shall start."""

    now: int
    short: bool


class Closed(NamedTuple):
    """No further job will be submitted.  `drop`: what has not been sent is cancelled."""

    now: int
    drop: bool


class Stopped(NamedTuple):
    """As `Closed(drop=True)`; and what still runs after `grace` nanoseconds is killed."""

    now: int
    grace: int


Event = (
    Submitted | Linked | Answered | WorkerReady | Condemned | WorkerDied | Reaped | WardenDied
    | Recalled | Unfit | Cancelled | Fired | Redated | Paused | Resumed | MemoryLooked | Closed | Stopped
)  # fmt: skip
