"""The parent's ends of one worker: two pipes, two pages, four files in memory.

What is said to it, how its jobs are taken back and how it is ended; what it says is read in answers.py.
"""

from __future__ import annotations

import contextlib
import errno
import marshal
import mmap
import os
import signal
import struct
from collections import deque
from typing import TYPE_CHECKING, Any

from .. import marker
from ..warden.protocol import FDS, HEAD, RUN, RUNS, RUNS_AT, SLOT_BYTES, VERDICT_AT
from ..wire import CALLS
from . import held
from .answers import Answer, Answers, Row
from .output import Output
from .report import Report

if TYPE_CHECKING:
    from .use import Use


class Channel(Answers):
    """One worker process, seen from the parent.

    Raises:
        OSError: the program may open no more descriptors.

    Attributes:
        sent: attempts sent, ever: the number of the next one.
        known: numbers of the functions it has been told.
        about, use: what `wire.ABOUT` said last; whose jobs it tells the whole truth of.
        verdict: (job, why) once it was sentenced.
        buried: nothing of it runs any more, and the core was told.
        died_at: when its pidfd fired, 0: not yet.
        threads: a line per thread of a sentenced worker, with its CPU time; "" if its stack tells all.
        status: wait status, -1 until the warden has told it.
        kept: the children that it had when it was ready (fitness.py).
        oom_kills: processes that the kernel has killed for lack of memory, if it may have been one of them.
    """

    __slots__ = (
        "about", "buried", "calls_fd", "cpu_ns", "died_at", "kept", "known", "limit_words", "limits",
        "main", "number", "observed", "oom_kills", "peak_bytes", "pid", "pidfd", "runs", "sent", "slot", "status",
        "threads", "unsent", "use", "verdict",
    )  # fmt: skip

    def __init__(
        self, number: int, slot: int, pid: int, base_bytes: int, main: bool, fds: list[int], limits: mmap.mmap
    ) -> None:
        try:
            if len(fds) != FDS:  # some were lost on the way
                raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
            self.pidfd, answers_fd, self.calls_fd, page_fd, *files = fds
            page = mmap.mmap(page_fd, marker.PAGE_BYTES)  # takes a descriptor of its own
        except OSError:
            for fd in fds:
                os.close(fd)
            raise
        os.close(page_fd)
        super().__init__(answers_fd, page, Output(*files), base_bytes)
        os.set_blocking(self.calls_fd, False)
        self.number, self.slot, self.pid, self.main = number, slot * SLOT_BYTES, pid, main
        self.limits = limits
        self.limit_words = memoryview(limits).cast("Q")
        self.known: set[int] = set()
        self.about: tuple[Any, ...] = ()
        self.use: Use | None = None
        self.kept: set[int] = set()
        self.unsent: deque[memoryview] = deque()
        self.sent = self.runs = self.died_at = self.oom_kills = self.peak_bytes = self.cpu_ns = 0
        self.status = -1
        self.observed: tuple[int, int] = (0, 0)  # of the warden's verdict: its instant; ns, bytes or processes
        self.verdict: tuple[int, str] | None = None
        self.threads = ""
        self.buried = False

    # ---- to the worker

    def send(self, rows: list[tuple[Any, ...]], blobs: list[Any]) -> bool:
        """Queue one frame and write what the pipe takes; return True if something is left."""
        body = marshal.dumps(rows)
        head = CALLS.pack(len(body), sum(map(len, blobs)))
        if not self.unsent and not blobs:
            data = head + body
            try:
                written = held.write(self.calls_fd, data)
            except BlockingIOError:
                written = 0
            except BrokenPipeError:
                return False  # its death is on its way
            if written < len(data):
                self.unsent.append(memoryview(data)[written:])
            return bool(self.unsent)
        self.unsent.append(memoryview(head + body))
        self.unsent.extend(map(memoryview, blobs))
        return self.write()

    def write(self) -> bool:
        """Write what is queued; return True if something is left."""
        while self.unsent:
            try:
                written = os.write(self.calls_fd, self.unsent[0])
            except BlockingIOError:
                return True
            except BrokenPipeError:
                self.unsent.clear()
                return False
            if written == len(self.unsent[0]):
                self.unsent.popleft()
            else:
                self.unsent[0] = self.unsent[0][written:]
        return False

    def limit(self, first: int, count: int, now: int, due: int, limits: tuple[int, int, int, int]) -> None:
        """Write a run of equal limits (`use.Use.limits`); it counts once `publish` is called."""
        at = self.slot + RUNS_AT + self.runs % RUNS * RUN.size
        timeout, memory, cpu, processes = limits
        RUN.pack_into(self.limits, at, first, count, now, timeout, due, memory, cpu, processes)
        self.runs += 1

    def publish(self) -> None:
        """Make the runs written so far count: one store."""
        self.limit_words[self.slot // 8 + HEAD] = self.runs

    def revoke(self, job: int) -> bool:
        """See to it that a job that was sent does not begin; return True if that came too late.

        Its id is stored into a free place of the page, then the marker is read; the worker stores its marker,
        then looks at these ids.  No id is ever moved, for the worker may be looking.
        """
        words = self.words
        if not self.places:
            return True
        self.revoked[job] = at = self.places.pop()
        words[marker.REVOKED_AT + at] = job
        self.page[marker.REVOKED_SOME_AT] = 1
        return self.marked()[0] == job

    def kill(self, job: int = 0) -> bool:
        """Send SIGKILL, and let nothing begin meanwhile; return False, and send none, if another job runs by now."""
        self.page[marker.HELD_BY_PARENT_AT] = 1
        marked = self.marked()[0]
        if job and marked != job and marked in self.given:
            self.page[marker.HELD_BY_PARENT_AT] = 0
            return False
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(self.pidfd, signal.SIGKILL)
        return True

    def recall(self, jobs: list[int], answers: dict[int, Answer]) -> tuple[list[Row], list[int]]:
        """Take back what has not begun; return (answers of what is finished, jobs that will never begin here)."""
        late = {job for job in jobs if self.revoke(job)}
        rows = self.drain(answers)
        known = late | {row[0] for row in rows}
        back = [job for job in jobs if job not in known] if self.dry else []
        self.recalled.update(back)
        return rows, back

    # ---- at its death

    def cell(self) -> tuple[int, int, int, int]:
        """Return the warden's verdict: (why, limit instant, observed, job); why 0: none."""
        at = self.slot + VERDICT_AT * 8
        return _CELL.unpack_from(self.limits, at)

    def last_report(self, status: str, now: int) -> Report:
        """Return what can be said of the attempt that ran when the worker died."""
        report = Report(status, now)
        began = self.words[marker.STARTED]
        report.started = began if 0 < began <= now else now
        report.duration = now - report.started
        report.peak_bytes = max(0, self.peak_bytes - self.base_bytes) if self.peak_bytes else None
        if self.cpu_ns:
            report.cpu_ns = max(0, self.cpu_ns - self.words[marker.CPU])
        self.output.note_rest(report)
        report.stack = self.output.stack()
        if self.threads:
            told = "Its threads" if report.stack else "There is no Python stack; its threads"
            report.stack += f"\n{told}, and the CPU time each has used:\n{self.threads}"
        report.stack = report.stack.lstrip("\n") or None
        return report

    def close_pipes(self) -> None:
        """Close both pipes; the worker, if it lives, ends by end of file."""
        self._close("answers_fd", "calls_fd")

    def close_calls(self) -> None:
        """Let an idle worker end by itself."""
        self._close("calls_fd")

    def _close(self, *names: str) -> None:
        """Close descriptors; forgotten first, so that a fork in this moment closes no reused number (pool.py)."""
        for name in names:
            fd = getattr(self, name)
            setattr(self, name, -1)
            if fd >= 0:
                os.close(fd)

    def abandon(self) -> None:
        """Close all descriptors (in a fork of the program)."""
        self._close("answers_fd", "calls_fd", "pidfd")
        self.output.close()
        if self.memory:
            self.memory.close()

    def close(self) -> None:
        """Let go of everything."""
        self.use = self.memory = self.move = None  # no cycle: pool, channel, use, pool; a move may go on for a moment
        self.land = bool
        self.abandon()
        self.words.release()
        self.limit_words.release()
        self.page.close()


_CELL = struct.Struct("@4Q")
