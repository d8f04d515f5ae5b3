"""`failures`, `history`, `explain`: a journal read, whoever wrote it."""

from __future__ import annotations

import json
import os
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from tests.cli.cli_support import WITHOUT_OVERRIDE, finish, ptss_mp, start

# The schema that docs/journal.md describes; a journal of it is what these commands read.
SCHEMA = """
PRAGMA application_id = 0x50545353;
PRAGMA user_version = 1;
CREATE TABLE runs(run INTEGER PRIMARY KEY, started TEXT, ended TEXT, host TEXT, pid INTEGER, boot TEXT,
 program TEXT, program_digest TEXT) STRICT;
CREATE TABLE jobs(job INTEGER PRIMARY KEY, run INTEGER NOT NULL, key TEXT NOT NULL, name TEXT NOT NULL,
 accepted TEXT NOT NULL, started TEXT, status TEXT, settled TEXT, facts TEXT, kind INTEGER, result BLOB) STRICT;
CREATE INDEX jobs_by_key ON jobs(key, job);
CREATE TABLE tasks(name TEXT PRIMARY KEY, anchor TEXT, last TEXT) STRICT;
"""
AT = "2026-12-01T02:00:0{}Z"
FACTS = {
    "error": None, "stack": None, "stdout": "", "stderr": "", "root": None, "signal_name": None, "deadline": None,
    "signal": None, "exit_code": None, "max_rss": 12 << 20, "attempts": 1, "worker_pid": 77, "cpu_time": 0.5,
    "wall_time": 1.25, "limit": None, "observed": None, "tardiness": 0.0,
}  # fmt: skip
BAD = {
    "error": "ValueError: no \x1b[31m", "stderr": "its last word\n", "attempts": 2, "root": None,
    "stack": 'Traceback (most recent call last):\n  File "/srv/jobs.py", line 7, in convert\nValueError: no\n',
}  # fmt: skip
D = ":" + "0" * 32  # of a key's digest
ROWS = [  # (run, key, name, started, status, facts)
    (1, f"k.load{D}", "load", 1, "succeeded", FACTS),
    (1, f"k.convert{D}", "convert", 1, "failed", FACTS | BAD),
    (1, f"k.again{D}", "again", 1, "crashed", FACTS | {"signal": 11, "signal_name": "SIGSEGV"}),
    (1, f"k.alarm{D}", "alarm", 0, "skipped", FACTS | {"attempts": 0, "wall_time": None}),
    (2, f"k.again{D}", "again", 1, "succeeded", FACTS),
    (2, f"k.slow{D}", "slow", 1, "timeout", FACTS | {"error": "ran 2 s", "limit": 2.0, "observed": 2.01}),
    (2, f"k.open{D}", "open", 1, None, None),
    (2, f"k.next{D}", "next", 0, None, None),
]


@pytest.fixture
def journal(tmp_path) -> Path:
    path = tmp_path / "j.db"
    make(path, ROWS)
    return path


def make(path: Path, rows=(), schema: str = SCHEMA) -> None:
    with closing(sqlite3.connect(path)) as db:
        db.executescript("PRAGMA journal_mode = WAL;" + schema)
        for number, ended in ((1, AT.format(5)), (2, None)):
            run = (number, AT.format(0), ended, "host", 4711, "boot", "/srv/jobs.py", "00")
            db.execute("INSERT INTO runs VALUES (?, ?, ?, ?, ?, ?, ?, ?)", run)
        for number, (run, key, name, started, status, facts) in enumerate(rows, 1):
            began, settled = AT.format(2) if started else None, AT.format(3) if status else None
            told = None if facts is None else json.dumps(facts)
            row = (number, run, key, name, AT.format(1), began, status, settled, told, 9, b"cos\nsystem\n(S'true'\ntR.")
            db.execute("INSERT INTO jobs VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", row)
        db.commit()


class TestFailures:
    def test_each_job_as_it_ended_last(self, journal):
        ended = ptss_mp("failures", journal)
        assert ended.status == 1, ended
        assert ended.out.splitlines() == [
            "convert: failed: ValueError: no \\x1b[31m | at /srv/jobs.py:7 in convert | 1.2 s | 12.0 MiB | 2 attempts"
            " | stderr: its last word",
            "slow: timeout: ran 2 s | 1.2 s | 12.0 MiB",
        ]
        assert ended.lines == [f"{journal}: 2 jobs failed"]

    def test_as_json(self, journal):
        first, second = map(json.loads, ptss_mp("failures", "--json", journal).out.splitlines())
        assert (first["key"], first["status"]) == (f"k.convert{D}", "failed")
        assert first["facts"]["stderr"] == "its last word\n"
        assert (second["name"], second["run"], second["facts"]["limit"]) == ("slow", 2, 2.0)

    def test_none(self, tmp_path):
        make(tmp_path / "j.db", ROWS[:1])
        ended = ptss_mp("failures", "j.db", cwd=tmp_path)
        assert (ended.status, ended.out, ended.lines) == (0, "", ["j.db: 0 jobs failed"])


class TestHistory:
    def test_all_runs_with_what_they_did(self, journal):
        ended = ptss_mp("history", journal)
        assert ended.status == 0, ended
        lines = ended.out.splitlines()
        assert lines[0] == f"run 1: {AT.format(0)} to {AT.format(5)}, pid 4711 on host: /srv/jobs.py"
        assert lines[1] == f"  {AT.format(3)} load: succeeded | 1.2 s"
        assert lines[5].startswith(f"run 2: {AT.format(0)} (its end is not noted")
        assert lines[8:] == [
            f"  {AT.format(1)} open: started, and not settled",
            f"  {AT.format(1)} next: accepted, and not settled",
        ]
        assert ended.lines == [
            f"{journal}: 8 jobs: 2 succeeded, 1 failed, 1 crashed, 1 timeout, 1 skipped, 2 not settled"
        ]

    def test_as_json(self, journal):
        told = [json.loads(line) for line in ptss_mp("history", journal, "--json").out.splitlines()]
        assert [row["job"] for row in told] == list(range(1, 9))
        assert set(told[0]) == {"job", "run", "key", "name", "accepted", "started", "status", "settled", "facts"}

    def test_of_many_jobs(self, tmp_path):
        make(tmp_path / "j.db", [(1, f"k{n}", "f", 1, "succeeded", FACTS) for n in range(20_000)])
        ended = ptss_mp("history", "j.db", cwd=tmp_path)
        assert len(ended.out.splitlines()) == 20_002


class TestExplain:
    @pytest.mark.parametrize("word", ["convert", f"k.convert{D}"])
    def test_a_job(self, journal, word):
        ended = ptss_mp("explain", journal, word)
        assert ended.status == 0, ended
        assert ended.out.splitlines()[1:] == [
            f"  key k.convert{D}, run 1 of /srv/jobs.py on host",
            f"  {AT.format(1)} accepted",
            f"  {AT.format(2)} started, the last time by the worker with pid 77",
            f"  {AT.format(3)} failed after 2 attempts",
            "  cpu 0.500 s, peak 12.0 MiB",
            "  --- stack ---",
            "  Traceback (most recent call last):",
            '    File "/srv/jobs.py", line 7, in convert',
            "  ValueError: no",
            "  --- stderr ---",
            "  its last word",
        ]

    def test_the_newest_first(self, journal):
        told = [json.loads(line)["status"] for line in ptss_mp("explain", journal, "again", "--json").out.splitlines()]
        assert told == ["succeeded", "crashed"]

    def test_of_many_some(self, tmp_path):
        make(tmp_path / "j.db", [(1, f"k{n}", "f", 1, "succeeded", FACTS) for n in range(50)])
        ended = ptss_mp("explain", "j.db", "f", "--json", cwd=tmp_path)
        assert [json.loads(line)["job"] for line in ended.out.splitlines()] == list(range(50, 30, -1))
        assert ended.lines == ["30 older ones are not shown; one of them may be asked for by its key"]

    def test_one_that_is_not_there(self, journal):
        ended = ptss_mp("explain", journal, "a\x1b[31m\n")
        assert (ended.status, ended.out, len(ended.lines)) == (66, "", 1)
        assert r"a\x1b[31m\n" in ended.err


COMMANDS = pytest.mark.parametrize("command", [("failures",), ("history",), ("explain", "x")], ids=lambda c: c[0])


def ask(command, path, cwd=None):
    return ptss_mp(command[0], path, *command[1:], cwd=cwd)


@COMMANDS
class TestBadInput:
    @pytest.mark.parametrize(
        ("make_it", "status", "word"),
        [
            (lambda path: None, 66, "No such file"),
            (lambda path: path.mkdir(), 65, "no SQLite database"),
            (os.mkfifo, 65, "no SQLite database"),
            (lambda path: path.write_bytes(b""), 65, "no SQLite database"),
            (lambda path: path.write_bytes(os.urandom(9000)), 65, "no SQLite database"),
            (lambda path: path.write_bytes(b"SQLite format 3\0" + os.urandom(9000)), 65, "damaged"),
            (lambda path: make(path, schema=SCHEMA.replace("0x50545353", "7")), 65, "another program's"),
            (lambda path: make(path, schema=SCHEMA.replace("user_version = 1", "user_version = 2")), 65, "newer"),
            (lambda path: make(path, schema=SCHEMA.replace("user_version = 1", "user_version = 0")), 65, "tables"),
            (lambda path: make(path, schema=SCHEMA + "CREATE VIEW v AS SELECT 1;"), 65, "tables"),
            (lambda path: make(path, schema=SCHEMA + "CREATE TRIGGER t AFTER INSERT ON tasks BEGIN SELECT 1; END;"), 65,
             "tables"),
            (lambda path: make(path, schema=SCHEMA.replace("last TEXT", "last TEXT AS (hex(name))")), 65, "tables"),
            (lambda path: make(path, schema=SCHEMA.replace("CREATE TABLE tasks", "CREATE TABLE other")), 65, "tables"),
        ],
        ids=["missing", "folder", "fifo", "empty", "random", "random behind a head", "foreign", "newer", "older",
             "view", "trigger", "generated", "a table is missing"],
    )  # fmt: skip
    def test_what_is_no_journal(self, tmp_path, command, make_it, status, word):
        make_it(tmp_path / "j.db")
        ended = ask(command, "j.db", tmp_path)
        assert (ended.status, ended.out, len(ended.lines)) == (status, "", 1), ended
        assert word in ended.err
        assert "Traceback" not in ended.err

    def test_truncated(self, journal, command):
        data = journal.read_bytes()
        for size in [*range(0, len(data), 1999), len(data) - 1]:
            journal.write_bytes(data[:size])
            ended = ask(command, journal)
            assert ended.status == 65, (size, ended)
            assert len(ended.lines) == 1, (size, ended)

    def test_unreadable(self, journal, command):
        journal.chmod(0)
        with start(command[0], journal, *command[1:], by=WITHOUT_OVERRIDE) as program:
            ended = finish(program)
        assert (ended.status, len(ended.lines)) == (77, 1), ended

    @pytest.mark.parametrize("facts", ["{", "[1]", '{"stderr": 7, "signal": "x", "wall_time": [], "limit": true}',
                                       "[" * 100_000, '{"max_rss": 1e400}', "{}"])  # fmt: skip
    def test_facts_that_are_none(self, journal, command, facts):
        with closing(sqlite3.connect(journal)) as db:
            db.execute("UPDATE jobs SET facts = ?, name = 'x' WHERE status IS NOT NULL", (facts,))
            db.commit()
        ended = ask(command, journal)
        assert ended.status in (0, 1), ended
        assert "Traceback" not in ended.err

    def test_a_result_too_large_to_be_read_is_not_read(self, journal, command):
        with closing(sqlite3.connect(journal)) as db:
            db.execute("UPDATE jobs SET result = zeroblob(100000000), name = 'x' WHERE job = 1")
            db.commit()
        assert ask(command, journal).status in (0, 1)

    def test_nothing_is_left_beside_it(self, journal, command):
        before = journal.read_bytes()
        ask(command, journal)
        assert os.listdir(journal.parent) == ["j.db"]
        assert journal.read_bytes() == before

    def test_while_it_is_written(self, journal, command):
        with closing(sqlite3.connect(journal)) as db:
            db.execute("BEGIN IMMEDIATE")
            db.execute("UPDATE jobs SET name = 'x'")
            db.commit()
            db.execute("BEGIN IMMEDIATE")
            db.execute("UPDATE jobs SET name = 'y'")
            ended = ask(command, journal)
            db.execute("ROLLBACK")
        assert ended.status in (0, 1), ended
        assert "x: " in ended.out


@pytest.mark.parametrize("args", [("failures",), ("history", "a", "b"), ("explain", "a"), ("history", "a", "--x")])
def test_usage(args):
    ended = ptss_mp(*args)
    assert (ended.status, ended.out, len(ended.lines)) == (2, "", 1), ended
