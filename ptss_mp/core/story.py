"""Events and commands told as sentences' parts: (instant, job, what, detail).

For `story`, progress, logs and the simulator's failures; the scheduler itself
knows nothing of it, it only keeps the last batches.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from .commands import Command, Dispatch, KillWorker, Postpone, Recall, Revoke, Settle, TellDeadline, Waits
from .events import Answered, Condemned, Event, Linked, Redated, Submitted, Unfit, WorkerDied
from .tokens import Holding


class Line(NamedTuple):
    """One thing that happened to a job.  `worker` is 0 where none is meant."""

    at: int
    job: int
    what: str
    worker: int
    detail: str


def count(events: Sequence[Event], commands: Sequence[Command]) -> int:
    """Return how many lines `narrate` would yield, without making them."""
    lines = 0
    for event in events:
        if isinstance(event, Submitted | Answered | Redated):
            lines += len(event.rows)
        elif isinstance(event, Condemned | Unfit) or (isinstance(event, WorkerDied) and event.job):
            lines += 1
        elif isinstance(event, Linked):
            lines += event.first
    for command in commands:
        if isinstance(command, Dispatch | Waits | TellDeadline | Settle | Recall):
            lines += len(command.ids)
        elif isinstance(command, Postpone | Revoke) or (isinstance(command, KillWorker) and command.job):
            lines += 1
    return lines


def narrate(events: Sequence[Event], commands: Sequence[Command]) -> Iterator[Line]:
    """Yield what a step did to each job, in order."""
    now = 0
    for event in events:
        now = event.now
        if isinstance(event, Submitted):
            for row in event.rows:
                after = row[4]
                yield Line(now, row[0], "submitted", 0, f"after {len(after)} jobs" if after else "")
        elif isinstance(event, Linked) and event.first:
            yield Line(now, event.row[0], "submitted", 0, "after many jobs")
        elif isinstance(event, Answered):
            for job, _, _, took in event.rows:
                yield Line(now, job, "answered", event.worker, f"ran {took / 1e6:.3f} ms")
        elif isinstance(event, Condemned):
            yield Line(now, event.job, "condemned", event.worker, event.why)
        elif isinstance(event, Redated):
            for was, _, _ in event.rows:
                yield Line(now, was.id, "redated", 0, "the wall clock was set")
        elif isinstance(event, Unfit):
            yield Line(now, event.job, "not sent", event.worker, "it holds too much")
        elif isinstance(event, WorkerDied) and event.job:
            yield Line(now, event.job, "worker died", event.worker, event.why)
    for command in commands:
        if isinstance(command, Dispatch):
            for job in command.ids:
                yield Line(now, job, "sent", command.worker, holds(command.tokens))
        elif isinstance(command, Waits):
            for job in command.ids:
                yield Line(now, job, "waits", 0, f"for {', '.join(command.tokens)}")
        elif isinstance(command, TellDeadline):
            for job, due in zip(command.ids, command.dues, strict=True):
                yield Line(now, job, command.status, 0, until(due, now))
        elif isinstance(command, Settle):
            for i, job in enumerate(command.ids):
                yield Line(now, job, command.status, 0, f"by job {command.blame[i]}" if command.blame else "")
        elif isinstance(command, Postpone):
            pause = f"{command.status}, again in {max(0, command.until - now) / 1e9:.3f} s"
            yield Line(now, command.job, "postponed", 0, pause)
        elif isinstance(command, Recall):
            for job in command.ids:
                yield Line(now, job, "recalled", command.worker, "")
        elif isinstance(command, Revoke):
            yield Line(now, command.job, "revoked", command.worker, "")
        elif isinstance(command, KillWorker) and command.job:
            yield Line(now, command.job, "killed", command.worker, command.why)


def until(due: int, now: int) -> str:
    """Return where a deadline is, in words: "its deadline is in 1.500 s"."""
    left = due - now
    return f"its deadline is in {left / 1e9:.3f} s" if left > 0 else f"its deadline was {-left / 1e9:.3f} s ago"


def holds(tokens: Holding) -> str:
    """Return what an attempt holds, in words: "gpu 0 and 1, memory 1024"."""
    parts = [
        f"{name} {what if isinstance(what, int) else ' and '.join(what)}" for name, what in sorted(tokens.items())
    ]
    return f"holds {', '.join(parts)}" if parts else ""


def story(history: Iterable[tuple[Sequence[Event], Sequence[Command], int]], job: int) -> list[Line]:
    """Return all that is still remembered of one job, oldest first."""
    lines: list[Line] = []
    for events, commands, _ in history:
        for line in narrate(events, commands):
            again = line.what == "waits" and lines and lines[-1][2:] == line[2:]  # when it came, and as the first
            if line.job == job and not again:
                lines.append(line)
    return lines
