"""The wall clock was set: what was told as a date is at another instant of the clock that the core lives by.

A machine that was suspended is the same: its monotonic clock stood still meanwhile (clock_gettime(2)).  What was sent
to a worker keeps the instants with which it was sent, and what was released stays released.
"""

from __future__ import annotations

from . import events as on
from .arrivals import Arrivals
from .graph import Waiting
from .job import DUE_SHIFT, NEVER, RELEASE_MASK, RELEASE_SHIFT, Prerequisite, key_of


class Moving(Arrivals):
    """Jobs whose instants change; their old timers come early and are not heeded (`Table.moved`, `Table.soft`)."""

    def _redated(self, event: on.Redated) -> None:
        for was, release, due in event.rows:
            if was.id in self.jobs and not self._worker_of(was.id):
                self._redate(was, release, due)

    def _redate(self, was: Prerequisite, release: int, due: int) -> None:
        job, spec = was.id, self.jobs[was.id]
        waiting = self.graph.waiting.get(job)
        if was.release > self.now:  # else it was released
            self._move_release(job, waiting, release)
        if due == was.due:
            return
        kills = due if spec.kill_at_deadline else NEVER
        key = self._key_of(was)
        self.soft[job] = (kills, due)
        effective = self._due_of(job, due)
        if key >> DUE_SHIFT != effective:
            self._rekey(job, key, effective)
        if kills != NEVER:
            self.expiries.push(kills, job)
        self.nearing.push(key_of(spec, due, release, job))
        if waiting:  # those upstream: an earlier deadline is lent to them, a later one takes back what the old one lent
            self._lends_no_more(waiting)
            self.urging.append((job, waiting.after, 0))

    def _move_release(self, job: int, waiting: Waiting | None, release: int) -> None:
        if waiting:
            waiting.key = _with_release(waiting.key, release)
            return
        self.delayed[job] = _with_release(self.delayed[job], release)
        self.moved[job] = release
        self.releases.push(release, job)


def _with_release(key: int, release: int) -> int:
    return key & ~(RELEASE_MASK << RELEASE_SHIFT) | release << RELEASE_SHIFT
