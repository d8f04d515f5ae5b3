"""Watching workers that are silent: is one late, or only busy?

The warden is the clock of all limits; here stands what the parent does if its
word does not come, and what it does about answers that do not.
"""

from __future__ import annotations

from typing import Any

from . import commands as do
from . import events as on
from .admission import Admission
from .job import NEVER
from .table import Worker

MS = 1_000_000
PEEK_NS = 2 * MS  # a worker with more than one job out is looked at after so much silence
WORD_NS = 50 * MS  # a job so far beyond its limit without a word of the warden is killed from here


class Watch(Admission):
    """The crew, seen on when their instants (`Worker.watch`) have come.

    Attributes:
        paused, short: nothing shall start: somebody asked for that; the machine's memory is.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.paused = self.short = False

    def _fired(self, event: on.Fired) -> None:
        for worker in self.workers.values():
            if worker.watch <= event.now:
                self._look(worker, *event.marks.get(worker.id, (0, 0)))

    def _look(self, worker: Worker, job: int, started: int) -> None:
        """A worker's watch is over: is it late, or only busy?"""
        now, worker.watch = self.now, NEVER
        if worker.leaving or not worker.ready:
            self._kill(worker, "crashed", 0)  # it does not leave, or does not come
            if not worker.ready:
                self._unexplained("workers were not ready in time")
            return
        if not worker.queue:
            return
        sending, marked, patience = job == on.SENDING, job in worker.queue, WORD_NS
        if job > 0 and not (marked or job in worker.recalled):
            self._outstays(worker, job)
            return
        if not marked:  # stopped, or its mark was wiped: the first in line, from when it could have begun
            job, started, patience = next(iter(worker.queue)), max(worker.sent, worker.heard), 4 * WORD_NS
        if sending:
            worker.watch = now + WORD_NS
        elif job in self.jobs:
            timeout = self.jobs[job].timeout_ns
            late = self._kills_at(job, worker.queue[job])
            why = "deadline"
            if worker.seen != job:
                worker.seen, worker.seen_at = job, now
            if not worker.sent <= started <= now:
                started = worker.seen_at  # a job scribbled there
            if timeout and started + timeout < late:
                late, why = started + timeout, "timeout"
            if late + patience <= now:
                self._kill(worker, why, job if marked else 0)
                return
            worker.watch = min(NEVER, late + patience)
        elif any(j in self.jobs and self._limit_of(j, k) != NEVER for j, k in worker.queue.items()):
            worker.watch = now + WORD_NS
        if len(worker.queue) > 1:
            silent = now - worker.heard >= PEEK_NS
            if silent:
                self._silent(worker)
            # what it was given is long overdue: then look when another worker may have come free
            worker.watch = min(worker.watch, now + (WORD_NS if silent else PEEK_NS))

    def _outstays(self, worker: Worker, job: int) -> None:
        """The marker shows a job that has answered: it ends in this moment, or goes on, and others wait behind it."""
        if worker.seen >= 0:
            worker.seen, worker.seen_at = -job, self.now
        worker.watch = worker.seen_at + WORD_NS
        if worker.watch <= self.now:
            self._kill(worker, "protocol", job)

    def _silent(self, worker: Worker) -> None:
        """More than one job is out, less than BUDGET_NS of work by the estimates, and nothing was heard."""
        self._out.append(do.Peek(worker.id))
        free = any(not (w.queue or w.used_up or w.env) for w in self.active.values())
        if free and not (self.ready.head() or self.paused or self.short):
            self._out.append(do.Recall(worker.id, [job for job in worker.queue if job in self.jobs][1:]))

    def _recalled(self, event: on.Recalled) -> None:
        worker = self.workers.get(event.worker)
        for job in event.ids:
            key = worker.queue.pop(job, None) if worker else None
            if worker and key is not None:
                worker.recalled.add(job)
                worker.load = worker.load * len(worker.queue) // (len(worker.queue) + 1)
                if job in self.jobs:
                    self._return(job, key)
