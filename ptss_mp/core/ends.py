"""How jobs end, and what one end decides for those that wait for it."""

from __future__ import annotations

from collections import deque

from . import commands as do
from .graph import GOOD, judge
from .job import Spec
from .lending import Lending
from .restart import CAUSES
from .slices import END, SLICE


class Ends(Lending):
    """The table of jobs, and the commands that tell of their ends.

    Attributes:
        seed: of the jitter between retries.
        dropping: what has not ended by itself is cut off: no further attempt is made.
        telling: (job that ended, how, those that waited for it and have not been told, the last one first).
        doomed: to be cancelled, for the pool ends, but for those in `spared`; nothing starts meanwhile.
    """

    def __init__(self, seed: int, slice_size: int = SLICE) -> None:
        super().__init__(slice_size)
        self.seed = seed
        self.dropping = False
        self.telling: deque[tuple[int, str, list[int]]] = deque()
        self.doomed: list[int] = []
        self.spared: set[int] = set()
        self._out: list[do.Command] = []  # of the running step
        self._ended: dict[int, str] = {}  # jobs that ended otherwise than well in this very step

    def _end(self, job: int, status: str, blame: int = 0, gone: bool = False) -> None:
        """Settle a job, and what its end decides for those that wait for it.

        Args:
            blame: the prerequisite that decided it.
            gone: it has already been taken out of the ready queue.
        """
        if job not in self.jobs:
            return
        waiting = self.graph.waiting.pop(job, None)
        if waiting is None and self.delayed.pop(job, None) is None and not gone:
            self.ready.drop_later(job)
        del self.jobs[job]
        self._settle(status, job, blame)
        self._forget(job)
        self.work.left -= END
        if waiting:
            self._lends_no_more(waiting)
        if status != GOOD:
            self._ended[job] = status
        if job in self.graph.successors:
            self._announce(job, status)

    def _settle(self, status: str, job: int, blame: int) -> None:
        last = self._out[-1] if self._out else None
        if type(last) is not do.Settle or last.status != status or bool(last.blame) != bool(blame):
            last = do.Settle(status, [], [])
            self._out.append(last)
        last.ids.append(job)
        if blame:
            last.blame.append(blame)

    # ------------------------------------------------------------------ time

    def _keep_time(self) -> None:
        """Bring everything up to `now`; an end may make jobs ready whose own deadline has passed too."""
        now, work = self.now, self.work
        while now >= self._timed_at() and not work.over():
            for job in self.releases.due(now):
                if not self.moved or self.moved.get(job, 0) <= now:  # else that was its old instant (moving.py)
                    self._push(job, self.delayed.pop(job))
            for job in self.expiries.due(now):
                if self._worker_of(job) is None and (job not in self.soft or self.soft[job][0] <= now):
                    self._end(job, "deadline")
            for job in self.ready.expired(now):
                self._end(job, "deadline", gone=True)

    def _timed_at(self) -> int:
        """Return the earliest instant at which time alone makes something true."""
        at = self.ready.expires_at
        if self.releases:
            at = min(at, self.releases.next_at)
        return min(at, self.expiries.next_at) if self.expiries else at

    def _tell_nearing(self) -> None:
        """Tell which deadlines are near, or past."""
        told: dict[str, do.TellDeadline] = {}
        for status, job, due in self.nearing.due(self.now):
            if job in self.soft and self.soft[job][1] != due:
                continue  # it has another one by now (moving.py)
            command = told.setdefault(status, do.TellDeadline(status, [], []))
            command.ids.append(job)
            command.dues.append(due)
        self._out += told.values()

    # ------------------------------------------------------------------ what goes on

    def _announce(self, job: int, status: str) -> None:
        """Let those that wait for a job that has ended be told, in this step as far as the slice goes."""
        below = self.graph.successors.pop(job)
        below.reverse()
        self.telling.append((job, status, below))

    def _tell_successors(self) -> None:
        """Go on telling those that wait for what has ended, and those that wait for them."""
        graph, work = self.graph, self.work
        while self.telling and not work.over():
            ended, how, untold = self.telling[0]
            while untold and not work.over():
                below = untold.pop()
                waiting = graph.waiting.get(below)
                work.left -= 1
                decided = judge(waiting, how) if waiting else ""
                if not waiting or not decided:
                    continue
                if decided == "ready":
                    del graph.waiting[below]
                    self._lends_no_more(waiting)
                    self._arrive(below, waiting.key)
                else:
                    self._end(below, decided, ended)
            if not untold:
                self.telling.popleft()

    def _drop(self, kept: set[int]) -> None:
        """Cancel all others, slice by slice."""
        self.graph.successors.clear()
        self.doomed = list(self.jobs)  # one C call: 5 ms for a million
        self.doomed.reverse()
        self.spared = kept
        self._cancel_doomed()

    def _cancel_doomed(self) -> None:
        while self.doomed and not self.work.over():
            self.work.left -= 1
            job = self.doomed.pop()
            if job not in self.spared:
                self._end(job, "cancelled")

    def _go_on(self) -> None:
        """Do a slice of each kind of what earlier steps, or this one, have left to do."""
        if self.telling:
            self.work.renew()
            self._tell_successors()
        if self.doomed:
            self.work.renew()
            self._cancel_doomed()
        if self.urging or self.marking or self.dirty:
            self.work.renew()
            self._lend()
        if self.nearing.next_at <= self.now:
            self.work.renew()
            self._tell_nearing()

    def _failed(self, job: int, spec: Spec, key: int, status: str) -> None:
        """An attempt failed: another one after a pause, or the end."""
        tries = self.tries.get(job, 0) + 1
        if status in CAUSES and not self.dropping and self._is_granted(job, spec, status, tries):
            until = self.now + spec.retries.pause_ns(tries, self.seed, job)
            if until < self._kills_at(job, key):
                self.tries[job] = tries
                if not spec.retries.together:
                    spent = self.spent.setdefault(job, {})
                    spent[status] = spent.get(status, 0) + 1
                self._out.append(do.Postpone(job, status, until))
                self._return(job, key, until)
                return
        self._end(job, status, gone=True)

    def _is_granted(self, job: int, spec: Spec, status: str, tries: int) -> bool:
        """Return True if the budget lets another attempt follow the failure number `tries`."""
        retries = spec.retries
        if tries <= retries.together:
            return True
        budget = retries.budget(status)
        return budget > 0 and self.spent.get(job, _NOTHING).get(status, 0) < budget


_NOTHING: dict[str, int] = {}
