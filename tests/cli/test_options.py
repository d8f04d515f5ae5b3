"""Options of `run` beyond the plain way: --only, --dry-run, --execution-log, --log-json, --memfree."""

from __future__ import annotations

import json
import os
import signal
import stat

import pytest

from ptss_mp.shell.memfree import most_bytes
from tests.cli.cli_support import Bell, assert_one_line, finish, jobs_file, names, ptss_mp, start

CHAIN = (
    "def mark(n, *_): open(f'ran.{n}', 'w').close()\n"
    "a = task(args=('a',))(mark)\n"
    "b = task(args=('b',), after=a)(mark)\n"
    "pages = task(after=b).map(mark, range(4))\n"
    "last = task(args=('last',), after=pages)(mark)\n"
)


def ran(folder):
    return sorted(entry.name.removeprefix("ran.") for entry in folder.glob("ran.*"))


# ---- --only.


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        (["b"], ["a", "b"]),
        (["a", "b"], ["a", "b"]),
        (["pages[2]"], ["2", "a", "b"]),
        (["last"], ["0", "1", "2", "3", "a", "b", "last"]),
    ],
)
def test_only_runs_these_and_what_they_need(tmp_path, asked, expected):
    ended = ptss_mp("run", jobs_file(tmp_path, CHAIN), "--only", *asked, cwd=tmp_path)
    assert ended.status == 0, ended
    assert ran(tmp_path) == expected
    assert ended.lines[-1].startswith(f"{len(expected)} jobs: {len(expected)} succeeded"), ended


def test_only_can_be_given_more_than_once(tmp_path):
    path = jobs_file(tmp_path, "@task\ndef a(): print('a')\n@task\ndef b(): print('b')\n@task\ndef c(): print('c')\n")
    ended = ptss_mp("run", "--only", "a", "--only", "c", "--workers", "1", path)
    assert (ended.status, sorted(ended.out.split())) == (0, ["a", "c"]), ended


def test_only_a_name_that_is_none(tmp_path):
    path = jobs_file(tmp_path, CHAIN)
    assert_one_line(ptss_mp("run", path, "--only", "lost", cwd=tmp_path), 2, "'lost'", "did you mean 'last'?")
    assert_one_line(ptss_mp("run", path, "--only", "a", "x\x1b[31m\n", cwd=tmp_path), 2, r"x\x1b[31m\n")
    assert_one_line(ptss_mp("run", path, "--only", cwd=tmp_path), 2, "--only")
    assert ran(tmp_path) == []


# ---- --dry-run.


def test_a_dry_run_prints_the_order_and_starts_nothing(tmp_path):
    source = "touched = task()(lambda: open('ran.x', 'w'))\nalarm = task(after=touched, run_if='failure')(print)\n"
    source += "soon = task(deadline='1h')(print)\npages = task(deadline='2h').map(print, range(3))\n"
    path = jobs_file(tmp_path, source)
    report, log = tmp_path / "r.json", tmp_path / "log"
    ended = ptss_mp("run", path, "--dry-run", "--report", report, "--execution-log", log, cwd=tmp_path)
    assert ended.status == 0, ended
    assert ended.out.splitlines() == ["soon", "pages (3 jobs)", "touched"]
    assert ended.lines == [
        "alarm: would not run: nothing that it comes after has failed",
        f"{path}: 5 jobs would run, in this order; none was started",
    ]
    assert {entry.name for entry in tmp_path.iterdir()} - {"__pycache__"} == {"jobs.py"}


def test_a_dry_run_of_a_part(tmp_path):
    ended = ptss_mp("run", jobs_file(tmp_path, CHAIN), "--dry-run", "--only", "pages[1]")
    assert ended.out.splitlines() == ["a", "b <- a", "pages (1 of 4 jobs) <- b"]


# ---- --execution-log.


def attempts(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_a_retry_in_a_jobs_file_knows_the_files_own_classes(tmp_path):
    source = (
        "from ptss_mp import Retry\n"
        "class Busy(Exception): ...\n"
        "class Away(Busy): ...\n"
        "policy = Retry(exception=2, crash=1, only=Busy, backoff='10ms')\n"
        "def thrice(kind):\n"
        "    with open(f'{kind.__name__}.tries', 'a+') as f:\n"
        "        f.write('x'); f.seek(0); count = len(f.read())\n"
        "    if count == 2: os.abort()\n"
        "    if count < 4: raise kind(count)\n"
        "for kind in (Away, KeyError): task(name=kind.__name__, args=(kind,), retries=policy)(thrice)\n"
    )
    log = tmp_path / "log.jsonl"
    ended = ptss_mp("run", jobs_file(tmp_path, source), "--execution-log", log, cwd=tmp_path)
    assert ended.status == 1, ended
    found = [(line["job"], line["attempt"], line["status"], line["final"]) for line in attempts(log)]
    assert sorted(found) == [
        ("Away", 1, "failed", False),
        ("Away", 2, "crashed", False),
        ("Away", 3, "failed", False),
        ("Away", 4, "succeeded", True),
        ("KeyError", 1, "failed", True),
    ]


@pytest.mark.parametrize(
    ("retry", "words"),
    [
        ("Retry(crash=-1)", "crash of Retry must be within 0 and 1000, not -1"),
        ("Retry(crsh=1)", "unexpected keyword argument 'crsh'"),
        ("Retry(only=7)", "only of Retry takes exception classes, not int"),
        ("'3'", "retries must be a whole number or Retry(...), not str"),
    ],
)
def test_a_wrong_retry_is_one_line(tmp_path, retry, words):
    source = f"from ptss_mp import Retry\n@task(retries={retry})\ndef f(): ...\n"
    ended = ptss_mp("run", jobs_file(tmp_path, source))
    assert_one_line(ended, 65, words, "jobs.py:")


def test_each_attempt_has_a_line_also_those_that_were_retried(tmp_path):
    source = (
        "def thrice(n):\n"
        "    with open(f'{n}.tries', 'a+') as f:\n"
        "        f.write('x'); f.seek(0); count = len(f.read())\n"
        "    if count < 3: raise ValueError(f'try {count}\\x1b') if n == 'raises' else os.abort()\n"
        "raises = task(args=('raises',), retries=2)(thrice)\n"
        "aborts = task(args=('aborts',), retries=2)(thrice)\n"
        "hangs = task(args=(60,), timeout='100ms')(time.sleep)\n"
        "never = task(after=hangs)(print)\n"
    )
    log = tmp_path / "log.jsonl"
    log.write_text('{"of": "an earlier run"}\n')
    ended = ptss_mp("run", jobs_file(tmp_path, source), "--execution-log", log, cwd=tmp_path)
    assert ended.status == 1, ended
    first, *lines = attempts(log)
    assert first == {"of": "an earlier run"}
    found = {(line["job"], line["attempt"]): line for line in lines}
    assert {key: (line["status"], line["final"]) for key, line in found.items()} == {
        ("raises", 1): ("failed", False),
        ("raises", 2): ("failed", False),
        ("raises", 3): ("succeeded", True),
        ("aborts", 1): ("crashed", False),
        ("aborts", 2): ("crashed", False),
        ("aborts", 3): ("succeeded", True),
        ("hangs", 1): ("timeout", True),
    }
    assert len(lines) == len(found), "no attempt twice; and none of a job that never began"
    keys = {tuple(line) for line in lines}
    assert keys == {(
        "schema", "job", "attempt", "final", "status", "started", "finished", "wall_time", "cpu_time", "max_rss",
        "worker_pid", "signal", "signal_name", "exit_code", "limit", "observed", "error", "stack",
    )}  # fmt: skip
    assert all(line["schema"] == 1 and line["worker_pid"] > 0 for line in lines)
    assert all(line["started"].endswith("Z") and line["started"] <= line["finished"] for line in lines)
    assert found["raises", 1]["error"] == "ValueError: try 1\x1b"
    assert "in thrice" in found["raises", 1]["stack"]
    assert (found["aborts", 2]["signal"], found["aborts", 2]["signal_name"]) == (6, "SIGABRT")
    assert found["aborts", 1]["worker_pid"] != found["aborts", 2]["worker_pid"]
    assert found["hangs", 1]["limit"] == 0.1
    assert b"\x1b" not in log.read_bytes()


def test_a_cancelled_attempt_is_one(tmp_path):
    bell = Bell(tmp_path)
    path = jobs_file(tmp_path, f"@task\ndef f():\n    {bell.ring('here')}\n    time.sleep(300)\n@task\ndef g(f): ...\n")
    with start("run", path, "--grace", "0", "--execution-log", tmp_path / "log") as program:
        bell.wait()
        program.terminate()
        assert finish(program).status == 143
    bell.close()
    assert [(line["job"], line["status"]) for line in attempts(tmp_path / "log")] == [("f", "interrupted")]


def test_a_log_may_be_a_pipe_that_somebody_reads(tmp_path):
    read, write = os.pipe()
    path = jobs_file(tmp_path, "@task\ndef f(): print('out')\n")
    with start("run", path, "--execution-log", f"/proc/{os.getpid()}/fd/{write}") as program:
        ended = finish(program)
    os.close(write)
    with open(read) as file:
        (line,) = file
    assert (ended.status, ended.out, json.loads(line)["status"]) == (0, "out\n", "succeeded")


def test_a_log_has_ordinary_rights(tmp_path):
    assert ptss_mp("run", jobs_file(tmp_path, "@task\ndef f(): ...\n"), "--execution-log", tmp_path / "l").status == 0
    umask = os.umask(0)
    os.umask(umask)
    assert stat.S_IMODE((tmp_path / "l").stat().st_mode) == 0o666 & ~umask


# ---- --log-json.


def test_a_part_of_a_line_at_the_end_of_a_log_spoils_none_of_ours(tmp_path):
    """Regression: the next run's first attempt was written behind what a machine that went down had left."""
    path, log = jobs_file(tmp_path, "@task\ndef f(): ...\n"), tmp_path / "log"
    log.write_text('{"schema": 1, "jo')
    for _ in range(2):
        assert ptss_mp("run", path, "--execution-log", log).status == 0
    part, *lines = log.read_text().splitlines()
    assert part == '{"schema": 1, "jo'
    assert [json.loads(line)["job"] for line in lines] == ["f", "f"]


def test_each_line_on_stderr_is_json(tmp_path):
    source = (
        "print('at import \\x1b')\nb = task().map(time.sleep, [0.01] * 20)\n"
        "@task\ndef s(b): time.sleep(1.5)\n@task\ndef bad(): raise ValueError('a\\nb\\x1b\\x7f')\n"
    )
    ended = ptss_mp("run", jobs_file(tmp_path, source), "--log-json", "--log-level", "debug")
    assert ended.status == 1
    lines = [json.loads(line) for line in ended.lines]
    assert all({"at", "level", "logger", "message"} <= set(line) for line in lines)
    assert all(line["at"].endswith("Z") for line in lines)
    assert lines[0]["message"] == "at import \x1b"
    assert {line["level"] for line in lines} >= {"DEBUG", "INFO", "ERROR"}
    (failed,) = (line for line in lines if line.get("status"))
    assert (failed["level"], failed["job"], failed["status"]) == ("ERROR", "bad", "failed")
    progress = next(line for line in lines if "running" in line)
    assert 0 < progress["done"] <= 21
    assert (progress["total"], progress["running"]) == (22, 1)
    transitions = [line["what"] for line in lines if line["level"] == "DEBUG" and line.get("job") == "bad"]
    assert transitions == ["submitted", "sent", "answered", "failed"]
    assert lines[-1]["counts"] == {"succeeded": 21, "failed": 1}
    assert lines[-1]["exit_status"] == 1
    assert not any(c in ended.err for c in "\x1b\x7f")


def test_bad_input_is_json_too(tmp_path):
    ended = ptss_mp("run", tmp_path / "no\x1b.py", "--log-json")
    (line,) = map(json.loads, ended.lines)
    assert (ended.status, line["level"]) == (66, "ERROR")
    assert "no\x1b.py" in line["message"]


def test_logs_are_lines_that_nobody_forges(tmp_path):
    """Records of the library itself, here of a warden that a job has killed."""
    source = "@task\ndef f(): os.kill(os.getppid(), signal.SIGKILL); time.sleep(60)\n"
    ended = ptss_mp("run", jobs_file(tmp_path, source), "--log-json")
    lines = [json.loads(line) for line in ended.lines]
    assert any(line["logger"] == "ptss_mp" and line["level"] == "WARNING" for line in lines), ended
    ended = ptss_mp("run", jobs_file(tmp_path, source))
    assert any(" WARNING ptss_mp: " in line for line in ended.lines), ended
    assert names(ended, ["Traceback"]) == []


# ---- --memfree, and variables of a task.


def test_memfree_that_is_there_changes_nothing(tmp_path):
    path = jobs_file(tmp_path, CHAIN)
    ended = ptss_mp("run", path, "--memfree", "1MiB", cwd=tmp_path)
    assert (ended.status, len(ran(tmp_path))) == (0, 7), ended


def test_memfree_starts_nothing_without_it(tmp_path):
    """As much as there is can never be free: this process needs some."""
    path = jobs_file(tmp_path, CHAIN)
    with start("run", path, "--memfree", str(most_bytes()), "--no-progress", cwd=tmp_path) as program:
        line = program.stderr.readline()
        assert "no job is started" in line, line
        assert "--memfree" in line
        program.send_signal(signal.SIGINT)
        ended = finish(program)
    assert ended.status == 130, ended
    assert ran(tmp_path) == []


def test_memfree_beyond_what_there_is(tmp_path):
    path = jobs_file(tmp_path, CHAIN)
    ended = ptss_mp("run", path, "--memfree", str(most_bytes() + 1), cwd=tmp_path)
    assert_one_line(ended, 2, "--memfree", "no job could ever start")
    assert ran(tmp_path) == []


def test_a_task_has_its_variables(tmp_path):
    path = jobs_file(tmp_path, "@task(env={'COLOUR': 'red'})\ndef f(): print(os.environ['COLOUR'])\n")
    ended = ptss_mp("run", path)
    assert (ended.status, ended.out) == (0, "red\n"), ended
