"""`exec -- COMMAND`: its status, its streams, its limits, its signals."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys

import pytest

from tests.cli.cli_support import CAP_S, PROGRAM, REPOSITORY, WITHOUT_OVERRIDE, finish, ptss_mp, send, start

PYTHON = sys.executable


class TestStatus:
    @pytest.mark.parametrize(
        ("script", "status"),
        [("exit 0", 0), ("exit 7", 7), ("exit 255", 255), ("kill -9 $$", 137), ("kill -15 $$", 143)],
    )  # fmt: skip
    def test_is_the_commands_own(self, script, status):
        ended = ptss_mp("exec", "--", "sh", "-c", script)
        assert (ended.status, ended.out, ended.err) == (status, "", "")

    def test_not_there(self, tmp_path):
        ended = ptss_mp("exec", "--", "no-such-command", cwd=tmp_path)
        assert (ended.status, ended.lines) == (127, ["ptss-mp: no-such-command: No such file or directory"])

    @pytest.mark.parametrize("what", ["a file without the right", "a folder"])
    def test_not_executable(self, tmp_path, what):
        (tmp_path / "plain").write_text("echo no\n")
        path = tmp_path / "plain" if what.startswith("a file") else tmp_path
        ended = ptss_mp("exec", "--", path)
        assert (ended.status, len(ended.lines)) == (126, 1), ended
        assert "Permission denied" in ended.err

    def test_a_worker_that_cannot_be_had_is_our_fault(self):
        with start("exec", "--", "true", by=["prlimit", "--nofile=12"]) as program:
            ended = finish(program)
        assert ended.status in (73, 125), ended
        assert len(ended.lines) == 1, ended


class TestLimits:
    def test_timeout(self):
        ended = ptss_mp("exec", "--timeout", "0.3", "--", "sleep", "60")
        assert (ended.status, len(ended.lines)) == (124, 1), ended
        assert "allowed are 0.3 s (timeout)" in ended.err

    def test_memory(self):
        ended = ptss_mp("exec", "--memory", "64M", "--", PYTHON, "-c", "x = b'x' * (1 << 28); input()")
        assert ended.status == 137, ended
        assert "memory: held" in ended.err

    def test_cpu_time(self):
        ended = ptss_mp("exec", "--cpu-time", "0.2", "--", "sh", "-c", "while :; do :; done")
        assert ended.status == 137, ended
        assert "cpu_time" in ended.err

    def test_processes(self):
        many = "for i in 1 2 3 4 5 6 7 8 9; do sleep 60 & done; wait"
        ended = ptss_mp("exec", "--processes", "4", "--", "sh", "-c", many)
        assert ended.status == 137, ended
        assert "processes" in ended.err

    def test_files(self, tmp_path):
        ended = ptss_mp(
            "exec", "--file-size", "1000", "--", "dd", "if=/dev/zero", "of=f", "bs=500", "count=9", cwd=tmp_path
        )
        assert ended.status in (1, 128 + signal.SIGXFSZ), ended
        assert (tmp_path / "f").stat().st_size == 1000

    def test_nothing_of_it_is_left(self, tmp_path):
        """What it leaves in the background ends with it (conftest looks too)."""
        ended = ptss_mp("exec", "--", "sh", "-c", "setsid sleep 300 >/dev/null 2>&1 </dev/null & echo $!")
        assert ended.status == 0
        assert not os.path.exists(f"/proc/{ended.out.strip()}")


class TestStreams:
    def test_stdin_is_ours(self, tmp_path):
        (tmp_path / "in").write_text("one\ntwo\n")
        with open(tmp_path / "in") as file:
            assert file.readline() == "one\n"
            file.seek(4)  # where the next reader goes on, as with any child
            with start("exec", "--", "cat", stdin=file.fileno()) as program:
                assert finish(program).out == "two\n"

    def test_bytes_of_any_kind_and_number(self, tmp_path):
        data = os.urandom(1 << 20) * 8
        (tmp_path / "in").write_bytes(data)
        with open(tmp_path / "in", "rb") as file:
            run = subprocess.run(
                [*PROGRAM, "exec", "--", "sh", "-c", "cat; cat /proc/self/cmdline >&2"], stdin=file,
                capture_output=True, timeout=CAP_S, check=False, env=os.environ | {"PYTHONPATH": str(REPOSITORY)},
            )  # fmt: skip
        assert run.stdout == data
        assert run.stderr == b"cat\0/proc/self/cmdline\0"

    def test_nothing_is_held_back(self):
        with start("exec", "--", "cat", stdin=subprocess.PIPE) as program:
            for line in ("a\n", "b\n"):
                program.stdin.write(line)
                program.stdin.flush()
                assert select.select([program.stdout], [], [], CAP_S)[0]
                assert program.stdout.readline() == line
            program.stdin.close()
            program.stdin = None
            assert finish(program).status == 0

    def test_arguments_and_place_are_as_given(self, tmp_path):
        script = "import os, sys; print([os.fsencode(a) for a in sys.argv[1:]], os.getcwd(), os.environ['MINE'])"
        args = ["--", "-x", "", "a b", os.fsdecode(b"\xff\n")]
        ended = ptss_mp("exec", "--", PYTHON, "-c", script, *args, cwd=tmp_path, MINE="yes")
        assert ended.out == f"{[os.fsencode(arg) for arg in args]} {tmp_path} yes\n", ended


class TestSignals:
    @pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
    def test_the_first_goes_to_the_command(self, number):
        script = f"trap 'echo heard; exit 5' {number.name[3:]}; echo here; while :; do sleep 0.05; done"
        with start("exec", "--", "sh", "-c", script) as program:
            assert program.stdout.readline() == "here\n"
            send(program, number)
            ended = finish(program)
        assert (ended.status, ended.out) == (5, "heard\n"), ended

    def test_a_command_that_does_not_care_dies_of_it(self):
        with start("exec", "--", "sh", "-c", "echo here; exec sleep 300") as program:
            assert program.stdout.readline() == "here\n"
            send(program, signal.SIGTERM)
            assert finish(program).status == 143

    def test_the_second_kills(self):
        with start("exec", "--", "sh", "-c", "trap '' INT; echo here; while :; do sleep 0.05; done") as program:
            assert program.stdout.readline() == "here\n"
            send(program, signal.SIGINT)
            assert "once more kills" in program.stderr.readline()
            send(program, signal.SIGINT)
            ended = finish(program)
        assert ended.status == 130, ended

    def test_at_any_moment(self):
        """From our first instruction to the last: a status of ours or the command's, and nothing left (conftest)."""
        for n in range(10):
            with start("exec", "--", "sleep", "0.2") as program:
                select.select([], [], [], n * 0.05)  # a moment, not a state
                send(program, signal.SIGTERM)
                ended = finish(program)
            assert ended.status in (0, 143, -15), ended
            assert "Traceback" not in ended.err, ended


class TestJson:
    def test_to_a_file(self, tmp_path):
        ended = ptss_mp("exec", "--json", "o.json", "--", "sh", "-c", "echo out; exit 3", cwd=tmp_path)
        told = json.loads((tmp_path / "o.json").read_text())
        assert (ended.status, ended.out, ended.err) == (3, "out\n", "")
        assert (told["status"], told["ok"], told["exit_code"], told["exit_status"]) == ("failed", False, 3, 3)
        assert told["command"] == ["sh", "-c", "echo out; exit 3"]
        assert told["wall_time"] > 0

    def test_to_stderr_behind_what_the_command_says(self):
        ended = ptss_mp("exec", "--json", "--", "sh", "-c", "echo mine >&2; kill -11 $$")
        own, told = ended.lines[0], json.loads(ended.lines[-1])
        assert own == "mine"
        assert (told["status"], told["signal_name"], told["exit_status"]) == ("crashed", "SIGSEGV", 139)

    def test_where_it_cannot_be_written(self, tmp_path):
        ended = ptss_mp("exec", "--json", "no/o.json", "--", "touch", "ran", cwd=tmp_path)
        assert (ended.status, len(ended.lines)) == (73, 1)
        assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    ("args", "word"),
    [
        (("exec",), "command"),
        (("exec", "--"), "command"),
        (("exec", "true"), "true"),
        (("exec", "--timeout", "0", "--", "true"), "--timeout"),
        (("exec", "--memory", "0", "--", "true"), "--memory"),
        (("exec", "--isolation", "landlock", "--", "true"), "--isolation"),
        (("exec", "--workers", "2", "--", "true"), "--workers"),
    ],
)
def test_usage(args, word):
    ended = ptss_mp(*args)
    assert (ended.status, ended.out, len(ended.lines)) == (2, "", 1), ended
    assert word in ended.err


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_another_user_is_not_served(tmp_path):
    """The streams are handed to the worker even if a stranger comes first."""
    assert WITHOUT_OVERRIDE
    script = (
        "import os, socket, time\n"
        "os.setuid(65534)\n"
        "got = 0\n"
        "print('there', flush=True)\n"
        "while True:\n"
        "    for line in open('/proc/net/unix'):\n"
        "        name = line.split()[-1]\n"
        "        if name.startswith('@ptss_mp-'):\n"
        "            s = socket.socket(socket.AF_UNIX)\n"
        "            s.settimeout(5)\n"
        "            try:\n"
        "                s.connect('\\0' + name[1:])\n"
        "                print('got', socket.recv_fds(s, 1, 3)[1], flush=True)\n"
        "            except OSError as e: pass\n"
    )
    with subprocess.Popen([PYTHON, "-c", script], stdout=subprocess.PIPE, text=True) as stranger:
        try:
            assert stranger.stdout.readline() == "there\n"
            for _ in range(5):
                ended = ptss_mp("exec", "--", "echo", "mine")
                assert (ended.status, ended.out) == (0, "mine\n"), ended
        finally:
            stranger.kill()
        told = stranger.stdout.read()
    assert set(told.splitlines()) <= {"got []"}, told
