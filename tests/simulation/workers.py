"""A pretended worker: makes jobs in the order in which they were sent, and answers as a real one does.

It lives in the world's virtual time.  Everything that it tells the core goes
through the same events that the shell would make of pipes, pages and pidfds.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from ptss_mp.core import events as ev
from ptss_mp.core.job import NEVER

if TYPE_CHECKING:
    from .world import World

BOOTING, UP, DEAD = range(3)


class Worker:
    """One process.

    Attributes:
        pipe: jobs sent and not begun.
        running: the attempt it makes, 0 if none; `started` is its stamp.
        done: finished answers that stand in its page and have not been told.
        revoked: jobs that shall not run.
        verdict: (job, why) once it was sentenced.
        used: it was sent jobs.
    """

    def __init__(self, world: World, number: int) -> None:
        self.world = world
        self.id = number
        self.state = BOOTING
        self.was_ready = self.used = False
        self.pipe: deque[int] = deque()
        self.running = self.started = 0
        self.done: list[tuple[int, int, int, int]] = []
        self.revoked: set[int] = set()
        self.verdict: tuple[int, str] | None = None
        self.epoch = 0  # counts attempts, so that a timer of an earlier one is known as such

    # ------------------------------------------------------------------ what the shell does to it

    def boot(self) -> None:
        """It is there, and says so."""
        if self.state != BOOTING:
            return
        self.state, self.was_ready = UP, True
        self.world.tell(ev.WorkerReady(self.world.now, self.id))
        if self.world.faulty(self.world.swarm.p_ready_then_die):
            self.world.after(self.world.rng.randrange(50_000), self.die)

    def send(self, ids: list[int]) -> None:
        """Jobs came through its pipe."""
        self.used = True
        self.pipe.extend(ids)
        if self.state == UP and not self.running:
            self.world.after(self.world.rng.randrange(1, 20_000), self.begin)

    def revoke(self, job: int) -> None:
        """See to it that the job does not run (any more)."""
        if self.state == DEAD:
            return
        if self.running == job:
            self.condemn(job, "cancelled", self.world.now)
        else:
            self.revoked.add(job)

    def recall(self, ids: list[int]) -> None:
        """Take back what has not begun; its ids still come up, and are passed by."""
        if self.state == DEAD:
            return
        back = [job for job in ids if job in self.pipe and job not in self.revoked]
        if self.world.faulty(0.3):
            late = self.world.rng.choice(ids) if ids else 0  # the worker came to it in this very moment
            if late in back:
                back.remove(late)
                self.revoked.add(late)
        self.revoked.update(back)
        self.flush()
        self.world.tell(ev.Recalled(self.world.now, self.id, back))

    def condemn(self, job: int, why: str, at: int) -> None:
        """Sentence it for what this attempt did; it dies a little later, and may still answer until then."""
        if self.state != UP or self.verdict:
            return
        self.verdict = (job, why)
        self.world.after(0, lambda: self.world.tell(ev.Condemned(self.world.now, self.id, job, why, at)))
        self.world.after(1 + self.world.rng.randrange(self.world.swarm.lag_ns), self.die)

    def kill(self, why: str, job: int) -> None:
        """The core ordered it; whoever runs there is what it was killed for, unless the order names one.

        An order for nonsense names the job that the marker showed, which had answered: so nobody.
        """
        self.verdict = self.verdict or (0 if job and why == "protocol" else job or self.running, why)
        self.die()

    def peek(self) -> None:
        """Read finished answers from its page."""
        self.world.after(0, self.flush)

    # ------------------------------------------------------------------ what it does by itself

    def begin(self) -> None:
        """Take the next job from the pipe."""
        world = self.world
        while self.state == UP and not self.running and self.pipe:
            job = self.pipe.popleft()
            plan = world.plans[job]
            if job in self.revoked:
                self.revoked.remove(job)
                self.done.append((job, ev.REVOKED, world.now, 0))
            elif plan.kills <= world.now:
                self.done.append((job, ev.EXPIRED, world.now, 0))
            else:
                self._start(job)
                return
        if self.state == UP and not self.running and self.done:
            self.flush()

    def _start(self, job: int) -> None:
        world = self.world
        self.running, self.started = job, world.now
        self.epoch += 1
        epoch, plan = self.epoch, world.plans[job]
        fate, took = plan.attempt(world)
        limit, why = plan.kills, "deadline"
        if plan.timeout and world.now + plan.timeout < limit:
            limit, why = world.now + plan.timeout, "timeout"
        if fate != "hang":
            world.after(took, lambda: epoch == self.epoch and self._finish(fate))
        passed = limit < NEVER and (limit <= world.now + took or fate == "hang")
        if passed and not world.faulty(world.swarm.p_lost_word):
            late = limit - world.now + world.rng.randrange(1, 300_000)
            world.after(late, lambda: epoch == self.epoch and self.condemn(job, why, limit))

    def _finish(self, fate: str) -> None:
        """The attempt ends by itself, well or badly."""
        if self.state != UP:
            return
        if fate == "crash":
            self.die()
            return
        if fate in ("memory", "cpu"):
            self.condemn(self.running, fate, self.world.now)
            return
        world, job = self.world, self.running
        took = world.now - self.started
        if fate == "protocol":
            bad = world.rng.choice(((job, 99, self.started, took), (job + 10_000, 0, self.started, took)))
            self.done.append(bad)
        else:
            self.done.append((job, FATES[fate], self.started, took))
        if world.plans[job].limited and world.faulty(world.swarm.p_stale_word):
            self.condemn(job, "timeout", world.now + 1)  # the warden looked just before it finished
        self.running, self.epoch = 0, self.epoch + 1
        if not self.pipe or not world.lucky(world.swarm.p_coalesce):
            world.after(world.rng.randrange(20_000), self.flush)
        self.begin()

    def flush(self) -> None:
        """Tell what is finished."""
        if self.done and self.state != DEAD:
            self.world.tell(ev.Answered(self.world.now, self.id, self.done))
            self.done = []

    def die(self) -> None:
        """Nothing of it runs any more; the world learns it a little later."""
        if self.state == DEAD:
            return
        self.state, self.epoch = DEAD, self.epoch + 1
        self.world.after(self.world.rng.randrange(self.world.swarm.lag_ns), self._told)

    def _told(self) -> None:
        world = self.world
        if self.done:
            world.tell(ev.Answered(world.now, self.id, self.done))
        job, why = self.verdict or (self.running, "crashed")
        world.tell(ev.WorkerDied(world.now, self.id, job, why, self.was_ready))
        del world.workers[self.id]
        if world.swarm.resources:
            lag = world.more.randrange(2 * world.swarm.lag_ns)
            world.after(lag, lambda: world.tell(ev.Reaped(world.now, self.id)))


FATES = {
    "ok": ev.OK,
    "raise": ev.FAILED,
    "raise for good": ev.FAILED_FOR_GOOD,
    "unpicklable": ev.RESULT_NOT_PICKLABLE,
    "unloadable": ev.CALL_NOT_LOADABLE,
    "unfinished": ev.UNFINISHED,
}
