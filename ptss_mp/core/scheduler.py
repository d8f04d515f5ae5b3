"""The scheduler, as a pure function of the events it has been told.

Theory of operation.  `step` takes a batch of events and returns the commands
to obey, in order.  Between calls the state is complete: each unsettled job is
in exactly one container (`state_of`), and `wake_at` says when to call again
with `Fired` if nothing happens first.  Wake-ups are a level, not a message: a
property cannot storm.  A step takes a slice of what has no bound (slices.py):
then it is `behind`, and `wake_at` is now.

Workers.  At most `max_workers` are `active` and get jobs, earliest effective
deadline first; up to `spares` more are warm.  A second job goes to a worker
only while the work queued there stays under a millisecond by the function's
estimate, so EDF is bent by about that much, and short jobs cost few system calls.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from operator import attrgetter
from typing import Any

from ..errors import InternalError
from . import commands as do
from . import events as on
from .estimates import Estimates
from .graph import GOOD
from .job import DUE_SHIFT, ID_MASK, NEVER, RELEASE_SHIFT, Spec
from .moving import Moving
from .restart import RestartWindow
from .slices import SLICE
from .table import Worker
from .tokens import NOTHING
from .watch import MS, PEEK_NS, WORD_NS

BUDGET_NS = 1 * MS  # work queued at one worker: what depth costs EDF (0.5 ms seen: refilled at half)
DEPTH = 256  # jobs queued at one worker, as many as the answer page has places: 64 cost a fifth of the throughput

# by AnswerRow.end
ENDS = (GOOD, "failed", "failed", "not_picklable", "not_picklable", "protocol", "deadline", "cancelled", "protocol")


class Scheduler(Moving):
    """Decides what runs where and when, and how each job has ended.

    Args:
        max_workers: how many workers get jobs; at least 1.
        spares: warm idle workers beyond them.
        max_tasks: attempts after which a worker is replaced; 0: never.
        intensity: unexplained deaths allowed per `period_ns`.
        start_timeout_ns: longest time until a worker must be ready; 0: unlimited.
        seed: of the jitter between retries.
        resources: token -> the names of its units, or its amount.
        slice_size: units of work that a step does of each kind.
    """

    def __init__(
        self,
        max_workers: int,
        spares: int = 1,
        max_tasks: int = 0,
        intensity: int = 10,
        period_ns: int = 10_000 * MS,
        start_timeout_ns: int = 0,
        seed: int = 0,
        resources: Mapping[str, tuple[str, ...] | int] = NOTHING,
        slice_size: int = SLICE,
    ) -> None:
        restarts, crew = RestartWindow(intensity, period_ns), (max_workers, spares, max_tasks)
        super().__init__(*crew, restarts, start_timeout_ns, seed, slice_size, resources=resources)
        self.estimates = Estimates()
        self.stop_at = NEVER
        self.behind = False  # the step has left something for the next one

    # ------------------------------------------------------------------ the door

    def step(self, events: Sequence[on.Event]) -> list[do.Command]:
        """Take a batch of events; return what to do about them, in the order to do it.

        Raises:
            InternalError: an event is earlier than the one before it.
        """
        out: list[do.Command] = []
        self._out = out
        self.work.renew()
        self.work.cut = False
        if self._ended:
            self._ended = {}
        for event in events:
            if event.now > self.now:
                self.now = event.now
                self._keep_time()
            elif event.now < self.now:
                raise InternalError(f"time ran backwards: {event.now} < {self.now}")
            _ON[type(event)](self, event)
            if self.broken:
                break  # whatever else came is among the jobs left
        if self.now >= self.stop_at:
            self._end_grace()
        self.work.renew()
        self._keep_time()
        self._go_on()
        self.work.renew()
        if self.ready:
            if not (self.paused or self.short or self.doomed):
                while self._dispatch():
                    pass
            if self.lines is not None:
                self._hire_for(self.lines)
                self._tell_waits(self.lines)
            elif self.staff < self.max_workers + self.spare_workers:
                self._hire()
        self.behind = self.work.cut or bool(self.telling or self.doomed or self.urging or self.marking or self.dirty)
        if self.closed and not self.halted and not self.jobs:
            self.halted = True
            out.append(do.Halt(self.broken))
        self.history.remember(events, out)
        return out

    @property
    def wake_at(self) -> int:
        """The instant at which `Fired` is wanted if nothing happens before; NEVER if nothing can."""
        if self.behind:
            return self.now
        at = min(self._timed_at(), self.nearing.next_at, self.stop_at)
        for worker in self.workers.values():
            at = min(at, worker.watch)
        return at if self.hire_at <= self.now else min(at, self.hire_at)

    # ------------------------------------------------------------------ jobs come

    def _submitted(self, event: on.Submitted) -> None:
        jobs, push, watch, never = self.jobs, self.ready.push, self.nearing.push, NEVER
        for row in event.rows:
            job, spec, due, release, after = row
            jobs[job] = spec
            if after is None and due == never and release <= event.now and not spec.special:
                push(spec.base | release << RELEASE_SHIFT | job)  # exact in size; a sum is made a digit too long
            elif after is None and spec.kill_at_deadline and release <= event.now and not spec.special:
                key = due << DUE_SHIFT | spec.priority | release << RELEASE_SHIFT | job
                push(key)
                watch(key)
            else:
                self._admit(job, spec, due, release, after or ())
        if self.dropping:
            self.doomed += [row[0] for row in event.rows]  # whoever submitted had not heard of the stop yet
            self._cancel_doomed()

    # ------------------------------------------------------------------ jobs end

    def _cancelled(self, event: on.Cancelled) -> None:
        for job in event.ids:
            if job not in self.jobs:
                continue
            worker = self._worker_of(job)
            self._end(job, "cancelled", gone=worker is not None)
            if worker:
                self._out.append(do.Revoke(worker.id, job))

    # ------------------------------------------------------------------ workers answer

    def _answered(self, event: on.Answered) -> None:
        worker = self.workers[event.worker]
        queue, jobs = worker.queue, self.jobs
        take, drop, successors = queue.pop, jobs.pop, self.graph.successors
        done: list[int] = []
        before = len(queue)
        holder = next(iter(queue), 0) if self.held else 0  # who holds tokens is alone
        worker.heard = event.now
        self.restarts.in_a_row = 0
        last: Spec | None = None
        total = runs = 0
        plain = not (self.soft or self.moved or self.tries or self.returns or self.ready.current or self.graph.heirs)
        for job, end, started, duration in event.rows:
            if job == worker.job and started + duration > worker.at:
                continue  # it came after the verdict: the death will settle it
            key = take(job, None) if end < len(ENDS) else None
            if key is None and job in worker.recalled:
                worker.recalled.remove(job)
                continue  # another worker's answer counts
            if key is None:
                if not worker.leaving:
                    self._kill(worker, "protocol", 0)
                break
            spec = drop(job, None)
            if spec is None:
                continue  # settled already: cancelled
            if spec is not last:
                if last and runs:
                    self.estimates.learn(last.fn, total, runs)
                last, total, runs = spec, 0, 0
            if end < on.REVOKED or end == on.UNFINISHED:
                total += duration
                runs += 1
            if end == 0:
                done.append(job)
                if not plain:
                    self._forget(job)
                if job in successors:
                    self._announce(job, GOOD)  # they are told when all is settled that this step settles
            elif end == on.REVOKED or (end == on.UNFINISHED and not self.dropping):
                jobs[job] = spec
                self._return(job, key)  # taken back in the very moment in which it came up; or to be gone on with
            else:
                jobs[job] = spec
                if end in _FOR_GOOD:
                    self._end(job, ENDS[end], gone=True)
                else:
                    self._failed(job, spec, key, ENDS[end])
        if last and runs:
            self.estimates.learn(last.fn, total, runs)
        worker.load = worker.load * len(queue) // before if queue else 0
        if holder and holder not in queue:
            self._give_back(holder)
        if done:
            self._out.append(do.Settle(GOOD, done, []))
        if not queue and not worker.leaving:
            worker.watch = NEVER
            if worker.used_up:
                self._retire(worker)

    def _worker_died(self, event: on.WorkerDied) -> None:
        worker = self.workers.pop(event.worker, None)
        if worker is None:
            return
        explained = event.ready or worker.leaving
        if event.job:
            self.restarts.in_a_row = 0  # it came as far as a job
        self._leave(worker)
        self._keep_back(worker)
        blamed = event.job or (self._suspect(worker) if event.ready and event.why != "left" else 0)
        for job, key in worker.queue.items():
            spec = self.jobs.get(job)
            if spec is None:
                continue
            if job == blamed:
                self._failed(job, spec, key, event.why)
            elif self.dropping:
                self._end(job, "cancelled", gone=True)
            else:
                self._return(job, key)
        if not explained:
            self._unexplained("workers died before they were ready")

    # ------------------------------------------------------------------ jobs start

    def _dispatch(self) -> bool:
        """Fill the free workers; return True if that made room for another round."""
        late = self.now - PEEK_NS  # who was to have answered by then is not free, whatever the estimates say
        free = [
            w for w in self.active.values()
            if w.load <= BUDGET_NS // 2 and not w.used_up and (not w.queue or w.heard > late)
        ]  # fmt: skip
        free.sort(key=_load)
        passed = again = False
        self._refused.clear()
        for left in range(len(free), 0, -1):
            worker = free[-left]
            waiting = len(self.ready)
            if not waiting:
                break
            sent = self._fill(worker, min(DEPTH - len(worker.recalled), len(worker.queue) - (-waiting // left)))
            again |= passed and sent  # who was passed over may be fit for the next in line
            passed |= not sent
        return again or (bool(self._refused) and self._make_room(self._refused[0]))

    def _fill(self, worker: Worker, room: int) -> bool:
        """Send jobs to one worker, up to `room` in its queue (an even share, so that no other idles)."""
        ready, jobs, queue, now = self.ready, self.jobs, worker.queue, self.now
        limit = (now + 1) << DUE_SHIFT
        if self.max_tasks:
            room = min(room, len(queue) + self.max_tasks - worker.given)
        ids: list[int] = []
        load, watch, number = worker.load, worker.watch, len(queue)
        last: Spec | None = None
        cost = timeout = 0
        soft, picky = self.soft, False
        while number < room:
            key = ready.head()
            if not key:
                break
            job = key & ID_MASK
            if soft[job][0] <= now if soft and job in soft else key < limit:
                if self.work.over():
                    break
                ready.pop(key)
                self._end(job, "deadline", gone=True)
                continue
            spec = jobs[job]
            if spec is not last:
                last = spec
                cost = BUDGET_NS if spec.alone else self.estimates.get(spec.fn, BUDGET_NS)
                timeout = spec.timeout_ns
                picky = spec.picky or worker.env != ()
            if (number and load + cost >= BUDGET_NS) or job in worker.recalled:
                break
            if picky and not self._takes(worker, job, spec):
                break
            ready.pop(key)
            queue[job] = key
            ids.append(job)
            load += cost
            number += 1
            if timeout and now + timeout + WORD_NS < watch:
                watch = now + timeout + WORD_NS
            if key < _NEVER_KEY:
                watch = min(watch, self._kills_at(job, key) + WORD_NS)
            if spec.fresh:
                worker.used_up = True
                break
        if not ids:
            return False
        if number == len(ids):
            worker.sent = worker.heard = now
        worker.load, worker.given = load, worker.given + len(ids)
        if worker.given == self.max_tasks:
            worker.used_up = True
        worker.watch = min(watch, now + PEEK_NS) if number > 1 else watch
        self._out.append(do.Dispatch(worker.id, ids, self.held.get(ids[0], NOTHING)))
        return True

    # ------------------------------------------------------------------ the executor's life

    def _paused(self, _event: on.Paused) -> None:
        self.paused = not self.closed

    def _resumed(self, _event: on.Resumed) -> None:
        self.paused = False

    def _memory_looked(self, event: on.MemoryLooked) -> None:
        self.short = event.short

    def _closed(self, event: on.Closed) -> None:
        self.closed, self.paused = True, False
        if event.drop and not self.dropping:
            self._drop(self._sent() | self.tries.keys())  # a pause between two attempts is part of a run

    def _stopped(self, event: on.Stopped) -> None:
        self.closed = self.dropping = True
        self._drop(self._sent())
        self.stop_at = min(self.stop_at, event.now + event.grace)

    def _end_grace(self) -> None:
        self.stop_at = NEVER
        for worker in list(self.workers.values()):
            if worker.queue:  # also one that leaves once it is done
                self._kill(worker, "interrupted", 0)


_NEVER_KEY = NEVER << DUE_SHIFT
_FOR_GOOD = frozenset((on.FAILED_FOR_GOOD, on.UNFINISHED))  # no other attempt follows; of the latter at a stop
_load = attrgetter("load")
_ON: dict[type, Callable[[Scheduler, Any], None]] = {
    on.Submitted: Scheduler._submitted,
    on.Linked: Scheduler._linked,
    on.Answered: Scheduler._answered,
    on.WorkerReady: Scheduler._worker_ready,
    on.Condemned: Scheduler._condemned,
    on.WorkerDied: Scheduler._worker_died,
    on.Reaped: Scheduler._reaped,
    on.WardenDied: Scheduler._warden_died,
    on.Recalled: Scheduler._recalled,
    on.Unfit: Scheduler._unfit,
    on.Cancelled: Scheduler._cancelled,
    on.Fired: Scheduler._fired,
    on.Redated: Scheduler._redated,
    on.Paused: Scheduler._paused,
    on.Resumed: Scheduler._resumed,
    on.MemoryLooked: Scheduler._memory_looked,
    on.Closed: Scheduler._closed,
    on.Stopped: Scheduler._stopped,
}
