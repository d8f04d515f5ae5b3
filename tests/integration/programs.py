"""Programs of their own, as users write them: made in a folder, run, looked at."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from support import CAP_S, until

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
OURS = f"import sys\nsys.path[:0] = [{str(HERE)!r}, {str(ROOT)!r}]\n"  # for programs that ignore PYTHONPATH
MARK = "PROGRAM_TEST"


def environment(folder: Path) -> dict[str, str]:
    """Return what a program finds, with a mark by which all that stems from it is found."""
    path = os.pathsep.join(filter(None, [str(HERE), str(ROOT), os.environ.get("PYTHONPATH")]))
    return os.environ | {"PYTHONPATH": path, MARK: str(folder)}


@contextmanager
def running(folder: Path, command: Sequence[str], **how: Any) -> Iterator[subprocess.Popen[str]]:
    """Run a command; at the end nothing that stems from it is left, or the test fails."""
    defaults = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "cwd": folder}
    process = subprocess.Popen(list(command), text=True, env=environment(folder), **(defaults | how))
    try:
        yield process
        until(lambda: not left_of(folder), f"end of {left_of(folder)}", 5)
    finally:
        for pid in left_of(folder):  # they may hold its pipes
            os.kill(pid, signal.SIGKILL)
        process.kill()
        process.communicate()


def left_of(folder: Path) -> list[int]:
    """Return the live processes that stem from a program of this folder."""
    mark, found = f"{MARK}={folder}".encode(), []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                if mark in (entry / "environ").read_bytes().split(b"\0"):
                    found.append(int(entry.name))
            except OSError:
                continue
    return found


def run(folder: Path, source: str, *args: str, flags: Sequence[str] = (), status: int = 0, **how: Any) -> list[str]:
    """Run a program to its end; return the lines of its stdout.  It says nothing on stderr, unless it fails."""
    (folder / "program.py").write_text(source)
    with running(folder, [sys.executable, *flags, str(folder / "program.py"), *args], **how) as process:
        out, err = process.communicate(timeout=CAP_S)
        assert process.returncode == status, (process.returncode, out, err)
        assert not err or status, err
    return (out or "").splitlines()
