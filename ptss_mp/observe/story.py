"""The story of jobs as people read it: instants of the wall clock and names in place of ids."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple

from ..core.story import Line, narrate, story
from ..outcome import Status
from ..shell.clock import wall
from .progress import report_text

if TYPE_CHECKING:
    from ..pool import Pool

_LAST = frozenset(Status)


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
    """Turns steps into Events for one subscriber; runs on the callback thread."""

    def __init__(self, pool: Pool, fn: Callable[[Event], Any]) -> None:
        self._futures = pool.futures
        self._fn = fn
        self._names: dict[int, str] = {}
        self._put = pool.callbacks.put
        self._reports: tuple[int, list[Any]] | None = None  # not yet told; one at most: the last word counts
        self._told: dict[int, int] = {}  # job -> version of its report

    def names(self, events: Any) -> None:
        """Note the names of submitted jobs, while their Futures are there (loop thread)."""
        for event in events:
            for row in getattr(event, "rows", ()):
                future = self._futures.get(row[0])
                if future is not None:
                    self._names[row[0]] = future._use.name

    def __call__(self, events: Any, commands: Any) -> None:
        for line in narrate(events, commands):
            name = self._names.get(line.job, "") if line.what not in _LAST else self._names.pop(line.job, "")
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
