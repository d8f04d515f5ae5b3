"""What a program asks of the disk, by strace(1): recorded, or made to fail."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

REPOSITORY = Path(__file__).parents[2]
FILES = ("journal.db", "journal.db-wal", "journal.db-started", "journal.db-started2")
CAP_S = 100.0


def missing() -> str:
    """Return why strace cannot be used here, "" if it can."""
    if shutil.which("strace") is None:
        return "needs strace(1), and there is none"
    tried = subprocess.run(["strace", "-f", "-o", os.devnull, "true"], capture_output=True, text=True, check=False)
    return "" if tried.returncode == 0 else f"strace(1) may not trace here: {tried.stderr.strip()[-200:]}"


def traced(folder: Path, program: Sequence[str], options: Sequence[str], files: Sequence[str] = FILES) -> Path:
    """Run a program under strace, let it end by itself with 0 or 1; return the trace."""
    trace = folder / "trace"
    paths = [word for name in files for word in ("-P", str(folder / name))]
    run = subprocess.run(
        ["strace", "-f", "--seccomp-bpf", "-y", "-o", str(trace), *options, *paths, sys.executable, *program],
        env=os.environ | {"PYTHONPATH": str(REPOSITORY)}, stdin=subprocess.DEVNULL, capture_output=True, text=True,
        timeout=CAP_S, check=False,
    )  # fmt: skip
    assert run.returncode in (0, 1), run
    return trace


class Call(NamedTuple):
    """A system call that has ended; `began` and `ended` are lines of the trace."""

    name: str
    args: str
    value: int
    pid: int
    began: int
    ended: int


_WHOLE = re.compile(r"(\d+) +(\w+)\((.*)\) += (-?\d+)")
_BEGUN = re.compile(r"(\d+) +(\w+)\((.*) <unfinished \.\.\.>")
_RESUMED = re.compile(r"(\d+) +<\.\.\. (\w+) resumed>(.*)\) += (-?\d+)")


def calls(trace: Path) -> list[Call]:
    """Return the calls of a trace, in the order of their ends."""
    found, begun = [], {}
    with open(trace, encoding="ascii", errors="replace") as lines:
        for at, line in enumerate(lines):
            if whole := _WHOLE.match(line):
                pid, name, args, value = whole.groups()
                found.append(Call(name, args, int(value), int(pid), at, at))
            elif half := _BEGUN.match(line):
                begun[half[1]] = at, half[3]
            elif (half := _RESUMED.match(line)) and half[1] in begun:
                began, args = begun.pop(half[1])
                found.append(Call(half[2], args + half[3], int(half[4]), int(half[1]), began, at))
    return found
