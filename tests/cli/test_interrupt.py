"""Ctrl-C and its kin: once stops, twice kills; while jobs run, are submitted, while the file is imported."""

from __future__ import annotations

import json
import signal
import sys

import pytest

from tests.cli.cli_support import Bell, finish, jobs_file, send, start

STATUS = {signal.SIGINT: 130, signal.SIGTERM: 143, signal.SIGHUP: 129}


@pytest.fixture
def bell(tmp_path):
    bell = Bell(tmp_path)
    yield bell
    bell.close()


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


@pytest.mark.parametrize("command", ["run", "check"])
def test_while_the_file_is_imported(tmp_path, bell, command):
    path = jobs_file(tmp_path, f"{bell.ring('here')}\ntime.sleep(300)\n@task\ndef f(): ...\n")
    with start(command, path) as program:
        bell.wait()
        send(program, signal.SIGINT)
        ended = finish(program)
    assert (ended.status, ended.out) == (130, "")
    assert "Traceback" not in ended.err
    assert len(ended.lines) == 1


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
