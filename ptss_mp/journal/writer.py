"""The journal of a pool: what its threads put in, one thread commits, and outcomes are told when they are on disk.

Entries are written in the order in which they were put, each at the stage at which it was put.  So whatever is on disk
is a prefix of what has happened, though dependents start before the commit of what they waited for.
"""

from __future__ import annotations

import contextlib
import os
import queue
import sqlite3
import sys
import threading
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from logging import CRITICAL, ERROR, WARNING
from typing import TYPE_CHECKING, Any

from .. import wire
from ..core import events as on
from ..errors import PoolBroken
from ..future import CALL, Future
from ..keyed import Keyed
from ..outcome import instant_text
from ..shell.clock import difference, monotonic_ns
from ..shell.report import Report
from . import started, store
from .asking import Asking
from .entry import ACCEPTED, SETTLED, STARTED, row_of
from .opening import Opened
from .place import refused

if TYPE_CHECKING:
    from ..shell.desk import Desk

WAIT_NS = 5_000_000  # the longest that an entry waits for others to share its commit
NAP_S = 0.0005  # between two looks whether somebody waits for the commit
BATCH_MAX = 500  # entries of one commit: about ten milliseconds of the processor
QUEUE_MAX = 2_000  # entries not on disk: beyond it `submit` waits, and no job is started; about 50 ms of work
OWED_BYTES_MAX = 64 << 20  # of values not on disk: beyond it no job is started
PAUSES_S = (0.1, 1.0)  # between two tries to write: the first, and the longest
PATIENCE_S = 10.0  # a pool that is to end gives up once it could not write for so long
REPEAT_S = 10.0  # what was said is not said again so soon


class Journal(Asking):
    """What a pool keeps on disk.  Constructing opens nothing.

    Args:
        path: of the database.
        resume: False: there must be no outcomes in it; True: what is settled there is not run; "failed": what has
            succeeded is not run.
        rerun: run again what ran when the program ended; else it is settled `interrupted`.

    Attributes:
        failing: why nothing can be written at the moment, or "".
        lost: why outcomes could not be written to the end, or "".
        program: (path, digest) of what runs, for the next run to compare.
        before: the same of the run before.
        only_after: what must have run before: the name of a file, or module:function; "": anything.
    """

    def __init__(self, path: str, resume: bool | str, rerun: bool) -> None:
        super().__init__(path, resume, rerun)
        self.failing = self.lost = ""
        self.program: tuple[str, str | None] = (_main(), None)
        self.before: tuple[str | None, str | None] = (None, None)
        self.only_after = ""
        self._desk: Desk | None = None
        self._thread = threading.Thread()  # until `open`
        self._clear()

    def _clear(self) -> None:
        self._opened: Opened | None = None
        self._started: started.Started | None = None
        self._room = threading.Condition()
        self._retry = threading.Event()
        self._queue: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._run_number = 0
        self._put_started = self._done_started = 0  # lines of `started`: the loop's count, the writer's
        self._put_settled = 0
        self._put_bytes = self._done_bytes = 0
        self._failing_at = self._closing_at = self._begun_at = 0
        self._said, self._told = ("", -REPEAT_S), False  # the last fault, and when; that it goes by is to be told
        self._held = False  # the loop was told to start nothing

    # ------------------------------------------------------------------ the beginning (the thread that starts the pool)

    def open(self, desk: Desk) -> None:
        """Take the file, look through it, recover what a run that died has left, and start the thread.

        Raises:
            JournalError: it cannot be used; then nothing of it is held.
        """
        self._clear()
        self._desk, self.path = desk, os.path.abspath(self.path)
        self._opened = opened = Opened(
            self.path, bool(self.resume), self.program, exact=not self.rerun, only_after=self.only_after
        )
        self._ask(opened)
        self._run_number, self._started, self.before = opened.run, opened.started, opened.before
        self._thread = threading.Thread(target=self._run, args=(opened.db,), name=f"{desk.name}-journal", daemon=True)
        self._thread.start()

    # ------------------------------------------------------------------ submitting threads

    def accept(self, future: Future[Any]) -> None:
        """Put a new job in; wait while too much is not on disk.

        Raises:
            JournalError: nothing can be written at the moment.
        """
        if self._queue.qsize() > QUEUE_MAX:
            with self._room:
                while self._queue.qsize() > QUEUE_MAX and not (self.failing or self.lost or self._closing_at):
                    self._room.wait(1.0)
        if self.failing or self.lost:
            raise refused(self.path, "io", f"no job is accepted: {self.failing or self.lost}")
        self._queue.put((ACCEPTED, future))

    # ------------------------------------------------------------------ the loop thread; `settle` also who cancels

    @property
    def shut(self) -> bool:
        """True: no job may start now."""
        self._held = True  # first: the writer wakes the loop if it sees this behind what it has done
        owed_bytes = self._put_bytes - self._done_bytes
        self._held = bool(self.failing) or self._queue.qsize() > QUEUE_MAX or owed_bytes > OWED_BYTES_MAX
        return self._held

    def begin(self, futures: Sequence[Any], now: int) -> bool:
        """Note that jobs are about to start, before their calls leave; return False: they must not."""
        new = [future for future in futures if not future._began_ns]
        for future in new if self.rerun else ():  # several may be sent at once: what is sent need not begin
            future._began_ns = now
        if not new or self.rerun:
            return True  # further attempts
        if self._started:
            to_wall = difference()
            lines = [
                started.Line(self._base + f._id, f._key, f._use.name, f._submitted + to_wall, now + to_wall)
                for f in new
            ]
            try:
                self._started.write(lines, self._put_started + len(new), self._done_started)
            except OSError as error:
                self._fail(f"what starts cannot be noted: {error.strerror}")
                self._queue.put(None)  # the writer tries whether it can write, and then lets jobs start again
                return False
        self._put_started += len(new)
        for future in new:
            future._began_ns = now
            self._queue.put((STARTED, future))
        return True

    def settle(self, future: Keyed[Any], state: str) -> bool:
        """Take a job that has ended; it is told when that is on disk.  A cancel is told at once."""
        report, desk = future._report, self._desk
        assert desk
        if future._kind == CALL:
            future._kind, future._result = wire.NOTHING
        if state != "FINISHED":
            if future._began_ns or not (desk.core.dropping or desk.ended):
                self._queue.put((SETTLED, future))  # else it stays accepted: the next run makes it
            return Future._end(future, state)
        if isinstance(report, Report) and isinstance(report.cause, PoolBroken):
            return Future._end(future, state)  # it has not run, or nobody knows how it ended
        future._verdict = report.status if isinstance(report, Report) else "succeeded"
        if self.lost:
            self._give_up(future)
            return False
        desk.uncommitted[future._id] = future
        if future._kind > wire.BOOL:  # else it is a bare number
            self._put_bytes += len(future._result or b"")
        self._put_settled += 1
        self._queue.put((SETTLED, future))
        return False

    def after(self, what: Callable[[], object]) -> None:
        """Call `what` on the callback thread, behind the callbacks of all that was put in before."""
        self._queue.put(what)

    def remember_slot(self, name: str, slot: str | None, anchor: str | None = None) -> None:
        """Note the last slot of a recurring task whose run is over (ISO 8601 with Z), or its first one."""
        self._queue.put((name, anchor, slot))

    @property
    def is_stuck(self) -> bool:
        """True: it could not be written for so long that a pool that ends would give up."""
        at = self._failing_at
        return bool(at) and monotonic_ns() - at > PATIENCE_S * 1e9

    def finish(self) -> None:
        """Write what is left, and close; waits (loop thread, at its end)."""
        self._closing_at = self._closing_at or monotonic_ns()
        self._queue.put(...)
        self._retry.set()
        with self._room:
            self._room.notify_all()
        if self._thread.ident is not None:
            self._thread.join()

    def abandon(self) -> None:
        """In a fork of the program: hold nothing; the connections are the parent's, and are not touched."""
        if self._opened:
            self._opened.place.close()
        if self._started:
            self._started.close()

    # ------------------------------------------------------------------ the journal's thread

    def _run(self, db: sqlite3.Connection | None) -> None:
        try:
            last = False
            while not last:
                batch, last = self._gather()
                db = self._persist(db, batch, last)
                if db is None:
                    self._lose(batch)
                    break
                self._tell(batch)
                batch = []  # nobody keeps the last values alive
        except BaseException as error:
            assert self._desk
            desk, why = self._desk, self._fault(repr(error))
            desk.callbacks.log(CRITICAL, "the journal's thread failed: please report this", error=error)
            self.failing = why
            self._lose([])
            desk.control(lambda _now: desk._break(why))  # what waits to be started would wait for ever
        finally:
            self._close(db)

    def _gather(self) -> tuple[list[Any], bool]:
        """Return the entries of the next commit, and whether they are the last."""
        seen = self._put_settled
        batch, last = [self._queue.get()], False
        until, busy = monotonic_ns() + WAIT_NS, self._begun_at + WAIT_NS
        while (now := monotonic_ns()) < until and not self._closing_at:
            if now >= busy and self._put_settled != seen:
                break  # somebody waits, and the last commit is some time ago
            time.sleep(NAP_S)
        self._begun_at = monotonic_ns()
        with contextlib.suppress(queue.Empty):
            while len(batch) < BATCH_MAX and batch[-1] is not ...:
                batch.append(self._queue.get_nowait())
        if batch[-1] is ...:
            last = True
            batch.pop()
        return batch, last

    def _persist(self, db: sqlite3.Connection | None, batch: list[Any], last: bool) -> sqlite3.Connection | None:
        """Commit a batch, however long that takes; return the connection, None if there is no hope."""
        rows, slots = self._rows(batch)
        pauses = iter((PAUSES_S[0],))
        if None in batch:  # the loop could not write: see whether that goes by
            self._retry.wait(PAUSES_S[0])
        while True:
            try:
                if None in batch and self._started:
                    self._started.probe()
                db = db or store.reopened(self.path)
                with store.transaction(db):
                    store.put_jobs(db, rows)
                    store.put_slots(db, slots)
                    if last or None in batch:
                        ended = instant_text(datetime.now(UTC)) if last else None
                        db.execute("UPDATE runs SET ended = ? WHERE run = ?", (ended, self._run_number))
                self._recovered()
                return db
            except (sqlite3.Error, OSError) as error:
                if db:
                    with contextlib.suppress(sqlite3.Error):
                        db.close()
                    db = None
                self._fail(f"it cannot be written: {error}")
                if self._is_hopeless():
                    return None
                self._retry.wait(next(pauses, PAUSES_S[1]))
                if self._closing_at:
                    self._retry.clear()

    def _rows(self, batch: list[Any]) -> tuple[list[Any], list[Any]]:
        """Return the rows of jobs, each once, at its last stage; and those of tasks."""
        stages: dict[int, tuple[int, Keyed[Any]]] = {}
        slots = []
        for entry in batch:
            if type(entry) is not tuple:
                continue
            if len(entry) == 3:
                slots.append(entry)
                continue
            what, future = entry
            known = stages.get(future._id)
            if known is None or known[0] < what:
                stages[future._id] = what, future
        run, base = self._run_number, self._base
        rows = [row_of(future, what, base + number, run, future._began_ns) for number, (what, future) in stages.items()]
        return rows, slots

    def _tell(self, batch: list[Any]) -> None:
        """What is on disk may be told."""
        desk = self._desk
        assert desk
        begun = 0
        for entry in batch:
            if callable(entry):
                desk.callbacks.put(entry)
            if type(entry) is not tuple or len(entry) == 3:
                continue
            what, future = entry
            if what == STARTED:
                begun += 1
            elif what == SETTLED and desk.uncommitted.pop(future._id, None) is not None:
                if future._kind > wire.BOOL and future._result is not None:
                    self._done_bytes += len(future._result)
                self._end(future)
        self._done_started += begun
        with self._room:
            self._room.notify_all()
        if self._held or desk.drainers:
            desk.wake()

    def _end(self, future: Future[Any]) -> None:
        assert self._desk
        if Future._end(future, "FINISHED"):
            self._desk.callbacks.settled(future)

    # ------------------------------------------------------------------ faults

    def _fail(self, what: str) -> None:
        """Nothing can be written: accept and start nothing, and say so."""
        assert self._desk
        now = monotonic_ns()
        self._failing_at = self._failing_at or now
        self.failing = self._fault(what)
        if self._said[0] != what or now / 1e9 - self._said[1] > REPEAT_S:
            self._said, self._told = (what, now / 1e9), True
            text = "%s; no job is accepted or started until it can be, what runs goes on"
            self._desk.callbacks.log(ERROR, text, self.failing)
        self._desk.wake()

    def _fault(self, what: str) -> str:
        return f"journal {self.path!r}: {what}"

    def _recovered(self) -> None:
        if self.failing:
            assert self._desk
            self.failing, self._failing_at = "", 0
            if self._told:
                self._told = False
                self._desk.callbacks.log(WARNING, "journal %r can be written again", self.path)
            self._desk.wake()

    def _is_hopeless(self) -> bool:
        """Return True if the pool ends, and writing has failed for long; if it only waits for that, let it end."""
        assert self._desk
        if self.is_stuck:
            self._desk.control(self._drop)
        return self.is_stuck and bool(self._closing_at)

    def _drop(self, now: int) -> on.Closed | None:
        """Cancel what waits to be started, if the pool is to end and nothing runs (loop thread)."""
        assert self._desk
        core = self._desk.core
        runs = any(worker.queue for worker in core.workers.values())
        return on.Closed(now, True) if self.failing and core.closed and not (runs or core.dropping) else None

    def _lose(self, batch: list[Any]) -> None:
        """Give up: no outcome that is not on disk is told as one."""
        assert self._desk
        self.lost = self.failing
        entries = iter(batch)
        with contextlib.suppress(queue.Empty):
            while True:
                for entry in entries:
                    if type(entry) is tuple and entry[0] == SETTLED:
                        self._give_up(entry[1])
                    elif callable(entry):
                        self._desk.callbacks.put(entry)
                entries = iter([self._queue.get_nowait()])
        for future in list(self._desk.uncommitted.values()):
            self._give_up(future)
        self._desk.wake()

    def _give_up(self, future: Future[Any]) -> None:
        assert self._desk
        if future.done():
            return
        report = Report("crashed", monotonic_ns())
        report.cause = PoolBroken(f"its outcome is not on disk, so nobody can rely on it: {self.lost}")
        report.error = str(report.cause)
        future._kind, future._result, future._report = 0, None, report
        self._desk.weights.add(1)
        self._desk.uncommitted.pop(future._id, None)
        self._end(future)

    # ------------------------------------------------------------------ the end

    def _close(self, db: sqlite3.Connection | None) -> None:
        """Let go of everything.  What `started` says stays if the database does not have it."""
        self._ask_no_more()
        if self._started:
            self._started.close()
            self._started = None
        if db:
            with contextlib.suppress(sqlite3.Error):
                db.close()
        if not self.lost:
            with contextlib.suppress(OSError):
                started.remove(self.path)
        if self._opened:
            self._opened.place.close()


def _main() -> str:
    path = getattr(sys.modules.get("__main__"), "__file__", None)
    return os.path.abspath(path) if isinstance(path, str) else ""
