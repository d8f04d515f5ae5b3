"""Short words for driving a scheduler by hand: no process, no sleep; the clock is a number."""

from __future__ import annotations

from ptss_mp.core import commands as do
from ptss_mp.core import events as on
from ptss_mp.core import invariants
from ptss_mp.core.job import NEVER, Prerequisite, Row, Spec
from ptss_mp.core.scheduler import Scheduler

US, MS, S = 1_000, 1_000_000, 1_000_000_000
PLAIN = Spec(1)


class Drive:
    """A scheduler, a clock, and the commands of the last step (`out`)."""

    def __init__(self, workers=1, spares=0, ready=True, **options):
        self.core = Scheduler(workers, spares, **options)
        self.now = S
        self.out = []
        self.ends = {}  # job -> status
        if ready:
            self.staff()

    def step(self, *events):
        """Take a step; keep its commands, and hold the core's promises."""
        self.out = self.core.step(events)
        invariants.check(self.core)
        while self.core.behind:
            self.out += self.core.step(())
            invariants.check(self.core)
        for command in self.all(do.Settle):
            self.ends.update(dict.fromkeys(command.ids, command.status))
        return self.out

    def all(self, kind):
        """Return the last step's commands of one kind."""
        return [command for command in self.out if type(command) is kind]

    def staff(self):
        """Let the scheduler have its workers, by a job that is cancelled before it could run."""
        self.step(on.Paused(self.now), on.Submitted(self.now, [row(10**6 + i) for i in range(99)]))
        for start in self.all(do.StartWorker):
            self.step(on.WorkerReady(self.now, start.worker))
        self.step(on.Cancelled(self.now, [10**6 + i for i in range(99)]), on.Resumed(self.now))
        self.ends.clear()

    def submit(self, *rows):
        """Submit rows."""
        return self.step(on.Submitted(self.now, rows))

    def answer(self, worker, *ids, end=on.OK, took=2 * MS):
        """A worker answers jobs, a moment later; by default each took so long that depth stays one."""
        self.now += 2 * MS
        rows = [(job, end, self.now - took, took) for job in ids]
        return self.step(on.Answered(self.now, worker, rows))

    def die(self, worker, job=0, why="crashed", ready=True):
        """A worker dies."""
        return self.step(on.WorkerDied(self.now, worker, job, why, ready))

    def reap(self, worker):
        """The process of a worker whose death was told has ended."""
        return self.step(on.Reaped(self.now, worker))

    def start(self):
        """Let the workers come that were asked for; return their environments."""
        asked = [worker for worker in self.core.workers.values() if not (worker.ready or worker.leaving)]
        for worker in asked:
            self.step(on.WorkerReady(self.now, worker.id))
        return [dict(worker.env) for worker in asked]

    def wait(self, ns, marks=None):
        """Let time pass."""
        self.now += ns
        return self.step(on.Fired(self.now, marks or {}))

    def teach(self, worker=1, took=10 * US, spec=PLAIN):
        """Let the scheduler learn how long a function takes."""
        self.submit(row(999_999, spec))
        self.answer(worker, 999_999, took=took)
        self.ends.clear()

    @property
    def sent(self):
        """The ids of the last step's dispatches, by worker."""
        return {command.worker: command.ids for command in self.all(do.Dispatch)}


def row(job, spec=PLAIN, due=NEVER, release=S, after=None):
    """Return one submitted job."""
    edges = None if after is None else tuple(edge(a) if isinstance(a, int) else a for a in after)
    return Row(job, spec, due, release, edges)


def edge(job, status="", release=S, due=NEVER):
    """Return one prerequisite."""
    return Prerequisite(job, status, release, due)
