"""What one deadline lends to another.

A job that others wait for is ordered by the earliest deadline among itself and
all that waits for it (modified deadlines: Chetto, Silly, Bouchentouf, Real-Time
Systems 2, 1990), and gives that back when they wait no longer.  For killing,
its own deadline stays its own (`soft`).

A chain may be of a hundred thousand jobs: what is still to be told upstream
stands here from step to step.
"""

from __future__ import annotations

from collections.abc import Sequence

from .graph import Waiting
from .job import DUE_SHIFT, NEVER, Prerequisite, key_of
from .slices import SLICE
from .table import Table


class Lending(Table):
    """The table, in which jobs lend and give back; no recursion, and a slice in each step.

    Attributes:
        urging: (job, its prerequisites, how many of them were told): its deadline is being lent to these.
        marking: (prerequisites, how many were looked at) of a job that lends no longer, or less.
        dirty: jobs that may have to give back what they inherited.
    """

    def __init__(self, slice_size: int = SLICE) -> None:
        super().__init__(slice_size)
        self.urging: list[tuple[int, Sequence[Prerequisite], int]] = []
        self.marking: list[tuple[Sequence[Prerequisite], int]] = []
        self.dirty: dict[int, None] = {}

    def _lend(self) -> None:
        """Go on with what is to be told upstream, as far as this step's slice goes."""
        work, dirty = self.work, self.dirty
        while self.urging and not work.over():
            self._urge(*self.urging.pop())
        while (self.marking or dirty) and not work.over():
            if self.marking:
                self._mark(*self.marking.pop())
            else:
                job = next(iter(dirty))
                del dirty[job]
                self._give_back_due(job)

    def _urge(self, heir: int, edges: Sequence[Prerequisite], told: int) -> None:
        """Order what stands upstream of these edges at least by the deadline of `heir`, if it still waits."""
        graph, work = self.graph, self.work
        waiting = graph.waiting.get(heir)
        due = waiting.key >> DUE_SHIFT if waiting else NEVER
        if due == NEVER:
            return
        for at in range(told, len(edges)):
            if work.over():
                self.urging.append((heir, edges, at))
                return
            work.left -= 1
            edge = edges[at]
            job = edge.id
            if job not in self.jobs:
                continue
            graph.lend(job, due, heir)
            key = self._key_of(edge)
            if not key or key >> DUE_SHIFT <= due:
                continue
            self._rekey(job, key, due)
            above = graph.waiting.get(job)
            if above:
                if at + 1 < len(edges):
                    self.urging.append((heir, edges, at + 1))
                self.urging.append((job, above.after, 0))
                return

    def _key_of(self, edge: Prerequisite) -> int:
        """Return the key under which an unsettled job stands now, 0 if it was sent to a worker."""
        job = edge.id
        if job in self.graph.waiting:
            return self.graph.waiting[job].key
        if job in self.delayed:
            return self.delayed[job]
        if self._worker_of(job):
            return 0
        return self.ready.current.get(job) or key_of(self.jobs[job], edge.due, edge.release, job)

    def _rekey(self, job: int, key: int, due: int) -> None:
        old = key >> DUE_SHIFT
        spec = self.jobs[job]
        if job not in self.soft:
            self.soft[job] = (old if spec.kill_at_deadline else NEVER, old)
            if job not in self.graph.waiting and job not in self.delayed and old != NEVER:
                self.expiries.push(old, job)
        key += (due - old) << DUE_SHIFT
        if job in self.graph.waiting:
            self.graph.waiting[job].key = key
        elif job in self.delayed:
            self.delayed[job] = key
        else:
            self.ready.rekey(key)

    def _lends_no_more(self, waiting: Waiting) -> None:
        """The job waits no longer, or less urgently: what it had lent upstream is looked at again."""
        if self.soft:
            self.marking.append((waiting.after, 0))

    def _mark(self, edges: Sequence[Prerequisite], seen: int) -> None:
        work = self.work
        for at in range(seen, len(edges)):
            if work.over():
                self.marking.append((edges, at))
                return
            work.left -= 1
            if edges[at].id in self.soft:
                self.dirty[edges[at].id] = None

    def _give_back_due(self, job: int) -> None:
        """Order a job by its own deadline and those of what waits for it now."""
        if job not in self.jobs or job not in self.soft or self._worker_of(job):
            return
        waiting = self.graph.waiting.get(job)
        key = waiting.key if waiting else self.delayed.get(job) or self.ready.current.get(job, 0)
        due = self._due_of(job, self.soft[job][1])
        if key and key >> DUE_SHIFT != due:
            self._rekey(job, key, due)
            if waiting:
                self._lends_no_more(waiting)
        self.work.left -= 1

    def _due_of(self, job: int, own: int) -> int:
        """Return the earlier of a job's own deadline and what it inherits, as far as the slice tells."""
        cut, self.work.cut = self.work.cut, False
        due = min(own, self.graph.earliest_heir(job, self.work))
        if self.work.cut:
            self.dirty[job] = None
        self.work.cut |= cut
        return due

    def _return(self, job: int, key: int, until: int = 0) -> None:
        """Take a job back from a worker.  What waits for it may have come, gone or changed meanwhile."""
        if job in self.graph.successors or job in self.soft:
            old = key >> DUE_SHIFT
            kills, own = self.soft.get(job) or (old, old)
            due = self._due_of(job, own)
            if due != kills:
                self.soft[job] = (kills, own)
            key += (due - old) << DUE_SHIFT
        if until:
            self._delay(job, key, until)
        else:
            self._push(job, key)
