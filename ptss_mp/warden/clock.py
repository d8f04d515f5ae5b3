"""The kill clock: what a worker may do and for how long, from its marker and its limits.

A look at a worker gives the next instant at which it must be looked at, or the
reason to condemn it.  Trust nothing that a worker wrote: a start stamp counts
only within [dispatch, a clock read after it], else the later of the dispatch
and the first sight of that number.
"""

from __future__ import annotations

import mmap
import os
import time

from .. import marker
from . import kernel
from .cgroup import Group
from .meter import Meter
from .protocol import (
    ASLEEP,
    CPU,
    DEADLINE,
    HEAD,
    MEMORY,
    RUN,
    RUNS,
    RUNS_AT,
    SLOT_BYTES,
    TICK,
    TIMEOUT,
    VERDICT_AT,
)

NOT_BEGUN_NS = 50_000_000  # a worker that has not begun a job so long after its deadline never will
SOON_NS = 1_000_000  # a worker that is to begin a job with a limit is looked at again so soon, at first
FAR = 1 << 62


class Watched:
    """A worker, as the warden sees it.

    Attributes:
        slot: where its limits begin, in bytes.
        tail: the run that holds the attempt looked at last.
        number: the worker's.
        attempt, seen_at: number of the attempt looked at, and when it was first seen.
        group: its control group, None: it has none.
        job, began: the attempt that is marked, and the start that counts for it.
        processes: how many the attempt sent last may have, 0: as many as it likes (census.py).
        sent: when the attempt looked at was sent, by the parent's word.
        looked_at: start and number as they stood in the page, to see whether they moved.
        bounded: the `processes` that its group was told.
        doomed: it was sent its last signal.
        talks: it printed so much that some was given back at the last look.
        base_bytes: resident memory of the warden when it was forked.
        meter: of its memory and CPU time, once a job needs that.
        backstop_at: when SIGKILL follows a dump; 0: it need not.
    """

    __slots__ = (
        "attempt", "backstop_at", "base_bytes", "began", "bounded", "doomed", "group", "job", "looked_at", "meter",
        "number", "out", "page", "pid", "pidfd", "processes", "seen_at", "sent", "slot", "tail", "talks", "trim_at",
        "words",
    )  # fmt: skip

    def __init__(
        self, number: int, slot: int, pid: int, pidfd: int, page: int, told: tuple[int, ...], base_bytes: int
    ) -> None:
        self.number, self.slot, self.pid, self.pidfd = number, slot * SLOT_BYTES, pid, pidfd
        self.page = mmap.mmap(page, marker.PAGE_BYTES)
        self.page.madvise(mmap.MADV_DONTFORK)  # in a child it is a hole: never touch or close it there
        self.words = memoryview(self.page).cast("Q")
        self.out = {os.dup(fd): 0 for fd in told}  # descriptor -> bytes given back so far
        self.tail = self.seen_at = self.job = self.began = self.backstop_at = self.trim_at = 0
        self.processes = self.bounded = self.sent = 0
        self.attempt = -1
        self.looked_at = 0, 0
        self.doomed = self.talks = False
        self.base_bytes = base_bytes
        self.meter: Meter | None = None
        self.group: Group | None = None

    def marked(self) -> tuple[int, int, int]:
        """Return (job, start, number completed); job 0 between two attempts."""
        return marker.attempt(self.words)

    def hold(self, yes: bool) -> None:
        """Let nothing begin behind the attempt that is looked at, or take that back."""
        self.page[marker.HELD_AT] = yes

    def trim(self, keep: int) -> bool:
        """Give back what was printed more than `keep` bytes ago; offsets stay.  Return True if there was any."""
        found = False
        for fd, given_back in self.out.items():
            size = os.fstat(fd).st_size
            if size < given_back:  # the parent has emptied it
                given_back = self.out[fd] = 0
            if size - given_back > 2 * keep:
                self.out[fd] = (size - keep) & ~4095
                kernel.punch(fd, given_back, self.out[fd])
                found = True
        return found

    def close(self) -> None:
        """Let go of what stands for a reaped process."""
        for fd in (self.pidfd, *self.out):
            os.close(fd)
        if self.meter:
            self.meter.close()
        self.words.release()
        self.page.close()


class Limits:
    """The limits page; the parent writes runs, this side reads them and writes verdicts."""

    def __init__(self, fd: int) -> None:
        self.page = mmap.mmap(fd, 0)
        self.page.madvise(mmap.MADV_DONTFORK)
        self.words = memoryview(self.page).cast("Q")

    @property
    def tick_ns(self) -> int:
        """The shortest tick in use, as the parent wrote it; 0: none."""
        return self.words[TICK]

    def asleep(self, yes: bool) -> None:
        """Tell the parent whether a dispatch must nudge."""
        self.words[ASLEEP] = int(yes)

    def write_verdict(self, worker: Watched, why: int, at: int, observed: int, job: int) -> None:
        """Fix why a worker dies, before it does; the reason last, for it makes the cell valid."""
        words, cell = self.words, worker.slot // 8 + VERDICT_AT
        words[cell + 1], words[cell + 2], words[cell + 3] = at, observed, job
        words[cell] = why

    def look(self, worker: Watched, now: int, others: int) -> tuple[int, int, int]:
        """Return (instant of the next look, 0, 0), (instant that was passed, why, observed), or zeros: nothing runs.

        Args:
            others: processes that share the warden's memory with this worker.
        """
        job, began, done = worker.marked()
        worker.looked_at = began, done
        run = self._run_of(worker, done)
        if run is None:
            worker.processes = 0
            return 0, 0, 0
        sent, timeout, deadline, memory, cpu, worker.processes = run
        worker.sent = sent
        if done != worker.attempt:
            worker.attempt, worker.seen_at, worker.job = done, now, 0
        if not job or job != worker.job:  # the first start seen of an attempt stands
            honest = job and sent <= began <= time.monotonic_ns()
            worker.began = began if honest else max(sent, worker.seen_at)
            worker.job = job
            if job and (memory or cpu):
                self._begin_metering(worker)
        due, why = worker.began + timeout if timeout else FAR, TIMEOUT
        if deadline and deadline + (0 if job else NOT_BEGUN_NS) < due:
            due, why = deadline + (0 if job else NOT_BEGUN_NS), DEADLINE
        if worker.words[marker.SENDING]:
            due = FAR  # the transfer of a result is not the job's time
        if now >= due:
            return due, why, now - worker.began
        if memory or cpu:
            at, why, observed = self._measure(worker, job, memory, cpu, others, now)
            return (at, why, observed) if why else (min(due, at), 0, 0)
        return due, 0, 0

    def _begin_metering(self, worker: Watched) -> None:
        try:
            worker.meter = worker.meter or Meter(worker.pid, worker.base_bytes, worker.group)
        except OSError:
            return  # it is gone; or no descriptor is left here, then the next look tries again
        worker.meter.begin(worker.words[marker.CPU])

    def _measure(
        self, worker: Watched, job: int, memory: int, cpu: int, others: int, now: int
    ) -> tuple[int, int, int]:
        """Hold an attempt against its limits of memory and CPU time; return as `look`."""
        meter = worker.meter
        if not job or meter is None:  # not begun: it will in a moment, or its worker is not even born
            worker.job = 0  # let a meter that could not be had be tried for again
            return now + max(SOON_NS, (now - worker.seen_at) // 8), 0, 0
        at = FAR
        if memory:
            if now >= meter.memory_at and (held := meter.memory(memory, others, now)) > memory:
                return now, MEMORY, held
            at = meter.memory_at
        if cpu:
            if now >= meter.cpu_at and (used := meter.cpu(cpu, now)) >= cpu:
                return now, CPU, used
            at = min(at, meter.cpu_at)
        return at, 0, 0

    def _run_of(self, worker: Watched, number: int) -> tuple[int, ...] | None:
        """Return (sent at, limits as in RUN) of the run that holds an attempt; None: it was not sent."""
        words, head_at = self.words, worker.slot // 8 + HEAD
        while worker.tail < words[head_at]:
            worker.tail = max(worker.tail, words[head_at] - RUNS // 2)  # older ones have no job out
            at = worker.slot + RUNS_AT + worker.tail % RUNS * RUN.size
            first, count, *limits = RUN.unpack_from(self.page, at)
            if words[head_at] - worker.tail >= RUNS - 1:
                continue  # it was overwritten while it was read
            if number < first + count:
                return tuple(limits)
            worker.tail += 1
        return None
