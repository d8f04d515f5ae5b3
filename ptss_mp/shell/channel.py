"""The parent's ends of one worker: two pipes, two pages, four memfds.

Everything read here was written by a process that a job controls: lengths,
offsets and kinds are checked before they are used, and what is wrong ends that
worker (`Violation`).  Identity is the channel: a worker can answer only for
what it was given, and the core checks that.
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
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from .. import marker, wire
from ..core import events as on
from ..core.scheduler import ENDS
from ..warden import kernel
from ..warden.protocol import FDS, HEAD, RUN, RUNS, RUNS_AT, SLOT_BYTES, VERDICT_AT
from ..wire import ANSWERS, BLOB_BYTES_MAX, CALLS, COSTS, FACT, VALUE
from .clock import monotonic_ns
from .report import KEPT_BYTES, Report

if TYPE_CHECKING:
    from .use import Use

READ_BYTES = 64 << 10  # what a pipe holds
READ_LARGE_BYTES = 1 << 20  # the rest of a large frame
TEE_BYTES = 1 << 20  # of one attempt's output are written through; the warden keeps as much
PUNCH_BYTES = 1 << 20  # consumed output is given back in such pieces
STACK_BYTES = 64 << 10
STALL_NS = 200_000_000  # a large answer that has not grown for so long is none: its worker is late, not sending
READS_MAX = 20  # of one drain: as much as any pipe holds; one who never stops writing holds up nobody
DRAINS = 4  # a living worker may flush while it is drained; what it writes then is read later

Row = tuple[int, int, int, int]
Answer = tuple[int, Any, "Report | Row"]  # kind, payload, facts


class Violation(Exception):
    """A worker sent what no worker of ours sends."""


class Channel:
    """One worker process, seen from the parent.

    Raises:
        OSError: the program may open no more descriptors.

    Attributes:
        sent: attempts sent, ever: the number of the next one.
        known: numbers of the functions it has been told.
        about, use: what `wire.ABOUT` said last; whose jobs it tells the whole truth of.
        given: the jobs it was sent and has not answered, in order (the core's own queue of this worker).
        flushes: frames of small answers read so far, to compare with the page's generation.
        peeked: jobs whose answer was read from the page and will come by the pipe once more.
        last: the rows that were read last.
        revoked: jobs that shall not begin, and where their ids stand in the page, until they are answered.
        recalled: those of them that went to another worker: what this one says of them does not count.
        answered: attempts whose answer was read, by pipe or page.
        dismissed: it was told that it lacks `__main__`, and may leave by itself.
        dry: the last read took all that stood in the pipe.
        verdict: (job, why) once it was sentenced.
        buried: nothing of it runs any more, and the core was told.
        died_at: when its pidfd fired, 0: not yet.
        threads: a line per thread of a sentenced worker, with its CPU time; "" if its stack tells all.
        status: wait status, -1 until the warden has told it.
        greeted: it came as far as its loop.
        ready_bytes, kept: what it held and which children it had by then (fitness.py).
        oom_kills: processes that the kernel has killed for lack of memory, if it may have been one of them.
        violation: what it sent behind the last good frame that no worker of ours sends; "": nothing.
    """

    __slots__ = (
        "about", "answered", "answers_fd", "base_bytes", "buried", "calls_fd", "cpu_ns", "died_at", "dismissed", "dry",
        "err_at", "err_fd", "failure", "fault_fd", "flushes", "given", "greeted", "grew_at", "kept", "known", "last",
        "limit_words", "limits", "log_at", "log_fd", "main", "need", "number", "observed", "oom_kills", "out_at",
        "out_fd", "page", "partial", "peak_bytes", "peeked", "pid", "pidfd", "punched", "ready", "ready_bytes",
        "recalled", "revoked", "runs", "sent", "slot", "status", "threads", "unsent", "use", "verdict", "violation",
        "words",
    )  # fmt: skip

    def __init__(
        self, number: int, slot: int, pid: int, base_bytes: int, main: bool, fds: list[int], limits: mmap.mmap
    ) -> None:
        self.number, self.slot, self.pid = number, slot * SLOT_BYTES, pid
        self.base_bytes, self.main = base_bytes, main
        if len(fds) != FDS:  # some were lost on the way
            for fd in fds:
                os.close(fd)
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        self.pidfd, self.answers_fd, self.calls_fd, page, self.fault_fd, self.out_fd, self.err_fd, self.log_fd = fds
        try:
            self.page = mmap.mmap(page, marker.PAGE_BYTES)  # takes a descriptor of its own
        except OSError:
            self.abandon()
            raise
        finally:
            os.close(page)
        self.words = memoryview(self.page).cast("Q")
        self.limits = limits
        self.limit_words = memoryview(limits).cast("Q")
        os.set_blocking(self.answers_fd, False)
        os.set_blocking(self.calls_fd, False)
        self.given: Iterable[int] = ()
        self.last: list[Row] = []
        self.known: set[int] = set()
        self.about: tuple[Any, ...] = ()
        self.use: Use | None = None
        self.peeked: set[int] = set()
        self.revoked: dict[int, int] = {}
        self.recalled: set[int] = set()
        self.answered = self.ready_bytes = self.oom_kills = 0
        self.kept: set[int] = set()
        self.dry = False
        self.unsent: deque[memoryview] = deque()
        self.partial = bytearray()
        self.need = 0
        self.flushes = self.sent = self.runs = self.died_at = self.grew_at = 0
        self.out_at = self.err_at = self.log_at = self.peak_bytes = self.cpu_ns = 0
        self.punched = [0, 0, 0]
        self.status = -1
        self.observed: tuple[int, int] = (0, 0)  # limit instant, ns or processes: of the warden's verdict
        self.verdict: tuple[int, str] | None = None
        self.violation = self.threads = ""
        self.failure: wire.ErrorFacts | None = None  # what its initializer raised, or the import of the main module
        self.buried = self.ready = self.greeted = self.dismissed = False

    # ---- to the worker

    def send(self, rows: list[tuple[Any, ...]], blobs: list[bytes]) -> bool:
        """Queue one frame and write what the pipe takes; return True if something is left."""
        body = marshal.dumps(rows)
        head = CALLS.pack(len(body), sum(map(len, blobs)))
        if not self.unsent and not blobs:
            data = head + body
            try:
                written = os.write(self.calls_fd, data)
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

    def revoke(self, job: int) -> bool:
        """See to it that a job that was sent does not begin; return True if that came too late.

        Its id is stored into a free place of the page, then the marker is read; the worker stores its marker,
        then looks at these ids.  No id is ever moved, for the worker may be looking.
        """
        words = self.words
        at = next((i for i in range(marker.ANSWERS_MAX) if i not in self.revoked.values()), None)
        if at is None:
            return True
        self.revoked[job] = at
        words[marker.REVOKED_AT + at] = job
        if self.page[marker.REVOKED_COUNT_AT] <= at:
            self.page[marker.REVOKED_COUNT_AT] = at + 1
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
        """Take back what has not begun; return (answers of what is finished, jobs that will never begin here).

        What was finished before its id was stored stood in the page then, or had been written to the pipe before
        it left the page: so the pipe is read once more after the look at the page.
        """
        late = {job for job in jobs if self.revoke(job)}
        rows = self.drain(answers) + self.read_dry(answers)
        known = late | {row[0] for row in rows}
        back = [job for job in jobs if job not in known] if self.dry else []
        self.recalled.update(back)
        return rows, back

    def _unasked(self, row: Row) -> Row:
        """Return a row, as that of a lost job if it gives back what nobody has revoked: it would come back for ever."""
        job, end, started, duration = row
        return row if end != wire.WAS_REVOKED or job in self.revoked else (job, on.LOST, started, duration)

    def _acknowledge(self, rows: list[Row]) -> None:
        """Free the places of revoked jobs that the worker has passed by."""
        for row in rows:
            at = self.revoked.pop(row[0], None)
            if at is not None:
                self.words[marker.REVOKED_AT + at] = 0
        if not self.revoked:
            self.page[marker.REVOKED_COUNT_AT] = 0

    # ---- from the worker

    def marked(self) -> tuple[int, int]:
        """Return (job, start) of the running attempt, (0, 0) between two."""
        words = self.words
        for _ in range(4):
            job = words[marker.RUNNING]
            began, number, done = words[marker.STARTED], words[marker.NUMBER], words[marker.COMPLETED]
            if words[marker.RUNNING] == job:
                return (job, began) if number == done else (0, 0)
        return 0, 0

    def still_runs(self) -> bool:
        """Return True if its marker shows an attempt; behind a large answer it does for a moment, and says so."""
        return bool(self.words[marker.RUNNING] and self.marked()[0] and not self.words[marker.SENDING])

    def progress(self) -> marker.Progress | None:
        """Return what the running job has told of itself last, if it did."""
        told = marker.reported(self.page, self.words)
        return told if told and told.job == self.marked()[0] else None

    def cell(self) -> tuple[int, int, int, int]:
        """Return the warden's verdict: (why, limit instant, observed, job); why 0: none."""
        at = self.slot + VERDICT_AT * 8
        return _CELL.unpack_from(self.limits, at)

    def read(self, answers: dict[int, Answer]) -> list[Row] | None:
        """Read what stands in the pipe; note values in `answers`; return the rows, None at the end of file.

        What comes before a frame that is none of ours is good; that one is noted in `violation`, and nothing
        behind it is read: it may look like a frame.
        """
        if self.violation:
            self.dry = True
            return []
        try:
            data = os.read(self.answers_fd, READ_LARGE_BYTES if self.need else READ_BYTES)
        except BlockingIOError:
            self.dry = True
            return []
        self.dry = not data
        if not data:
            return None
        if self.partial:
            self.partial += data
            self.grew_at = monotonic_ns()
            if len(self.partial) < self.need:
                return []
            data, self.partial, self.need = self.partial, bytearray(), 0  # type: ignore[assignment]
        rows: list[Row] = []
        found: dict[int, Answer] = {} if self.peeked or self.recalled else answers
        try:
            self._frames(data, rows, found)
        except Violation as violation:
            self.violation = str(violation)
        return self._take(rows, found, answers)

    def _frames(self, data: Any, rows: list[Row], found: dict[int, Answer]) -> None:
        """Take the whole frames that stand in `data`, and keep what begins behind them."""
        at, size = 0, len(data)
        while size - at >= ANSWERS.size:
            count, blob = ANSWERS.unpack_from(data, at)
            if count > marker.ANSWERS_MAX or blob > BLOB_BYTES_MAX:
                raise Violation(f"a frame that claims {count} answers and {blob} bytes")
            end = at + ANSWERS.size + count * (FACT.size + VALUE.size) + blob
            if size < end:
                self.need = end - at
                break
            if count:
                self.flushes += blob <= marker.BLOBS_MAX
                rows += self.frame(data, at + ANSWERS.size, count, blob, found)
            else:
                self._hello(bytes(data[at + ANSWERS.size : end]))
            at = end
        if at < size:
            self.partial = bytearray(data[at:])
            self.need = self.need or ANSWERS.size
            self.grew_at = monotonic_ns()

    @property
    def receiving(self) -> bool:
        """True while a large answer is on its way: that is not the job's time."""
        return self.need > READ_BYTES and monotonic_ns() - self.grew_at < STALL_NS

    def _take(self, rows: list[Row], found: dict[int, Answer], answers: dict[int, Answer]) -> list[Row]:
        """Return the rows that are news, their values noted; what was peeked at comes once more, and is not."""
        if found is not answers or self.peeked:
            news = []
            for row in rows:
                job = row[0]
                if job in self.peeked:
                    self.peeked.remove(job)
                    if found is answers:
                        answers.pop(job, None)
                    continue
                news.append(row)
                if job in self.recalled:
                    self.recalled.remove(job)  # another worker's answer counts
                else:
                    answers[job] = found[job]
            rows = news
        self.answered += len(rows)
        self.last = rows or self.last
        if [row for row in rows if row[1] == wire.WAS_REVOKED and row[0] not in self.revoked]:
            rows = [self._unasked(row) for row in rows]
        if self.revoked:
            self._acknowledge(rows)
        return rows

    def read_dry(self, answers: dict[int, Answer]) -> list[Row]:
        """Read until nothing stands in the pipe (`dry`), within a bound."""
        rows: list[Row] = []
        for _ in range(READS_MAX):
            rows += self.read(answers) or ()
            if self.dry or self.violation:
                break
        return rows

    def drain(self, answers: dict[int, Answer]) -> list[Row]:
        """Return the rows of all that the worker has finished: what stands in the pipe, then in the page."""
        rows: list[Row] = []
        for _ in range(DRAINS):
            rows += self.read_dry(answers)
            if self.violation or self.words[marker.GENERATION] <= self.flushes:
                break  # else it has flushed since: into the pipe
        if self.violation and self.words[marker.COUNT] == 1 and self.marked()[0] == 0:
            return rows  # one job ran behind the last good frame: the noise is its own, whatever it answered then
        return rows + self.peek(answers)

    def _hello(self, blob: bytes) -> None:
        if blob:
            began = self.marked()[0] or (self.words[marker.STARTED] and not self.dismissed)
            if self.greeted and began:
                raise Violation("what only a worker says that could not begin")
            self.failure = wire.unpack_error(blob)
        else:
            self.ready = self.greeted = True
            self.ready_bytes = self.words[marker.RESIDENT]

    def _check_asked(self, job: int) -> None:
        if job in self.peeked or job in self.recalled:
            return
        if any(row[0] == job for row in self.last):  # a job had answered for itself: by now another one may run
            self.peeked.add(job)
            self.flushes -= job == self.last[0][0]  # what the job wrote was none
        else:
            self.answered += 1  # it is not the answer of another job that is lost in noise
            raise Violation(f"an answer for job {job}, which it was not given")

    def frame(self, data: Any, at: int, count: int, blob: int, answers: dict[int, Answer]) -> list[Row]:
        """Note the values of one frame, all or none; return its facts.

        Raises:
            Violation: it answers what this worker was not asked (another's value stays as it is), or makes no sense.
        """
        values_at = at + count * FACT.size
        if count == 1:  # the synchronous caller's case, kept short
            kind, raw = VALUE.unpack_from(data, values_at)
            if kind <= wire.INT:
                row: Row = FACT.unpack_from(data, at)
                if row[0] not in self.given:
                    self._check_asked(row[0])
                answers[row[0]] = (kind, raw if kind else None, row)
                return [row]
        view = memoryview(data)
        rows: list[Row] = list(FACT.iter_unpack(view[at:values_at]))
        blobs_at = values_at + count * VALUE.size
        blobs = view[blobs_at : blobs_at + blob]
        given, found = self.given, {}
        for row, (kind, raw) in zip(rows, VALUE.iter_unpack(view[values_at:blobs_at]), strict=True):
            if row[0] not in given:
                self._check_asked(row[0])
            if kind > wire.BOOL:
                found[row[0]] = self._large(row, kind, raw, blobs)
            elif kind > wire.INT:
                found[row[0]] = (wire.NONE, wire.scalar(kind, raw), row)
            else:
                found[row[0]] = (kind, raw if kind else None, row)
        answers.update(found)
        return rows

    def _large(self, row: Row, kind: int, raw: int, blobs: memoryview) -> Answer:
        """Return the answer whose value, or costs, stand among the blobs."""
        blob = self._part(blobs, raw, kind)
        report: Report | Row = row
        if kind & wire.WITH_COSTS:
            if len(blob) < COSTS.size + VALUE.size:
                raise Violation("an answer shorter than its costs")
            report = self._report(row, *COSTS.unpack_from(blob))
            kind, raw = VALUE.unpack_from(blob, COSTS.size)
            blob = blob[COSTS.size + VALUE.size :]
            if kind <= wire.BOOL:
                return wire.NONE, wire.scalar(kind, raw), report
        if kind > wire.UNLOADABLE:
            raise Violation(f"a value of kind {kind}")
        return kind, bytes(blob), report

    def _part(self, blobs: memoryview, raw: int, kind: int) -> memoryview:
        offset, length = raw >> 40, raw & (1 << 40) - 1
        if raw < 0 or kind > wire.UNLOADABLE | wire.WITH_COSTS or offset + length > len(blobs):
            raise Violation(f"a value of kind {kind} at {offset}, {length} bytes long, in {len(blobs)}")
        return blobs[offset : offset + length]

    def _report(
        self, row: Row, out: int, out_to: int, err: int, err_to: int, log: int, log_to: int, cpu: int, peak: int
    ) -> Report:
        _, end, started, duration = row
        report = Report(ENDS[end] if end < len(ENDS) else "protocol", started + duration)
        report.started, report.duration, report.attempts = started, duration, 1
        report.cpu_ns, report.peak_bytes = cpu, max(0, peak - self.base_bytes)
        if out_to > out:
            report.out = self._output(self.out_fd, 0, out, out_to)
        if err_to > err:
            report.err = self._output(self.err_fd, 1, err, err_to)
        if log_to > log:
            report.log = self._output(self.log_fd, 2, log, log_to)
        if row[0] not in self.peeked:  # else it comes once more, and the files may have been emptied since
            self.out_at, self.err_at, self.log_at = out_to, err_to, log_to
        return report

    def _output(self, fd: int, which: int, start: int, end: int) -> bytes:
        """Return the last part of what stands between two offsets, and give back what is behind.

        The offsets are a worker's word: what does not stand in the file is not read.
        """
        end = min(end, os.fstat(fd).st_size)
        if start >= end:
            return b""
        data = os.pread(fd, min(end - start, TEE_BYTES), max(start, end - TEE_BYTES))
        if end - self.punched[which] > PUNCH_BYTES:
            kernel.punch(fd, self.punched[which], end & ~4095)
            self.punched[which] = end & ~4095
        if end - start > TEE_BYTES:
            return b"[%d bytes left out]\n" % (end - start - TEE_BYTES) + data
        return data

    def peek(self, answers: dict[int, Answer]) -> list[Row]:
        """Return the finished answers that still stand in the page; they will come by the pipe once more.

        A worker may rest between its write to the pipe and its clearing of the page: what was read from the
        pipe already is told by the count of flushes.
        """
        words = self.words
        generation, count = words[marker.GENERATION], words[marker.COUNT]
        if not 0 < count <= marker.ANSWERS_MAX:
            return []
        copy, blob = self.page[:], words[marker.BLOB]
        if words[marker.GENERATION] != generation or generation < self.flushes or blob > marker.BLOBS_MAX:
            return []  # flushed meanwhile: they are in the pipe, or were read from it
        body = copy[marker.FACTS_AT : marker.FACTS_AT + count * FACT.size]
        body += copy[marker.VALUES_AT : marker.VALUES_AT + count * VALUE.size]
        body += copy[marker.BLOBS_AT : marker.BLOBS_AT + blob]
        found: dict[int, Answer] = {}
        try:
            rows = [row for row in self.frame(body, 0, count, blob, found) if row[0] not in self.peeked]
        except Violation as violation:
            self.violation = str(violation)
            return []
        rows = self._take(rows, found, answers)
        self.peeked.update(row[0] for row in rows)
        return rows

    def rewind(self) -> None:
        """Empty what is captured, before a job with `file_size`: the kernel counts from a file's beginning.

        Nothing runs there now, and all that was told of is read; what a leftover process has printed since is lost.
        """
        for fd in (self.out_fd, self.err_fd, self.log_fd):
            os.ftruncate(fd, 0)
            os.lseek(fd, 0, os.SEEK_SET)  # the worker's own place too: one open file
        self.out_at = self.err_at = self.log_at = 0
        self.punched = [0, 0, 0]

    # ---- at its death

    def last_report(self, status: str, now: int) -> Report:
        """Return what can be said of the attempt that ran when the worker died."""
        report = Report(status, now)
        began = self.words[marker.STARTED]
        report.started = began if 0 < began <= now else now
        report.duration = now - report.started
        report.peak_bytes = max(0, self.peak_bytes - self.base_bytes) if self.peak_bytes else None
        if self.cpu_ns:
            report.cpu_ns = max(0, self.cpu_ns - self.words[marker.CPU])
        report.out = self._rest(self.out_fd, 0, self.out_at)
        report.err = self._rest(self.err_fd, 1, self.err_at)
        report.log = self._rest(self.log_fd, 2, self.log_at)
        stack = os.pread(self.fault_fd, STACK_BYTES, 0)
        report.stack = own_part(stack.decode("utf-8", "replace"))
        if self.threads:
            told = "Its threads" if report.stack else "There is no Python stack; its threads"
            report.stack += f"\n{told}, and the CPU time each has used:\n{self.threads}"
        report.stack = report.stack.lstrip("\n") or None
        return report

    def _rest(self, fd: int, which: int, start: int) -> bytes:
        size = os.fstat(fd).st_size
        return self._output(fd, which, start, size) if size > start else b""

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
        self._close("answers_fd", "calls_fd", "pidfd", "fault_fd", "out_fd", "err_fd", "log_fd")

    def close(self) -> None:
        """Let go of everything."""
        self.use = None  # no cycle: pool, channel, use, pool
        self.abandon()
        self.words.release()
        self.limit_words.release()
        self.page.close()

    def publish(self) -> None:
        """Make the runs written so far count: one store."""
        self.limit_words[self.slot // 8 + HEAD] = self.runs


def own_part(stack: str) -> str:
    """Return a stack as faulthandler wrote it, without the frames below the job's."""
    kept, ours = [], False
    for line in stack.splitlines(keepends=True):
        ours = (ours or any(file in line for file in _OURS)) and line.startswith("  File ")
        if not ours:
            kept.append(line)
    return "".join(kept)


_OURS = tuple(f'"{os.path.join(os.path.dirname(wire.__file__), name)}"' for name in ("worker.py", "warden/child.py"))
_CELL = struct.Struct("@4Q")
assert KEPT_BYTES <= TEE_BYTES
