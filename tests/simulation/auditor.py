"""The auditor: holds what the core said against what it was told, and against nothing else.

It shares no code with the core and knows none of its containers.  From the
events and commands alone it re-derives the promises to users: each job settles
once and for the right reason (P1, P2), and starts neither early nor out of
order (P3).  The numbers stand here again on purpose.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import combinations, product
from typing import Any

NEVER = 1 << 61
DEPTH_MAX = 256
BUDGET_NS = 1_000_000  # DESIGN 5.7: work queued at one worker
WORD_NS = 50_000_000  # how long the warden's word is waited for
EXIT_NS = 2_000_000_000  # how long a retired worker may take to leave
BATCH_NS = 1_000_000  # longest that events of one step are apart in the world
PERIOD_NS = 10_000_000_000  # of the restart intensity
ANSWERS = ("succeeded", "failed", "failed", "not_picklable", "not_picklable", "protocol", "deadline", "cancelled")
FOR_GOOD, PASSED_BY, EXPIRED, UNFINISHED = 2, 5, 6, 7  # of them
RETURNS_MAX = 3  # deaths that a job may outlive as the first in line, blameless
RETRYABLE = ("failed", "crashed", "timeout", "memory", "cpu")
HARMLESS = ("succeeded", "skipped")


class Violation(AssertionError):
    """A promise is broken."""

    def __init__(self, what: str, job: int = 0) -> None:
        super().__init__(f"job {job}: {what}" if job else what)
        self.job = job


class Job:
    """What is known of a job from outside."""

    __slots__ = (
        "allowed", "due", "env", "failed_at", "failures", "fn", "for_good", "fresh", "heirs", "id", "kills", "more",
        "must", "needs", "not_before", "order", "postponed", "release", "retries", "returns", "run_if", "sent_at",
        "status", "timeout", "tokens", "told", "where",
    )  # fmt: skip

    def __init__(self, row: Any) -> None:
        self.id, spec, self.due, self.release, _ = row
        self.more = False  # further prerequisites are to be told
        self.kills = self.due if spec.kill_at_deadline else NEVER
        self.order = (spec.priority, self.release, self.id)
        self.fn, self.timeout, self.fresh = spec.fn, spec.timeout_ns, spec.fresh
        self.run_if, self.retries = spec.run_if, spec.retries
        self.tokens, self.env = dict(spec.needs), spec.env
        self.needs: dict[int, str] = {}  # prerequisite -> how it ended, "" if it has not
        self.heirs: list[Job] = []
        self.not_before = self.release
        self.failures: list[str] = []  # how its attempts failed that could have had a successor
        self.for_good = False  # the last one may not have one
        self.where = self.sent_at = self.failed_at = self.returns = 0
        self.status = self.told = ""  # how it ended; what was last said of its deadline
        self.allowed: tuple[str, ...] = ()  # what this step's events let it end with
        self.must = self.postponed = False  # this step's events end the job, or its attempt

    def may_start(self) -> bool:
        """Its prerequisites ended as it asks."""
        ends = self.needs.values()
        if self.more:
            return False
        if self.run_if == "success":
            return all(end == "succeeded" for end in ends)
        if "" in ends:
            return False
        return self.run_if == "done" or any(end not in HARMLESS for end in ends)

    def nearness(self, now: int) -> str:
        """How near its deadline is."""
        left, window = self.due - now, max(0, self.due - self.release)
        if self.due == NEVER or left * 100 > 30 * window:
            return "" if left > 0 else "exceeded"
        return "exceeded" if left <= 0 else "critical" if left * 100 <= 5 * window else "soon"

    def has_another(self, status: str) -> bool:
        """After this failure, its last, another attempt is due: one budget for all causes, or one for each."""
        if status not in RETRYABLE or self.for_good:
            return False
        rules = self.retries
        return len(self.failures) <= rules.together or self.failures.count(status) <= getattr(rules, status)

    def pause(self) -> tuple[float, float]:
        """The shortest and the longest pause that the API allows after its failures so far."""
        rules, pause = self.retries, float(self.retries.backoff_ns)
        for _ in self.failures[1:]:
            pause = min(pause * rules.factor, rules.max_delay_ns)
        pause = min(pause, rules.max_delay_ns)
        return pause * (1 - rules.jitter) - 1, pause * (1 + rules.jitter) + 1

    def is_doomed(self) -> bool:
        """Its prerequisites ended so that it can never start."""
        ends = self.needs.values()
        if self.run_if == "success":
            return any(end not in ("", "succeeded") for end in ends)
        return self.run_if == "failure" and "" not in ends and not self.more and all(end in HARMLESS for end in ends)


class Worker:
    """What is known of a worker from outside."""

    __slots__ = ("env", "given", "id", "job", "limit", "queue", "ready", "recalled", "sealed", "since", "why")

    def __init__(self, number: int, now: int, env: Any) -> None:
        self.id, self.since, self.env = number, now, env
        self.queue: dict[int, Job] = {}
        self.recalled: set[int] = set()
        self.given = self.job = 0
        self.limit = NEVER
        self.ready = self.sealed = False
        self.why = ""  # "retired", "condemned", "killed" or "orphaned": it must get nothing more


class Bank:
    """Who holds which tokens, by what was said; owners are (worker, job)."""

    def __init__(self, resources: dict[str, Any]) -> None:
        self.there = resources
        self.held: dict[tuple[int, int], dict[str, Any]] = {}

    def release(self, owner: tuple[int, int]) -> None:
        """It is free again."""
        self.held.pop(owner, None)

    def free(self, name: str) -> Any:
        """Return the free units of a token, or how much is free of an amount."""
        taken = [what[name] for what in self.held.values() if name in what]
        there = self.there[name]
        if isinstance(there, int):
            return there - sum(taken)
        return [unit for unit in there if all(unit not in units for units in taken)]

    def count(self, name: str) -> int:
        """Return how much of a token is free."""
        free = self.free(name)
        return free if isinstance(free, int) else len(free)

    def fits(self, needs: dict[str, int], what: dict[str, Any]) -> bool:
        """Return True if this is what is needed, and free."""
        if set(needs) != set(what):
            return False
        for name, count in needs.items():
            free = self.free(name)
            if isinstance(free, int):
                if what[name] != count or count > free:
                    return False
            elif len(set(what[name])) != count or not set(what[name]) <= set(free):
                return False
        return True

    def first(self, order: Sequence[Job]) -> Job | None:
        """Return the first that may start: who lacks tokens keeps its place before all who need what it lacks."""
        lacked: set[str] = set()
        for job in order:
            short = {name for name, count in job.tokens.items() if name in lacked or count > self.count(name)}
            if not short:
                return job
            lacked |= short
        return None

    def environments(self, job: Job) -> set[Any]:
        """Return what its process may have in its environment, by the units that are free."""
        choices = []
        for name, count in job.tokens.items():
            free = self.free(name)
            found = [count] if isinstance(free, int) else list(combinations(free, count))
            choices.append([(name, what) for what in found])
        return {environment(job.env, dict(choice)) for choice in product(*choices)}


def environment(template: Any, what: dict[str, Any]) -> Any:
    """Return what a template means for who holds this."""
    found = []
    for variable, pieces in template:
        said = [piece if i % 2 == 0 else what[piece] for i, piece in enumerate(pieces)]
        found.append((variable, "".join(s if isinstance(s, str) else str(s) if isinstance(s, int) else ",".join(s)
                                        for s in said)))  # fmt: skip
    return tuple(found)


class Auditor:
    """Takes each step's events and commands.  The arguments are the scheduler's."""

    def __init__(
        self, max_workers: int, spares: int, max_tasks: int, intensity: int, start_timeout_ns: int,
        resources: dict[str, Any],
    ) -> None:  # fmt: skip
        self.bank = Bank(resources)
        self.max_workers, self.spares, self.max_tasks = max_workers, spares, max_tasks
        self.intensity, self.start_timeout_ns = intensity, start_timeout_ns
        self.now = 0
        self.jobs: dict[int, Job] = {}
        self.open: dict[int, Job] = {}
        self.workers: dict[int, Worker] = {}
        self.fastest: dict[int, int] = {}  # function -> its shortest run seen
        self.short = self.paused = self.closed = self.stopped = self.halted = False
        self.grace_until = NEVER
        self.deaths: list[int] = []  # that no job explains
        self.in_a_row = 0  # of them, since somebody answered or died of a job
        self.touched: list[Job] = []
        self.waiting_for_their_end: set[Job] = set()  # dropped, and not settled, for the core is behind
        self.dropped = False
        self.behind = False  # the core has more to do at this instant, by its own word
        self.rogue: set[int] = set()  # workers that sent nonsense in this step
        self.marks: dict[int, tuple[int, int]] = {}  # what the pages showed in this step
        self.died: set[int] = set()  # workers that died in this step
        self.sentenced: set[int] = set()  # workers condemned or orphaned in this step
        self.cancelled_here: set[tuple[int, int]] = set()  # (worker, job) that must be revoked
        self._on: dict[str, Callable[[Any], None]] = {
            name[4:]: getattr(self, name) for name in dir(self) if name.startswith(("_ev_", "_do_"))
        }

    def audit(self, events: Sequence[Any], commands: Sequence[Any], behind: bool = False) -> None:
        """Take one step.

        Args:
            behind: the core says that it goes on in the next step with what this one made due.  Then what time, a
                prerequisite or a stop decides may come later, and who is first may not be known yet; nothing else.

        Raises:
            Violation: a promise is broken.
        """
        self.require(not self.halted, "a step after Halt")
        self.rogue, self.cancelled_here, self.marks = set(), set(), {}
        self.behind = behind
        self.died, self.sentenced = set(), set()
        for event in events:
            self.now = event.now
            self._on[type(event).__name__](event)
        ready: list[Job] | None = None
        for command in commands:
            kind = type(command).__name__
            if kind == "Dispatch":
                ready = self._ready() if ready is None else [j for j in ready if not j.status]
                self._dispatched(command, ready)
                continue
            if kind == "Settle":
                ready = None
            if kind == "Waits":
                self._waits(command, self._ready())
                continue
            if getattr(command, "worker", 0) in self.died:
                continue  # it died in this very step; the shell ignores the order
            self._on[kind](command)
        self._end_of_step()

    def finish(self) -> None:
        """The run is over: everything has its outcome."""
        self.require(self.halted, "the run ended without Halt")
        for job in self.open.values():
            raise Violation("never settled", job.id)

    @staticmethod
    def require(fact: bool, what: str, job: int = 0) -> None:
        """Assert a fact."""
        if not fact:
            raise Violation(what, job)

    # ------------------------------------------------------------------ what happened

    def _ev_Submitted(self, event: Any) -> None:
        for row in event.rows:
            job = self.jobs[row[0]] = self.open[row[0]] = Job(row)
            self._link(job, row[4] or ())

    def _ev_Linked(self, event: Any) -> None:
        number = event.row[0]
        if event.first:
            self.jobs[number] = self.open[number] = Job(event.row)
        job = self.jobs[number]
        job.more = not event.last
        self._link(job, event.row[4])

    def _link(self, job: Job, edges: Any) -> None:
        for edge in edges:
            other = self.jobs.get(edge.id)
            job.needs[edge.id] = edge.status or (other.status if other else "succeeded")
            if other and not other.status:
                other.heirs.append(job)
        self.touched.append(job)

    def _ev_Answered(self, event: Any) -> None:
        worker = self.workers[event.worker]
        self.in_a_row = 0
        for number, end, started, took in event.rows:
            if number == worker.job and started + took > worker.limit:
                continue  # after the verdict
            if number in worker.recalled and number not in worker.queue:
                worker.recalled.remove(number)
                continue
            if number not in worker.queue or not 0 <= end < len(ANSWERS):
                if not worker.why:
                    self.rogue.add(worker.id)
                return
            job = worker.queue.pop(number)
            job.where = 0
            self.bank.release((worker.id, number))
            if end not in (PASSED_BY, EXPIRED):
                self.fastest[job.fn] = min(took, self.fastest.get(job.fn, took))
            if job.status or job.must:
                continue
            if end == PASSED_BY:
                continue  # passed by in the moment in which it was taken back
            if end == UNFINISHED:
                if self.stopped:
                    self._must(job, "cancelled")
                continue  # it made way for others, and waits for its turn
            job.for_good = end == FOR_GOOD
            self._attempt_ended(job, ANSWERS[end])

    def _attempt_ended(self, job: Job, status: str) -> None:
        job.allowed, job.must = (*job.allowed, status), True
        if status in RETRYABLE:
            job.failures.append(status)
            job.failed_at = self.now
        self.touched.append(job)

    def _ev_WorkerReady(self, event: Any) -> None:
        self.workers[event.worker].ready = True

    def _ev_Condemned(self, event: Any) -> None:
        worker = self.workers.get(event.worker)
        if worker:
            worker.job, worker.limit, worker.why = event.job, event.at, "condemned"
            self.sentenced.add(worker.id)

    def _ev_WorkerDied(self, event: Any) -> None:
        worker = self.workers.pop(event.worker)
        self.died.add(worker.id)
        self.rogue.discard(worker.id)
        guilty = event.job
        if guilty:
            self.in_a_row = 0
        first = next((job for job in worker.queue.values() if not job.status and not job.must), None)
        if not guilty and first and event.ready:
            first.returns += 1
            guilty = first.id if first.returns > RETURNS_MAX else 0
        for job in worker.queue.values():
            job.where = 0
            if job.status or job.must:
                continue
            if job.id == guilty:
                self._attempt_ended(job, event.why)
            elif self.stopped:
                self._must(job, "cancelled")
        if not event.ready and not worker.why:
            self._unexplained(event.now)

    def _unexplained(self, now: int) -> None:
        self.deaths.append(now)
        self.in_a_row += 1

    def _ev_Reaped(self, event: Any) -> None:
        for owner in [owner for owner in self.bank.held if owner[0] == event.worker]:
            self.bank.release(owner)

    def _ev_MemoryLooked(self, event: Any) -> None:
        self.short = event.short

    def _ev_Recalled(self, event: Any) -> None:
        worker = self.workers.get(event.worker)
        for number in event.ids:
            if worker and number in worker.queue:
                worker.queue.pop(number).where = 0
                worker.recalled.add(number)

    def _ev_Unfit(self, event: Any) -> None:
        worker = self.workers.get(event.worker)
        if not worker or event.job not in worker.queue:
            return
        job = worker.queue.pop(event.job)
        job.where = 0
        worker.given -= 1
        self.bank.release((worker.id, event.job))
        if event.hopeless and not job.status and not job.must:
            self._must(job, "memory")
            job.for_good = True

    def _ev_WardenDied(self, event: Any) -> None:
        for worker in self.workers.values():
            worker.why = worker.why or "orphaned"
            self.sentenced.add(worker.id)
        self._unexplained(event.now)

    def _ev_Cancelled(self, event: Any) -> None:
        for number in event.ids:
            job = self.jobs.get(number)
            if not job or job.status or "succeeded" in job.allowed:
                continue
            if job.where:
                self.cancelled_here.add((job.where, number))
            self._must(job, "cancelled")

    def _must(self, job: Job, status: str) -> None:
        job.allowed, job.must = (*job.allowed, status), True
        if job.kills <= self.now and not job.where:
            job.allowed = (*job.allowed, "deadline")  # it had passed before this came
        self.touched.append(job)

    def _ev_Fired(self, event: Any) -> None:
        self.marks = event.marks

    def _ev_Redated(self, event: Any) -> None:
        for was, release, due in event.rows:
            job = self.jobs[was.id]
            if job.status or job.where:
                continue
            if job.release > event.now:  # else it was released
                job.not_before = job.release = release
                job.order = (job.order[0], release, job.id)
            job.kills = due if job.kills == job.due else job.kills
            if due != job.due:
                job.due, job.told = due, ""

    def _ev_Paused(self, event: Any) -> None:
        self.paused = True

    def _ev_Resumed(self, event: Any) -> None:
        self.paused = False

    def _ev_Closed(self, event: Any) -> None:
        self.closed, self.paused = True, False
        if event.drop:
            self._drop()

    def _ev_Stopped(self, event: Any) -> None:
        self.closed = self.stopped = True
        self._drop()
        self.grace_until = min(self.grace_until, event.now + event.grace)

    def _drop(self) -> None:
        self.dropped = True
        for job in self.open.values():
            if job.failures and not self.stopped:
                continue  # it has begun: a pause between two attempts is part of a run
            if not job.where and not job.must:
                self._must(job, "cancelled")
            elif not job.where and job.failures:
                job.allowed = (*job.allowed, "cancelled")  # its next attempt was, if there was to be one

    # ------------------------------------------------------------------ what was ordered

    def _do_Settle(self, command: Any) -> None:
        status, blame = command.status, command.blame
        self.require(not blame or len(blame) == len(command.ids), "blame and ids differ in length")
        for i, number in enumerate(command.ids):
            job = self.jobs[number]
            self.require(not job.status, f"settled {status}, and was {job.status} already", number)
            self._check_reason(job, status, blame[i] if blame else 0)
            job.status = status
            del self.open[number]
            for heir in job.heirs:
                if not heir.status:
                    heir.needs[number] = heir.needs[number] or status
                    self.touched.append(heir)

    def _check_reason(self, job: Job, status: str, blame: int) -> None:
        if status in ("dependency", "skipped"):
            self.require(not job.where and job.is_doomed(), f"{status} without a reason", job.id)
            if job.run_if == "success":
                how = job.needs.get(blame, "")
                expected = "skipped" if how == "skipped" else "dependency"
                self.require(how not in ("", "succeeded"), f"{status}, blamed on {blame}: {how!r}", job.id)
                self.require(status == expected, f"{status} though {blame} ended {how}", job.id)
            else:
                self.require(status == "skipped", f"{status} under run_if={job.run_if}", job.id)
                self.require(not blame or blame in job.needs, f"blamed on the stranger {blame}", job.id)
            return
        self.require(not blame, f"{status} blamed on {blame}", job.id)
        if status in job.allowed:
            if job.has_another(status) and not self.stopped:
                self.require(job.kills <= job.failed_at + job.pause()[1], f"{status} with attempts left", job.id)
            return
        expired = status == "deadline" and job.kills <= self.now and not job.where
        dropped = self.dropped and "cancelled" in job.allowed  # and its deadline came before its turn to be cancelled
        began = job.must and not (job.postponed or dropped)
        self.require(expired and not began, f"settled {status}; allowed was {job.allowed}", job.id)

    def _do_Postpone(self, command: Any) -> None:
        job = self.jobs[command.job]
        self.require(not job.status, "postponed after it settled", job.id)
        self.require(command.status in job.allowed, "postponed for what it did not do", job.id)
        what = f"{command.status} after {job.failures}, and {job.retries}"
        self.require(job.has_another(command.status), what, job.id)
        (least, most), pause = job.pause(), command.until - job.failed_at
        self.require(least <= pause <= most, f"a pause of {pause} ns, allowed are {least} to {most}", job.id)
        self.require(command.until < job.kills, "postponed beyond its deadline", job.id)
        job.not_before, job.postponed = command.until, True

    def _do_StartWorker(self, command: Any) -> None:
        self.require(command.worker not in self.workers, f"worker {command.worker} started twice")
        self.workers[command.worker] = Worker(command.worker, self.now, command.env)

    def _do_RetireWorker(self, command: Any) -> None:
        worker = self.workers[command.worker]
        fit = not worker.why or worker.id in self.sentenced
        self.require(not worker.queue and fit, f"worker {worker.id} retired at work")
        worker.why, worker.since = "retired", self.now

    def _do_Peek(self, command: Any) -> None:
        self.require(len(self.workers[command.worker].queue) > 1, "peeked at a worker with one job")

    def _do_Recall(self, command: Any) -> None:
        worker = self.workers[command.worker]
        idle = [w for w in self.workers.values() if w.ready and not w.why and not w.queue]
        self.require(bool(idle), f"recalled from worker {worker.id}, and nobody is idle")
        live = [job.id for job in worker.queue.values() if not job.status]
        self.require(set(command.ids) <= set(live[1:]), f"recalled {command.ids} of {live}")

    def _do_Revoke(self, command: Any) -> None:
        pair = (command.worker, command.job)
        self.require(pair in self.cancelled_here, f"revoked at {command.worker}, not asked for", command.job)
        self.require(self.jobs[command.job].status == "cancelled", "revoked before settled", command.job)
        self.cancelled_here.remove(pair)

    def _do_KillWorker(self, command: Any) -> None:
        worker, why, now = self.workers[command.worker], command.why, self.now
        if why == "protocol":
            stray = command.job > 0 and self.marks.get(worker.id, (0, 0))[0] == command.job
            legal = worker.id in self.rogue or (stray and worker.queue and command.job not in worker.queue)
            self.rogue.discard(worker.id)
        elif why == "interrupted":
            legal = now >= self.grace_until and bool(worker.queue)
        elif command.job:
            job = worker.queue.get(command.job)
            limit = NEVER if job is None else job.kills
            if job and why == "timeout":
                limit = job.sent_at + job.timeout if job.timeout else NEVER
            legal = limit + WORD_NS <= now
        elif why in ("timeout", "deadline"):  # by its marker the first in line has not begun
            first = next(iter(worker.queue.values()))
            limit = min(first.kills, first.sent_at + first.timeout if first.timeout else NEVER)
            legal = limit + 4 * WORD_NS <= now
        elif worker.why == "retired":
            legal = now >= worker.since + EXIT_NS - BATCH_NS
        else:
            legal = not worker.ready and 0 < self.start_timeout_ns <= now - worker.since
            self._unexplained(now)
        self.require(legal, f"worker {worker.id} killed ({why}) without a reason", command.job)
        worker.why = "killed"

    def _do_Halt(self, command: Any) -> None:
        self.halted = True
        if command.broken:
            recent = [at for at in self.deaths if at >= self.now - PERIOD_NS]
            most = max(len(recent), self.in_a_row)
            self.require(most > self.intensity, f"gave up after {most} deaths")
            self.open.clear()
        self.require(command.broken or (self.closed and not self.open), "halted with jobs left")

    # ------------------------------------------------------------------ P3

    def _ready(self) -> list[Job]:
        now = self.now
        return [
            job for job in self.open.values()
            if not job.where and job.not_before <= now and (not job.needs or job.may_start())
        ]  # fmt: skip

    def _effective(self, job: Job) -> tuple[int, ...]:
        """Its own deadline or the earliest of what waits for it; then priority, release, id."""
        if not job.heirs:
            return (job.due, *job.order)
        due, seen, stack = job.due, {job.id}, list(job.heirs)
        while stack:
            heir = stack.pop()
            if heir.status or heir.id in seen:
                continue
            seen.add(heir.id)
            due = min(due, heir.due)
            stack.extend(heir.heirs)
        return (due, *job.order)

    def _dispatched(self, command: Any, ready: list[Job]) -> None:
        worker = self.workers.get(command.worker)
        self.require(worker is not None, f"jobs sent to worker {command.worker}, which is dead")
        assert worker is not None
        self.require(not self.paused and not self.short, "jobs sent while nothing shall start")
        self.require(worker.ready and not worker.why, f"jobs sent to worker {worker.id} ({worker.why})")
        self.require(bool(command.ids), "an empty dispatch")
        order = sorted((job for job in ready), key=self._effective)
        for number in command.ids:
            job = self.jobs[number]
            self.require(not job.status, f"sent after it settled ({job.status})", number)
            self.require(not job.where, f"sent to {worker.id} while at worker {job.where}", number)
            self.require(job.not_before <= self.now, "sent too early", number)
            self.require(job.may_start(), f"sent before its prerequisites: {job.needs}", number)
            self.require(job.kills > self.now, "sent after its deadline", number)
            self.require(job not in self.waiting_for_their_end, "sent after the stop that cancels it", number)
            first = self.bank.first(order)
            early = f"sent before the more urgent job {first and first.id}"
            self.require(self.behind or first is job, early, number)
            self._send(worker, job)
            self._hold(worker, job, command)
            order.remove(job)
        self._check_load(worker)
        sent = set(command.ids)
        ready[:] = [job for job in ready if job.id not in sent]

    def _send(self, worker: Worker, job: Job) -> None:
        passed = f"sent again to worker {worker.id}, which has to pass it by"
        self.require(job.id not in worker.recalled, passed, job.id)
        self.require(not worker.sealed, f"sent to worker {worker.id}, which was for one fresh job", job.id)
        self.require(not job.fresh or not worker.given, f"fresh, sent to the used worker {worker.id}", job.id)
        worker.sealed = job.fresh
        if worker.queue:
            self.require(job.fn in self.fastest, "queued, and nobody knows how long it takes", job.id)
        worker.queue[job.id] = job
        worker.given += 1
        job.where, job.sent_at = worker.id, self.now

    def _hold(self, worker: Worker, job: Job, command: Any) -> None:
        """It gets what it needs, all of it free until now, and the process that belongs to it."""
        what = command.tokens
        if not (job.tokens or job.env or worker.env or what):
            return
        self.require(len(worker.queue) == 1, "holds tokens or an environment, and is not alone", job.id)
        self.require(self.bank.fits(job.tokens, what), f"needs {job.tokens}, was given {what}", job.id)
        self.bank.held[worker.id, job.id] = what
        expected = environment(job.env, what)
        self.require(worker.env == expected, f"{expected} sent to worker {worker.id} of {worker.env}", job.id)

    def _waits(self, command: Any, ready: list[Job]) -> None:
        if self.behind:
            return
        startable = self.bank.first(sorted(ready, key=self._effective))
        for number in command.ids:
            job = self.jobs[number]
            self.require(job in ready and job is not startable, "is said to wait for tokens and does not", number)
            named = set(command.tokens)
            self.require(bool(named) and named <= set(job.tokens), f"is said to wait for {named}", number)

    def _do_TellDeadline(self, command: Any) -> None:
        for number, due in zip(command.ids, command.dues, strict=True):
            job = self.jobs[number]
            self.require(not job.status and due == job.due, f"{command.status} is said of a deadline {due}", number)
            right = command.status == job.nearness(self.now) and command.status != job.told
            self.require(right, f"said to be {command.status}, was {job.told}, is {job.nearness(self.now)}", number)
            self.require(command.status != "exceeded" or job.kills == NEVER, "killed, and said to be late", number)
            job.told = command.status

    def _check_load(self, worker: Worker) -> None:
        self.require(len(worker.queue) <= DEPTH_MAX, f"worker {worker.id} holds {len(worker.queue)} jobs")
        within = not self.max_tasks or worker.given <= self.max_tasks
        self.require(within, f"worker {worker.id} was given {worker.given} jobs")
        if len(worker.queue) > 1:
            # no estimate can be below the shortest run seen; what was answered is taken off in proportion
            load = sum(self.fastest.get(job.fn, 0) for job in list(worker.queue.values())[1:])
            self.require(load <= 2 * BUDGET_NS, f"{load / 1e6:.3f} ms of work queued at worker {worker.id}")

    # ------------------------------------------------------------------ the end of a step

    def _end_of_step(self) -> None:
        if self.halted:
            return
        touched, self.touched = self.touched, []
        self.waiting_for_their_end = set()
        for job in touched:
            dropped = self.dropped and "cancelled" in job.allowed and not job.where
            if self.behind and not job.status and (dropped or job.is_doomed()):
                self.touched.append(job)
                if dropped:
                    self.waiting_for_their_end.add(job)
                continue
            if not job.status:
                self.require(not job.must or job.postponed, f"should have ended {job.allowed}", job.id)
                self.require(not job.is_doomed(), f"waits in vain for {job.needs}", job.id)
            job.allowed, job.must, job.postponed = (), False, False
        self.require(not self.rogue, f"workers {self.rogue} sent nonsense and live")
        for number, job_number in self.cancelled_here:
            alive = number in self.workers and job_number in self.workers[number].queue
            self.require(not alive, f"cancelled, and not revoked at worker {number}", job_number)
        if self.behind:
            return
        for job in self.open.values():
            self.require(job.kills > self.now or job.where > 0, "its deadline passed unnoticed", job.id)
            near = job.nearness(self.now)
            told = near == job.told or (near == "exceeded" and job.kills != NEVER)
            self.require(told, f"nobody said that its deadline is {near}", job.id)
        if not self.paused and not self.short:
            self._check_idle()

    def _check_idle(self) -> None:
        """No worker is idle while a job is ready."""
        usable = [w for w in self.workers.values() if w.ready and not w.why]
        self.require(len(usable) <= self.max_workers + self.spares, f"{len(usable)} workers")
        busy = sum(1 for worker in usable if worker.queue)
        self.require(busy <= self.max_workers, f"{busy} workers at work")
        if busy < min(self.max_workers, len(usable)):
            head = self.bank.first(sorted(self._ready(), key=self._effective))
            if not head:
                return
            environments = self.bank.environments(head)
            idle = [
                w.id for w in usable
                if not w.queue and not (head.fresh and w.given) and w.env in environments
            ]  # fmt: skip
            self.require(not idle, f"ready, and workers {idle} are idle", head.id)
