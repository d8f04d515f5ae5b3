"""Who works: workers are asked for, become ready, get nothing more, die.

At most `max_workers` are `active` and get jobs; `spares` more stand by, warm.
Deaths that no job explains are counted against the restart intensity; a job
that outlives too many of them as the first in line is explanation enough.
"""

from __future__ import annotations

from collections import deque
from enum import StrEnum

from . import commands as do
from . import events as on
from .ends import Ends
from .job import NEVER
from .restart import RestartWindow
from .table import Worker
from .tokens import NOTHING, Environment, Holding

EXIT_NS = 2_000_000_000  # a retired worker runs its exit handlers; after that it is killed
RETURNS_MAX = 3  # deaths of workers that a job outlives as the first in line, blameless (dask allows as many)


class WorkerState(StrEnum):
    """Where a worker stands."""

    STARTING = "starting"  # asked for, and not ready yet
    SPARE = "spare"  # ready, and warm: it gets no jobs until it takes the place of one that leaves
    IDLE = "idle"  # active, with nothing to do
    BUSY = "busy"  # active, and jobs were sent to it
    EXITING = "exiting"  # condemned, killed or retired: it gets nothing more
    GONE = "gone"  # nothing of it runs any more


# From the end of one step to the end of the next, in which several things may have happened.
WORKER_TRANSITIONS: dict[WorkerState, frozenset[WorkerState]] = {
    WorkerState.STARTING: frozenset(set(WorkerState) - {WorkerState.STARTING}),
    WorkerState.SPARE: frozenset((WorkerState.IDLE, WorkerState.BUSY, WorkerState.EXITING, WorkerState.GONE)),
    WorkerState.IDLE: frozenset((WorkerState.SPARE, WorkerState.BUSY, WorkerState.EXITING, WorkerState.GONE)),
    WorkerState.BUSY: frozenset((WorkerState.IDLE, WorkerState.SPARE, WorkerState.EXITING, WorkerState.GONE)),
    WorkerState.EXITING: frozenset((WorkerState.GONE,)),
    WorkerState.GONE: frozenset(),
}


class Crew(Ends):
    """The workers, and the pool's life as far as they need to know it.

    Attributes:
        active: ready workers that get jobs; spares: ready ones that do not yet.
        staff: workers that are not leaving.
        hired: workers asked for so far: the number of the last one.
        closed, halted, broken: how far the end is.
    """

    def __init__(
        self, max_workers: int, spares: int, max_tasks: int, restarts: RestartWindow, start_timeout_ns: int,
        seed: int, slice_size: int,
    ) -> None:  # fmt: skip
        super().__init__(seed, slice_size)
        self.max_workers, self.spare_workers, self.max_tasks = max_workers, spares, max_tasks
        self.start_timeout_ns = start_timeout_ns
        self.active: dict[int, Worker] = {}
        self.spares: deque[Worker] = deque()
        self.staff = 0
        self.restarts = restarts
        self.closed = self.halted = False
        self.broken = ""
        self.hire_at = 0  # no worker is asked for before this instant
        self.hired = 0

    def state_of_worker(self, number: int) -> WorkerState:
        """Return where a worker stands, by what holds it."""
        worker = self.workers.get(number)
        if worker is None:
            return WorkerState.GONE
        if worker.leaving:
            return WorkerState.EXITING
        if not worker.ready:
            return WorkerState.STARTING
        if number not in self.active:
            return WorkerState.SPARE
        return WorkerState.BUSY if worker.queue else WorkerState.IDLE

    def _worker_ready(self, event: on.WorkerReady) -> None:
        worker = self.workers.get(event.worker)
        if worker is None or worker.ready or worker.leaving:
            return
        worker.ready = True
        worker.watch = NEVER
        if len(self.active) < self.max_workers:
            self.active[worker.id] = worker
        else:
            self.spares.append(worker)

    def _hire(self) -> None:
        if self.hire_at > self.now:
            return
        # whoever is idle while a job is ready is of no use to it: it needs an unused process
        busy = len(self.active) if self.ready.head() else sum(1 for w in self.active.values() if w.queue)
        wanted = min(self.max_workers, len(self.ready) + busy) + self.spare_workers
        while self.staff < wanted and not self.broken and not self.halted:
            self._start()

    def _start(self, env: Environment = (), units: Holding = NOTHING) -> None:
        self.hired += 1
        until = self.now + self.start_timeout_ns if self.start_timeout_ns else NEVER
        self.workers[self.hired] = Worker(self.hired, until, env, units)
        self.staff += 1
        self._out.append(do.StartWorker(self.hired, env))

    def _leave(self, worker: Worker) -> None:
        """The worker gets nothing more; a spare takes its place."""
        if worker.leaving:
            return
        worker.leaving = True
        worker.watch = NEVER
        self.staff -= 1
        if self.active.pop(worker.id, None):
            if self.spares:
                spare = self.spares.popleft()
                self.active[spare.id] = spare
        elif worker in self.spares:
            self.spares.remove(worker)

    def _retire(self, worker: Worker) -> None:
        self._leave(worker)
        worker.watch = self.now + EXIT_NS
        self._out.append(do.RetireWorker(worker.id))

    def _kill(self, worker: Worker, why: str, job: int) -> None:
        self._leave(worker)
        worker.watch = NEVER
        self._out.append(do.KillWorker(worker.id, why, job))

    def _condemned(self, event: on.Condemned) -> None:
        worker = self.workers.get(event.worker)
        if worker:
            worker.job, worker.at = event.job, event.at
            self._leave(worker)

    def _suspect(self, worker: Worker) -> int:
        """Nobody is to blame for a death; but who is first in line at death after death is not innocent."""
        first = next((job for job in worker.queue if job in self.jobs), 0)
        if first:
            self.returns[first] = self.returns.get(first, 0) + 1
        return first if self.returns.get(first, 0) > RETURNS_MAX else 0

    def _warden_died(self, _event: on.WardenDied) -> None:
        for worker in self.workers.values():
            self._leave(worker)  # they die with it, which explains their deaths
        self._unexplained("the warden died again and again")

    def _unexplained(self, what: str) -> None:
        """A death that no job explains.  Too many: no worker can be had; say so, never spin."""
        window = self.restarts
        exceeded = window.exceeded(self.now)
        self.hire_at = self.now + window.pause_ns()
        if not exceeded or any(worker.queue for worker in self.active.values()):
            return  # while somebody is at work it may be a shortage that passes
        self.broken = f"{what}, {window.told()}"
        self.closed = self.dropping = True
        for container in (
            self.jobs, self.graph.waiting, self.graph.successors, self.graph.heirs, self.delayed, self.ready.current,
            self.soft, self.moved, self.tries, self.spent, self.returns,
            self.telling, self.doomed, self.urging, self.marking, self.dirty,
        ):  # fmt: skip
            container.clear()
