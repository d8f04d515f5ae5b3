"""Recurring tasks from one program to the next: what was left half done goes on, what was missed is made up for."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

import journal_deeds as deeds
import pytest
from test_resume import CAP_S, until

from ptss_mp import InvalidOption

HOUR = timedelta(hours=1)

NIGHT = """
import sys
import journal_deeds as deeds
from ptss_mp import Executor

folder, slow = sys.argv[1], float(sys.argv[2])
with Executor(2, journal=folder + "/journal.db", resume=True) as ex:
    first = ex.add(deeds.count, "first", interval="1h", args=(folder + "/first", 7))
    second = ex.add(deeds.sleep, "second", args=(folder + "/second", slow), after=first, key="second")
    third = ex.add(deeds.count, "third", args=(folder + "/third", first), after=second, run_if="done")
    told = []
    third.add_done_callback(lambda future: (told.append(future), first.cancel()))
    ex.start().join()
    print(*(task.last_outcome.status for task in (first, second, third)), *(f.outcome().resumed for f in told))
"""


def night(tmp_path: Path, slow: str) -> subprocess.Popen[str]:
    path = os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", ""), *sys.path])
    return subprocess.Popen(
        [sys.executable, "-c", NIGHT, str(tmp_path), slow],
        env=os.environ | {"PYTHONPATH": path}, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip


def is_on_disk(journal: Path, name: str) -> bool:
    """Return True if the end of a job is; what hangs on it may begin before."""
    with closing(sqlite3.connect(journal)) as db:
        return bool(db.execute("SELECT 1 FROM jobs WHERE name = ? AND status IS NOT NULL", (name,)).fetchone())


def times(tmp_path: Path) -> list[int]:
    return [deeds.times(tmp_path / name) for name in ("first", "second", "third")]


def test_a_run_that_was_cut_off_goes_on_where_it_was(tmp_path: Path):
    """The slot is released again under the same keys: what had ended is not repeated, what ran is interrupted."""
    with night(tmp_path, "60") as cut:
        until(lambda: deeds.times(tmp_path / "second") and is_on_disk(tmp_path / "journal.db", "first"))
        cut.send_signal(signal.SIGKILL)
    assert times(tmp_path) == [1, 1, 0]
    with night(tmp_path, "0") as program:
        assert program.communicate(timeout=CAP_S)[0] == "succeeded interrupted succeeded False\n"
    assert times(tmp_path) == [1, 1, 1]


@pytest.fixture
def earlier(pool, journal: Path, tmp_path: Path):
    """Let a program have run once, and its last slot have been some hours ago."""

    def run(hours: float) -> datetime:
        with pool() as ex:
            task = ex.add(deeds.count, "task", interval="1h", args=(str(tmp_path / "calls"),))
            ex.start()
            until(lambda: task.runs)
        last = datetime.now(UTC) - hours * HOUR
        with closing(sqlite3.connect(journal)) as db:
            db.execute("UPDATE tasks SET anchor = ?, last = ?", (last.isoformat(), last.isoformat()))
            db.commit()
        return last

    return run


@pytest.mark.parametrize(("misfire", "runs"), [("run_once", 1), ("run_all", 3), ("skip", 0)])
def test_what_was_missed_between_two_programs(pool, earlier, tmp_path: Path, caplog, misfire: str, runs: int):
    last = earlier(3.5)
    with pool() as ex:
        task = ex.add(deeds.count, "task", interval="1h", misfire=misfire, args=(str(tmp_path / "calls"),))
        ex.start()
        until(lambda: task.runs == runs and task.next_run == last + 4 * HOUR)
    assert deeds.times(tmp_path / "calls") == 1 + runs
    missed = [record for record in caplog.records if "missed" in record.message]
    assert bool(missed) == (misfire != "run_all"), "what brings no run of its own is told"


def test_what_was_not_missed_waits_for_its_time(pool, earlier, tmp_path: Path):
    last = earlier(0.5)
    with pool() as ex:
        task = ex.add(deeds.count, "task", interval="1h", args=(str(tmp_path / "calls"),))
        ex.start()
        until(lambda: task.next_run == last + HOUR)
    assert deeds.times(tmp_path / "calls") == 1


def test_a_given_first_instant_counts_more_than_that_of_the_first_program(pool, earlier, tmp_path: Path):
    last = earlier(0.5)
    start = last + timedelta(minutes=45)
    with pool() as ex:
        task = ex.add(deeds.count, "task", start, "1h", args=(str(tmp_path / "calls"),))
        ex.start()
        until(lambda: ex._pool.releases.core.courses)
        assert task.next_run == start


def test_a_task_that_runs_once_is_not_run_again(pool, tmp_path: Path):
    for resumed in (False, True):
        with pool() as ex:
            task = ex.add(deeds.count, "task", args=(str(tmp_path / "calls"), 7))
            told = []
            task.add_done_callback(told.append)
            assert ex.start().join(CAP_S)
            assert (task.last_outcome.result(), task.last_outcome.resumed) == (7, resumed)
            assert len(told) == 1
    assert deeds.times(tmp_path / "calls") == 1


def test_each_release_has_the_key_of_its_task_and_its_instant(pool, journal: Path, tmp_path: Path):
    with pool() as ex:
        first = ex.add(deeds.count, "first", interval=0.01, max_runs=2, args=(str(tmp_path / "calls"),), key="first")
        below = ex.add(deeds.add, "below", after=first)
        keys = []
        below.add_done_callback(lambda future: keys.append(future.outcome().key))
        assert ex.start().join(CAP_S)
    assert len(set(keys)) == 2
    with closing(sqlite3.connect(journal)) as db:
        there = [key for (key,) in db.execute("SELECT key FROM jobs WHERE name = 'first'")]
    assert {key.partition("@")[0] for key in there} == {"first"}
    assert {key.partition("@")[2] for key in there} == {key.partition("@")[2] for key in keys}


def test_a_call_without_canonical_form_needs_a_key(pool, tmp_path: Path):
    with pool() as ex:
        with pytest.raises(InvalidOption, match="has no canonical form"):
            ex.add(deeds.add, "task", args=(object(),))
        assert not ex.tasks


NO_INSTANTS = ("yesterday", "2026-12-01", "0001-01-01T00:00:00Z", "9999-12-31T23:59:59Z")


@pytest.mark.parametrize("rule", [{"interval": "1h"}, {"cron": "* * * * *", "tz": "America/New_York"}])
@pytest.mark.parametrize("instant", NO_INSTANTS)
def test_instants_that_are_none_are_told_and_left_alone(
    pool, journal: Path, earlier, tmp_path: Path, caplog, instant: str, rule: dict[str, str]
):
    earlier(3.5)
    with closing(sqlite3.connect(journal)) as db:
        db.execute("UPDATE tasks SET anchor = ?, last = ?", (instant, instant))
        db.commit()
    with pool() as ex:
        task = ex.add(deeds.count, "task", args=(str(tmp_path / "calls"),), **rule)
        if "cron" in rule:  # it runs at the next minute: that there is one is enough
            until(lambda: "does not say when it ran last" in caplog.text)
            assert ex.submit(deeds.add, 1).result(CAP_S) == 1
            assert task.next_run
            task.cancel()
            return
        ex.start()
        until(lambda: task.runs)
    assert "task: the journal does not say when it ran last" in caplog.text
