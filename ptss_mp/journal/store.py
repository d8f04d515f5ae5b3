"""The journal as an SQLite database: its schema, what is refused, what is read and written (docs/journal.md).

A file from elsewhere is hostile input: its schema must be ours to the letter (so it has no view or trigger of its
own), SQLite looks through its pages, and nothing in it is unpickled here.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence
from contextlib import closing
from typing import Any, NamedTuple

from ..keys import digest
from .place import Place, refused

APPLICATION_ID = 0x50545353  # "PTSS"
VERSION = 1
SQLITE_LEAST = (3, 37)  # of November 2021, for tables that hold what they declare (STRICT)
SCHEMA = (
    "CREATE TABLE runs(run INTEGER PRIMARY KEY, started TEXT, ended TEXT, host TEXT, pid INTEGER, boot TEXT,"
    " program TEXT, program_digest TEXT) STRICT",
    "CREATE TABLE jobs(job INTEGER PRIMARY KEY, run INTEGER NOT NULL, key TEXT NOT NULL, name TEXT NOT NULL,"
    " accepted TEXT NOT NULL, started TEXT, status TEXT, settled TEXT, facts TEXT, kind INTEGER, result BLOB) STRICT",
    "CREATE INDEX jobs_by_key ON jobs(key, job)",
    "CREATE TABLE tasks(name TEXT PRIMARY KEY, anchor TEXT, last TEXT) STRICT",
)
BUSY_S = 1.0  # a reader's tool may hold the database for a moment; longer, and it counts as a fault
BLOB_BYTES_MAX = 512 << 20  # of one result: SQLite itself takes no more than 1e9 bytes, and copies them
WAL_BYTES = 64 << 20  # kept of the write-ahead log once it has been copied back
# Rows of one statement: each statement lets go of the interpreter lock, and may wait 5 ms to have it back.
BATCHES = (256, 16, 1)
UPSERT = (
    "INSERT INTO jobs(job, run, key, name, accepted, started, status, settled, facts, kind, result) VALUES {}"
    " ON CONFLICT(job) DO UPDATE SET started = excluded.started, status = excluded.status,"
    " settled = excluded.settled, facts = excluded.facts, kind = excluded.kind, result = excluded.result"
)
_STATEMENTS = {count: UPSERT.format(", ".join(["(?,?,?,?,?,?,?,?,?,?,?)"] * count)) for count in BATCHES}


class Found(NamedTuple):
    """The newest row of a key."""

    job: int
    status: str | None
    facts: str | None
    kind: int | None
    result: bytes | None


def connect(path: str) -> sqlite3.Connection:
    """Return a connection that trusts nothing in the file, and waits for the disk at each commit."""
    made = sqlite3.connect(path, timeout=BUSY_S, isolation_level=None, check_same_thread=False)
    try:
        made.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, BLOB_BYTES_MAX + (1 << 20))
        if hasattr(made, "setconfig"):  # from Python 3.12 on
            made.setconfig(sqlite3.SQLITE_DBCONFIG_DEFENSIVE, True)  # type: ignore[attr-defined,unused-ignore]
        for pragma in ("trusted_schema = OFF", "cell_size_check = ON", "mmap_size = 0"):
            made.execute(f"PRAGMA {pragma}")
    except BaseException:
        made.close()
        raise
    return made


def writer(path: str) -> sqlite3.Connection:
    """Return a connection whose commits are on disk when they return."""
    made = connect(path)
    try:
        (mode,) = made.execute("PRAGMA journal_mode = WAL").fetchone()
        if mode != "wal":
            raise refused(path, "create", f"SQLite cannot keep a write-ahead log here (journal_mode {mode})")
        made.execute("PRAGMA synchronous = FULL")
        made.execute(f"PRAGMA journal_size_limit = {WAL_BYTES}")
    except BaseException:
        made.close()
        raise
    return made


def reopened(path: str) -> sqlite3.Connection:
    """Return a connection after a write has failed: nothing of the log is built upon.

    A sync that failed may have dropped what it should have written, and the next one succeeds without it (fsync(2),
    ERRORS).  So all that the log holds is copied into the database and synced there, and the log begins anew.
    """
    made = writer(path)
    try:
        busy, _, _ = made.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        if busy:
            raise sqlite3.OperationalError("another program reads the journal, and its log cannot be renewed")
    except BaseException:
        made.close()
        raise
    return made


def prepare(db: sqlite3.Connection, place: Place) -> None:
    """Make the tables of a new journal; look through one that is there.

    Raises:
        JournalError: it is not one of ours, or damaged.
    """
    path = place.path
    if sqlite3.sqlite_version_info < SQLITE_LEAST:
        text = f"it needs SQLite {'.'.join(map(str, SQLITE_LEAST))}, this Python has {sqlite3.sqlite_version}"
        raise refused(path, "create", text)
    (identity,), (version,) = (db.execute(f"PRAGMA {what}").fetchone() for what in ("application_id", "user_version"))
    objects = _objects(db)
    if not objects and (identity, version) in ((0, 0), (APPLICATION_ID, VERSION)):
        with transaction(db):
            db.execute(f"PRAGMA application_id = {APPLICATION_ID}")
            db.execute(f"PRAGMA user_version = {VERSION}")
            for statement in SCHEMA:
                db.execute(statement)
        return
    if identity != APPLICATION_ID:
        raise refused(path, "bad", "it is another program's SQLite database, not a journal of ptss_mp")
    if version > VERSION:
        text = f"its schema is number {version}, made by a newer ptss_mp; this one knows up to {VERSION}"
        raise refused(path, "bad", text)
    if version < 1 or objects != _expected():
        raise refused(path, "bad", "its tables are not those of a journal: it was changed by something else")
    found = db.execute("PRAGMA quick_check(1)").fetchone()
    if found != ("ok",):
        raise refused(path, "bad", f"it is damaged: {str(found[0])[:200]}")


def _objects(db: sqlite3.Connection) -> list[tuple[Any, ...]]:
    """Return all that a schema declares, but for statistics that ANALYZE has made."""
    rows = db.execute("SELECT type, name, tbl_name, sql FROM sqlite_schema ORDER BY name").fetchall()
    return [row for row in rows if not str(row[1]).startswith("sqlite_stat")]


def _expected() -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect(":memory:")) as db:
        for statement in SCHEMA:
            db.execute(statement)
        return _objects(db)


class transaction:
    """A transaction that is whole or not at all (a context manager)."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db

    def __enter__(self) -> None:
        self._db.execute("BEGIN IMMEDIATE")

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self._db.execute("COMMIT")
        elif self._db.in_transaction:  # else SQLite has rolled it back by itself
            self._db.execute("ROLLBACK")


def put_jobs(db: sqlite3.Connection, rows: Sequence[tuple[Any, ...]]) -> None:
    """Write rows of `jobs`, each as it is now."""
    at = 0
    for count in BATCHES:
        while len(rows) - at >= count:
            db.execute(_STATEMENTS[count], [value for row in rows[at : at + count] for value in row])
            at += count


def put_slots(db: sqlite3.Connection, slots: Iterable[tuple[str, str | None, str | None]]) -> None:
    """Write (name, anchor, last) of recurring tasks; None leaves what is there."""
    for name, anchor, last in slots:
        db.execute(
            "INSERT INTO tasks(name, anchor, last) VALUES (?, ?, ?) ON CONFLICT(name) DO UPDATE SET"
            " anchor = coalesce(excluded.anchor, anchor), last = coalesce(excluded.last, last)",
            (name, anchor, last),
        )


class Lookup:
    """What submitting threads ask: was this key given before, in this run or an earlier one?

    Which keys this run has used stands in a temporary table: for a million of them memory stays flat.  Not for
    several threads at once.
    """

    def __init__(self, path: str) -> None:
        self._db = connect(path)
        self._db.execute("CREATE TEMP TABLE used(digest BLOB PRIMARY KEY, times INTEGER) WITHOUT ROWID, STRICT")

    def claim(self, key: str) -> int:
        """Return how often a key was claimed in this run, this time included."""
        statement = "INSERT INTO used VALUES (?, 1) ON CONFLICT DO UPDATE SET times = times + 1 RETURNING times"
        return int(self._db.execute(statement, (digest(key.encode()),)).fetchall()[0][0])

    def unclaim(self, key: str, times: int) -> None:
        """Take a claim back, unless there was another one behind it."""
        self._db.execute(
            "UPDATE used SET times = times - 1 WHERE digest = ? AND times = ?", (digest(key.encode()), times)
        )

    def find(self, key: str) -> Found | None:
        """Return the newest row of a key."""
        statement = "SELECT job, status, facts, kind, result FROM jobs WHERE key = ? ORDER BY job DESC LIMIT 1"
        rows = self._db.execute(statement, (key,)).fetchall()
        return Found(*rows[0]) if rows else None

    def slot(self, name: str) -> tuple[str | None, str | None]:
        """Return (anchor, last slot) of a recurring task."""
        rows = self._db.execute("SELECT anchor, last FROM tasks WHERE name = ?", (name,)).fetchall()
        return rows[0] if rows else (None, None)

    def close(self) -> None:
        """Let go of the file."""
        self._db.close()


def owner_of(path: str) -> str:
    """Return who has a journal open, in words, "" if it does not say."""
    try:
        with closing(sqlite3.connect(f"file:{_quoted(path)}?mode=ro", uri=True, timeout=BUSY_S)) as db:
            db.execute("PRAGMA trusted_schema = OFF")
            found = db.execute("SELECT pid, started, host, program FROM runs ORDER BY run DESC LIMIT 1").fetchone()
    except sqlite3.Error:
        return ""
    if not found:
        return ""
    pid, started, host, program = (str(fact)[:200] for fact in found)
    return f"process {pid} on {host} ({program}) has it open since {started}"


def _quoted(path: str) -> str:
    from urllib.parse import quote

    return quote(path, errors="surrogateescape")
