"""A live run and those who ask it: status, pause, resume, cancel, stop; and those who mean harm."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from ptss_mp.cli import main as program_main
from ptss_mp.cli import sockets
from tests.cli.cli_support import CAP_S, Bell, Ended, finish, jobs_file, ptss_mp, send, start


@pytest.fixture
def place(tmp_path) -> Path:
    """Where the sockets of this test are."""
    place = tmp_path / "runtime"
    place.mkdir(mode=0o700)
    return place


@pytest.fixture
def go(tmp_path) -> Iterator[Bell]:
    go = Bell(tmp_path, "go")
    yield go
    go.close()


SOURCE = """\
from ptss_mp import current
@task
def held():
    current().progress(3, 10, "page 3")
    {ring}
    open({go!r}).readline()
    print("held")
@task
def behind(held): print("behind")
pages = task(after=held).map(print, ["p0", "p1"])
"""


@contextlib.contextmanager
def live(tmp_path, place, bell, go, *args: str) -> Iterator[subprocess.Popen[str]]:
    """A run of one worker whose first job waits for `go`; three jobs wait for that one."""
    path = jobs_file(tmp_path, SOURCE.format(ring=bell.ring("here"), go=str(go.path)))
    with start("run", path, "--workers", "1", *args, XDG_RUNTIME_DIR=str(place)) as program:
        bell.wait()
        yield program


def ask(place, *args: str | Path) -> Ended:
    return ptss_mp(*args, XDG_RUNTIME_DIR=str(place))


def let(go: Bell) -> None:
    with open(go.path, "w") as file:
        file.write("go\n")


def status_of(place, program) -> dict:
    ended = ask(place, "status", "--json", "--pid", str(program.pid))
    assert ended.status == 0, ended
    return json.loads(ended.out)


def socket_of(place: Path) -> Path:
    (path,) = (place / "ptss_mp").glob("*.sock")
    return path


class TestStatus:
    def test_as_json(self, tmp_path, place, bell, go):
        with live(tmp_path, place, bell, go) as program:
            told = status_of(place, program)
            let(go)
            assert finish(program).status == 0
        assert (told["schema"], told["pid"], told["state"]) == (1, program.pid, "running")
        assert told["what"] == str(tmp_path / "jobs.py")
        assert (told["total"], told["done"], told["counts"]) == (4, 0, {})
        assert (told["running"], told["waiting"], told["ready"]) == (1, 3, 0)
        assert told["workers"]["busy"] == 1
        (job,) = told["jobs"]
        assert (job["name"], job["progress"]) == ("held", "3 of 10, page 3")
        assert job["pid"] != program.pid
        assert 0 <= job["seconds"] <= told["seconds"]

    def test_in_words(self, tmp_path, place, bell, go):
        with live(tmp_path, place, bell, go) as program:
            told = ask(place, "status", tmp_path / "jobs.py")
            let(go)
            finish(program)
        head, *rest = told.out.splitlines()
        assert head.startswith(f"{tmp_path}/jobs.py: pid {program.pid}, running for ")
        assert rest[0].startswith("  settled: 0 of 4, 0.0 jobs/s")
        assert rest[1] == "  others: 1 running, 0 ready, 3 waiting, 0 delayed"
        assert "1 busy" in rest[2]
        assert rest[3].startswith("  held: pid ")
        assert rest[3].endswith("| 3 of 10, page 3")

    def test_of_a_map(self, tmp_path, place, bell, go):
        (tmp_path / "m.py").write_text(
            f"def f(item):\n    {bell.ring('here')}\n    open({str(go.path)!r}).readline()\n"
        )
        with start("map", "m:f", "an item", cwd=tmp_path, XDG_RUNTIME_DIR=str(place)) as program:
            bell.wait()
            told = status_of(place, program)
            cancelled = ask(place, "cancel", "an item", "m:f")
            ended = finish(program)
        assert (told["what"], told["total"], told["jobs"][0]["name"]) == ("m:f", None, "an item")
        assert cancelled.status == 0
        assert (ended.status, json.loads(ended.out)["status"]) == (1, "cancelled")

    def test_the_only_one_needs_no_name(self, tmp_path, place, bell, go, monkeypatch, capsys):
        monkeypatch.setattr(sockets, "folders", lambda: [str(place / "ptss_mp")])
        with live(tmp_path, place, bell, go) as program:
            assert program_main.main(["status"]) == 0
            assert f"pid {program.pid}" in capsys.readouterr().out
            let(go)
            finish(program)
        assert program_main.main(["status"]) == 66
        assert capsys.readouterr().err == "ptss-mp: there is no live run\n"

    def test_of_several_one_must_be_named(self, tmp_path, place, bell, go):
        with live(tmp_path, place, bell, go) as first, live(tmp_path, place, bell, go) as second:
            told = ask(place, "pause")
            both = ask(place, "status", "--json", tmp_path / "jobs.py")
            for program in (first, second):
                program.kill()
                finish(program)
        assert (told.status, len(told.lines)) == (2, 1), told
        assert all(str(program.pid) in told.err for program in (first, second))
        assert {json.loads(line)["pid"] for line in both.out.splitlines()} == {first.pid, second.pid}


class TestVerbs:
    def test_pause_and_resume(self, tmp_path, place, bell, go):
        with live(tmp_path, place, bell, go) as program:
            assert ask(place, "pause", "--pid", str(program.pid)).status == 0
            assert "paused" in program.stderr.readline()
            let(go)
            until = time.monotonic() + CAP_S
            while (told := status_of(place, program))["done"] < 1:
                assert time.monotonic() < until
            assert (told["state"], told["ready"], told["running"]) == ("paused", 3, 0)
            assert ask(place, "resume", "--pid", str(program.pid)).status == 0
            ended = finish(program)
        assert (ended.status, sorted(ended.out.split())) == (0, ["behind", "held", "p0", "p1"]), ended

    def test_cancel(self, tmp_path, place, bell, go):
        with live(tmp_path, place, bell, go, "--report", str(tmp_path / "r.json")) as program:
            pid = str(program.pid)
            told = [ask(place, "cancel", name, "--pid", pid) for name in ("nosuch", "pages[1]", "pages", "held")]
            ended = finish(program)
        assert [one.status for one in told] == [66, 0, 0, 0], told
        assert "no job named 'nosuch'" in told[0].err
        assert "cancelled pages: 1 job" in told[2].err
        ends = {job["name"]: job["status"] for job in json.loads((tmp_path / "r.json").read_text())["jobs"]}
        assert ends == {"held": "cancelled", "behind": "dependency", "pages[0]": "cancelled", "pages[1]": "cancelled"}
        assert ended.status == 1

    def test_stop(self, tmp_path, place, bell, go):
        with live(tmp_path, place, bell, go, "--state", str(tmp_path / "s")) as program:
            told = ask(place, "stop", tmp_path / "jobs.py")
            assert "running jobs have 30 s" in program.stderr.readline()
            let(go)
            ended = finish(program)
        assert (told.status, ended.status, ended.out) == (0, 1, "held\n"), ended
        assert "shutdown" not in ended.err
        assert set(json.loads((tmp_path / "s").read_text())["left"]) == {"behind", "pages[0]", "pages[1]"}

    def test_stop_without_grace(self, tmp_path, place, bell, go):
        with live(tmp_path, place, bell, go) as program:
            told = ask(place, "stop", "--grace", "0", "--pid", str(program.pid))
            ended = finish(program)
        assert (told.status, ended.status) == (0, 1)
        assert "held: interrupted" in ended.err

    def test_a_map_is_stopped_while_it_waits_for_items(self, tmp_path, place):
        (tmp_path / "m.py").write_text("def f(item): return item\n")
        with start("map", "m:f", "-", cwd=tmp_path, stdin=subprocess.PIPE, XDG_RUNTIME_DIR=str(place)) as program:
            program.stdin.write("a\n")
            program.stdin.flush()
            assert program.stdout.readline()
            assert ask(place, "stop", "--pid", str(program.pid)).status == 0
            program.wait(CAP_S)
            program.stdin.close()
            program.stdin = None
            ended = finish(program)
        assert ended.status == 0
        assert "shutdown" not in ended.err

    @pytest.mark.parametrize(
        ("args", "status", "word"),
        [
            (("cancel",), 2, "NAME"),
            (("pause", "--json"), 2, "--json"),
            (("status", "--pid", "0"), 2, "--pid"),
            (("status", "--pid", "x"), 2, "--pid"),
            (("status", "--pid", "4194304"), 66, "no live run with pid 4194304"),
            (("status", "nosuch.py"), 66, "no live run of nosuch.py"),
            (("stop", "nosuch.py", "--grace", "-1"), 2, "--grace"),
            (("stop", "a\x1b[31m\n.py"), 66, r"a\x1b[31m\n.py"),
            (("cancel", "x", "nosuch.py"), 66, "no live run"),
            (("pause", "a.py", "b.py"), 2, "b.py"),
        ],
    )
    def test_bad_input(self, place, args, status, word):
        ended = ask(place, *args)
        assert (ended.status, ended.out, len(ended.lines)) == (status, "", 1), ended
        assert word in ended.err


class TestPlace:
    def test_nobody_else_can_enter(self, tmp_path, place, bell, go):
        with live(tmp_path, place, bell, go) as program:
            folder = (place / "ptss_mp").stat()
            let(go)
            finish(program)
        assert (folder.st_mode & 0o777, folder.st_uid) == (0o700, os.getuid())
        assert os.listdir(place / "ptss_mp") == []

    def test_what_a_killed_run_leaves_is_taken_away(self, tmp_path, place, bell, go):
        with live(tmp_path, place, bell, go) as program:
            program.kill()
            finish(program)
        assert socket_of(place).exists()
        assert ask(place, "status", tmp_path / "jobs.py").status == 66
        assert os.listdir(place / "ptss_mp") == []

    @pytest.mark.parametrize("planted", ["a link", "open to others", "a file", "no right"])
    def test_a_place_that_is_not_ours_alone_is_not_used(self, tmp_path, place, bell, go, planted, monkeypatch, capsys):
        folder, elsewhere = place / "ptss_mp", tmp_path / "elsewhere"
        elsewhere.mkdir(mode=0o700)
        if planted == "a link":
            folder.symlink_to(elsewhere)
        elif planted == "a file":
            folder.write_text("")
        else:
            folder.mkdir()
            folder.chmod(0o711 if planted == "open to others" else 0o740)
        monkeypatch.setattr(sockets, "folders", lambda: [str(folder)])
        path = jobs_file(tmp_path, "@task\ndef f(): print('done')\n")
        assert program_main.main(["run", str(path)]) == 0
        told = capsys.readouterr()
        assert told.out == "done\n"
        assert "will not find this run" in told.err
        assert os.listdir(elsewhere) == []
        assert not folder.is_dir() or os.listdir(folder) == []

    def test_a_long_path_will_do(self, tmp_path, bell, go):
        place = tmp_path / ("x" * 120) / ("y" * 120)
        place.mkdir(parents=True)
        with live(tmp_path, place, bell, go) as program:
            assert status_of(place, program)["pid"] == program.pid
            let(go)
            finish(program)

    @pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
    def test_another_user(self, tmp_path, place, bell, go):
        """He cannot enter; nor would he be answered, had the folder let him in."""
        script = (
            "import os, socket, sys; os.setgid(65534); os.setuid(65534); s = socket.socket(socket.AF_UNIX)\n"
            "try: s.connect(sys.argv[1])\nexcept PermissionError: print('no permission'); sys.exit()\n"
            "try: s.sendall(b'{}\\n'); print(s.recv(100))\nexcept ConnectionError: print('refused')\n"
        )
        for folder in (place, *place.parents):
            if folder.stat().st_uid == 0 and folder != Path("/"):
                with contextlib.suppress(PermissionError):
                    folder.chmod(folder.stat().st_mode | 0o011)
        with live(tmp_path, place, bell, go) as program:
            told = []
            for mode in (0o700, 0o777):
                (place / "ptss_mp").chmod(mode)
                socket_of(place).chmod(0o777)
                run = [sys.executable, "-I", "-c", script, str(socket_of(place))]
                told.append(subprocess.run(run, capture_output=True, text=True, timeout=CAP_S, check=False).stdout)
            let(go)
            finish(program)
        assert told[0] == "no permission\n"
        assert told[1] in ("b''\n", "refused\n")


class TestHarm:
    def test_lines_that_are_no_requests(self, tmp_path, place, bell, go):
        lines = [
            b"\n", b"{}\n", b"[]\n", b"null\n", b"\xff\xfe\n", b"[" * 4000 + b"\n", b'{"verb": "die"}\n',
            b'{"verb": ["stop"]}\n', b'{"verb": "cancel"}\n', b'{"verb": "cancel", "name": 7}\n',
            *(b'{"verb": "stop", "grace": %s}\n' % grace for grace in (b"-1", b"NaN", b"true", b'"x"', b"1e999")),
            b"x" * 100_000 + b"\n",
        ]  # fmt: skip
        with live(tmp_path, place, bell, go) as program:
            for line in lines:
                reply = exchanged(place, line)
                assert reply.startswith(b'{"ok": false, "error": '), (line[:50], reply)
            assert status_of(place, program)["state"] == "running"
            let(go)
            ended = finish(program)
        assert (ended.status, "Traceback" in ended.err) == (0, False), ended

    def test_who_says_nothing_and_who_reads_nothing_is_in_nobodys_way(self, tmp_path, place, bell, go):
        """More than are served at once; their time ends."""
        with live(tmp_path, place, bell, go) as program, contextlib.ExitStack() as stack:
            for number in range(24):
                sock = stack.enter_context(socket.socket(socket.AF_UNIX))
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", int(CAP_S), 0))
                sock.connect(str(socket_of(place)))  # where the line is full, it waits
                if number % 2:
                    sock.sendall(b'{"verb": "sta')
            assert ask(place, "status", "--pid", str(program.pid)).status == 0
            let(go)
            assert finish(program).status == 0

    def test_a_thousand_connections(self, tmp_path, place, bell, go):
        with live(tmp_path, place, bell, go) as program:
            for _ in range(1000):
                with socket.socket(socket.AF_UNIX) as sock, contextlib.suppress(BlockingIOError):
                    sock.setblocking(False)
                    sock.connect(str(socket_of(place)))
            assert len(os.listdir(f"/proc/{program.pid}/fd")) < 100
            assert ask(place, "status", "--pid", str(program.pid)).status == 0
            let(go)
            assert finish(program).status == 0

    def test_a_run_that_is_stopped_is_told_of(self, tmp_path, place, bell, go, monkeypatch, capsys):
        from ptss_mp.cli import remote

        monkeypatch.setattr(sockets, "folders", lambda: [str(place / "ptss_mp")])
        monkeypatch.setattr(remote, "ANSWER_S", 0.5)
        with live(tmp_path, place, bell, go) as program:
            send(program, signal.SIGSTOP)
            assert program_main.main(["status"]) == 75
            assert (
                capsys.readouterr().err == f"ptss-mp: the run with pid {program.pid} does not answer; is it stopped?\n"
            )
            send(program, signal.SIGCONT)
            let(go)
            finish(program)


def exchanged(place: Path, line: bytes) -> bytes:
    """Send bytes, return what comes back until the end."""
    with socket.socket(socket.AF_UNIX) as sock:
        sock.settimeout(CAP_S)
        sock.connect(str(socket_of(place)))
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            sock.sendall(line)
        reply = b""
        with contextlib.suppress(ConnectionResetError):
            while part := sock.recv(1 << 16):
                reply += part
    return reply
