"""Opening a journal: whose it is, what it holds, and what a run that died has left in it."""

from __future__ import annotations

import os
import socket
import sqlite3
from datetime import UTC, datetime
from typing import Any

from ..errors import JournalError
from ..keys import storable
from ..outcome import instant_text
from . import started, store
from .entry import interrupted
from .place import Place, boot, refused

REASONS = {
    sqlite3.SQLITE_NOTADB: "bad", sqlite3.SQLITE_CORRUPT: "bad", sqlite3.SQLITE_ERROR: "bad",
    sqlite3.SQLITE_READONLY: "permission", sqlite3.SQLITE_PERM: "permission", sqlite3.SQLITE_CANTOPEN: "create",
}  # fmt: skip
JOBS_MAX = 1 << 61  # numbers of jobs; SQLite has 63 bits, and further ones must find room (started.py: 62)


class Opened:
    """A journal in the hands of this process.

    Args:
        path: absolute.
        resume: it may hold outcomes.
        program: (path, digest) of what runs.
        exact: note what starts before it does.
        only_after: what must have run before: the name of a file, or module:function; "": anything.

    Attributes:
        place: the file, locked.
        db: the connection that writes.
        lookup: the one that reads.
        started: where it is noted what starts, or None.
        base: the last job that was there before this run.
        run: the number of this one.
        before: (path, digest) of what ran in the run before.

    Raises:
        JournalError: it cannot be used; then nothing of it is held.
    """

    def __init__(self, path: str, resume: bool, program: tuple[str, str | None], exact: bool, only_after: str) -> None:
        self.place = _taken(path)
        self.db: sqlite3.Connection | None = None
        self.lookup: store.Lookup | None = None
        self.started: started.Started | None = None
        try:
            _check_head(self.place)
            self.db = store.writer(path)
            self.place.is_still()
            store.prepare(self.db, self.place)
            recover(self.db, path)
            self._begin(self.db, path, resume, program, only_after)
            self.lookup = store.Lookup(path)
            if exact:
                self.started = started.Started(path)
        except BaseException as error:
            self._let_go()
            if isinstance(error, ValueError):  # also a text, or an error's text, that is none
                raise refused(path, "bad", f"it is damaged: {error}") from None
            if isinstance(error, sqlite3.Error | OSError) and not isinstance(error, JournalError):
                raise refused(path, reason(error), f"it cannot be used: {error}") from None
            raise

    def _begin(
        self, db: sqlite3.Connection, path: str, resume: bool, program: tuple[str, str | None], only_after: str
    ) -> None:
        done = db.execute("SELECT 1 FROM jobs WHERE status IS NOT NULL LIMIT 1").fetchone()
        if done and not resume:
            text = "it holds outcomes of an earlier run: go on with it (resume=True, --resume), or name another file"
            raise refused(path, "used", text)
        last = db.execute("SELECT program, program_digest FROM runs ORDER BY run DESC LIMIT 1").fetchone()
        self.before: tuple[str | None, str | None] = last or (None, None)
        if only_after and self.before[0] and os.path.basename(self.before[0]) != only_after:
            raise refused(path, "bad", f"it is of {self.before[0]!r}, not of {only_after!r}")
        self.base = int(db.execute("SELECT coalesce(max(job), 0) FROM jobs").fetchone()[0])
        if not 0 <= self.base < JOBS_MAX:
            raise refused(path, "bad", f"it is damaged: its last job has the number {self.base}")
        now = instant_text(datetime.now(UTC))
        facts = (now, socket.gethostname(), os.getpid(), boot(), storable(program[0]), program[1])
        with store.transaction(db):
            made = db.execute(
                "INSERT INTO runs(started, host, pid, boot, program, program_digest) VALUES (?, ?, ?, ?, ?, ?)", facts
            )
        self.run = made.lastrowid or 0

    def _let_go(self) -> None:
        for owner in (self.lookup, self.started, self.db):
            if owner:
                owner.close()
        self.place.take_back()


def _taken(path: str) -> Place:
    try:
        return Place(path)
    except JournalError as error:
        who = store.owner_of(path) if error.reason == "busy" else ""
        if not who:
            raise
        raise refused(path, "busy", who, owner=who) from None


def _check_head(place: Place) -> None:
    """Refuse what is no SQLite database before SQLite looks at it; one whose making was cut off it rolls back."""
    head = os.pread(place.fd, 16, 0)
    if head and head != b"SQLite format 3\0" and not os.path.lexists(place.path + "-journal"):
        raise refused(place.path, "bad", "it is no SQLite database")


def reason(error: Exception) -> str:
    """Return of what kind an error is (`JournalError.reason`)."""
    if isinstance(error, sqlite3.Error):
        code = getattr(error, "sqlite_errorcode", None)
        return "io" if code is None else REASONS.get(code & 0xFF, "io")
    return "create"


def recover(db: sqlite3.Connection, path: str) -> None:
    """Settle as `interrupted` what ran when an earlier run died: by its files of what had started, and by its rows.

    Doing it again does nothing more: it may be cut off anywhere.
    """
    lines = started.read(path)
    now = datetime.now(UTC)
    with store.transaction(db):
        (run,) = db.execute("SELECT coalesce(max(run), 0) FROM runs").fetchone()
        for line in lines:
            accepted, began = (instant_text(datetime.fromtimestamp(ns / 1e9, UTC)) for ns in line[3:])
            there = db.execute("SELECT key, status FROM jobs WHERE job = ?", (line.job,)).fetchone()
            if there is None:  # it had started before it was on disk that it was accepted
                values = (line.job, run, line.key, line.name, accepted, began)
                db.execute("INSERT INTO jobs(job, run, key, name, accepted, started) VALUES (?, ?, ?, ?, ?, ?)", values)
            elif there == (line.key, None):
                db.execute("UPDATE jobs SET started = coalesce(started, ?) WHERE job = ?", (began, line.job))
        unsettled: list[Any] = db.execute(
            "SELECT job, name, key, accepted, started FROM jobs WHERE status IS NULL AND started IS NOT NULL"
        ).fetchall()
        for job, name, key, accepted, began in unsettled:
            facts = interrupted(name, key, accepted, began, now)
            change = "UPDATE jobs SET status = 'interrupted', settled = ?, facts = ? WHERE job = ?"
            db.execute(change, (instant_text(now), facts, job))
    started.remove(path)
