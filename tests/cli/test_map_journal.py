"""`map --journal`: what has settled is not run again, whatever ended the run; and each bad journal with its status."""

from __future__ import annotations

import json
import os
import random
import signal
import sqlite3
import time
from collections import Counter
from contextlib import closing
from pathlib import Path

import pytest

from tests.cli.cli_support import (
    CAP_S,
    NO_SMALL_DISK,
    assert_one_line,
    finish,
    jobs_file,
    on_a_disk_that_fills,
    ptss_mp,
    start,
)

MODULE = """\
import os

def note(item):
    with open("calls", "a") as file:
        file.write(item + "\\n")
    print("did", item)
    if item == "bad" and not os.path.exists("fixed"):
        raise ValueError("not yet")
    return item.upper()

def note_too(item): return note(item)
"""
JOURNAL = ("--journal", "j.db")


@pytest.fixture
def here(tmp_path) -> Path:
    (tmp_path / "m.py").write_text(MODULE)
    return tmp_path


def run(here: Path, *args: str, function: str = "m:note"):
    return ptss_mp("map", function, "--no-progress", *args, cwd=here)


def calls(here: Path) -> list[str]:
    return sorted((here / "calls").read_text().splitlines()) if (here / "calls").exists() else []


def told(ended) -> list[dict]:
    return [json.loads(line) for line in ended.out.splitlines()]


def keys(here: Path) -> dict[str, str | None]:
    with closing(sqlite3.connect(here / "j.db")) as db:
        return dict(db.execute("SELECT key, status FROM jobs ORDER BY job"))


def test_what_is_settled_is_told_and_not_run(here):
    first = run(here, *JOURNAL, "a", "bad", "b")
    assert (first.status, calls(here)) == (1, ["a", "b", "bad"])
    assert keys(here) == {"a": "succeeded", "bad": "failed", "b": "succeeded"}
    again = run(here, *JOURNAL, "--resume", "--keep-order", "a", "bad", "b", "c")
    assert (again.status, calls(here)) == (1, ["a", "b", "bad", "c"])
    assert [(line["item"], line["status"], line["resumed"]) for line in told(again)] == [
        ("a", "succeeded", True), ("bad", "failed", True), ("b", "succeeded", True), ("c", "succeeded", False),
    ]  # fmt: skip
    assert told(again)[0] == next(line for line in told(first) if line["item"] == "a") | {"resumed": True}
    assert again.lines[-1].endswith("| 3 of them by an earlier run"), again
    (here / "fixed").touch()
    fixed = run(here, *JOURNAL, "--resume-failed", "a", "bad", "b", "c")
    assert (fixed.status, calls(here)) == (0, ["a", "b", "bad", "bad", "c"])
    assert {path.name for path in here.iterdir()} - {"__pycache__"} == {"m.py", "calls", "fixed", "j.db"}


def test_equal_items_are_several(here):
    """Each line is a job of its own, numbered; texts that look like a numbered one are told apart."""
    items = ["a", "a#2", "a", "", "#1", "", "a", "x" * 5_000, "x" * 5_001, "x" * 5_000, os.fsdecode(b"\xff")]
    first = run(here, *JOURNAL, "--workers", "1", "--", *items, function="m:note_too")
    assert first.status == 1, "a byte that is no UTF-8 cannot be written by this function"
    found = keys(here)
    assert len(found) == len(items)
    assert list(found)[:7] == ["a", "a#2#1", "a#2", "#1", "#1#1", "#1#2", "a#3"]
    ran = calls(here)
    again = run(here, *JOURNAL, "--resume", "--keep-order", "--", *items, function="m:note_too")
    assert [(line["item"], line["resumed"]) for line in told(again)] == [(item, True) for item in items]
    assert calls(here) == ran


def test_a_killed_run(here, bell):
    """What is on disk is told once more by the next run, so that its output is whole."""
    (here / "w.py").write_text(
        f"import time\ndef act(item):\n    if item == 'slow':\n        {bell.ring('in it')}\n        time.sleep(60)\n"
        "    return item\n"
    )
    with start("map", "w:act", *JOURNAL, "--workers", "1", "a", "slow", "b", cwd=here) as program:
        bell.wait()
        assert json.loads(program.stdout.readline())["item"] == "a"
        program.kill()
        finish(program)
    again = run(here, *JOURNAL, "--resume", "--keep-order", "a", "slow", "b", function="w:act")
    assert again.status == 1
    assert [(line["item"], line["status"], line["resumed"]) for line in told(again)] == [
        ("a", "succeeded", True), ("slow", "interrupted", True), ("b", "succeeded", False),
    ]  # fmt: skip


@pytest.mark.parametrize("seed", range(3))
def test_ctrl_c_at_a_random_moment(here, seed):
    """The rest is done by the next run; each line once, however many times it was cut off."""
    moments, items = random.Random(seed), [str(number) for number in range(3_000)]
    (here / "list").write_text("".join(item + "\n" for item in items))
    command = ("map", "m:note", *JOURNAL, "--resume", "--from-file", "list", "--no-progress")
    statuses = []
    for _ in range(3):
        with open(here / "out", "w") as out, start(*command, cwd=here, stdout=out.fileno()) as program:
            until = time.monotonic() + CAP_S
            while program.poll() is None and os.fstat(out.fileno()).st_size < moments.randrange(1, 400_000):
                assert time.monotonic() < until
                time.sleep(0.001)
            program.send_signal(signal.SIGINT)
            ended = finish(program)
        statuses.append(ended.status)
        assert ended.status in (130, 0), ended
    assert 130 in statuses
    last = ptss_mp(*command, cwd=here)
    assert last.status == 0, last
    assert Counter(line["item"] for line in told(last)) == Counter(items)
    assert Counter(calls(here)) == Counter(items), "none was done twice"


def test_files_beside_it(here):
    more = ("--results", "res", "--joblog", "log", "--workers", "1")
    run(here, *JOURNAL, *more, "a", "bad")
    whole = (here / "res" / "a" / "outcome.json").stat().st_ino
    (here / "res" / "bad" / "outcome.json").unlink()  # as a kill leaves it between the journal and the folder
    again = run(here, *JOURNAL, *more, "--resume", "a", "bad", "b")
    assert again.status == 1
    assert [line.split("\t")[-1] for line in (here / "log").read_text().splitlines()] == [
        "Command", "m:note a", "m:note bad", "m:note b",
    ]  # fmt: skip
    assert (here / "res" / "a" / "outcome.json").stat().st_ino == whole, "it was not written again"
    assert json.loads((here / "res" / "bad" / "outcome.json").read_text())["resumed"] is True
    assert (here / "res" / "bad" / "stdout").read_text() == "did bad\n"
    assert (here / "res" / "b" / "outcome.json").exists()


def test_a_halted_run_can_be_resumed(here):
    halted = run(here, *JOURNAL, "--workers", "1", "--halt", "now,fail=1", "bad", "a", "b")
    assert halted.status == 1
    again = run(here, *JOURNAL, "--resume", "--halt", "now,fail=1", "bad", "a", "b")
    assert "halted" not in again.err
    assert keys(here) == {"bad": "failed", "a": "succeeded", "b": "succeeded"}


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["--resume"], "need --journal"), (["--resume-failed"], "need --journal"), (["--journal", ""], "a file's name"),
        (["--journal", "j.db", "--resume", "--resume-failed"], "not allowed with"),
        (["--journal", "x", "--joblog", "./x"], "as well"), (["--journal", "list"], "as well"),
    ],
)  # fmt: skip
def test_usage(here, args, words):
    (here / "list").write_text("a\n")
    assert_one_line(run(here, *args, "--from-file", "list"), 2, words)
    assert sorted(os.listdir(here)) == ["list", "m.py"]


def test_bad_journals(here, bell):
    (here / "foreign.db").write_bytes(os.urandom(5_000))
    (here / "foreign.db").chmod(0o600)
    made = ("--results", "res", "--joblog", "log")
    assert_one_line(run(here, "--journal", "foreign.db", *made, "a"), 65, "no SQLite database")
    assert_one_line(run(here, "--journal", "no/j.db", *made, "a"), 73, "No such file")
    (here / "link.db").symlink_to("target.db")
    assert_one_line(run(here, "--journal", "link.db", *made, "a"), 77, "symbolic link")
    assert run(here, *JOURNAL, "a").status == 0
    assert_one_line(run(here, *JOURNAL, *made, "a"), 73, "--resume", "another file")
    assert_one_line(run(here, *JOURNAL, "--resume", *made, "a", function="m:note_too"), 65, "'m:note'", "'m:note_too'")
    jobs_file(here, "@task\ndef one(): pass\n")
    assert_one_line(ptss_mp("run", "jobs.py", *JOURNAL, "--resume", cwd=here), 65, "'m:note'", "'jobs.py'")
    assert not (here / "res").exists(), "nothing half-made"
    assert not (here / "log").exists()
    (here / "w.py").write_text(f"import time\ndef act(item):\n    {bell.ring('in it')}\n    time.sleep(60)\n")
    with start("map", "w:act", "--journal", "w.db", "--grace", "0", "a", cwd=here) as program:
        bell.wait()
        assert_one_line(run(here, "--journal", "w.db", "--resume", "a", function="w:act"), 75, f"process {program.pid}")
        program.send_signal(signal.SIGTERM)
        assert finish(program).status == 143


@pytest.mark.slow
@pytest.mark.skipif(NO_SMALL_DISK, reason="needs unshare(1) and the right to mount: a small disk of its own")
def test_a_full_disk(here):
    """What is told as done is on disk; the rest is done by the next run, but for what had begun."""
    (here / "m.py").write_text("def long(item): return item * 20_000\n")
    items = [str(number) for number in range(60)]
    full = on_a_disk_that_fills(here, "map", "m:long", "--journal", "disk/j.db", "--no-progress", *items)
    assert full.returncode == 74, full
    assert "Traceback" not in full.stderr
    assert "cannot be written" in full.stderr.splitlines()[-2], "the reason once more, before the totals"
    done = {line["item"] for line in map(json.loads, full.stdout.splitlines()) if line["ok"]}
    again = run(here, *JOURNAL, "--resume", *items, function="m:long")
    assert again.status == 1
    assert Counter(line["item"] for line in told(again)) == Counter(items)
    assert {line["status"] for line in told(again)} <= {"succeeded", "interrupted"}, "all 60 may have begun before"
    assert {line["item"] for line in told(again) if line["resumed"] and line["ok"]} >= done
