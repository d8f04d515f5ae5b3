"""The story of jobs as people read it: instants of the wall clock and names in place of ids."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple

from ..core.commands import Settle
from ..core.events import Linked
from ..core.story import Line, count, narrate, story
from ..outcome import Status
from ..shell.clock import monotonic_ns, wall
from .progress import report_text

if TYPE_CHECKING:
    from ..pool import Pool

_LAST = frozenset(Status)
LINES_MAX = 50_000  # that wait for one subscriber: as many as `story` remembers; 15 MB


class Event(NamedTuple):
    """One thing that happened to a job, for `story` and `subscribe`."""

    at: datetime
    job: int
    name: str
    what: str
    detail: str


def _event(line: Line, name: str) -> Event:
    worker = f"worker {line.worker}" if line.worker else ""
    return Event(wall(line.at), line.job, name, line.what, ", ".join(filter(None, (worker, line.detail))))


def events_of(pool: Pool, future: Any) -> list[Event]:
    """Return what the core still remembers of one job."""
    history = list(pool.core.history)  # one C call: the loop thread cannot come in between
    return [_event(line, future._use.name) for line in story(history, future._id)]


class Narrator:
    """Turns steps into Events for one subscriber; runs on the callback thread.

    One that is slower than the jobs misses some: steps are left out while `LINES_MAX` lines wait for it, and then it
    is told how many it has missed.
    """

    def __init__(self, pool: Pool, fn: Callable[[Event], Any]) -> None:
        self._futures = pool.futures
        self._fn = fn
        self._names: dict[int, str] = {}
        self._put = pool.put_behind
        self._reports: tuple[int, list[Any]] | None = None  # not yet told; one at most: the last word counts
        self._told: dict[int, int] = {}  # job -> version of its report
        # Counters have one writer each: lines put and missed the loop, told and owned up to the callback thread.
        self._put_lines = self._told_lines = self._missed = self._owned = 0
        self._nameless: deque[int] = deque()  # jobs with a name here whose end was missed

    def names(self, events: Any) -> None:
        """Note the names of submitted jobs, while their Futures are there (loop thread)."""
        if self._put_lines - self._told_lines >= LINES_MAX:
            return  # the step will be left out; a job of it that lives when there is room again has its name then
        for event in events:
            if type(event) is Linked:
                self._name(event.row[0])
            for row in getattr(event, "rows", ()):
                self._name(row[0])

    def _name(self, job: int) -> None:
        future = self._futures.get(job)
        if future is not None:
            self._names[job] = future._use.name

    def take(self, events: Any, commands: Any) -> None:
        """Take a step, to be told behind the callbacks of what it settled (loop thread)."""
        lines = count(events, commands)
        if self._put_lines - self._told_lines >= LINES_MAX:
            self._missed += lines
            ended = (job for command in commands if type(command) is Settle for job in command.ids)
            self._nameless.extend(job for job in ended if job in self._names)
            return
        self._put_lines += lines
        missed = self._missed  # before this step
        self._put(lambda: self._tell_step(events, commands, lines, missed))

    def _tell_step(self, events: Any, commands: Any, lines: int, missed: int) -> None:
        try:
            self._own_up(missed)
            self(events, commands)
        finally:
            self._told_lines += lines
            if self._told_lines == self._put_lines:
                self._own_up(self._missed)  # nothing else may come for long

    def _own_up(self, missed: int) -> None:
        """Tell how many lines were left out."""
        more, self._owned = missed - self._owned, max(missed, self._owned)
        if more > 0:
            while self._nameless:
                self._names.pop(self._nameless.popleft(), None)
            self._fn(Event(wall(monotonic_ns()), 0, "", "missed", f"{more} events: the subscriber is too slow"))

    def __call__(self, events: Any, commands: Any) -> None:
        for line in narrate(events, commands):
            name = self._names.get(line.job, "") if line.what not in _LAST else self._names.pop(line.job, "")
            if not name and (future := self._futures.get(line.job)):
                name = future._use.name
            self._fn(_event(line, name))

    def progress(self, now: int, reports: list[Any]) -> None:
        """Take what running jobs have told of themselves (loop thread)."""
        waiting, self._reports = self._reports, (now, reports)
        if waiting is None:
            self._put(self._tell)

    def _tell(self) -> None:
        assert self._reports
        (now, reports), self._reports = self._reports, None  # one that comes in between is seen at the next look
        told, self._told = self._told, {future._id: report.version for future, report in reports}
        for future, report in reports:
            if told.get(future._id) != report.version:
                self._fn(Event(wall(now), future._id, future._use.name, "progress", report_text(report)))
