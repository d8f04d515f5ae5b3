"""What was settled is not run again, and its value serves as before."""

from __future__ import annotations

import json
import os
import pickle
import signal
import sqlite3
import subprocess
import sys
import time
from concurrent.futures import CancelledError
from contextlib import closing
from pathlib import Path

import journal_deeds as deeds
import pytest

from ptss_mp import (
    Executor,
    InvalidOption,
    InvalidType,
    JournalError,
    NotLoadable,
    Options,
    PoolBroken,
    TaskInterrupted,
    task,
)
from ptss_mp.journal import store

CAP_S = 30


def rows(journal, what="key, status"):
    with closing(sqlite3.connect(journal)) as db:
        return db.execute(f"SELECT {what} FROM jobs ORDER BY job").fetchall()


def until(true, cap_s=CAP_S):
    end = time.monotonic() + cap_s
    while not (found := true()):
        assert time.monotonic() < end, "it did not come true"
        time.sleep(0.005)
    return found


@pytest.mark.parametrize(
    "value", [None, 7, -(1 << 61), 1 << 200, 2.5, True, False, "text \udcff", b"bytes", [1, {"a": (2,)}], "x" * 200_000]
)
def test_a_value_comes_back_as_it_was(pool, tmp_path, value):
    with pool() as ex:
        assert ex.submit(deeds.count, str(tmp_path / "calls"), value).result(CAP_S) == value
    with pool() as ex:
        future = ex.submit(deeds.count, str(tmp_path / "calls"), value)
        assert future.done()
        assert future.result() == value
        assert type(future.result()) is type(value)
        assert future.outcome().resumed
    assert deeds.times(tmp_path / "calls") == 1


def test_a_large_value_in_parts_comes_back_and_serves_a_dependent(pool):
    with pool() as ex:
        first = ex.submit(deeds.large, 300_000).result(CAP_S)
    with pool() as ex:
        again = ex.submit(deeds.large, 300_000)
        assert again.result() == first
        assert ex.submit(len, again).result(CAP_S) == 2


def test_facts_come_back(pool, tmp_path):
    with pool(capture=True) as ex:
        before = ex.submit(deeds.fail, str(tmp_path / "calls")).outcome(CAP_S)
    with pool(capture=True) as ex:
        future = ex.submit(deeds.fail, str(tmp_path / "calls"))
        after = future.outcome()
        with pytest.raises(KeyError, match="as it should"):
            future.result()
        assert pickle.loads(pickle.dumps(after)).error == before.error
    assert after.as_dict() == before.as_dict() | {"resumed": True}
    assert deeds.times(tmp_path / "calls") == 1


def test_a_finished_job_serves_one_that_had_not_started(pool, tmp_path):
    calls = str(tmp_path / "calls")
    with pool() as ex:
        ex.submit(deeds.count, calls, 5).result(CAP_S)
    with pool() as ex:
        first = ex.submit(deeds.count, calls, 5)
        second = ex.submit(deeds.add, first, 2)
        third = ex.options(after=first, run_if="done").submit(deeds.add, 1)
        assert (second.result(CAP_S), third.result(CAP_S)) == (7, 1)
    assert deeds.times(calls) == 1


def test_failed_alone_runs_again(pool, tmp_path):
    good, bad, dead = (str(tmp_path / name) for name in ("good", "bad", "dead"))

    def run(**kwargs):
        with pool(**kwargs) as ex:
            futures = [ex.submit(deeds.count, good), ex.submit(deeds.fail, bad), ex.submit(deeds.crash, dead)]
            return [future.outcome(CAP_S).status.value for future in futures]

    expected = ["succeeded", "failed", "crashed"]
    assert run() == run() == expected
    assert [deeds.times(path) for path in (good, bad, dead)] == [1, 1, 1]
    assert run(resume="failed") == expected
    assert [deeds.times(path) for path in (good, bad, dead)] == [1, 2, 2]


def test_a_dependent_of_a_failed_one_is_settled_by_it_again(pool, tmp_path):
    for _ in range(2):
        with pool() as ex:
            bad = ex.submit(deeds.fail, str(tmp_path / "calls"))
            outcome = ex.submit(deeds.add, bad, 1).outcome(CAP_S)
        assert (outcome.status, outcome.root) == ("dependency", "fail")
        assert isinstance(outcome.exception().__cause__, KeyError)
    assert deeds.times(tmp_path / "calls") == 1


def test_a_value_that_was_not_kept(pool, tmp_path):
    calls = str(tmp_path / "calls")
    with pool() as ex:
        assert ex.options(keep_result=False).submit(deeds.count, calls, 5).result(CAP_S) == 5
    with pool() as ex:
        future = ex.options(keep_result=False).submit(deeds.count, calls, 5)
        assert future.outcome().ok
        with pytest.raises(NotLoadable, match="keep_result=False"):
            future.result()
        needs = ex.submit(deeds.add, future, 1).outcome(CAP_S)
        assert needs.status == "not_picklable"
        assert "keep_result=False" in needs.error
        assert ex.options(after=future).submit(deeds.add, 1).result(CAP_S) == 1
    assert deeds.times(calls) == 1


def test_a_journal_with_outcomes_is_not_begun_anew(pool, journal):
    with pool(resume=False) as ex:
        ex.submit(deeds.add, 1).result(CAP_S)
    with pytest.raises(JournalError, match=r"resume=True.*another file") as caught:
        pool(resume=False).start()
    assert caught.value.reason == "used"
    assert isinstance(caught.value, OSError)
    assert len(rows(journal)) == 1


def test_constructing_opens_nothing(tmp_path):
    Executor(journal=tmp_path / "no" / "such" / "folder.db")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("kwargs", "error"),
    [
        ({"journal": 5}, InvalidType), ({"journal": ""}, InvalidOption), ({"journal": "a\0b"}, InvalidOption),
        ({"resume": True}, InvalidOption), ({"journal": "x", "resume": "some"}, InvalidOption),
        ({"journal": "x", "resume": 1}, InvalidOption), ({"journal": "x", "on_interrupted": "ask"}, InvalidOption),
    ],
)  # fmt: skip
def test_what_can_never_be_right_is_refused(kwargs, error):
    with pytest.raises(error):
        Executor(**kwargs)


# ---- keys


def test_identical_calls_are_numbered_and_an_explicit_key_serves_one_job(pool, journal):
    with pool() as ex:
        same = [ex.submit(deeds.add, 1) for _ in range(3)]
        named = ex.options(key="mine")
        named.submit(deeds.add, 2).result(CAP_S)
        with pytest.raises(InvalidOption, match="'mine' was given before"):
            named.submit(deeds.add, 3)
        assert [f.outcome(CAP_S).key.partition("#")[2] for f in same] == ["", "2", "3"]
    with pool() as ex:
        named = ex.options(key="mine")
        assert named.submit(deeds.add, 2).outcome().resumed
        with pytest.raises(InvalidOption, match="given before"):
            named.submit(deeds.add, 3)
    assert len(rows(journal)) == 4


def test_a_call_without_a_canonical_form_needs_a_key(pool):
    with pool() as ex:
        with pytest.raises(InvalidOption, match=r"argument 1 holds a object.*give key="):
            ex.submit(deeds.count, object())
        assert ex.options(key="an object").submit(type, 5).outcome(CAP_S).key == "an object"
    with Executor(max_workers=1) as ex:  # and without a journal none
        assert ex.submit(deeds.refuse, object).outcome(CAP_S).status == "failed"


def test_a_refused_job_leaves_its_key_free(pool):
    with pool() as ex:
        with pytest.raises(InvalidOption, match="no job named"):
            ex.options(key="k", after="nobody").submit(deeds.add, 1)
        assert ex.options(key="k").submit(deeds.add, 1).outcome(CAP_S).key == "k"
        first = ex.submit(deeds.add, 2)
        for _ in range(2):
            with pytest.raises(InvalidOption, match="no job named"):
                ex.options(after="nobody").submit(deeds.add, 2)
        second = ex.submit(deeds.add, 2)
        assert (first.outcome(CAP_S).key + "#2", True) == (second.outcome(CAP_S).key, second.outcome().ok)


def test_the_key_of_a_map_is_made_of_each_item(pool, tmp_path, journal):
    paths = [tmp_path / f"item {n}" for n in range(20)]
    for done in (0, 20):
        with pool() as ex:
            found = dict(ex.options(key=str).map_outcomes(deeds.count, paths))
        assert [found[path].key for path in paths] == [str(path) for path in paths]
        assert sum(outcome.resumed for outcome in found.values()) == done
    assert [deeds.times(path) for path in paths] == [1] * 20


def test_items_of_chunks_are_kept_one_by_one(pool, journal):
    for _ in range(2):
        with pool() as ex:
            assert list(ex.map(deeds.add, range(50), chunksize=10)) == list(range(50))
    assert len(rows(journal)) == 50


def test_a_task_declares_its_key(pool):
    declared = task(key=lambda n: f"n={n}")(deeds.add)
    with pool() as ex:
        assert ex.submit(declared, 4).outcome(CAP_S).key == "n=4"


def test_a_key_is_told_to_the_job_without_a_journal_too():
    with Executor(max_workers=1) as ex:
        future = ex.options(key=lambda: "k").submit(_key)
        assert (future.result(CAP_S), future.outcome().key) == ("k", "k")


def _key():
    from ptss_mp import current

    return current().key


# ---- ends


def test_stop_leaves_what_never_started_to_the_next_run(pool, journal, tmp_path):
    calls = [str(tmp_path / name) for name in "abc"]
    with pool(max_workers=1) as ex:
        futures = [ex.submit(deeds.sleep, path, 60) for path in calls]
        until(lambda: deeds.times(calls[0]))
        ex.stop(grace=0)
        assert [f.outcome().status for f in futures] == ["interrupted", "cancelled", "cancelled"]
    assert [status for _, status in rows(journal)] == ["interrupted", None, None]
    assert set(os.listdir(journal.parent)) == {"journal.db", "a"}
    with pool(max_workers=1) as ex:
        futures = [ex.submit(deeds.sleep, path, 60) for path in calls]
        with pytest.raises(TaskInterrupted):
            futures[0].result(0)
        until(lambda: deeds.times(calls[1]))
        assert futures[1].cancel()
        ex.stop(grace=0)
    with pool(on_interrupted="rerun") as ex:
        again = ex.submit(deeds.sleep, calls[0], 60)
        until(lambda: deeds.times(calls[0]) == 2)
        again.cancel()


def test_a_cancelled_job_runs_again(pool, journal, tmp_path):
    with pool() as ex:
        ex.pause()
        future = ex.submit(deeds.count, str(tmp_path / "calls"), 3)
        assert future.cancel()
        ex.resume()
    assert [status for _, status in rows(journal)] == ["cancelled"]
    with pool() as ex:
        assert ex.submit(deeds.count, str(tmp_path / "calls"), 3).result(CAP_S) == 3


def test_what_cannot_be_pickled_is_tried_again(pool, journal):
    bad = [lambda: 1, open]
    for _ in range(2):
        with pool() as ex:
            outcome = ex.options(key="k").submit(deeds.count, _Unpicklable(), *bad).outcome(CAP_S)
            assert outcome.status == "not_picklable"
            assert not outcome.resumed
    assert [status for _, status in rows(journal)] == ["not_picklable"] * 2


class _Unpicklable:
    def __reduce__(self):
        raise TypeError("not this one")


def test_every_way_out_leaves_the_journal_whole(journal, tmp_path):
    """The end of `with`, an Executor that is dropped, interpreter exit, a fork of the program, Ctrl-C."""
    program = tmp_path / "program.py"
    program.write_text(WAYS)
    for number, way in enumerate(("with", "dropped", "exit", "fork", "interrupt")):
        run = subprocess.run(
            [sys.executable, program, journal, way], capture_output=True, text=True, timeout=CAP_S, check=False,
            env=os.environ | {"PYTHONPATH": f"{Path(__file__).parents[2]}:{Path(__file__).parent}"},
        )  # fmt: skip
        assert run.returncode == (-signal.SIGINT if way == "interrupt" else 0), run.stderr
        found = [key for key, status in rows(journal) if status == "succeeded"]
        assert len(found) == 3 * (number + 1), (way, run.stderr)
        with closing(sqlite3.connect(journal)) as db:
            assert db.execute("SELECT count(*) FROM runs WHERE ended IS NULL").fetchone() == (0,), way
        assert {p.name for p in tmp_path.iterdir()} == {"journal.db", "program.py"}, way


WAYS = """\
import os, sys
import journal_deeds as deeds
from ptss_mp import Executor

if __name__ == "__main__":
    way = sys.argv[2]
    ex = Executor(max_workers=1, journal=sys.argv[1], resume=True)
    def jobs():
        return [ex.options(key=f"{way} {n}").submit(deeds.add, n) for n in range(3)]
    if way == "with":
        with ex:
            jobs()
    elif way == "dropped":
        kept = jobs()
        del ex
        assert [f.result() for f in kept] == [0, 1, 2]
    elif way == "exit":
        jobs()
    elif way == "fork":
        kept = jobs()
        pid = os.fork()
        if not pid:
            try:
                jobs()
            except RuntimeError:
                sys.exit(7)  # with all that an interpreter does at its end
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7
        ex.shutdown()
    else:
        with ex:
            [f.result() for f in jobs()]
            raise KeyboardInterrupt
"""


PDFS = """\
from pathlib import Path

from ptss_mp import Executor, Retry
from mylib import convert

paths = Path("inbox").rglob("*.pdf")
with Executor(preload=["mylib"], max_tasks_per_child=500, journal="night.db", resume=True) as ex:
    careful = ex.options(timeout="60s", memory="2GiB", retries=Retry(crash=1), key=str)
    for path, out in careful.map_outcomes(convert, paths, progress=True):
        if not out.ok:
            print(f"{path}: {out.status} after {out.wall_time or 0:.1f} s: {out.error}")
"""
MYLIB = """\
import os, time
def convert(path):
    with open("calls", "a") as file:
        file.write(path.name + "\\n")
    time.sleep(0.02)
    if path.name == "7.pdf":
        os.abort()
    return path.with_suffix(".txt")
"""


def test_a_nights_work_that_can_be_interrupted(tmp_path):
    (tmp_path / "night.py").write_text(PDFS)
    (tmp_path / "mylib.py").write_text(MYLIB)
    (tmp_path / "inbox").mkdir()
    for number in range(60):
        (tmp_path / "inbox" / f"{number}.pdf").touch()
    called = lambda: (tmp_path / "calls").read_text().split() if (tmp_path / "calls").exists() else []  # noqa: E731
    for enough in (10, 30, None):
        with open(tmp_path / "out", "wb") as out:
            program = subprocess.Popen(
                [sys.executable, "night.py"], cwd=tmp_path, stdout=out, stderr=subprocess.DEVNULL,
                env=os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])},
            )  # fmt: skip
            if enough:
                until(lambda enough=enough: len(called()) >= enough)
                program.send_signal(signal.SIGINT)
            assert program.wait(CAP_S) == (-signal.SIGINT if enough else 0)
    told = (tmp_path / "out").read_text()
    assert "inbox/7.pdf: crashed after" in told
    ends = dict(rows(tmp_path / "night.db"))
    assert len(ends) == 60
    cut_off = [key for key, status in ends.items() if status == "interrupted"]
    assert set(ends.values()) <= {"succeeded", "crashed", "interrupted"}
    assert len(cut_off) <= 4 * os.cpu_count()
    counts = {name: called().count(name) for name in called()}
    assert counts.pop("7.pdf") == 2
    assert set(counts.values()) == {1}


def test_two_at_once(pool, journal, tmp_path):
    with pool() as ex:
        ex.submit(deeds.add, 1).result(CAP_S)
        with pytest.raises(JournalError, match=f"process {os.getpid()} ") as caught:
            pool().start()
        assert caught.value.reason == "busy"
        other = subprocess.run(
            [sys.executable, "-c", OTHER, journal], capture_output=True, text=True, timeout=CAP_S, check=False,
            env=os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])},
        )  # fmt: skip
        assert other.returncode == 0, other.stderr
        assert f"busy process {os.getpid()}" in other.stdout
        assert ex.submit(deeds.add, 2).result(CAP_S) == 2
    with pool() as ex:
        assert ex.submit(deeds.add, 2).outcome().resumed


OTHER = """\
import sys
from ptss_mp import Executor, JournalError
try:
    Executor(journal=sys.argv[1], resume=True).start()
except JournalError as error:
    print(error.reason, error.owner)
"""


def test_a_dead_owner_is_none(pool, journal, tmp_path):
    program = subprocess.Popen(
        [sys.executable, "-c", DYING, journal, tmp_path / "calls"],
        env=os.environ | {"PYTHONPATH": f"{Path(__file__).parents[2]}:{Path(__file__).parent}"},
    )
    until(lambda: deeds.times(tmp_path / "calls"))
    program.send_signal(signal.SIGKILL)
    program.wait(CAP_S)
    with pool() as ex:
        outcome = ex.submit(deeds.sleep, str(tmp_path / "calls"), 50).outcome(CAP_S)
    assert (outcome.status, outcome.resumed, outcome.attempts) == ("interrupted", True, 1)
    assert outcome.error == "was running when the program ended"
    facts = json.loads(rows(journal, "facts")[0][0])
    assert facts["started"] is not None
    assert deeds.times(tmp_path / "calls") == 1


DYING = """\
import sys
import journal_deeds as deeds
from ptss_mp import Executor
Executor(journal=sys.argv[1]).submit(deeds.sleep, sys.argv[2], 50).result()
"""


def test_options_know_the_two():
    assert Options(key="k", keep_result=False).given() == ("key", "keep_result")
    with pytest.raises(InvalidType):
        Options(key=5)
    with pytest.raises(InvalidOption):
        Options(key="")


def test_slots_of_recurring_tasks(pool):
    with pool() as ex:
        journal = ex._pool.journal
        assert journal.slot("nightly") == (None, None)
        journal.remember_slot("nightly", "2026-12-01T02:00:00Z", "2026-11-01T02:00:00Z")
        journal.remember_slot("nightly", "2026-12-02T02:00:00Z")
        until(lambda: journal.slot("nightly") == ("2026-11-01T02:00:00Z", "2026-12-02T02:00:00Z"))


def test_drain_waits_for_the_disk(pool, journal):
    with pool() as ex:
        futures = [ex.submit(deeds.add, n) for n in range(300)]
        assert ex.drain(CAP_S)
        assert all(future.done() for future in futures)
        assert len([1 for _, status in rows(journal) if status == "succeeded"]) == 300
        assert ex.status().unsettled == 0


def test_cancel_never_waits_for_the_disk(pool, tmp_path):
    with pool() as ex:
        future = ex.submit(deeds.sleep, str(tmp_path / "calls"), 60)
        until(lambda: deeds.times(tmp_path / "calls"))
        assert future.cancel()
        assert future.done()
        with pytest.raises(CancelledError):
            future.result(0)


def test_subscribers_hear_of_an_end_when_it_is_on_disk(pool, journal):
    heard = []

    def hear(event):
        if event.what == "succeeded":
            heard.append((future.done(), dict(rows(journal, "job, status"))[event.job]))

    with pool() as ex:
        for number in range(20):
            with ex.subscribe(hear):
                future = ex.submit(deeds.add, number)
                future.result(CAP_S)
                until(lambda number=number: len(heard) == number + 1)
    assert heard == [(True, "succeeded")] * 20


def test_a_pool_that_breaks_leaves_its_jobs_to_the_next_run(pool, journal):
    with pool(preload=["no_such_module_of_anybody"]) as ex:
        future = ex.submit(deeds.add, 1)
        assert isinstance(future.exception(CAP_S), PoolBroken)
    assert [status for _, status in rows(journal)] == [None]
    with pool() as ex:
        assert ex.submit(deeds.add, 1).result(CAP_S) == 1


def test_a_fault_of_our_own_in_its_thread_leaves_nobody_waiting(pool, monkeypatch, caplog):
    def broken(*_args):
        raise OverflowError("a fault of our own")

    monkeypatch.setattr(store, "put_jobs", broken)
    with pool() as ex:
        waiting = [ex.submit(deeds.add, n) for n in range(3)]
        assert all(isinstance(future.exception(CAP_S), PoolBroken) for future in waiting)
    assert "the journal's thread failed" in caplog.text
    caplog.clear()  # its records hold a traceback, and that the pool
