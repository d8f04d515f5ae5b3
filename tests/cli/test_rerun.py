"""`rerun --failed`: the jobs file of a journal once more, but for what succeeded."""

from __future__ import annotations

import os
import signal
import sqlite3
from contextlib import closing

import pytest

from tests.cli.cli_support import assert_one_line, finish, jobs_file, ptss_mp, start

JOBS = """
def note(what):
    with open("calls", "a") as file:
        file.write(what + "\\n")

@task
def good(): note("good")

@task
def bad():
    note("bad")
    if not os.path.exists("fixed"): raise ValueError("not yet")

@task
def below(bad): note("below")
"""


@pytest.fixture
def here(tmp_path):
    jobs_file(tmp_path, JOBS)
    assert ptss_mp("run", "jobs.py", "--journal", "j.db", cwd=tmp_path).status == 1
    return tmp_path


def calls(here) -> list[str]:
    return (here / "calls").read_text().split()


def program(here, value: str, digest: str | None = "00") -> None:
    with closing(sqlite3.connect(here / "j.db")) as db:
        db.execute("UPDATE runs SET program = ?, program_digest = ?", (value, digest))
        db.commit()


def test_what_failed_runs_once_more(here):
    assert sorted(calls(here)) == ["bad", "good"]
    again = ptss_mp("rerun", "--failed", "j.db", "--no-progress", cwd=here)
    assert again.status == 1
    assert sorted(calls(here)) == ["bad", "bad", "good"]
    (here / "fixed").touch()
    fixed = ptss_mp("rerun", "--failed", "j.db", "--report", "r.json", "--no-progress", cwd=here)
    assert fixed.status == 0
    assert sorted(calls(here)) == ["bad", "bad", "bad", "below", "good"]
    assert fixed.lines[-1].startswith("3 jobs: 3 succeeded"), fixed
    assert (here / "r.json").exists()
    assert ptss_mp("failures", "j.db", cwd=here).status == 0


def test_some_of_it(here):
    assert ptss_mp("rerun", "--failed", "j.db", "--only", "good", cwd=here).status == 0
    assert sorted(calls(here)) == ["bad", "good"]


def test_usage(here):
    assert_one_line(ptss_mp("rerun", "j.db", cwd=here), 2, "--failed")
    assert_one_line(ptss_mp("rerun", "--failed", "j.db", "--state", "s", cwd=here), 2, "--state")
    assert_one_line(ptss_mp("rerun", "--failed", "j.db", "--report", "j.db", cwd=here), 2, "as well")


def test_no_journal_and_none_of_a_jobs_file(here):
    before = set(os.listdir(here))
    assert_one_line(ptss_mp("rerun", "--failed", "no.db", cwd=here), 66, "no.db")
    assert_one_line(ptss_mp("rerun", "--failed", "jobs.py", cwd=here), 65, "no SQLite database")
    (here / "jobs.py").rename(here / "moved.py")
    assert_one_line(ptss_mp("rerun", "--failed", "j.db", cwd=here), 66, "jobs.py", "not there")
    program(here, "/srv/night.py", None)
    assert_one_line(ptss_mp("rerun", "--failed", "j.db", cwd=here), 65, "of no jobs file", "/srv/night.py")
    program(here, "m:up", None)
    assert_one_line(ptss_mp("rerun", "--failed", "j.db", cwd=here), 65, "'m:up'", "--resume-failed")
    assert set(os.listdir(here)) - {"moved.py"} == before - {"jobs.py"}


def test_a_journal_that_others_may_write_names_no_program(here):
    """Else whoever writes to it would say what runs here."""
    (here / "other.py").write_text("open('ran', 'w')\n")
    program(here, str(here / "other.py"))
    (here / "j.db").chmod(0o666)
    assert_one_line(ptss_mp("rerun", "--failed", "j.db", cwd=here), 77, "others may write")
    assert not (here / "ran").exists()


def test_an_owner_that_lives(tmp_path, bell):
    jobs_file(tmp_path, f"@task\ndef one():\n    {bell.ring('in it')}\n    time.sleep(60)\n")
    with start("run", "jobs.py", "--journal", "j.db", "--grace", "0", cwd=tmp_path) as program:
        bell.wait()
        assert_one_line(ptss_mp("rerun", "--failed", "j.db", cwd=tmp_path), 75, "has it open")
        program.send_signal(signal.SIGTERM)
        assert finish(program).status == 143
