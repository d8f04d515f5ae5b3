"""What the README shows is what happens: its programs are run, its output is compared."""

from __future__ import annotations

import re
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest

from tests.cli.cli_support import CAP_S, REPOSITORY, ptss_mp

README = (REPOSITORY / "README.md").read_text("utf-8")
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```", README, re.M | re.S)
PYTHON = [text for kind, text in BLOCKS if kind == "python"]


def plain(text: str) -> list[str]:
    """Return lines without pids, seconds and sizes, which differ from run to run."""
    text = re.sub(r"pid \d+", "pid", text)
    return re.sub(r"[\d.]+ s\b|< \d+ MiB|[\d.]+ MiB", "", text).splitlines()


def said(program: Path, text: str) -> str:
    """Run a block as a program; return its stdout."""
    program.write_text(text)
    return subprocess.run(
        [sys.executable, program], capture_output=True, text=True, timeout=CAP_S, check=True,
        env={"PYTHONPATH": str(REPOSITORY), "PATH": "/usr/bin:/bin"},
    ).stdout  # fmt: skip


# A program with its output behind it.
SHOWN = [(text, shown) for (kind, text), (behind, shown) in pairwise(BLOCKS) if (kind, behind) == ("python", "text")]


def test_programs_show_what_they_print():
    assert len(SHOWN) == 5


@pytest.mark.parametrize("number", range(len(SHOWN)))
def test_a_program_prints_what_is_shown(tmp_path: Path, number: int):
    text, shown = SHOWN[number]
    assert plain(said(tmp_path / "program.py", text)) == plain(shown)


def test_the_jobs_file(tmp_path: Path):
    (tmp_path / "jobs.py").write_text(PYTHON[1])
    ended = ptss_mp("run", "jobs.py", "--no-progress", cwd=tmp_path)
    (shown,) = (text for kind, text in BLOCKS if kind == "console" and "ptss-mp run jobs.py" in text)
    assert ended.status == 1
    assert sorted(plain(ended.out + ended.err)) == sorted(plain(shown)[1:])
