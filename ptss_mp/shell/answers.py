"""What one worker says, read by the parent: answers in the pipe and in the page, the marker, output in files.

Everything read here was written by a process that a job controls: lengths,
offsets and kinds are checked before they are used, and what is wrong ends that
worker (`Violation`).  Identity is the channel: a worker can answer only for
what it was given, and the core checks that.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Iterable
from typing import Any

from .. import marker, wire
from ..core import events as on
from ..core.scheduler import ENDS
from ..wire import ANSWERS, BLOB_BYTES_MAX, COSTS, FACT, VALUE
from . import held
from .clock import monotonic_ns
from .freight import Freight, Move, Violation, coming
from .held import READ_BYTES
from .memfree import shortage
from .output import Output
from .report import Report

READ_LARGE_BYTES = 1 << 20  # the rest of a large frame
STALL_NS = 200_000_000  # a large answer that has not grown for so long is none: its worker is late, not sending
READS_MAX = 20  # of one drain: as much as any pipe holds; one who never stops writing holds up nobody
DRAINS = 4  # a living worker may flush while it is drained; what it writes then is read later

Row = tuple[int, int, int, int]
Answer = tuple[int, Any, "Report | Row"]  # kind, payload, facts


class Answers(Freight):
    """The answers of one worker.

    Attributes:
        answers_fd: the pipe that it writes to.
        page, words: its marker page.
        output: what it prints and logs.
        base_bytes: resident memory of the warden when it was forked.
        given: the jobs it was sent and has not answered, in order (the core's own queue of this worker).
        flushes: frames of small answers read so far, to compare with the page's generation.
        peeked: jobs whose answer was read from the page and will come by the pipe once more.
        last: the rows that were read last.
        revoked: jobs that shall not begin, and where their ids stand in the page, until they are answered.
        places: of the page, free for such ids.
        recalled: those of them that went to another worker: what this one says of them does not count.
        answered: attempts whose answer was read, by pipe or page.
        dry: the last read took all that stood in the pipe.
        partial, need, grew_at: the beginning of a frame, how long that is as far as is known, when it last grew.
        dismissed: it was told that it lacks `__main__`, and may leave by itself.
        ready, greeted: jobs may be sent to it; it came as far as its loop.
        ready_bytes: what it held by then.
        unfinished: among the answers read last may be some of jobs that are to be gone on with.
        failure: what its initializer raised, or the import of the main module.
        violation: what it sent behind the last good frame that no worker of ours sends; "": nothing.
    """

    __slots__ = (
        "answered", "answers_fd", "base_bytes", "dismissed", "dry", "failure", "flushes", "given", "greeted", "grew_at",
        "last", "need", "output", "page", "partial", "peeked", "places", "ready", "ready_bytes", "recalled", "revoked",
        "unfinished", "violation", "words",
    )  # fmt: skip

    def __init__(self, answers_fd: int, page: mmap.mmap, output: Output, base_bytes: int) -> None:
        super().__init__()
        self.answers_fd, self.page, self.output, self.base_bytes = answers_fd, page, output, base_bytes
        os.set_blocking(answers_fd, False)
        self.words = memoryview(page).cast("Q")
        self.given: Iterable[int] = ()
        self.last: list[Row] = []
        self.peeked: set[int] = set()
        self.revoked: dict[int, int] = {}
        self.places = list(range(marker.ANSWERS_MAX))
        self.recalled: set[int] = set()
        self.partial = bytearray()
        self.need = self.flushes = self.answered = self.grew_at = self.ready_bytes = 0
        self.dry = self.ready = self.greeted = self.dismissed = self.unfinished = False
        self.violation = ""
        self.failure: wire.ErrorFacts | None = None

    def marked(self) -> tuple[int, int]:
        """Return (job, start) of the running attempt, (0, 0) between two."""
        job, began, _ = marker.attempt(self.words)
        return (job, began) if job else (0, 0)

    def still_runs(self) -> bool:
        """Return True if its marker shows an attempt; behind a large answer it does for a moment, and says so."""
        return bool(self.words[marker.RUNNING] and self.marked()[0] and not self.words[marker.SENDING])

    def progress(self) -> marker.Progress | None:
        """Return what the running job has told of itself last, if it did."""
        told = marker.reported(self.page, self.words)
        return told if told and told.job == self.marked()[0] else None

    # ---- pipe and page

    def read(self, answers: dict[int, Answer]) -> list[Row] | None:
        """Read what stands in the pipe; note values in `answers`; return the rows, None at the end of file.

        What comes before a frame that is none of ours is good; that one is noted in `violation`, and nothing
        behind it is read: it may look like a frame.
        """
        if self.violation or self.move:
            self.dry = True
            return []
        try:
            data = os.read(self.answers_fd, READ_LARGE_BYTES) if self.need else held.read(self.answers_fd)
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
            asks = count == wire.ASK and blob <= wire.TABLE_MAX
            if (count > marker.ANSWERS_MAX or blob > BLOB_BYTES_MAX) and not asks:
                raise Violation(f"a frame that claims {count} answers and {blob} bytes")
            end = at + ANSWERS.size + (0 if asks else count * (FACT.size + VALUE.size)) + blob
            if size < end:
                if room := shortage(2 * (end - at), coming()):  # it is collected, then copied
                    raise Violation(f"a frame of {end - at:,} bytes, where {room:,} are left")
                self.need = end - at
                break
            if asks:
                if self.marked()[0]:
                    raise Violation("a question while a job runs")
                self.asked(bytes(data[at + ANSWERS.size : end]))
            elif count == 1 and blob and VALUE.unpack_from(data, at + ANSWERS.size + FACT.size)[0] & wire.LENT:
                self.offered(bytes(data[at + ANSWERS.size : end]))
            elif count:
                small = blob <= marker.BLOBS_MAX  # it left the page, where its jobs counted as completed before
                rows += self.frame(data, at + ANSWERS.size, count, blob, found, self._running() if small else 0)
                self.flushes += small
            else:
                self._hello(bytes(data[at + ANSWERS.size : end]))
            at = end
        if at < size:
            self.partial = bytearray(data[at:])
            self.need = self.need or ANSWERS.size
            self.grew_at = monotonic_ns()

    def _running(self) -> int:
        """Return who runs, or has begun since the call; in this order of reading nobody who had ended by then."""
        words = self.words
        return words[marker.RUNNING] if words[marker.COMPLETED] == words[marker.NUMBER] else 0

    def landed(self, move: Move, answers: dict[int, Answer]) -> list[Row]:
        """A move has ended: return the row that it completes, as `read` does."""
        if move is not self.move:
            return []
        done, frame = self.settled()
        if not (done and frame):
            return []
        found: dict[int, Answer] = {}
        try:
            blob = len(frame) - FACT.size - VALUE.size
            return self._take(self.frame(frame, 0, 1, blob, found), found, answers)
        except Violation as violation:
            self.violation = str(violation)
            return []

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
        for row in rows if self.stowed else ():
            self.stowed.pop(row[0], None)  # what it did not ask for: the job was revoked
        self.answered += len(rows)
        self.last = rows or self.last
        if [row for row in rows if row[1] >= wire.WAS_REVOKED]:
            self.unfinished = self.unfinished or wire.UNFINISHED in [row[1] for row in rows]
            rows = [self._unasked(row) for row in rows]
        if self.revoked:
            self._acknowledge(rows)
        return rows

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
                self.places.append(at)
        if not self.revoked:
            self.page[marker.REVOKED_SOME_AT] = 0

    def read_dry(self, answers: dict[int, Answer]) -> list[Row]:
        """Read until nothing stands in the pipe (`dry`), within a bound."""
        rows: list[Row] = []
        for _ in range(READS_MAX):
            rows += self.read(answers) or ()
            if self.dry or self.violation:
                break
        return rows

    def drain(self, answers: dict[int, Answer]) -> list[Row]:
        """Return the rows of all that the worker has finished: what stands in the pipe, then in the page.

        What left the page before it was looked at had been written to the pipe before: so that is read once more.
        (A worker that was sent SIGKILL runs on for microseconds too.)
        """
        rows: list[Row] = []
        for _ in range(DRAINS):
            rows += self.read_dry(answers)
            if self.violation or self.words[marker.GENERATION] <= self.flushes:
                break  # else it has flushed since: into the pipe
        if self.violation and self.words[marker.COUNT] == 1 and self.marked()[0] == 0:
            return rows  # one job ran behind the last good frame: the noise is its own, whatever it answered then
        return rows + self.peek(answers) + self.read_dry(answers)

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

    def rests(self) -> bool:
        """Return True if the worker waits for calls, or has flushed more than was read: no frame is half written."""
        words = self.words
        idle = words[marker.STARTED] and not (words[marker.RUNNING] or words[marker.SENDING])
        return bool(idle or words[marker.GENERATION] > self.flushes)

    def swallows(self, rested: bool) -> bool:
        """Return True, and note it, if what began a frame has taken whole ones for its rest.

        Args:
            rested: `rests`, before the pipe was read last.
        """
        if rested and self.partial and self.dry and not self.violation:
            self.violation = f"the beginning of a frame of {self.need} bytes, and answers behind it"
        return bool(self.violation)

    @property
    def receiving(self) -> bool:
        """True while a large value is on its way: that is not the job's time."""
        grew_at = self.move.grew_at if self.move else self.grew_at
        return bool(self.move or self.need > READ_BYTES) and monotonic_ns() - grew_at < STALL_NS

    def _hello(self, blob: bytes) -> None:
        if blob:
            began = self.marked()[0] or (self.words[marker.STARTED] and not self.dismissed)
            if self.greeted and began:
                raise Violation("what only a worker says that could not begin")
            self.failure = wire.unpack_error(blob)
        else:
            self.ready = self.greeted = True
            self.ready_bytes = self.words[marker.RESIDENT]

    # ---- a frame

    def frame(
        self, data: Any, at: int, count: int, blob: int, answers: dict[int, Answer], running: int = 0
    ) -> list[Row]:
        """Note the values of one frame, all or none; return its facts.

        Args:
            running: the attempt that had not ended when this was written; 0: none that is known.

        Raises:
            Violation: it answers what this worker was not asked (another's value stays as it is) or still runs, or
                makes no sense.
        """
        values_at = at + count * FACT.size
        if count == 1:  # the synchronous caller's case, kept short
            kind, raw = VALUE.unpack_from(data, values_at)
            if kind <= wire.INT:
                row: Row = FACT.unpack_from(data, at)
                if row[0] not in self.given or row[0] == running:
                    self._check_asked(row[0], running)
                answers[row[0]] = (kind, raw if kind else None, row)
                return [row]
        view = memoryview(data)
        rows: list[Row] = list(FACT.iter_unpack(view[at:values_at]))
        blobs_at = values_at + count * VALUE.size
        blobs = view[blobs_at : blobs_at + blob]
        given, found = self.given, {}
        for row, (kind, raw) in zip(rows, VALUE.iter_unpack(view[values_at:blobs_at]), strict=True):
            if row[0] not in given or row[0] == running:
                self._check_asked(row[0], running)
            if kind > wire.BOOL:
                found[row[0]] = self._large(row, kind, raw, blobs)
            elif kind > wire.INT:
                found[row[0]] = (wire.NONE, wire.scalar(kind, raw), row)
            else:
                found[row[0]] = (kind, raw if kind else None, row)
        answers.update(found)
        return rows

    def _check_asked(self, job: int, running: int) -> None:
        if job in self.peeked or job in self.recalled:
            return  # it may have been taken back, been peeked at, come again, and run now
        if job == running:
            raise Violation(f"an answer for job {job}, which it still runs")
        if any(row[0] == job for row in self.last):  # a job had answered for itself: by now another one may run
            self.peeked.add(job)
            self.flushes -= job == self.last[0][0]  # what the job wrote was none
        else:
            self.answered += 1  # it is not the answer of another job that is lost in noise
            raise Violation(f"an answer for job {job}, which it was not given")

    def _large(self, row: Row, kind: int, raw: int, blobs: memoryview) -> Answer:
        """Return the answer whose value, or costs, stand among the blobs."""
        blob = self._part(blobs, raw, kind)
        report: Report | Row = row
        flags, kind = kind & wire.FLAGS, kind & ~wire.FLAGS
        if flags & wire.WITH_COSTS:
            if len(blob) < COSTS.size + VALUE.size:
                raise Violation("an answer shorter than its costs")
            report = self._report(row, *COSTS.unpack_from(blob))
            kind, raw = VALUE.unpack_from(blob, COSTS.size)
            blob = blob[COSTS.size + VALUE.size :]
            if kind <= wire.BOOL:
                return wire.NONE, wire.scalar(kind, raw), report
        if kind > wire.UNLOADABLE:
            raise Violation(f"a value of kind {kind}")
        return kind, self.taken(kind, flags, blob), report

    def _part(self, blobs: memoryview, raw: int, kind: int) -> memoryview:
        offset, length = raw >> 40, raw & (1 << 40) - 1
        if raw < 0 or kind > wire.UNLOADABLE | wire.FLAGS or offset + length > len(blobs):
            raise Violation(f"a value of kind {kind} at {offset}, {length} bytes long, in {len(blobs)}")
        return blobs[offset : offset + length]

    def _report(
        self, row: Row, out: int, out_to: int, err: int, err_to: int, log: int, log_to: int, cpu: int, peak: int
    ) -> Report:
        _, end, started, duration = row
        report = Report(ENDS[end] if end < len(ENDS) else "protocol", started + duration)
        report.started, report.duration, report.attempts = started, duration, 1
        report.cpu_ns, report.peak_bytes = cpu, max(0, peak - self.base_bytes)
        news = row[0] not in self.peeked  # else it comes once more, and the files may have been emptied since
        self.output.note(report, (out, err, log), (out_to, err_to, log_to), news)
        return report
