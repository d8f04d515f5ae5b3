"""The program is SIGKILLed: within a second nothing of ours is left, whatever it was doing."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from support import CAP_S, lines, until, wait_for_lines

LEFT_S = 1.0
HERE = str(Path(__file__).parent)

PROGRAM = """
import sys
import deeds
from ptss_mp import Executor

log, moment = sys.argv[1:]
ex = Executor(2, "spawn" if moment == "spawn" else None)
if moment == "start":
    ex.start()
    deeds.note(log, "now")
elif moment == "submit":
    ex.submit(deeds.nap, 1000)
    deeds.note(log, "now")
elif moment == "preload":
    slow = Executor(2, preload=["slow_to_import"]).start()
elif moment == "tree":
    for shape in deeds.TREES:
        ex.submit(deeds.grow, shape, log + ".tree").result()
    deeds.note(log, "now")
elif moment == "load":
    while True:
        for future in [ex.submit(deeds.double, i) for i in range(2000)]:
            future.result()
        deeds.note(log, "now")
elif moment == "forked":
    import os
    ex.submit(deeds.hang, "native", log)
    if os.fork() == 0:
        deeds.note(log + ".fork", os.getpid())
        deeds.nap(1000)
else:
    for _ in range(2):
        ex.submit(deeds.hang, "native", log)
deeds.nap(1000)
"""


def ours(mark: bytes) -> list[str]:
    """Return the live processes with a mark in their environment."""
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                if mark in (folder / "environ").read_bytes().split(b"\0"):
                    found.append(f"{folder.name} {(folder / 'cmdline').read_bytes()!r}")
            except OSError:
                continue
    return found


@contextmanager
def program(tmp_path: Path, moment: str) -> Iterator[tuple[subprocess.Popen[bytes], Path, bytes]]:
    """Run PROGRAM with a mark of its own; end all that has it."""
    mark = f"ORPHAN_TEST={tmp_path}"
    key, value = mark.split("=")
    (tmp_path / "slow_to_import.py").write_text(f"import deeds\ndeeds.hang('native', {str(tmp_path / 'log')!r})\n")
    (tmp_path / "program.py").write_text(PROGRAM)
    path = os.pathsep.join([HERE, os.environ.get("PYTHONPATH", "")])
    process = subprocess.Popen(
        [sys.executable, str(tmp_path / "program.py"), str(tmp_path / "log"), moment],
        env=os.environ | {key: value, "PYTHONPATH": path},
        stdin=subprocess.DEVNULL,
    )
    try:
        yield process, tmp_path / "log", mark.encode()
    finally:
        process.kill()
        process.wait()
        for line in ours(mark.encode()):
            os.kill(int(line.split()[0]), signal.SIGKILL)


@pytest.mark.parametrize("moment", ["run", "spawn", "start", "submit", "preload", "tree", "load"])
def test_nothing_is_left(tmp_path, moment):
    shared = set(os.listdir("/dev/shm"))
    with program(tmp_path, moment) as (process, log, mark):
        wait_for_lines(log, 2 if moment in ("run", "spawn") else 1)
        assert len(ours(mark)) > 1 or moment in ("start", "submit")
        process.kill()
        process.wait()
        until(lambda: not ours(mark), f"end of {ours(mark)}", LEFT_S)
        assert set(os.listdir("/dev/shm")) == shared


@pytest.mark.parametrize("pause_ms", [0, 3, 10, 30, 60, 100, 200])
def test_nothing_is_left_whenever_it_dies_after_the_start(tmp_path, pause_ms):
    """The warden may be anywhere between exec and ready; the pause picks the moment, no state is waited for."""
    with program(tmp_path, "submit") as (process, log, mark):
        wait_for_lines(log, 1)
        time.sleep(pause_ms / 1000)
        process.kill()
        process.wait()
        until(lambda: not ours(mark), f"end of {ours(mark)}", LEFT_S)


def test_a_fork_of_the_program_keeps_nothing_of_ours_alive(tmp_path):
    with program(tmp_path, "forked") as (process, log, mark):
        wait_for_lines(log, 1)
        fork = wait_for_lines(tmp_path / "log.fork", 1)[0]
        process.kill()
        process.wait()
        until(lambda: [line.split()[0] for line in ours(mark)] == [fork], f"end of all but {fork}", LEFT_S)


def test_a_sigterm_of_the_program_leaves_nothing_either(tmp_path):
    with program(tmp_path, "run") as (process, log, mark):
        wait_for_lines(log, 2)
        process.terminate()
        process.wait(CAP_S)
        until(lambda: not ours(mark), f"end of {ours(mark)}", LEFT_S)
        assert len(lines(log)) == 2


def test_the_mark_is_seen(tmp_path):
    """A canary: a process that outlives its parent is found."""
    with program(tmp_path, "run") as (process, log, mark):
        wait_for_lines(log, 2)
        assert any(line.startswith(f"{process.pid} ") for line in ours(mark))
        assert any(line.startswith(lines(log)[0].split()[0] + " ") for line in ours(mark))
