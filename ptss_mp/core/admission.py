"""Admission: which worker may have a job that not any worker will do for, and what the job holds meanwhile.

A job may need tokens, a process with certain variables in its environment, or
a process that has run nothing yet.  Tokens are taken when it is sent, and come
free when its attempt has answered; if its worker died, when the process has
ended.  Workers belong to an environment, the empty one for most.  A job whose
environment no idle worker has keeps its place, as one that needs an unused
process does, and is made room for.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from . import commands as do
from . import events as on
from .crew import Crew
from .job import ID_MASK, NEVER, Spec
from .lines import Lines
from .ready import ReadyQueue
from .table import Worker
from .tokens import NOTHING, Holding, Tokens, expand


class Admission(Crew):
    """The crew, and the tokens of its pool.

    Attributes:
        tokens: what there is, and what is free.
        lines: the ready queue, once a job has come that needs a line of its own; until then there is none.
        held: job that was sent -> what it holds.
        dying: worker whose death was told -> what is free once its process has ended.
    """

    def __init__(self, *args: Any, resources: Mapping[str, tuple[str, ...] | int]) -> None:
        super().__init__(*args)
        self.tokens = Tokens(resources)
        self.lines: Lines | None = None
        self.held: dict[int, Holding] = {}
        self.dying: dict[int, list[Holding]] = {}
        self._refused: list[Worker] = []  # idle workers that were of no use to the first in line, in this round

    def _line_up(self) -> None:
        """A job that needs a line of its own has come: the ready queue has lines from now on."""
        if isinstance(self.ready, ReadyQueue):
            self.ready = self.lines = Lines(self.ready, self.jobs, self.tokens, self.work)

    # ------------------------------------------------------------------ tokens

    def _fits(self, worker: Worker, spec: Spec, tokens: Tokens) -> Holding | None:
        """Return what a job would hold at an idle worker, None if that is not one for it, or it lacks tokens."""
        if worker.queue or worker.used_up or (spec.fresh and worker.given):
            return None
        holding = tokens.choose(spec.needs, worker.units)
        return holding if holding is not None and expand(spec.env, holding) == worker.env else None

    def _takes(self, worker: Worker, job: int, spec: Spec) -> bool:
        """Let the first in line have its tokens for a run at this worker; return False if it is of no use to it."""
        holding = self._fits(worker, spec, self.tokens)
        if holding is None:
            self._refused.append(worker)
            return False
        if holding:
            self.tokens.take(holding)
            self.held[job] = holding
        return True

    def _unfit(self, event: on.Unfit) -> None:
        """The job goes to another worker, and this one leaves; or no worker would do, and the job ends."""
        worker = self.workers.get(event.worker)
        key = worker.queue.pop(event.job, None) if worker else None
        if worker is None or key is None:
            return
        self._give_back(event.job)
        worker.given -= 1
        worker.load, worker.watch = 0, NEVER
        if event.job in self.jobs and event.hopeless:
            self._end(event.job, "memory", gone=True)
        elif event.job in self.jobs:
            self._return(event.job, key)
        if not worker.leaving and (worker.used_up or not event.hopeless):
            self._retire(worker)

    def _give_back(self, job: int) -> None:
        """The attempt has ended, and its worker lives."""
        holding = self.held.pop(job, None)
        if holding:
            self.tokens.give(holding)

    def _keep_back(self, worker: Worker) -> None:
        """A worker's death was told: what its jobs held is free when its process has ended."""
        holdings = [self.held.pop(job) for job in worker.queue if job in self.held]
        if holdings:
            self.dying[worker.id] = holdings

    def _reaped(self, event: on.Reaped) -> None:
        for holding in self.dying.pop(event.worker, ()):
            self.tokens.give(holding)

    def _tell_waits(self, lines: Lines) -> None:
        for tokens, ids in lines.news(self.held).items():
            self._out.append(do.Waits(tokens, ids))

    # ------------------------------------------------------------------ workers

    def _make_room(self, worker: Worker) -> bool:
        """No idle worker is of use to the first in line: let one be, unless it is on its way.

        Args:
            worker: an idle one, which is not.

        Returns:
            True if a worker that is has taken its place.
        """
        key = self.ready.head()
        if worker.id not in self.active or not key:
            return False
        spec = self.jobs[key & ID_MASK]
        spare = next((w for w in self.spares if self._fits(w, spec, self.tokens) is not None), None)
        if spare:
            self.spares.remove(spare)
            del self.active[worker.id]
            self.active[spare.id] = spare
            self.spares.append(worker)
            if spec.fresh:
                self._retire(worker)
            return True
        coming = any(
            not w.ready and not w.leaving and self._fits(w, spec, self.tokens) is not None
            for w in self.workers.values()
        )
        if not coming and self.staff >= self.max_workers + self.spare_workers:
            self._retire(self.spares[0] if self.spares else worker)
        return False

    def _hire_for(self, lines: Lines) -> None:
        """Start what the first in line need: for each that has its tokens a worker of its environment."""
        most = self.max_workers + self.spare_workers
        if self.staff >= most or self.hire_at > self.now or self.broken or self.halted:
            return
        free = [w for w in self.workers.values() if not (w.leaving or w.queue or w.used_up)]
        wanted = sum(1 for w in self.active.values() if w.queue or w.used_up)
        tokens, lacked = self.tokens.copy(), set[str]()
        for spec, count in lines.demand():
            for _ in range(min(count, self.max_workers - wanted)):
                short = {name for name, much in spec.needs if name in lacked or tokens.left(name) < much}
                lacked |= short
                if short:
                    break
                fit = next((w for w in free if self._fits(w, spec, tokens) is not None), None)
                holding = tokens.choose(spec.needs, fit.units if fit else NOTHING) or NOTHING
                tokens.take(holding)
                wanted += 1
                if fit:
                    free.remove(fit)
                elif self.staff < most:
                    named = {piece for _, pieces in spec.env for piece in pieces[1::2]}
                    self._start(expand(spec.env, holding), {name: holding[name] for name in named})
        while self.staff < min(self.max_workers, wanted) + self.spare_workers:
            self._start()
