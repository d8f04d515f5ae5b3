"""A machine without room: one clear line and 73 or 74, nothing half-made; never a traceback."""

from __future__ import annotations

import json
import os
import subprocess

import pytest

from ptss_mp.shell.hire import DESCRIPTORS_MIN
from tests.cli.cli_support import CAP_S, ON_A_SMALL_DISK, Bell, assert_one_line, finish, jobs_file, ptss_mp, start

OK = "@task\ndef ok(): print('fine')\n"
COMMANDS = pytest.mark.parametrize("command", ["run", "check"])


def limited(limit, *args):
    """Run the program under a resource limit of prlimit(1)."""
    with start(*args, by=["prlimit", *limit]) as program:
        return finish(program)


# ---- Descriptors.


@COMMANDS
@pytest.mark.parametrize("number", [6, 8, 12, 16, 20, 24, 28, DESCRIPTORS_MIN - 1])
def test_few_descriptors(tmp_path, command, number):
    ended = limited([f"--nofile={number}"], command, jobs_file(tmp_path, OK))
    assert_one_line(ended, 73, f"{number} open files are allowed (ulimit -n)", f"{DESCRIPTORS_MIN} are needed")


def test_as_few_as_will_do(tmp_path):
    """What is asked for is enough, and with one less a worker could not be forked."""
    ended = limited([f"--nofile={DESCRIPTORS_MIN}"], "run", jobs_file(tmp_path, OK), "--workers", "1")
    assert (ended.status, ended.out) == (0, "fine\n"), ended


def test_one_descriptor_less_would_not_do(tmp_path):
    code = "from ptss_mp.shell import hire; hire.DESCRIPTORS_MIN = 0; from ptss_mp.cli.main import main; "
    code += f"raise SystemExit(main(['check', {str(jobs_file(tmp_path, OK))!r}]))"
    by = ["prlimit", f"--nofile={DESCRIPTORS_MIN - 1}", os.sys.executable, "-c", code]
    with start(by=by) as program:
        ended = finish(program)
    assert ended.status == 73, ended
    assert "Too many open files" in ended.err


# ---- Processes and memory.  Root has no limit of processes; another user may read what root may, for the test.

AS_ANOTHER = [
    "setpriv", "--reuid=64321", "--clear-groups", "--inh-caps=+dac_read_search", "--ambient-caps=+dac_read_search",
]  # fmt: skip
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason=f"needs root to become another user; this is {os.geteuid()}")


@needs_root
@COMMANDS
@pytest.mark.parametrize("number", [1, 2, 3, 4, 5])
def test_few_processes(tmp_path, command, number):
    path = jobs_file(tmp_path, OK)
    with start(command, path, by=[*AS_ANOTHER, "prlimit", f"--nproc={number}"]) as program:
        ended = finish(program)
    assert_one_line(ended, 73)


KILLS_ITS_WARDEN = "def f(_): os.kill(os.getppid(), signal.SIGKILL); time.sleep(60)\nb = task().map(f, range(40))\n"


def test_a_pool_that_breaks_says_why_once(tmp_path):
    """What it had not run is no failure of anybody's, and left for the next run."""
    source = KILLS_ITS_WARDEN + "@task(after=b, run_if='done')\ndef last(): print('ran')\n"
    state = tmp_path / "s"
    ended = ptss_mp("run", jobs_file(tmp_path, source), "--workers", "1", "--state", state, "--log-level", "error")
    assert (ended.status, ended.out) == (1, ""), "those that had a part in it failed"
    assert ended.err.count("the pool cannot go on: the warden died again and again") == 1
    left = json.loads(state.read_text())["left"]
    assert left[-2:] == ["b[39]", "last"]
    failed = [line for line in ended.lines if ": crashed: " in line]
    assert len(failed) + len(left) == 41
    assert ended.lines[-2].startswith("41 jobs: 41 crashed")


def test_a_pool_that_breaks_before_any_job_has_failed(tmp_path):
    """Its first import, in a worker, is harmless; the second, in the warden of the run, is not."""
    source = "if os.path.exists('imported'):\n    os.kill(os.getpid(), signal.SIGKILL)\nopen('imported', 'w').close()\n"
    path = jobs_file(tmp_path, source + OK + "@task\ndef waits(ok): ...\n")
    ended = ptss_mp("run", path, "--report", tmp_path / "r.json", cwd=tmp_path)
    assert ended.status == 73, ended
    assert ended.lines[0].startswith("ptss-mp: the pool cannot go on: the warden ended by SIGKILL before it was ready")
    assert json.loads((tmp_path / "r.json").read_text())["summary"]["exit_status"] == 73
    assert len(ended.lines) == 2


@COMMANDS
def test_little_memory(tmp_path, command):
    """Enough to begin with and not for more; how little that is differs from one interpreter to another."""
    path = jobs_file(tmp_path, OK)
    found = set()
    for mebibytes in (24, 28, 32, 40, 64, 512):
        ended = limited([f"--as={mebibytes << 20}"], command, path)
        if "ptss-mp: " not in ended.err and ended.status != 0:
            continue  # the interpreter itself did not come up
        found.add(ended.status)
        if ended.status:  # a pool that breaks has a line of totals too
            assert ended.status == 73, ended
            assert 1 <= len(ended.lines) <= 2, ended
            assert ended.lines[0].startswith("ptss-mp: "), ended
            assert "Traceback" not in ended.err
    assert 0 in found


# ---- Disks.


@pytest.fixture
def disk(tmp_path):
    """Where a disk of 16 KiB is mounted for the program."""
    (tmp_path / "disk").mkdir()
    probe = [*ON_A_SMALL_DISK, str(tmp_path / "disk"), "true"]
    done = subprocess.run(probe, capture_output=True, text=True, timeout=CAP_S, check=False)
    if done.returncode:
        pytest.skip(f"needs a file system of its own: {done.stderr.strip()}")
    return tmp_path / "disk"


def on_disk(disk, *args):
    return start(*args, by=[*ON_A_SMALL_DISK, str(disk)])


def content(program, path):
    """Return what stands in a file on the program's own disk while it lives."""
    with open(f"/proc/{program.pid}/root{path}") as file:
        return file.read()


def test_no_room_for_the_report(tmp_path, disk):
    path = jobs_file(tmp_path, "b = task().map(abs, range(200))\n")
    with on_disk(disk, "run", path, "--report", disk / "r.json") as program:
        ended = finish(program)
    assert ended.status == 73, ended
    assert ended.lines[-1].startswith("ptss-mp: cannot create the report"), ended
    assert "No space left" in ended.lines[-1]
    assert "Traceback" not in ended.err


def test_no_room_for_the_state(tmp_path, disk):
    bell = Bell(tmp_path)
    source = f"def f(n):\n    {bell.ring('here')}\n    time.sleep(300)\nb = task(name='x' * 900).map(f, range(100))\n"
    with on_disk(disk, "run", jobs_file(tmp_path, source), "--grace", "0", "--state", disk / "s") as program:
        bell.wait()
        program.terminate()
        ended = finish(program)
    bell.close()
    assert ended.status == 73, ended
    assert ended.lines[-1].startswith("ptss-mp: cannot create the state"), ended
    assert "Traceback" not in ended.err


def test_no_room_for_the_execution_log(tmp_path, disk):
    """The jobs go on; what stands in the log is whole lines; the end says what is missing."""
    bell, go = Bell(tmp_path), Bell(tmp_path, "go")
    source = (
        "b = task().map(abs, range(200))\n"
        f"@task\ndef last(b):\n    {bell.ring('here')}\n    open({str(go.path)!r}).readline()\n"
    )
    log = disk / "log"
    with on_disk(disk, "run", jobs_file(tmp_path, source), "--execution-log", log) as program:
        bell.wait()
        text = content(program, log)
        with open(go.path, "w") as file:
            file.write("go\n")
        ended = finish(program)
    bell.close()
    go.close()
    assert ended.status == 74, ended
    assert "ptss-mp: the execution log lacks attempts: No space left on device" in ended.lines
    assert "201 jobs: 201 succeeded" in ended.lines[-1]
    assert text.endswith("\n")
    lines = [json.loads(line) for line in text.splitlines()]
    assert 10 < len(lines) < 200


def test_a_log_on_a_full_device(tmp_path):
    ended = ptss_mp("run", jobs_file(tmp_path, OK), "--execution-log", "/dev/full")
    assert (ended.status, ended.out) == (74, "fine\n"), ended
    assert ended.lines[0] == "ptss-mp: the execution log lacks attempts: No space left on device"
    ended = ptss_mp("run", jobs_file(tmp_path, OK + "@task\ndef f(): 1 / 0\n"), "--execution-log", "/dev/full")
    assert ended.status == 1, "a failed job counts more"


def test_a_log_that_nobody_reads_any_more(tmp_path):
    read, write = os.pipe()
    with start("run", jobs_file(tmp_path, OK), "--execution-log", f"/proc/{os.getpid()}/fd/{write}") as program:
        os.close(read)
        os.close(write)
        ended = finish(program)
    assert ended.status in (73, 74), ended  # gone before it was opened, or after
    assert "execution log" in ended.err
    assert "Traceback" not in ended.err


@pytest.mark.parametrize("args", [("check",), ("run", "--dry-run"), ("run",)])
def test_stdout_on_a_full_device(tmp_path, args):
    path = jobs_file(tmp_path, OK)
    with open("/dev/full", "w") as full, start(*args, path, stdout=full.fileno()) as program:
        ended = finish(program)
    assert ended.status == 74, ended
    assert "No space left" in ended.lines[0]
    assert len(ended.lines) == (2 if args == ("run",) else 1), ended


@pytest.mark.parametrize("args", [("check",), ("run", "--dry-run"), ("doctor", "--json")])
def test_a_reader_of_stdout_that_has_gone(tmp_path, args):
    path = [jobs_file(tmp_path, OK)] if args != ("doctor", "--json") else []
    read, write = os.pipe()
    os.close(read)
    with start(*args, *path, stdout=write) as program:
        os.close(write)
        ended = finish(program)
    assert ended.status == 0, ended
    assert "Traceback" not in ended.err
    assert "Broken" not in ended.err


def test_a_reader_of_stderr_that_has_gone(tmp_path):
    path = jobs_file(tmp_path, OK + "@task\ndef f(): 1 / 0\n")
    for json_lines in ((), ("--log-json",)):
        script = 'exec 3>&1; { "$@"; echo $? >&3; } 2>&1 >/dev/null | true'
        with start("run", path, "--log-level", "debug", *json_lines, by=["bash", "-c", script, "bash"]) as program:
            assert finish(program).out == "1\n"
