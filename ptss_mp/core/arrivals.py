"""How jobs come that do not go straight into the ready queue: with prerequisites, a start time, a line of their own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from . import events as on
from .graph import GOOD, Waiting, judge, verdict
from .history import History
from .job import DUE_SHIFT, NEVER, Prerequisite, Spec, key_of
from .watch import Watch


class Arrivals(Watch):
    """The crew behind a door.

    Attributes:
        history: the last steps.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.history = History()

    def _linked(self, event: on.Linked) -> None:
        """Take a job with many prerequisites in parts, so that none of them takes long."""
        job, spec, due, release, after = event.row
        if event.first:
            self.jobs[job] = spec
            self._admit(job, spec, due, release, list(after or ()), more=not event.last)
            if self.dropping:
                self.doomed.append(job)
                self._cancel_doomed()
            return
        waiting = self.graph.waiting.get(job)
        if waiting is None or not after:
            return  # it has ended meanwhile
        assert isinstance(waiting.after, list)
        waiting.after += after
        waiting.open += len(after)
        if event.last:
            waiting.more = False
            waiting.open -= 1
        self._link(job, waiting, after)

    def _admit(
        self, job: int, spec: Spec, due: int, release: int, after: Sequence[Prerequisite], more: bool = False
    ) -> None:
        """Take a job that has prerequisites, a start time, a deadline that only orders, or a line of its own.

        Args:
            more: further prerequisites will be told.
        """
        if spec.bound:
            self._line_up()
        kills = due if spec.kill_at_deadline else NEVER
        if kills != due:
            self.soft[job] = (kills, due)
        key = key_of(spec, due, release, job)
        if due != NEVER:
            self.nearing.push(key)
        if not (after or more or spec.on_failure):
            self._arrive(job, key)
            return
        waiting = self.graph.waiting[job] = Waiting(key, spec.run_if, after, more)
        self._link(job, waiting, after)
        if kills != NEVER and job in self.graph.waiting:
            self.expiries.push(kills, job)

    def _link(self, job: int, waiting: Waiting, edges: Sequence[Prerequisite]) -> None:
        """Take edges into account: those of ended jobs now, the others when they end."""
        self.history.edges += len(edges)
        for edge in edges:
            status = edge.status or self._ended.get(edge.id) or ("" if edge.id in self.jobs else GOOD)
            if not status:
                self.graph.link(edge.id, job)
                continue
            decided = judge(waiting, status)
            if decided not in ("", "ready"):
                self._end(job, decided, edge.id)
                return
        if waiting.open:
            if waiting.key >> DUE_SHIFT != NEVER:
                self.urging.append((job, edges, 0))
            return
        decided = verdict(waiting)
        if decided == "ready":
            del self.graph.waiting[job]
            self._arrive(job, waiting.key)
        else:
            self._end(job, decided)
