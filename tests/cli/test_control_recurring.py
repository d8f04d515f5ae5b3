"""A live run whose tasks recur: what `status` tells, and what the other verbs do to it."""

from __future__ import annotations

import json
import re
import sqlite3
import time
from contextlib import closing, contextmanager
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from tests.cli.cli_support import Ended, finish, jobs_file, ptss_mp, start, until

SOURCE = """
@task(interval="100ms")
def tick():
    with open("ticks", "a") as file: file.write("tick\\n")

@task
def below(tick): pass

@task(interval="1h")
def held():
    {ring}
    time.sleep(600)

@task(start_time="1h")
def later(): pass
"""


@contextmanager
def live(folder: Path, bell, *args: str):
    """A run whose `tick` ticks, and whose `held` runs."""
    jobs_file(folder, SOURCE.format(ring=bell.ring("here")))
    command = ("run", "jobs.py", "--workers", "2", "--no-progress", *args)
    with start(*command, cwd=folder, XDG_RUNTIME_DIR=str(folder)) as program:
        bell.wait()
        yield program


@pytest.fixture
def folder(tmp_path) -> Path:
    tmp_path.chmod(0o700)
    return tmp_path


def ask(folder: Path, *args: str) -> Ended:
    return ptss_mp(*args, folder / "jobs.py", XDG_RUNTIME_DIR=str(folder))  # others may be live on this machine


def status(folder: Path) -> dict:
    ended = ask(folder, "status", "--json")
    assert ended.status == 0, ended
    return json.loads(ended.out)


def ticks(folder: Path) -> int:
    return len((folder / "ticks").read_text().split()) if (folder / "ticks").exists() else 0


def test_status_tells_the_next_runs_and_the_end(folder, bell):
    with live(folder, bell, "--for", "1h") as program:
        until(lambda: ticks(folder) > 2)
        told = status(folder)
        words = ask(folder, "status")
        ask(folder, "stop", "--grace", "0")
        finish(program)
    assert told["total"] is None, "nobody knows"
    assert [task["name"] for task in told["recurring"]] == ["tick", "held"], "below comes with tick"
    began = datetime.fromisoformat(told["started"])
    tick, held = ({**task, "next": datetime.fromisoformat(task["next"])} for task in told["recurring"])
    assert tick["runs"] >= 2
    assert (held["runs"], timedelta(minutes=55) < held["next"] - began < timedelta(minutes=65)) == (0, True)
    assert abs(datetime.fromisoformat(told["until"]) - began - timedelta(hours=1)) < timedelta(minutes=1)
    assert re.search(r"^  held: 0 runs over, the next at \d{4}-\d\d-\d\dT\S+Z$", words.out, re.M), words
    assert re.search(r"^  until: \d{4}-", words.out, re.M), words


def test_cancel_ends_a_recurrence_and_what_runs_of_it(folder, bell):
    with live(folder, bell) as program:
        until(lambda: ticks(folder) > 1)
        told = ask(folder, "cancel", "held")
        assert (told.status, "cancelled held: 1 job, and no further run" in told.err) == (0, True), told
        assert [task["name"] for task in status(folder)["recurring"]] == ["tick"]
        assert ask(folder, "cancel", "held").status == 66, "there is none any more"
        assert ask(folder, "cancel", "tick").status == 0
        before = ticks(folder)
        told = ask(folder, "cancel", "later")
        assert (told.status, "cancelled later: 1 job" in told.err) == (0, True), told
        ended = finish(program)  # by itself, for nothing recurs any more
    assert ended.status == 1, ended
    assert "held: cancelled" in ended.err
    assert ticks(folder) <= before + 1


def test_cancel_of_what_hangs_on_a_recurring_task(folder, bell):
    with live(folder, bell) as program:
        until(lambda: ticks(folder) > 1)
        assert ask(folder, "cancel", "below").status == 0
        before = ticks(folder)
        until(lambda: ticks(folder) > before)
        ask(folder, "stop", "--grace", "0")
        ended = finish(program)
    assert ended.status == 1


@pytest.mark.parametrize("journal", [(), ("--journal", "j.db")])
def test_pause_resume_and_stop(folder, bell, journal):
    with live(folder, bell, *journal) as program:
        until(lambda: ticks(folder) > 1)
        assert ask(folder, "pause").status == 0
        until(lambda: status(folder)["running"] == 1)  # held; what had begun has ended
        before, told = ticks(folder), status(folder)
        assert told["state"] == "paused"
        time.sleep(0.5)  # five slots
        assert ticks(folder) == before
        assert ask(folder, "resume").status == 0
        until(lambda: ticks(folder) > before + 1)
        assert ask(folder, "stop", "--grace", "0").status == 0
        ended = finish(program)
    assert (ended.status, "held: interrupted" in ended.err) == (1, True), ended
    assert "shutdown" not in ended.err
    if journal:
        with closing(sqlite3.connect(folder / "j.db")) as db:
            assert dict(db.execute("SELECT name, status FROM jobs WHERE name IN ('held', 'later')")) == {
                "held": "interrupted", "later": None,
            }  # fmt: skip
            (done,) = db.execute("SELECT count(*) FROM jobs WHERE name = 'tick' AND status = 'succeeded'").fetchone()
        assert done in (ticks(folder), ticks(folder) - 1), "but for one that was killed behind its deed"


def test_a_paused_run_ends_when_its_time_is_over(folder):
    jobs_file(folder, '@task(interval="100ms")\ndef tick(): open("ticks", "a").write("tick\\n")\n')
    with start("run", "jobs.py", "--for", "4s", cwd=folder, XDG_RUNTIME_DIR=str(folder)) as program:
        until(lambda: ticks(folder) > 1)
        assert ask(folder, "pause").status == 0
        ended = finish(program)
    assert ended.status == 0, ended
