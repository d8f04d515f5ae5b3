"""How jobs end, and what one end decides for those that wait for it."""

from __future__ import annotations

from . import commands as do
from .graph import GOOD, judge
from .job import Spec
from .restart import CAUSES
from .table import Table


class Ends(Table):
    """The table of jobs, and the commands that tell of their ends.

    Attributes:
        seed: of the jitter between retries.
        dropping: what has not ended by itself is cut off: no further attempt is made.
    """

    def __init__(self, seed: int) -> None:
        super().__init__()
        self.seed = seed
        self.dropping = False
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
        if waiting and self.soft:
            self._mark(waiting)
        if status != GOOD:
            self._ended[job] = status
        if job in self.graph.successors:
            self._cascade(job, status)

    def _settle(self, status: str, job: int, blame: int) -> None:
        last = self._out[-1] if self._out else None
        if type(last) is not do.Settle or last.status != status or bool(last.blame) != bool(blame):
            last = do.Settle(status, [], [])
            self._out.append(last)
        last.ids.append(job)
        if blame:
            last.blame.append(blame)

    def _cascade(self, job: int, status: str) -> None:
        """Tell those that wait for `job`, and those that wait for them; no recursion, a chain may be long."""
        graph = self.graph
        stack = [(job, status)]
        while stack:
            ended, how = stack.pop()
            for below in graph.successors.pop(ended, ()):
                waiting = graph.waiting.get(below)
                decided = judge(waiting, how) if waiting else ""
                if not waiting or not decided:
                    continue
                del graph.waiting[below]
                if decided == "ready":
                    self._arrive(below, waiting.key)
                    continue
                del self.jobs[below]
                self._settle(decided, below, ended)
                self._forget(below)
                self._ended[below] = decided
                if self.soft:
                    self._mark(waiting)
                stack.append((below, decided))

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
