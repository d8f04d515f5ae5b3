"""A worker: take a call, mark it, make it, answer, hold nothing.

It may be killed at any instruction, and is, at a limit; so nothing here needs
cleaning up and no lock is ever held.  What it is doing stands in the marker
page (marker.py), the finished answers too, until they leave by one writev: a
crash or a hang behind them loses and delays none.

Function and arguments are decoded inside the marked attempt, and the result is
encoded there: all three run the user's code as surely as the call itself.
"""

from __future__ import annotations

import contextlib
import marshal
import mmap
import os
import pickle
import sys
import time
from typing import Any

from . import attempt, marker, rlimits, wire
from .chunk import Ended
from .codec import describe, encode, is_one_of
from .freight import receive, send
from .hygiene import Hygiene
from .mainmodule import import_main, tell, tried
from .marker import (
    BLOB,
    BLOBS_AT,
    COMPLETED,
    COUNT,
    FACTS_AT,
    HELD_AT,
    HELD_BY_PARENT_AT,
    NUMBER,
    REVOKED,
    RUNNING,
    STARTED,
    VALUES_AT,
)
from .parcel import Parcel
from .pipes import ANSWERS_FD, CALLS_FD, ERR_FD, FELL_THROUGH, LOG_FD, OUT_FD, leave, read_rest, write_all
from .wire import ANSWERS, CALLS, COSTS, FACT, NONE, OK, VALUE, WITH_COSTS

FLUSH_NS = 200_000  # answers wait at most so long for company
PROVEN_RUNS = 100  # clean, silent and short runs after which a function is looked at once per flush
LONG_NS = 100_000  # a longer run is always looked at: 15 µs of checks are a seventh of it at most
TIDY_NS = 1_000_000  # proven functions: hygiene before the next batch, at most so often
READ_BYTES = 64 << 10  # what a pipe holds; malloc maps and unmaps more than 128 KiB at each read
HELD_NS = 1_000_000_000  # a hold lasts microseconds; one that outlasts this was written by a job


class Loop:
    """Takes calls and makes them, one at a time, until the parent closes the pipe."""

    def __init__(self, page: mmap.mmap, words: memoryview, options: dict[str, Any]) -> None:
        self.page, self.words, self.bytes = page, words, memoryview(page)
        self.pid = os.getpid()
        self.hygiene = Hygiene()
        self.capture = options["capture"]
        self.functions: dict[int, Any] = {}
        self.pickled: dict[int, bytes] = {}  # decoded in the first attempt that needs them
        self.unproven: dict[int, int] = {}  # function -> clean runs still to be seen
        self.ran: set[int] = set()  # proven functions that ran since the last look
        self.main_ready, self.initialized = options.get("main", False), bool(options["initializer"])
        self.about: tuple[Any, ...] = ("", "", 1, 0, 0, {}, b"", False, 0, 0)  # wire.ABOUT
        self.metered = False  # the jobs that follow have a limit of memory or CPU time: their start is told
        self.call = self.attempt  # or `limited`
        self.rows: list[tuple[Any, ...]] = []  # of the frame that is being made
        self.count = self.blob_bytes = self.generation = self.completed = 0
        self.flushed_at = self.tidied_at = 0
        self.out_at = self.err_at = self.log_at = 0
        self.heard = False  # something was printed or logged since the last look
        self.cpu_at = words[marker.CPU] = time.process_time_ns()
        self.streams = (sys.stdout, sys.stderr)
        attempt.serve(self)

    def run(self) -> None:
        """Read frames and make their calls; ends the process, never returns."""
        buffer = b""
        while True:
            if self.count:
                self.flush()
            self.words[RUNNING] = 0
            data = os.read(CALLS_FD, READ_BYTES)
            if not data:
                leave()
            if self.ran:
                self.look_at_proven()
            buffer = buffer + data if buffer else data
            while len(buffer) >= CALLS.size:
                rows_bytes, blob_bytes = CALLS.unpack_from(buffer)
                end = CALLS.size + rows_bytes + blob_bytes
                if len(buffer) < end:
                    buffer = read_rest(buffer, end)
                rows = marshal.loads(memoryview(buffer)[CALLS.size : CALLS.size + rows_bytes])
                blobs = memoryview(buffer)[CALLS.size + rows_bytes : end] if blob_bytes else None
                buffer = buffer[end:]
                self.make(rows, blobs)
                self.rows = []
                del rows, blobs  # an idle worker holds nothing of the last job

    def make(self, rows: list[tuple[Any, ...]], blobs: memoryview | None) -> None:
        """Make the calls of one frame, in order."""
        clock, words, getpid = time.monotonic_ns, self.words, os.getpid
        self.rows, at = rows, 0
        started = clock()
        for job, fn, call, needs, due in rows:
            if job == 0:
                self.learn(fn, call, needs)
                continue
            if self.metered:
                self.cpu_at = words[marker.CPU] = time.process_time_ns()
            if type(call) is list or needs:
                call, needs, at = receive(self, job, call, needs, blobs, at)
                started = clock()  # a transfer is not the job's time
            words[STARTED] = started
            words[RUNNING] = job
            words[NUMBER] = self.completed  # last: it runs while number == completed
            if words[REVOKED] and self.is_revoked(job):
                end, kind, raw, blob = wire.WAS_REVOKED, NONE, 0, None
            elif due and started >= due:
                end, kind, raw, blob = wire.HAD_EXPIRED, NONE, 0, None
            else:
                end, kind, raw, blob = self.call(fn, call, needs)
            if getpid() != self.pid:
                os._exit(FELL_THROUGH)
            ended = clock()
            costs = b""
            if fn in self.unproven or fn < 0 or ended - started > LONG_NS or self.heard:
                costs = self.examine(fn, ended - started, kind, raw, blob)
                kind, raw = kind | WITH_COSTS, 0
            else:
                self.ran.add(fn)
            self.answer(job, end, started, ended - started, kind, raw, costs, blob)
            if self.hygiene.spoiled:
                self.retire()
            call = needs = blob = None
            if self.count and (ended - self.flushed_at > FLUSH_NS or self.count == marker.ANSWERS_MAX):
                self.flush()
                ended = clock()
            started = ended

    def is_revoked(self, job: int) -> bool:
        """Return True if the job shall not run; first see whether this worker shall be killed for the one before."""
        view, words, until = self.bytes, self.words, time.monotonic_ns() + HELD_NS
        while view[HELD_AT] or view[HELD_BY_PARENT_AT]:
            words[RUNNING] = 0  # it has not begun: nobody may blame it
            time.sleep(0.0001)
            if time.monotonic_ns() > until:
                view[HELD_AT] = view[HELD_BY_PARENT_AT] = 0
        words[RUNNING] = job
        return job in words[marker.REVOKED_AT : marker.REVOKED_END].tolist()

    def attempt(self, fn: int, call: Any, needs: Any) -> tuple[int, int, int, bytes | Parcel | None]:
        """Decode, call, encode; return (end, kind, raw, blob)."""
        end, unloadable = wire.CALL_NOT_LOADABLE, wire.UNLOADABLE
        try:
            if needs:
                wire.prerequisites(needs)
            if fn < 0:
                function, args, kwargs = wire.decode(wire.PICKLE, call)
            else:
                try:
                    function = self.functions[fn]
                except KeyError:
                    function = self.functions[fn] = pickle.loads(self.pickled[fn])
                args, kwargs = (call, None) if type(call) is tuple else wire.decode(wire.PICKLE, call)
            end, unloadable = wire.FAILED, wire.RAISED
            result = function(*args, **kwargs) if kwargs else function(*args)
            end, unloadable = wire.RESULT_NOT_PICKLABLE, wire.DESCRIBED
            return OK, *encode(result)
        except BaseException as error:  # SystemExit too: a job does not end its worker by raising
            if type(error) is Ended:
                return error.answer
            rlimits.set_back()  # to describe it may take a descriptor
            keep, why = end == wire.FAILED, ""
            if keep and self.about[6]:
                again, why = is_one_of(error, self.about[6])
                end = wire.FAILED if again else wire.FAILED_FOR_GOOD
            return end, unloadable, 0, describe(error, keep, why)
        finally:
            if needs:
                wire.prerequisites([])

    def limited(self, fn: int, call: Any, needs: Any) -> tuple[int, int, int, bytes | Parcel | None]:
        """As `attempt`, under limits that the kernel holds."""
        file_bytes, open_files = self.about[8:]
        if file_bytes:  # the parent has emptied them (shell.output.Output.rewind)
            self.out_at = self.err_at = self.log_at = 0
        rlimits.lower(file_bytes, open_files)
        try:
            return self.attempt(fn, call, needs)
        finally:
            rlimits.set_back()

    def answer(
        self, job: int, end: int, started: int, duration: int, kind: int, raw: int, costs: bytes,
        blob: bytes | Parcel | None,
    ) -> None:  # fmt: skip
        """Put a finished answer into the page; a large one goes straight to the parent."""
        words = self.words
        if costs or blob is not None:
            blob = blob or b""
            size = len(costs) + len(blob)
            if self.blob_bytes + size > marker.BLOBS_MAX and self.count:
                self.flush()
            if size > marker.BLOBS_MAX:
                words[marker.SENDING] = 1  # transfer is not the job's time
                refusal = send(self, FACT.pack(job, end, started, duration), kind, costs, blob)
                if refusal is None:
                    self.completed += 1
                    words[COMPLETED] = self.completed
                words[marker.SENDING] = 0
                if refusal:
                    self.answer(job, wire.RESULT_NOT_PICKLABLE, started, duration, *refusal)
                return
            at = BLOBS_AT + self.blob_bytes
            self.bytes[at : at + size] = costs + blob  # type: ignore[operator]  # a parcel is larger
            raw = self.blob_bytes << 40 | size
            self.blob_bytes += size
        count = self.count
        FACT.pack_into(self.page, FACTS_AT + count * FACT.size, job, end, started, duration)
        VALUE.pack_into(self.page, VALUES_AT + count * VALUE.size, kind, raw)
        self.count = count + 1
        self.completed += 1
        words[BLOB] = self.blob_bytes
        words[COUNT] = self.count  # the answer counts before the job does
        words[COMPLETED] = self.completed

    def flush(self) -> None:
        """Send the answers that stand in the page."""
        if self.ran and self.capture and self.new_output():
            for fn in self.ran:
                self.unproven[fn] = PROVEN_RUNS  # its next line is told with its own answer
        count, view = self.count, self.bytes
        parts = (
            ANSWERS.pack(count, self.blob_bytes),
            view[FACTS_AT : FACTS_AT + count * FACT.size],
            view[VALUES_AT : VALUES_AT + count * VALUE.size],
            view[BLOBS_AT : BLOBS_AT + self.blob_bytes],
        )
        size = sum(map(len, parts))
        written = os.writev(ANSWERS_FD, parts)
        if written < size:  # a signal handler of the job's came in between
            write_all(b"".join(parts)[written:])
        self.count = self.blob_bytes = 0
        self.generation += 1
        words = self.words
        words[COUNT] = words[BLOB] = 0
        words[marker.GENERATION] = self.generation  # a reader of the page drops its copy if this moved
        self.flushed_at = time.monotonic_ns()

    def new_output(self) -> bool:
        """Flush the job's streams; return True if they have grown."""
        for stream in self.streams:
            with contextlib.suppress(Exception):
                stream.flush()
        return os.lseek(OUT_FD, 0, 1) != self.out_at or os.lseek(ERR_FD, 0, 1) != self.err_at

    def hear(self) -> None:
        """Something was printed or logged: the running job is examined, however often its function was silent."""
        self.heard = True

    def examine(self, fn: int, duration: int, kind: int, raw: int, blob: bytes | Parcel | None) -> bytes:
        """Look what an attempt printed, cost and left behind; return that, and what value follows."""
        left = self.hygiene.collect(duration)  # first: a finaliser may speak, or crash
        spoke = self.capture and self.new_output()
        out, err = self.out_at, self.err_at
        if spoke:
            self.out_at, self.err_at = os.lseek(OUT_FD, 0, 1), os.lseek(ERR_FD, 0, 1)
        log, self.heard = self.log_at, False
        self.log_at = os.lseek(LOG_FD, 0, 1)
        cpu = time.process_time_ns()
        costs = COSTS.pack(
            out, self.out_at, err, self.err_at, log, self.log_at, cpu - self.cpu_at, self.hygiene.peak_bytes()
        ) + VALUE.pack(kind, raw if blob is None else len(blob))
        self.cpu_at = self.words[marker.CPU] = cpu
        left |= self.hygiene.tidy(duration, fn in self.unproven or fn < 0)
        if fn in self.unproven:
            if left or spoke or duration > LONG_NS:
                self.unproven[fn] = PROVEN_RUNS
            elif self.unproven[fn] > 1:
                self.unproven[fn] -= 1
            else:
                del self.unproven[fn]
        return costs

    def look_at_proven(self) -> None:
        """Hygiene of functions that ran clean so far: before the next batch, at most once per millisecond."""
        now = time.monotonic_ns()
        if now - self.tidied_at > TIDY_NS:
            self.tidied_at = now
            if self.hygiene.tidy():
                for fn in self.ran:
                    self.unproven[fn] = PROVEN_RUNS
                if self.hygiene.spoiled:
                    self.retire()
            self.ran.clear()

    def retire(self) -> None:
        """What is missing, or was left here by a job, cannot be set right: end; jobs not begun go to others."""
        if self.count:
            self.flush()
        os._exit(0)

    def learn(self, what: int, number: Any, data: Any) -> None:
        """Take what the parent tells: a function, what to say of jobs, or how to prepare `__main__`."""
        if what == wire.DEFINE:
            self.pickled[number] = data
            self.unproven[number] = PROVEN_RUNS
        elif what == wire.ABOUT:
            self.about = data
            self.metered = data[7]
            self.call = self.limited if any(data[8:]) else self.attempt
        elif not self.main_ready and not self.initialized:
            self.retire()  # the next one is born with it: what an import takes is no job's time
        elif not self.main_ready:
            self.main_ready = True
            error = tried(lambda: import_main(pickle.loads(data)))
            if error:  # no worker could do better: the pool ends, and says why
                tell(error)
                os._exit(1)
