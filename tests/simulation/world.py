"""The world around the scheduler: users, a shell, a warden, a clock that jumps from one instant to the next.

One seed makes one history: parameters, submissions, faults and their instants
all come from one `random.Random`.  After the chaos comes the liveness phase:
no more faults, the pool is closed, and everything has to settle within a bound.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from heapq import heappop, heappush
from random import Random
from typing import Any

from ptss_mp.core import commands as cmd
from ptss_mp.core import events as ev
from ptss_mp.core import invariants
from ptss_mp.core.job import NEVER, Prerequisite, Row, Spec, State
from ptss_mp.core.restart import Retries
from ptss_mp.core.scheduler import Scheduler

from .auditor import Auditor, Violation
from .swarm import MS, SALT, S, Swarm
from .workers import BOOTING, DEAD, UP, Worker

STEPS_MAX = 4_000  # of a whole run; the longest seen takes a third of it.  A storm of timers takes all.
LIVENESS_NS = 120 * S  # after the faults; a retry pauses 16 s at most, the slowest liar takes as long
STORY_STEPS = 400


class Plan:
    """What will become of a job's attempts, and what limits them."""

    __slots__ = ("fn", "kills", "limited", "timeout")

    def __init__(self, fn: Any, kills: int, timeout: int) -> None:
        self.fn, self.kills, self.timeout = fn, kills, timeout
        self.limited = bool(timeout) or kills != NEVER

    def attempt(self, world: World) -> tuple[str, int]:
        """Draw how an attempt ends and how long it takes."""
        rng, swarm = world.rng, world.swarm
        took = self.fn.run_ns(rng)
        if world.faults:
            if world.lucky(swarm.p_memory):
                return "memory", rng.randrange(took + 1)
            if world.lucky(swarm.p_cpu):
                return "cpu", took
            if rng.random() < swarm.p_crash:
                return "crash", rng.randrange(took + 1)
            if rng.random() < swarm.p_raise:
                return "raise for good" if world.lucky(swarm.p_for_good) else "raise", took
            if rng.random() < swarm.p_hang and (self.limited or world.will_stop):
                return "hang", took
            if rng.random() < swarm.p_unpicklable:
                return rng.choice(("unpicklable", "unloadable")), took
            if rng.random() < swarm.p_protocol:
                return "protocol", took
            if world.p_unfinished and world.latest.random() < world.p_unfinished:
                return "unfinished", took
        return "ok", took


class World:
    """One run.

    Args:
        seed: of everything.
        scheduler: what to put to the test, the real one or a sabotaged one.
        keep: hold all steps for the story and the digest.
    """

    def __init__(self, seed: int, scheduler: type[Scheduler] = Scheduler, keep: bool = False) -> None:
        self.seed, self.rng = seed, Random(seed)
        self.more = Random(f"{SALT}:{seed}")  # of what came later, so that older seeds keep their histories
        self.slices, self.latest = Random(f"slices:{seed}"), Random(f"{SALT}:{seed}:2")
        self.dates = Random(f"dates:{seed}")
        self.p_unfinished = self.latest.choice((0, 0, 0, 0.05, 0.4))
        self.swarm = swarm = Swarm.draw(self.rng, seed, self.more, self.slices)
        rules = {
            "max_workers": swarm.workers,
            "spares": swarm.spares,
            "max_tasks": swarm.max_tasks,
            "intensity": swarm.intensity,
            "start_timeout_ns": swarm.start_timeout_ns,
            "resources": swarm.resources,
        }
        self.core = scheduler(**rules, seed=seed, slice_size=swarm.slice_size)
        self.auditor = Auditor(**rules)
        self.now = self.rng.randrange(1, 10 * S)
        self.timers: list[tuple[int, int, Callable[[], Any]]] = []
        self.number = 0
        self.events: list[Any] = []
        self.workers: dict[int, Worker] = {}
        self.plans: dict[int, Plan] = {}
        self.edges: dict[int, tuple[int, int]] = {}  # job -> its own release and due
        self.settled: dict[int, str] = {}
        self.faults, self.closed, self.halted = True, False, False
        self.will_stop = swarm.end != "close" and swarm.end != "drop"
        self.steps = 0
        self.states: dict[int, Any] = {}
        self.worker_states: dict[int, Any] = {}
        self.kept: list[tuple[Sequence[Any], Sequence[Any]]] | None = [] if keep else None
        self._script()

    # ------------------------------------------------------------------ tools

    def after(self, delay: int, act: Callable[[], Any]) -> None:
        """Do something so many nanoseconds from now."""
        self.number += 1
        heappush(self.timers, (self.now + delay, self.number, act))

    def tell(self, event: Any) -> None:
        """Let the core know with the next step."""
        self.events.append(event)

    def lucky(self, chance: float) -> bool:
        """Return True with this probability."""
        return chance > 0 and self.rng.random() < chance

    def faulty(self, chance: float) -> bool:
        """As `lucky`, and never once the faults have stopped."""
        return self.faults and chance > 0 and self.rng.random() < chance

    # ------------------------------------------------------------------ users

    def _script(self) -> None:
        """Note when what is submitted, killed, paused and closed."""
        rng, swarm = self.rng, self.swarm
        specs = [self._spec() for _ in range(rng.randint(1, 10))]
        left, first = swarm.jobs, 1
        while left:
            count = min(left, rng.randint(1, swarm.batch))
            self.after(self._some(), lambda f=first, n=count: self._submit(specs, n))
            left, first = left - count, first + count
        for _ in range(swarm.kills):
            self.after(self._some(), self._kill_some)
        for _ in range(swarm.warden_deaths):
            self.after(self._some(), self._kill_warden)
        for _ in range(swarm.pauses):
            begin = self._some()
            self.after(begin, lambda: self.closed or self.tell(ev.Paused(self.now)))
            self.after(begin + self._some() // 4, lambda: self.tell(ev.Resumed(self.now)))
        for _ in range(swarm.shortages):
            begin, length = self.more.randrange(swarm.span_ns + 1), self.more.randrange(swarm.span_ns // 4 + 1)
            self.after(begin, lambda: self.tell(ev.MemoryLooked(self.now, True)))
            self.after(begin + length, lambda: self.tell(ev.MemoryLooked(self.now, False)))
        for _ in range(self.dates.choice((0, 0, 1, 4))):
            self.after(self.dates.randrange(swarm.span_ns + 1), self._set_clock)
        chaos = swarm.span_ns * 2 + 50 * MS
        if swarm.end != "close":
            self.after(rng.randrange(chaos), self._end)
        self.after(chaos, self._peace)

    def _some(self) -> int:
        return self.rng.randrange(self.swarm.span_ns + 1)

    def _spec(self) -> Spec:
        rng, swarm = self.rng, self.swarm
        needs = self._needs()
        return Spec(
            fn=rng.choice(swarm.functions).number,
            priority=rng.randint(-3, 3) if self.lucky(swarm.p_priority) else 0,
            timeout_ns=rng.choice((1, 5, 20, 100)) * MS if self.lucky(swarm.p_timeout) else 0,
            kill_at_deadline=not self.lucky(swarm.p_finish),
            run_if=rng.choice(("done", "failure")) if self.lucky(swarm.p_condition) else "success",
            retries=self._retries(),
            fresh=self.lucky(swarm.p_fresh),
            cpu_ns=int(self.lucky(swarm.p_alone)),
            needs=needs,
            env=self._env(needs),
        )

    def _retries(self) -> int | Retries:
        rng = self.rng
        number = rng.randint(1, 3) if self.lucky(self.swarm.p_retries) else 0
        if not self.lucky(self.swarm.p_budgets):
            return number
        return Retries(
            *(rng.choice((0, 0, 1, 1, 2, 4)) if i else 0 for i in range(6)),
            backoff_ns=rng.choice((0, 1 * MS, 30 * MS, S)),
            factor=rng.choice((1.0, 1.5, 2.0, 1000.0)),
            jitter=rng.choice((0.0, 0.1, 1.0)),
            max_delay_ns=rng.choice((0, 5 * MS, 8 * S)),
        )

    def _needs(self) -> tuple[tuple[str, int], ...]:
        """Draw what a job holds; never more than there is."""
        there, more = self.swarm.resources, self.more
        if not there or more.random() >= self.swarm.p_needs:
            return ()
        names = sorted(more.sample(sorted(there), more.randint(1, len(there))))
        most = {name: what if isinstance(what, int) else len(what) for name, what in there.items()}
        return tuple((name, more.choice((1, 1, more.randint(1, most[name])))) for name in names)

    def _env(self, needs: tuple[tuple[str, int], ...]) -> tuple[tuple[str, tuple[str, ...]], ...]:
        """Draw the template of an environment."""
        more = self.more
        if more.random() >= self.swarm.p_env:
            return ()
        if needs and more.random() < 0.7:
            token = more.choice(needs)[0]
            return ((token, ("", token, "")),)
        return (("KIND", (more.choice("ab"),)),)

    def _submit(self, specs: list[Spec], count: int) -> None:
        if self.closed:
            return
        rng, swarm, rows = self.rng, self.swarm, []
        for _ in range(count):
            job, spec = len(self.plans) + 1, rng.choice(specs)
            release = self.now - rng.randrange(1000)
            if self.lucky(swarm.p_start_time):
                release = self.now + rng.randrange(rng.choice((1, 50)) * MS)
            due = NEVER
            if self.lucky(swarm.p_deadline):
                due = release + rng.randrange(1, rng.choice((1, 10, 100, 3000)) * MS)
            after = self._prerequisites(job)
            self.plans[job] = Plan(
                swarm.functions[spec.fn - 1], due if spec.kill_at_deadline else NEVER, spec.timeout_ns
            )
            self.edges[job] = release, due
            row = Row(job, spec, due, release, after)
            if after and self.slices.random() < swarm.p_parts:
                self.tell(ev.Submitted(self.now, rows))
                rows = []
                self._tell_part(row, 0)
            else:
                rows.append(row)
            if self.lucky(swarm.p_cancel):
                self.after(rng.randrange(rng.choice((1, 5, 60)) * MS), lambda j=job: self._cancel([j]))
        self.tell(ev.Submitted(self.now, rows))

    def _set_clock(self) -> None:
        """Somebody sets the wall clock: some jobs' instants were told as dates, of those that wait."""
        core, dates = self.core, self.dates
        if self.events and type(self.events[0]) is ev.Redated:
            return
        waiting = [job for job in core.jobs if core.state_of(job) is not State.SENT]
        by, rows = dates.randrange(-50, 50) * MS + dates.randrange(MS), []
        for job in sorted(dates.sample(waiting, min(len(waiting), dates.randint(1, 20)))):
            release, due = was = self.edges[job]
            if release > core.now:
                release = max(1, release - by)
            if due != NEVER:  # a date itself, or counted from one
                due = max(1, due - by)
            self.edges[job] = release, due
            plan = self.plans[job]
            plan.kills = plan.kills if plan.kills == NEVER else due
            rows.append((Prerequisite(job, "", *was), release, due))
        self.events.insert(0, ev.Redated(core.now, rows))  # before the core hears that time has passed

    def _tell_part(self, row: Row, told: int) -> None:
        """Tell of a job one prerequisite, and soon the next, as the shell does with thousands."""
        if self.settled.get(row.id):
            return  # cancelled meanwhile
        assert row.after
        edge, last = row.after[told], told + 1 == len(row.after)
        edge = Prerequisite(edge.id, self.settled.get(edge.id, ""), edge.release, edge.due)
        self.tell(ev.Linked(self.now, row._replace(after=(edge,)), told == 0, last))
        if not last:
            self.after(self.slices.choice((0, 0, 1 * MS)), lambda: self._tell_part(row, told + 1))

    def _prerequisites(self, job: int) -> tuple[Prerequisite, ...] | None:
        """Draw edges to earlier jobs: mostly recent ones, so that chains, diamonds and fans come about."""
        if job == 1 or not self.lucky(self.swarm.p_after):
            return None
        near = range(max(1, job - self.rng.choice((1, 4, 60))), job)
        ids = [self.rng.choice(near) for _ in range(self.rng.choice((1, 1, 2, 3, 5)))]
        return tuple(Prerequisite(i, self.settled.get(i, ""), *self.edges[i]) for i in ids)

    def _cancel(self, ids: list[int]) -> None:
        self.tell(ev.Cancelled(self.now, ids))

    def _end(self) -> None:
        if self.swarm.end == "stop":
            self._stop()
            return
        self.closed = True
        self.tell(ev.Closed(self.now, self.swarm.end == "drop"))
        if self.swarm.end == "close and stop":
            self.after(self.rng.randrange(100 * MS), self._stop)

    def _stop(self) -> None:
        self.closed = True
        self.tell(ev.Stopped(self.now, self.rng.choice((0, 1, 20, 200)) * MS))

    def _peace(self) -> None:
        """The liveness phase: no more faults, and nothing more to do."""
        self.faults = False
        self.peace_at = self.now
        if not self.closed:
            self._end() if self.swarm.end != "close" else self.tell(ev.Closed(self.now, False))
            self.closed = True

    def _kill_some(self) -> None:
        """Somebody outside kills a worker, whatever it is doing."""
        if self.faults and self.workers:
            self.rng.choice(list(self.workers.values())).die()

    def _kill_warden(self) -> None:
        if self.faults:
            self.tell(ev.WardenDied(self.now))
            for worker in self.workers.values():
                worker.die()

    # ------------------------------------------------------------------ the shell

    def obey(self, command: Any) -> None:
        """Do what the core asked."""
        kind = type(command)
        if kind is cmd.Settle:
            for job in command.ids:
                self.settled[job] = command.status
        elif kind is cmd.StartWorker:
            self._start_worker(command.worker)
        elif kind is cmd.Halt:
            self.halted = True
        elif kind not in (cmd.Postpone, cmd.Waits, cmd.TellDeadline) and command.worker in self.workers:
            worker = self.workers[command.worker]
            if kind is cmd.Dispatch:
                if not self._unfit(worker, command.ids):
                    worker.send(command.ids)
            elif kind is cmd.Revoke:
                worker.revoke(command.job)
            elif kind is cmd.Peek:
                worker.peek()
            elif kind is cmd.Recall:
                worker.recall(command.ids)
            elif kind is cmd.KillWorker:
                worker.kill(command.why, command.job)
            elif not self.faulty(0.2):  # a retired worker may hang in its exit handlers
                self.after(self.rng.randrange(self.swarm.lag_ns), worker.die)

    def _unfit(self, worker: Worker, ids: list[int]) -> bool:
        """Earlier jobs have left too much in the worker for one with limits; or its initializer has."""
        if not self.core.jobs[ids[0]].alone or not self.faulty(self.swarm.p_unfit):
            return False
        hopeless = not worker.used
        if hopeless and self.lucky(0.8):
            return False
        self.after(0, lambda: self.tell(ev.Unfit(self.now, worker.id, ids[0], hopeless)))
        return True

    def _start_worker(self, number: int) -> None:
        worker = self.workers[number] = Worker(self, number)
        boot = self.rng.randrange(100_000, 5 * MS)
        if self.faulty(self.swarm.p_boot_death):
            self.after(boot, lambda: worker.state == BOOTING and worker.die())
        else:
            slow = self.faulty(self.swarm.p_slow_boot)
            self.after(boot * 50 if slow else boot, worker.boot)

    def _marks(self) -> dict[int, tuple[int, int]]:
        marks = {}
        for worker in self.workers.values():
            if self.lucky(self.swarm.p_garbled_mark):
                marks[worker.id] = (self.rng.randrange(100), self.rng.randrange(2 * self.now))
            elif worker.state != DEAD and worker.running:
                marks[worker.id] = (worker.running, worker.started)
        return marks

    # ------------------------------------------------------------------ time

    def run(self) -> World:
        """Live until the core halts.

        Raises:
            Violation: a promise is broken; `job` says whose, if it is one job's.
        """
        self.peace_at = NEVER
        while not self.halted:
            self._gather()
            self._step()
            if self.steps > STEPS_MAX:
                raise Violation(f"{STEPS_MAX} steps and no end: {len(self.core.jobs)} jobs are left")
            if self.now > self.peace_at + LIVENESS_NS:
                raise Violation(f"nothing has been wrong for {LIVENESS_NS / 1e9:g} s and jobs are left")
        self.auditor.finish()
        return self

    def _gather(self) -> None:
        """Jump to the next instant at which something happens, and let it happen."""
        wake = self.core.wake_at
        at = min(wake, self.timers[0][0]) if self.timers else wake
        if at == NEVER:
            raise Violation(f"nothing will ever happen again, and {len(self.core.jobs)} jobs are left")
        until = max(at, self.now)
        if self.swarm.window_ns:
            until += self.rng.randrange(self.swarm.window_ns)
        while self.timers and self.timers[0][0] <= until:
            due, _, act = heappop(self.timers)
            self.now = max(self.now, due)
            act()
        if wake <= until:
            self.now = until
            self.tell(ev.Fired(self.now, self._marks()))

    def _step(self) -> None:
        events, self.events = self.events, []
        if not events:
            return
        self.steps += 1
        commands = self.core.step(events)
        if self.kept is not None:
            self.kept.append((events, list(commands)))
        self.auditor.audit(events, commands, self.core.behind)
        invariants.check(self.core)
        states = invariants.states(self.core)
        invariants.check_moves(self.states, states)
        self.states = states
        worker_states = invariants.worker_states(self.core)
        invariants.check_worker_moves(self.worker_states, worker_states)
        self.worker_states = worker_states
        done = not (self.core.halted or self.core.behind)
        if type(events[-1]) is ev.Fired and self.core.wake_at <= self.now and done:
            raise Violation("a wake-up changed nothing: it would storm")
        for command in commands:
            self.obey(command)

    # ------------------------------------------------------------------ telling

    def digest(self) -> str:
        """Return the SHA-256 of the whole history (needs `keep`)."""
        whole = hashlib.sha256()
        for events, commands in self.kept or ():
            for part in (*map(show, events), *map(str, commands)):
                whole.update(part.encode())
        return whole.hexdigest()


def show(event: Any) -> str:
    """Return an event as text that is the same in each process (a Spec has no text of its own)."""
    if type(event) is not ev.Submitted:
        return str(event)
    rows = []
    for job, spec, due, release, after in event.rows:
        facts = " ".join(f"{name}={getattr(spec, name)}" for name in Spec.__slots__ if name != "base")
        edges = [(edge.id, edge.status) for edge in after or ()]
        at = "never" if due == NEVER else due
        rows.append(f"job {job} due={at} release={release} {facts} after={edges}")
    return f"Submitted(now={event.now}, " + "; ".join(rows) + ")"


__all__ = ["UP", "World", "show"]
