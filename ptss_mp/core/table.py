"""Where each job stands, and under which key: the containers."""

from __future__ import annotations

from .graph import Graph
from .job import DUE_SHIFT, NEVER, RELEASE_MASK, RELEASE_SHIFT, Spec, State
from .lines import Lines
from .nearing import Nearing
from .ready import ReadyQueue
from .slices import SLICE, Slice
from .timers import Timers
from .tokens import NOTHING, Environment, Holding


class Worker:
    """What the core knows of one worker process.

    Attributes:
        queue: job -> its key, in the order in which they were sent; the first runs.
        load: estimated work in the queue, ns.
        watch: the next instant at which `_fired` must look here.
        heard: instant of its last answer.
        sent: instant of the dispatch that found its queue empty.
        seen, seen_at: the attempt that its marker showed last (negative: it had answered), and since when.
        given: attempts sent to it, ever.
        ready: it can take jobs.
        recalled: jobs taken back from it whose ids it has not passed by yet.
        used_up: it has run what it may run; it leaves once it has answered.
        leaving: condemned, killed or retired: it gets nothing more.
        job, at: the attempt it was condemned for; answers after that instant do not count.
        env: what its process has in its environment beyond the others.
        units: the tokens that `env` names; the same are the best for the next job.
    """

    __slots__ = (
        "at", "env", "given", "heard", "id", "job", "leaving", "load", "queue", "ready", "recalled", "seen",
        "seen_at", "sent", "units", "used_up", "watch",
    )  # fmt: skip

    def __init__(self, number: int, watch: int, env: Environment = (), units: Holding = NOTHING) -> None:
        self.id, self.env, self.units = number, env, units
        self.queue: dict[int, int] = {}
        self.recalled: set[int] = set()
        self.load = self.heard = self.sent = self.given = self.job = self.seen = self.seen_at = 0
        self.watch = watch
        self.at = NEVER
        self.ready = self.leaving = self.used_up = False


class Table:
    """Every unsettled job is in exactly one of `graph.waiting`, `delayed`, `ready` and a worker's queue.

    Attributes:
        jobs: every unsettled job.
        ready, graph, delayed: where it stands; `delayed` (start time, retry) holds its key.
        workers: their queues hold the jobs that were sent.
        soft: jobs whose key is due at another instant than their killing deadline -> (that, own due).
        tries: failed attempts so far; spent: of jobs that have a budget for each cause, how many of which.
        moved: delayed jobs whose start was told as a date, when the clock was set meanwhile -> when they are due now.
        returns: deaths of workers in which it was the first in line, and nobody was to blame.
        releases, expiries: when a delayed job is due, and when one that no queue's head tells expires.
        nearing: jobs with a deadline, until there is nothing to tell of it any more.
        work: what is left of this step's slice of the work that goes on.
    """

    def __init__(self, slice_size: int = SLICE) -> None:
        self.now = 0
        self.work = Slice(slice_size)
        self.jobs: dict[int, Spec] = {}
        self.ready: ReadyQueue | Lines = ReadyQueue(self.jobs, self.work)  # Lines from the first job on that is bound
        self.graph = Graph()
        self.delayed: dict[int, int] = {}
        self.workers: dict[int, Worker] = {}
        self.soft: dict[int, tuple[int, int]] = {}
        self.tries: dict[int, int] = {}
        self.spent: dict[int, dict[str, int]] = {}
        self.moved: dict[int, int] = {}
        self.returns: dict[int, int] = {}
        self.releases = Timers(self.delayed.__contains__, self.work)
        self.expiries = Timers(self._can_expire, self.work)
        self.nearing = Nearing(self.jobs, self.work)

    def state_of(self, job: int) -> State:
        """Return where a job stands, by the container that holds it."""
        if job not in self.jobs:
            return State.SETTLED
        if job in self.graph.waiting:
            return State.WAITING
        if job in self.delayed:
            return State.DELAYED
        return State.SENT if self._worker_of(job) else State.READY

    def only_unreleased(self) -> bool:
        """Return True if no unsettled job has been released."""
        if self.ready or any(worker.queue for worker in self.workers.values()):
            return False
        again = sum(1 for job in self.tries if job in self.delayed)
        later = len(self.graph.waiting) + len(self.delayed) - again
        return later == len(self.jobs) and all(  # the first that is released ends it: few calls look at many
            waiting.key >> RELEASE_SHIFT & RELEASE_MASK > self.now for waiting in self.graph.waiting.values()
        )

    def _sent(self) -> set[int]:
        return {job for worker in self.workers.values() for job in worker.queue}

    def _worker_of(self, job: int) -> Worker | None:
        for worker in self.workers.values():
            if job in worker.queue:
                return worker
        return None

    def _forget(self, job: int) -> None:
        if self.soft:
            self.soft.pop(job, None)
        if self.tries:
            self.tries.pop(job, None)
            self.spent.pop(job, None)
        if self.moved:
            self.moved.pop(job, None)
        if self.returns:
            self.returns.pop(job, None)
        if self.ready.current:
            self.ready.forget(job)
        if self.graph.heirs:
            self.graph.heirs.pop(job, None)

    # ------------------------------------------------------------------ moves

    def _arrive(self, job: int, key: int) -> None:
        """A job's prerequisites are settled as asked: it is ready, or waits for its release."""
        release = key >> RELEASE_SHIFT & RELEASE_MASK
        if release > self.now:
            self._delay(job, key, release)
        else:
            self._push(job, key)

    def _delay(self, job: int, key: int, until: int) -> None:
        self.delayed[job] = key
        if self.moved and job in self.moved:
            self.moved[job] = until
        self.releases.push(until, job)
        kills = self._kills_at(job, key)
        if kills != NEVER:
            self.expiries.push(kills, job)

    def _push(self, job: int, key: int) -> None:
        if not self.soft or job not in self.soft:
            self.ready.push(key)
            return
        self.ready.push_soft(key)
        kills = self.soft[job][0]
        if kills != NEVER:
            self.expiries.push(kills, job)

    def _can_expire(self, job: int) -> bool:
        return job in self.jobs and (job in self.graph.waiting or job in self.delayed or job in self.soft)

    def _kills_at(self, job: int, key: int) -> int:
        """The instant at which a job's own deadline ends it; NEVER if none does."""
        soft = self.soft.get(job) if self.soft else None
        return soft[0] if soft else key >> DUE_SHIFT

    def _limit_of(self, job: int, key: int) -> int:
        """The earliest instant at which a job sent now could be beyond a limit; NEVER without one."""
        timeout = self.jobs[job].timeout_ns
        kills = self._kills_at(job, key)
        return min(kills, self.now + timeout) if timeout else kills
