"""`run --journal`: resumed runs, and each bad journal with its exit status."""

from __future__ import annotations

import json
import os
import shutil
import signal
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from tests.cli.cli_support import (
    NO_SMALL_DISK,
    WITHOUT_OVERRIDE,
    assert_one_line,
    finish,
    jobs_file,
    on_a_disk_that_fills,
    ptss_mp,
    start,
    until,
)

FIXTURE = Path(__file__).parents[1] / "fixtures" / "journal-1.db"
JOBS = """
def note(what):
    with open("calls", "a") as file:
        file.write(what + "\\n")

@task
def load():
    note("load")
    print("loaded")
    return [3, 1, 2]

@task
def show(load):
    note("show")
    print(sorted(load))

@task
def bad():
    note("bad")
    if not os.path.exists("fixed"):
        raise ValueError("not yet")

items = task().map(note, ["item", "item", "other"])
"""


def calls(folder: Path) -> list[str]:
    return sorted((folder / "calls").read_text().split()) if (folder / "calls").exists() else []


def statuses(folder: Path) -> dict[str, str]:
    with closing(sqlite3.connect(folder / "j.db")) as db:
        return dict(db.execute("SELECT name, status FROM jobs ORDER BY job"))


def test_what_is_settled_is_not_run_again(tmp_path):
    jobs_file(tmp_path, JOBS)
    first = ptss_mp("run", "jobs.py", "--journal", "j.db", "--no-progress", cwd=tmp_path)
    assert (first.status, first.out) == (1, "loaded\n[1, 2, 3]\n")
    everything = ["bad", "item", "item", "load", "other", "show"]
    assert calls(tmp_path) == everything
    again = ptss_mp("run", "jobs.py", "--journal", "j.db", "--resume", "--report", "r.json", cwd=tmp_path)
    assert (again.status, again.out) == (1, "")
    assert "6 of them by an earlier run" in again.lines[-1]
    assert calls(tmp_path) == everything
    report = json.loads((tmp_path / "r.json").read_text())
    assert len(report["jobs"]) == 6
    assert all(job["resumed"] for job in report["jobs"])
    (tmp_path / "fixed").touch()
    fixed = ptss_mp("run", "jobs.py", "--journal", "j.db", "--resume-failed", "--execution-log", "log", cwd=tmp_path)
    assert (fixed.status, fixed.out) == (0, "")
    assert calls(tmp_path) == sorted([*everything, "bad"])
    assert len((tmp_path / "log").read_text().splitlines()) == 1
    assert set(statuses(tmp_path).values()) == {"succeeded"}
    assert {path.name for path in tmp_path.iterdir()} == {"j.db", "jobs.py", "calls", "fixed", "r.json", "log"}


def test_a_killed_run_is_resumed(tmp_path, bell):
    source = f"""
@task
def first(): open("calls", "a").write("first ")
@task
def second(first):
    {bell.ring("in it")}
    time.sleep(60)
@task(after="first")
def third(): open("calls", "a").write("third ")
"""
    jobs_file(tmp_path, source)
    with start("run", "jobs.py", "--journal", "j.db", "--workers", "1", cwd=tmp_path) as program:
        bell.wait()
        # `second` may begin before `first` is on disk; without its end there, that was interrupted as well.
        until(lambda: statuses(tmp_path).get("first"))
        program.kill()
        finish(program)
    ended = ptss_mp("run", "jobs.py", "--journal", "j.db", "--resume", "--no-progress", cwd=tmp_path)
    assert ended.status == 1
    assert "second: interrupted: was running when the program ended" in ended.err
    assert calls(tmp_path) == ["first", "third"]
    assert statuses(tmp_path) == {"first": "succeeded", "second": "interrupted", "third": "succeeded"}


def test_ctrl_c_leaves_the_rest_to_the_next_run(tmp_path, bell):
    source = f"""
@task
def first():
    {bell.ring("in it")}
    if not os.path.exists("again"): time.sleep(60)
@task(after="first", run_if="done")
def second(): pass
"""
    jobs_file(tmp_path, source)
    with start("run", "jobs.py", "--journal", "j.db", "--grace", "0", cwd=tmp_path) as program:
        bell.wait()
        program.send_signal(signal.SIGINT)
        assert finish(program).status == 130
    assert statuses(tmp_path) == {"first": "interrupted", "second": None}
    (tmp_path / "again").touch()
    assert ptss_mp("run", "jobs.py", "--journal", "j.db", "--resume-failed", cwd=tmp_path).status == 0
    assert statuses(tmp_path) == {"first": "succeeded", "second": "succeeded"}


def test_a_resume_without_a_journal_begins_one(tmp_path):
    jobs_file(tmp_path, "@task\ndef one(): pass\n")
    assert ptss_mp("run", "jobs.py", "--journal", "j.db", "--resume", cwd=tmp_path).status == 0
    assert statuses(tmp_path) == {"one": "succeeded"}


def test_a_changed_file_is_noticed_and_another_one_refused(tmp_path):
    jobs_file(tmp_path, "@task\ndef one(): pass\n")
    assert ptss_mp("run", "jobs.py", "--journal", "j.db", cwd=tmp_path).status == 0
    jobs_file(tmp_path, "@task\ndef one(): pass\n@task\ndef two(): pass\n")
    ended = ptss_mp("run", "jobs.py", "--journal", "j.db", "--resume", "--no-progress", cwd=tmp_path)
    assert ended.status == 0
    assert "jobs.py has changed since the run before" in ended.lines[0]
    assert "1 of them by an earlier run" in ended.lines[-1]
    jobs_file(tmp_path, "@task\ndef one(): pass\n", name="other.py")
    ended = ptss_mp("run", "other.py", "--journal", "j.db", "--resume", cwd=tmp_path)
    assert_one_line(ended, 65, "jobs.py", "other.py")


def test_keys_of_tasks(tmp_path):
    source = """
pages = task(key=lambda n: f"page {n}").map(abs, [-1, -2])
named = task(key="the one")(os.getpid)
"""
    jobs_file(tmp_path, source)
    assert ptss_mp("run", "jobs.py", "--journal", "j.db", cwd=tmp_path).status == 0
    with closing(sqlite3.connect(tmp_path / "j.db")) as db:
        assert [key for (key,) in db.execute("SELECT key FROM jobs ORDER BY job")] == ["page -1", "page -2", "the one"]


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("pages = task(key='one').map(abs, [1, 2])", ["serves one job", "jobs.py:"]),
        ("@task\ndef a(): return 1\n@task(key=str)\ndef b(a): pass", ["has no value for 'a'"]),
        ("pages = task(key=lambda n: 1 / n).map(abs, [0])", ["key=", "ZeroDivisionError"]),
        ("pages = task(key=lambda n: n).map(abs, [1])", ["must return text, not int"]),
        ("pages = task(key=lambda n: 'same').map(abs, [1, 2])", ["'same' was given before"]),
        ("@task(args=(object(),))\ndef a(x): pass", ["argument 1", "give key="]),
    ],
)
def test_keys_that_cannot_be(tmp_path, source, words):
    jobs_file(tmp_path, source)
    ended = ptss_mp("run", "jobs.py", "--journal", "j.db", cwd=tmp_path)
    assert_one_line(ended, 65, *words)


# ---- the table of bad input


@pytest.fixture
def folder(tmp_path):
    jobs_file(tmp_path, "@task\ndef one(): pass\n")
    return tmp_path


def run(folder, *args, by=()):
    with start("run", "jobs.py", *args, cwd=folder, by=by) as program:
        return finish(program)


@pytest.mark.parametrize(
    "args",
    [
        ["--resume"], ["--resume-failed"], ["--journal", ""], ["--journal"], ["--journal", "j.db", "--state", "s.json"],
        ["--journal", "j.db", "--resume", "--resume-failed"], ["--journal", "jobs.py"],
        ["--journal", "r.json", "--report", "r.json"],
    ],
)  # fmt: skip
def test_usage(folder, args):
    assert_one_line(run(folder, *args), 2)
    assert os.listdir(folder) == ["jobs.py"]


def test_a_directory_a_missing_one_and_one_that_cannot_be_written(folder):
    (folder / "there").mkdir()
    assert_one_line(run(folder, "--journal", "there"), 73, "is a directory")
    assert_one_line(run(folder, "--journal", "nowhere/j.db"), 73, "No such file")
    (folder / "there").chmod(0o500)
    if os.geteuid() == 0 and not shutil.which("setpriv"):
        pytest.skip("needs setpriv(1) to be no root")
    assert_one_line(run(folder, "--journal", "there/j.db", by=WITHOUT_OVERRIDE), 73, "cannot be made")
    assert os.listdir(folder / "there") == []


def test_foreign_random_truncated_and_newer_ones(folder):
    path = folder / "j.db"
    path.touch(0o600)
    path.write_bytes(os.urandom(5_000))
    assert_one_line(run(folder, "--journal", "j.db", "--resume"), 65, "no SQLite database")
    whole = FIXTURE.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    assert_one_line(run(folder, "--journal", "j.db", "--resume"), 65)
    path.write_bytes(whole)
    with closing(sqlite3.connect(path)) as db:
        db.execute("PRAGMA user_version = 9")
    assert_one_line(run(folder, "--journal", "j.db", "--resume"), 65, "newer")
    path.unlink()
    with closing(sqlite3.connect(path)) as db:
        db.execute("CREATE TABLE t(x)")
    path.chmod(0o600)
    assert_one_line(run(folder, "--journal", "j.db", "--resume"), 65, "another program's")


def test_a_link_a_shared_folder_and_no_permission(folder):
    (folder / "link.db").symlink_to(folder / "target.db")
    assert_one_line(run(folder, "--journal", "link.db"), 77, "symbolic link")
    assert not (folder / "target.db").exists()
    (folder / "shared").mkdir()
    (folder / "shared").chmod(0o777)
    assert_one_line(run(folder, "--journal", "shared/j.db"), 77, "others may write")
    (folder / "locked.db").touch(0o000)
    if os.geteuid() == 0 and not shutil.which("setpriv"):
        pytest.skip("needs setpriv(1) to be no root")
    assert_one_line(run(folder, "--journal", "locked.db", by=WITHOUT_OVERRIDE), 77, "no permission")


def test_outcomes_and_no_resume(folder):
    assert run(folder, "--journal", "j.db").status == 0
    assert_one_line(run(folder, "--journal", "j.db"), 73, "--resume", "another file")


def test_an_owner_that_lives(tmp_path, bell):
    jobs_file(tmp_path, f"@task\ndef one():\n    {bell.ring('in it')}\n    time.sleep(60)\n")
    with start("run", "jobs.py", "--journal", "j.db", "--grace", "0", cwd=tmp_path) as program:
        bell.wait()
        assert_one_line(run(tmp_path, "--journal", "j.db", "--resume"), 75, f"process {program.pid} ")
        program.send_signal(signal.SIGTERM)
        assert finish(program).status == 143


@pytest.mark.slow
@pytest.mark.skipif(NO_SMALL_DISK, reason="needs unshare(1) and the right to mount: a small disk of its own")
def test_a_full_disk(tmp_path):
    """What runs ends, nothing new starts, nothing is told as done that is not on disk, and the status says so."""
    jobs_file(tmp_path, "many = task().map(str, [str(n) * 20_000 for n in range(60)])\n")
    report = ("--no-progress", "--report", "r.json")
    run = on_a_disk_that_fills(tmp_path, "run", "jobs.py", "--journal", "disk/j.db", *report)
    assert run.returncode == 74, run
    assert "Traceback" not in run.stderr
    assert "cannot be written" in run.stderr
    told = {job["name"] for job in json.loads((tmp_path / "r.json").read_text())["jobs"] if job["ok"]}
    kept = {name for name, status in statuses(tmp_path).items() if status == "succeeded"}
    assert kept >= told
    assert 1 <= len(told) < 60
    again = ptss_mp("run", "jobs.py", "--journal", "j.db", "--resume", "--no-progress", cwd=tmp_path)
    assert again.status == 1  # those that had run and could not be kept are interrupted
    assert f"jobs: {len(kept)} succeeded" not in again.lines[-1]
    ends = statuses(tmp_path)
    assert len(ends) == 60
    assert set(ends.values()) == {"succeeded", "interrupted"}
