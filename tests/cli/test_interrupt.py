"""Ctrl-C and its kin: once stops, twice kills; while jobs run, are submitted, while the file is imported."""

from __future__ import annotations

import json
import os
import select
import signal
import sys
import time

import pytest

from tests.cli.cli_support import CAP_S, Bell, assert_one_line, finish, jobs_file, send, start

STATUS = {signal.SIGINT: 130, signal.SIGTERM: 143, signal.SIGHUP: 129}


def outcomes(report):
    return {job["name"]: job["status"] for job in json.loads(report.read_text())["jobs"]}


@pytest.mark.parametrize("number", STATUS)
def test_once_running_jobs_have_the_grace_and_nothing_new_starts(tmp_path, bell, number):
    go = Bell(tmp_path, "go")
    path = jobs_file(
        tmp_path,
        f"@task\ndef running():\n    {bell.ring('here')}\n    open({str(go.path)!r}).readline()\n"
        "    print('done')\n"
        "@task\ndef waiting(running): print('never')\n",
    )
    report = tmp_path / "r.json"
    with start("run", path, "--workers", "1", "--report", report) as program:
        bell.wait()
        send(program, number)
        assert number.name in program.stderr.readline()
        with open(go.path, "w") as file:
            file.write("go\n")
        ended = finish(program)
    go.close()
    assert (ended.status, ended.out) == (STATUS[number], "done\n"), ended
    assert outcomes(report) == {"running": "succeeded", "waiting": "cancelled"}
    assert "Traceback" not in ended.err


def test_what_a_stop_cuts_off_is_not_called_failed(tmp_path, bell):
    go = Bell(tmp_path, "go")
    path = jobs_file(
        tmp_path,
        f"@task\ndef running():\n    {bell.ring('here')}\n    open({str(go.path)!r}).readline()\n"
        "@task\ndef waiting(running): print('never')\n",
    )
    with start("run", path, "--workers", "1") as program:
        bell.wait()
        send(program, signal.SIGINT)
        while "cut off" not in (line := program.stderr.readline()):
            assert line, "it ended without a line of progress"
            assert "1 failed" not in line
        assert line.startswith("1/2 done, 0 failed, 1 cut off, 1 running"), line
        with open(go.path, "w") as file:
            file.write("go\n")
        assert finish(program).status == 130
    go.close()


def test_twice_kills(tmp_path, bell):
    path = jobs_file(tmp_path, f"@task\ndef running():\n    {bell.ring('here')}\n    time.sleep(300)\n")
    report = tmp_path / "r.json"
    with start("run", path, "--report", report) as program:
        bell.wait()
        send(program, signal.SIGINT)
        assert "once more" in program.stderr.readline()
        send(program, signal.SIGINT)
        ended = finish(program)
    assert ended.status == 130, ended
    assert "killing" in ended.err
    assert outcomes(report)["running"] != "succeeded"
    assert "Traceback" not in ended.err


def test_the_grace_ends(tmp_path, bell):
    path = jobs_file(tmp_path, f"@task\ndef running():\n    {bell.ring('here')}\n    time.sleep(300)\n")
    report = tmp_path / "r.json"
    with start("run", path, "--grace", "0.2", "--report", report) as program:
        bell.wait()
        send(program, signal.SIGTERM)
        assert finish(program).status == 143
    assert outcomes(report) == {"running": "interrupted"}


def test_no_grace_at_all(tmp_path, bell):
    path = jobs_file(tmp_path, f"@task\ndef running():\n    {bell.ring('here')}\n    time.sleep(300)\n")
    with start("run", path, "--grace", "0") as program:
        bell.wait()
        send(program, signal.SIGINT)
        assert finish(program).status == 130


@pytest.mark.parametrize("args", [("run",), ("check",), ("run", "--dry-run")])
@pytest.mark.parametrize("number", STATUS)
def test_while_the_file_is_imported(tmp_path, bell, args, number):
    path = jobs_file(tmp_path, f"{bell.ring('here')}\ntime.sleep(300)\n@task\ndef f(): ...\n")
    with start(*args, path) as program:
        bell.wait()
        send(program, number)
        assert_one_line(finish(program), STATUS[number], number.name)


@pytest.mark.parametrize("args", [("run", "jobs.py", "--state", "s"), ("check", "jobs.py"), ("doctor",)])
def test_at_any_moment(tmp_path, args):
    """Whenever it comes: no traceback, nothing half-made, no process left (conftest looks)."""
    jobs_file(tmp_path, "b = task().map(time.sleep, [0.02] * 10)\n@task\ndef s(b): print('end')\n")
    seen = set()
    for n in range(13):
        number = list(STATUS)[n % 3]
        with start(*args, cwd=tmp_path) as program:
            await_our_first_line(program)
            select.select([], [], [], n * 0.05)  # a moment, not a state: from our first instruction to the last
            send(program, number)
            ended = finish(program)
        assert "Traceback" not in ended.err, ended
        # before it handles signals and after, it dies of them; a shell calls that 128 + n as well
        assert ended.status in (0, STATUS[number], -number), ended
        left = (tmp_path / "s").exists()
        if left:
            assert json.loads((tmp_path / "s").read_text())["left"]
            (tmp_path / "s").unlink()
        assert left is False or ended.status == STATUS[number], ended
        assert not list(tmp_path.glob(".*")), "no temporary file"
        seen.add(ended.status)
    assert len(seen) > 1


def test_when_all_jobs_have_ended_what_is_to_be_written_still_is(tmp_path):
    """Nobody reads stderr: the summary fills the pipe, and the program waits in its midst."""
    source = "def fail(n): raise ValueError('x' * 400)\nb = task().map(fail, range(400))\n"
    path, report, log = jobs_file(tmp_path, source), tmp_path / "r.json", tmp_path / "log"
    with start("run", path, "--no-progress", "--report", report, "--execution-log", log) as program:
        until = time.monotonic() + CAP_S
        while threads(program) > 2 or not log.exists() or log.read_text().count("\n") < 400:
            assert time.monotonic() < until
            time.sleep(0.01)
        send(program, signal.SIGTERM)
        ended = finish(program)
    assert ended.status == 143, ended
    summary = json.loads(report.read_text())["summary"]
    assert (summary["failed"], summary["signal"], summary["exit_status"]) == (400, 15, 143)
    assert "Traceback" not in ended.err


def await_our_first_line(program):
    """Wait until the interpreter's own handler of SIGINT, with its traceback, is gone."""
    caught, until = False, time.monotonic() + CAP_S
    while program.poll() is None and time.monotonic() < until:
        with open(f"/proc/{program.pid}/status") as file:
            mask = next(int(line.split()[1], 16) for line in file if line.startswith("SigCgt"))
        before, caught = caught, bool(mask >> signal.SIGINT - 1 & 1)
        if (before and not caught) or threads(program) > 1:
            return


def threads(program):
    """How many threads the program has: two when its pool has ended, the main one and that for signals."""
    return len(os.listdir(f"/proc/{program.pid}/task"))


def test_thrice_leaves_at_once(tmp_path):
    """Nobody reads stdout: the pipe is full, what succeeded jobs printed waits, and the program waits for that."""
    bell = Bell(tmp_path)
    path = jobs_file(
        tmp_path,
        f"def f(n): print('x' * 60_000)\nb = task().map(f, range(9))\n@task\ndef s(b):\n    {bell.ring('all')}\n",
    )
    with start("run", path, "--no-progress") as program:
        bell.wait()
        for word in ("once more", "killing"):
            send(program, signal.SIGINT)
            assert word in program.stderr.readline()
        send(program, signal.SIGINT)
        assert program.wait(CAP_S) == 130
    bell.close()


def test_while_jobs_are_submitted(tmp_path, bell):
    """--max-tasks holds the main thread in submit."""
    path = jobs_file(
        tmp_path,
        f"def f(n):\n    {bell.ring('here')}\n    time.sleep(300)\nb = task().map(f, range(50))\n",
    )
    with start("run", path, "--workers", "1", "--max-tasks", "2", "--grace", "0.2") as program:
        bell.wait()
        send(program, signal.SIGINT)
        ended = finish(program)
    assert ended.status == 130, ended
    assert "never submitted" in ended.lines[-1]
    assert "Traceback" not in ended.err


def test_under_nohup_a_hangup_is_nothing(tmp_path, bell, monkeypatch):
    go = Bell(tmp_path, "go")
    source = f"@task\ndef f():\n    {bell.ring('here')}\n    open({str(go.path)!r}).readline()\n"
    path = jobs_file(tmp_path, source)
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)  # what nohup does; it is inherited
    try:
        with start("run", path) as program:
            bell.wait()
            send(program, signal.SIGHUP)
            with open(go.path, "w") as file:
                file.write("go\n")
            assert finish(program).status == 0
    finally:
        signal.signal(signal.SIGHUP, before)
        go.close()


def test_a_second_run_in_one_process_finds_its_handlers_again(tmp_path, capfd):
    from ptss_mp.cli.main import main

    before = [signal.getsignal(number) for number in STATUS]
    path = jobs_file(tmp_path, "@task\ndef f(): ...\n")
    assert main(["run", str(path)]) == 0
    assert main(["check", str(path)]) == 0
    assert [signal.getsignal(number) for number in STATUS] == before
    assert sys.stdout.write("") == 0
