"""Jobs files with tasks that recur: what `check` says of them, how long `run` goes on, what it tells at the end."""

from __future__ import annotations

import json
import re
import signal
from pathlib import Path

import pytest

from .cli_support import HEAD, finish, ptss_mp, start

NIGHT = HEAD + """
@task(interval="300ms", max_runs=3)
def snapshot(): return "/snap"

@task(deadline="3h", on_miss="finish")
def backup(snapshot):
    print("backup of", snapshot)
    raise ValueError("no disk")

@task(after=[snapshot, backup], run_if="failure")
def alarm(backup): print("alarm:", backup.status, backup.error)
"""


def written(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "jobs.py"
    path.write_text(text)
    return path


def test_what_hangs_on_a_recurring_task_runs_with_each_of_its_runs(tmp_path: Path):
    jobs, report = written(tmp_path, NIGHT), tmp_path / "report.json"
    ended = ptss_mp("run", jobs, "--workers", "2", "--report", report)
    assert ended.status == 1, ended
    assert ended.out == "alarm: failed ValueError: no disk\n" * 3
    told = json.loads(report.read_text())
    assert [told["summary"][status] for status in ("succeeded", "failed")] == [6, 3]
    assert any(line.startswith("backup: failed: ValueError: no disk") and line.endswith("(the last of 3)")
               for line in ended.lines)  # fmt: skip
    assert ended.lines[-1].startswith("9 jobs: 6 succeeded, 3 failed")


def test_check_tells_the_next_runs(tmp_path: Path):
    cron = pytest.importorskip("cronsim", reason="needs cronsim: pip install 'ptss_mp[cron]'")
    assert cron
    ended = ptss_mp("check", written(tmp_path, NIGHT + """
@task(cron="30 2 * * *", tz="Europe/Prague")
def nightly(): pass

@task(delay="90s")
def after_each(): pass
"""))  # fmt: skip
    assert ended.status == 0, ended
    lines = ended.out.splitlines()
    assert lines[:2][0] == "snapshot"
    assert len(re.findall(r"\d\d:\d\d:\d\d", ended.out.partition("backup")[0])) == 3, "no more than max_runs"
    instant = r"\d{4}-\d\d-\d\d 0[23]:[03]0:00 CES?T\n"
    assert re.search(rf"^nightly\n    next: {instant}(          {instant}){{4}}after_each\n", ended.out, re.M)
    assert max(map(len, lines)) <= 80, "as wide as a terminal"
    assert lines[lines.index("after_each") + 1].endswith("then 90 s after the end of each run")
    assert "backup <- snapshot" in lines


@pytest.mark.parametrize("end", ["--for", "--until"])
def test_a_run_ends_when_its_time_is_over(tmp_path: Path, end: str):
    log = tmp_path / "log"
    jobs = written(tmp_path, HEAD + f"""
@task(interval="100ms")
def tick():
    with open({str(log)!r}, "a") as file:
        file.write("tick\\n")

@task(start_time="1h")
def later(): pass
""")  # fmt: skip
    import datetime as dt

    at = dt.datetime.now(dt.UTC) + dt.timedelta(seconds=3)
    ended = ptss_mp("run", jobs, end, "2s" if end == "--for" else at.isoformat())
    assert "its time is over: nothing new starts, running jobs may end" in ended.lines
    ticks = len(log.read_text().splitlines())
    assert 2 <= ticks <= 31
    assert ended.lines[-1].startswith(f"{ticks + 1} jobs: {ticks} succeeded, 1 cancelled")
    assert ended.status == 1, "one was asked for, and has not run"


def test_ctrl_c_ends_it(tmp_path: Path):
    jobs = written(tmp_path, HEAD + """
@task(interval="100ms")
def tick(): print("tick", flush=True)
""")  # fmt: skip
    with start("run", jobs, "--no-progress") as program:
        assert program.stdout
        assert program.stdout.readline() == "tick\n"
        program.send_signal(signal.SIGINT)
        ended = finish(program)
    assert ended.status == 130, ended
    assert "SIGINT: nothing new starts" in ended.err


def test_what_recurs_is_not_left_for_the_next_run(tmp_path: Path):
    """`--state` holds what a stopped run has left; what recurs is never over, and comes again by itself."""
    jobs, state = written(tmp_path, HEAD + """
@task(interval="100ms")
def tick(): print("tick", flush=True)

@task(start_time="1h")
def later(): pass
"""), tmp_path / "state"  # fmt: skip
    for _ in range(2):
        with start("run", jobs, "--no-progress", "--state", state) as program:
            assert program.stdout
            assert program.stdout.readline() == "tick\n"
            program.send_signal(signal.SIGINT)
            assert finish(program).status == 130
        assert json.loads(state.read_text())["left"] == ["later"]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("@task(interval='1s', delay='1s')\ndef a(): pass", "interval and delay do not go together"),
        ("@task(interval=0)\ndef a(): pass", "interval must be above zero, not 0"),
        ("@task(delay=-1)\ndef a(): pass", "delay must not be negative|delay must be above zero, not -1"),
        ("@task(cron='61 * * * *')\ndef a(): pass", "cron '61 \\* \\* \\* \\*' is no cron line: Bad minute"),
        ("@task(cron='0 0 30 2 *')\ndef a(): pass", "cron '0 0 30 2 \\*' is no cron line"),
        ("@task(cron='0 2 * * *', tz='Mars/Olympus')\ndef a(): pass", "tz: no zone 'Mars/Olympus' is known here"),
        ("@task(overlap='queue')\ndef a(): pass", "overlap without interval, delay or cron says nothing"),
        (
            "@task(interval='1s')\ndef a(): pass\n@task(interval='1s')\ndef b(a): pass",
            "'b' recurs by itself, and comes after 'a'",
        ),
        (
            "@task(interval='1s')\ndef a(): pass\n@task(interval='2s')\ndef b(): pass\n@task\ndef c(a, b): pass",
            "'c' comes after 'a' and 'b', which recur each by itself",
        ),
        ("b = task(interval='1s').map(len, ['x'])", "'b' is a batch, and a batch does not recur"),
        ("@task(interval='1s')\ndef a(): pass\n@task(start_time='1h')\ndef b(a): pass", "'b' is released with 'a'"),
        (
            "import datetime as d\n@task(interval='1s', deadline=d.datetime(2030, 1, 1, tzinfo=d.UTC))\ndef a(): pass",
            "the deadline of a task that recurs must be a duration",
        ),
    ],
)  # fmt: skip
def test_recurrences_that_cannot_be(tmp_path: Path, text: str, why: str):
    ended = ptss_mp("check", written(tmp_path, HEAD + text + "\n"))
    assert (ended.status, len(ended.lines), ended.out) == (65, 1, ""), ended
    assert re.search(why, ended.err)
    assert re.search(r"jobs\.py:\d+", ended.err), "the line is named"


BAD_ENDS = ("--for=0", "--for=-1s", "--for=soon", "--until=25:00", "--until=soon", "--for=1s --until=10:00")


@pytest.mark.parametrize("bad", BAD_ENDS)
def test_ends_that_cannot_be(tmp_path: Path, bad: str):
    ended = ptss_mp("run", written(tmp_path, HEAD), *bad.split())
    assert (ended.status, len(ended.lines)) == (2, 1), ended
