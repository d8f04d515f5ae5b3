"""Reading a journal: a database of another program, until it is shown to be ours; and then of who knows whom.

Nothing is written, nothing in it is run (no view, trigger or generated column is there, no function of a schema is
trusted), the bytes of results are not even read, and what is shown has a bound and a known type.
"""

from __future__ import annotations

import contextlib
import json
import os
import sqlite3
import stat
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NoReturn
from urllib.parse import quote

from ..journal.store import APPLICATION_ID, VERSION
from .exits import CommandError, Exit

HEAD, HEAD_BYTES = b"SQLite format 3\0", 100
TABLES = {
    "runs": "run started ended host pid boot program program_digest",
    "jobs": "job run key name accepted started status settled facts kind result",
    "tasks": "name anchor last",
}
VALUE_BYTES_MAX = 64 << 20  # of one value that is read; results, which are longer, are not
FACTS_CHARS_MAX = 16 << 20  # output, stack and texts of an outcome have bounds far below
BUSY_S = 5.0
_NUMBER = (int, float)
# What an outcome tells, and of which type it is; anything else is not shown.
FACTS: dict[str, tuple[type, ...]] = {
    **dict.fromkeys(("error", "stack", "stdout", "stderr", "root", "signal_name", "deadline"), (str,)),
    **dict.fromkeys(("signal", "exit_code", "max_rss", "attempts", "worker_pid"), (int,)),
    **dict.fromkeys(("cpu_time", "wall_time", "limit", "observed", "tardiness"), _NUMBER),
}
_COLUMNS = (
    "job, run, key, name, accepted, started, status, settled,"
    f" CASE WHEN length(facts) <= {FACTS_CHARS_MAX} THEN facts END"
)


@dataclass(frozen=True, slots=True)
class Run:
    """A run that used the journal; instants as text, `digest` of a jobs file."""

    number: int
    started: str
    ended: str | None
    host: str
    pid: int
    program: str
    digest: str


@dataclass(frozen=True, slots=True)
class Entry:
    """A job of a run; `status` None: it was accepted, and has not settled."""

    job: int
    run: int
    key: str
    name: str
    accepted: str
    started: str | None
    status: str | None
    settled: str | None
    facts: dict[str, Any] = field(default_factory=dict)


class Ledger:
    """An open journal (a context manager).

    Raises:
        CommandError: missing, no permission, no journal of ours, busy.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        _check_head(path)
        try:
            self._db = _connect(path)
            try:
                self._check()
            except BaseException:
                self._db.close()
                raise
        except sqlite3.Error as error:
            self._unreadable(error)

    def __enter__(self) -> Ledger:
        return self

    def __exit__(self, *_: object) -> None:
        self._db.close()

    def runs(self) -> Iterator[Run]:
        """Yield the runs, in order."""
        for row in self._rows("SELECT run, started, ended, host, pid, program, program_digest FROM runs ORDER BY run"):
            number, started, ended, host, pid, program, digest = row
            yield Run(
                self._int(number), _text(started), _text(ended) or None, _text(host), _int(pid), _text(program),
                _text(digest),
            )  # fmt: skip

    def jobs(self) -> Iterator[Entry]:
        """Yield all jobs of all runs, in the order in which they were accepted."""
        return self._entries(f"SELECT {_COLUMNS} FROM jobs ORDER BY job")

    def failures(self) -> Iterator[Entry]:
        """Yield the last state of each key that has ended, and not well."""
        ended = "SELECT max(job) FROM jobs AS other WHERE other.key = jobs.key AND other.status IS NOT NULL"
        good = "status NOT IN ('succeeded', 'skipped')"
        return self._entries(f"SELECT {_COLUMNS} FROM jobs WHERE {good} AND job = ({ended}) ORDER BY job")

    def of(self, job: str) -> Iterator[Entry]:
        """Yield the states of one job, by its key or its name, the last one first."""
        return self._entries(f"SELECT {_COLUMNS} FROM jobs WHERE key = ?1 OR name = ?1 ORDER BY job DESC", job)

    def _entries(self, query: str, *values: str) -> Iterator[Entry]:
        for job, run, key, name, accepted, started, status, settled, facts in self._rows(query, *values):
            if not all(isinstance(value, str) for value in (key, name, accepted)):
                self._damaged(f"row {job} has no key, no name or no instant")
            yield Entry(
                self._int(job), self._int(run), key, name, accepted, _text(started) or None, _text(status) or None,
                _text(settled) or None, _facts(facts),
            )  # fmt: skip

    def _rows(self, query: str, *values: str) -> Iterator[Any]:
        try:
            yield from self._db.execute(query, values)
        except sqlite3.Error as error:
            self._unreadable(error)

    def _check(self) -> None:
        (identity,), (version,) = (self._db.execute(f"PRAGMA {what}").fetchone() for what in _IDENTITY)
        if identity != APPLICATION_ID:
            self._refuse("it is another program's database")
        if version > VERSION:
            self._refuse(f"its schema is number {version}, made by a newer ptss_mp; this one knows up to {VERSION}")
        kinds = {name: kind for kind, name in self._db.execute("SELECT type, name FROM sqlite_schema")}
        for table, columns in TABLES.items():
            there = self._db.execute(f"PRAGMA table_xinfo({table})").fetchall()
            plain = [row[1] for row in there if not row[6]]  # not generated: what is, is a program
            if kinds.get(table) != "table" or plain != columns.split() or len(there) != len(plain):
                self._refuse("its tables are not those of a journal")
        if version < 1 or not set(kinds.values()) <= {"table", "index"}:
            self._refuse("its tables are not those of a journal")

    def _int(self, value: Any) -> int:
        if not isinstance(value, int):
            self._damaged("a number is none")
        return value

    def _damaged(self, why: str) -> NoReturn:
        raise CommandError(Exit.BAD_FILE, f"{self._path}: the journal is damaged: {why}")

    def _refuse(self, why: str) -> NoReturn:
        raise CommandError(Exit.BAD_FILE, f"{self._path}: no journal of ptss_mp: {why}")

    def _unreadable(self, error: sqlite3.Error) -> NoReturn:
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF
        if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
            raise CommandError(Exit.BUSY, f"{self._path}: another program keeps it locked: {error}") from None
        if code in (sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM):
            raise CommandError(Exit.NO_PERMISSION, f"{self._path}: {error}") from None
        self._damaged(str(error)[:200])


_IDENTITY = ("application_id", "user_version")


def _check_head(path: str) -> None:
    """Refuse what is no SQLite database before SQLite looks at it; a FIFO would block."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except PermissionError:
        raise CommandError(Exit.NO_PERMISSION, f"{path}: no permission to read it") from None
    except (OSError, ValueError) as error:
        raise CommandError(Exit.MISSING, f"{path}: {getattr(error, 'strerror', None) or error}") from None
    try:
        found, head = os.fstat(fd), b""
        if stat.S_ISREG(found.st_mode):
            head = os.pread(fd, HEAD_BYTES, 0)
        if not head.startswith(HEAD):
            raise CommandError(Exit.BAD_FILE, f"{path}: no journal of ptss_mp: it is no SQLite database")
        if not _logged(path) and found.st_size < _size(head):
            raise CommandError(Exit.BAD_FILE, f"{path}: the journal is damaged: its end is missing")
    finally:
        os.close(fd)


def _size(head: bytes) -> int:
    """Return how long a database says it is (sqlite.org/fileformat2.html, 1.3); a page size of 1 means 64 KiB."""
    if len(head) < HEAD_BYTES:
        return HEAD_BYTES
    page = int.from_bytes(head[16:18], "big")
    return (page if page != 1 else 1 << 16) * int.from_bytes(head[28:32], "big")


def _logged(path: str) -> bool:
    """Return True if there is a write-ahead log: somebody writes, or was killed when he did."""
    return os.path.exists(path + "-wal")


def _connect(path: str) -> sqlite3.Connection:
    """Return a connection that reads.

    Without a write-ahead log nobody writes and nothing is to be recovered; it is read as it lies, for else SQLite
    would make a log beside it, and leave it there (seen with 3.40).
    """
    how = "mode=ro" if _logged(path) else "immutable=1"
    db = sqlite3.connect(f"file:{quote(os.fsencode(os.path.abspath(path)))}?{how}", uri=True, timeout=BUSY_S)
    try:
        db.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, VALUE_BYTES_MAX)
        for pragma in ("trusted_schema = OFF", "cell_size_check = ON", "query_only = ON", "mmap_size = 0"):
            db.execute(f"PRAGMA {pragma}")
    except BaseException:
        db.close()
        raise
    db.text_factory = lambda data: data.decode("utf-8", "backslashreplace")
    return db


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _int(value: Any) -> int:
    return value if isinstance(value, int) else 0


def _facts(text: Any) -> dict[str, Any]:
    """Return those facts that are such; what is none is None."""
    found: Any = {}
    if isinstance(text, str):
        with contextlib.suppress(ValueError, RecursionError):
            found = json.loads(text)
    found = found if isinstance(found, dict) else {}
    return {name: found[name] if type(found.get(name)) in kinds else None for name, kinds in FACTS.items()}
