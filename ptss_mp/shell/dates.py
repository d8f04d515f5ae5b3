"""Start times and deadlines that were told as dates, while the wall clock may be set.

The core lives by the monotonic clock.  A date becomes an instant of it when its job is submitted, by the difference of
the two clocks; that changes when somebody sets the wall clock, and when the machine was suspended, for the monotonic
clock stands still then.  So while such a job is pending the difference is looked at each second, and in each turn
before the core hears that time has passed: none starts early.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Any

from ..core import events as on
from ..core.job import NEVER, Prerequisite, State
from . import clock

if TYPE_CHECKING:
    from ..core.scheduler import Scheduler
    from ..future import Future

LOOK_NS = 1_000_000_000
FORGOTTEN = 1_000  # jobs looked at each time whether they have ended: 0.2 ms


class Dates:
    """Of one pool.  `add` may be called from any thread, all else from the loop's.

    Attributes:
        look_at: when to look at the latest; NEVER if no such job is pending.
    """

    def __init__(self) -> None:
        self.look_at = NEVER
        self._held: dict[int, tuple[Future[Any], bool, bool, int]] = {}
        self._seen = 0  # the difference by which all of them stand, but for those that came since

    def add(self, future: Future[Any], start_is_date: bool, deadline_is_date: bool) -> None:
        """Keep a job, before it is handed to the loop.  A deadline that is no date counts from the release."""
        self._held[future._id] = (future, start_is_date, deadline_is_date, clock.difference())
        if self.look_at == NEVER:
            self.look_at = clock.monotonic_ns() + LOOK_NS

    def look(self, core: Scheduler) -> list[on.Event]:
        """Return what the core must be told before anything else, with the instant that it knows."""
        now, difference = clock.monotonic_ns(), clock.difference()
        if difference != self._seen:
            rows, settled = self._redated(core, difference)
            self._seen = difference if settled else self._seen
            if rows:
                return [on.Redated(core.now, rows)]
        if now >= self.look_at:
            self._forget_some()
            self.look_at = now + LOOK_NS if self._held else NEVER
            if self._held:
                self.look_at = now + LOOK_NS  # one that came in between has found it set
        return []

    def _forget_some(self) -> None:
        """Let go of the ended among the first few; the others queue up again."""
        for job in list(islice(self._held, FORGOTTEN)):  # one C call: callers add meanwhile
            kept = self._held.pop(job)
            if not kept[0].done():
                self._held[job] = kept

    def _redated(self, core: Scheduler, difference: int) -> tuple[list[tuple[Prerequisite, int, int]], bool]:
        """Move the instants of all that can be moved; return them, and whether those were all."""
        rows, all_moved = [], True
        for job, (future, start_is_date, deadline_is_date, stood) in self._held.copy().items():
            if stood == difference or future.done():
                continue
            if job not in core.jobs:
                all_moved = False  # on its way to the core, with the instants that it had
                continue
            self._held[job] = future, start_is_date, deadline_is_date, difference
            if core.state_of(job) is State.SENT:
                continue
            by, was = difference - stood, Prerequisite(job, "", future._release, future._due)
            starts_later = start_is_date and future._release > core.now  # what was released stays so
            if starts_later:
                future._release = _moved(future._release, by)
            if deadline_is_date or starts_later:
                future._due = _moved(future._due, by)
            rows.append((was, future._release, future._due))
        return rows, all_moved


def _moved(at: int, by: int) -> int:
    """Return an instant after the wall clock was set forward by so much; what is beyond the core's range stays."""
    return at if at in (0, NEVER) else min(max(1, at - by), NEVER - 1)
