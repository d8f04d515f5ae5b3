"""What the README shows is what happens: its programs are run, its output is compared."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

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


def test_the_ten_lines(tmp_path: Path):
    out = said(tmp_path / "ten.py", PYTHON[0])
    (shown,) = (text for kind, text in BLOCKS if kind == "text" and text.startswith("0\n"))
    assert plain(out) == plain(shown)


def test_many_items(tmp_path: Path):
    out = said(tmp_path / "many.py", PYTHON[2])
    (shown,) = (text for kind, text in BLOCKS if kind == "text" and text.startswith("0 0\n"))
    assert out == shown


def test_the_jobs_file(tmp_path: Path):
    (tmp_path / "jobs.py").write_text(PYTHON[1])
    ended = ptss_mp("run", "jobs.py", "--no-progress", cwd=tmp_path)
    (shown,) = (text for kind, text in BLOCKS if kind == "console" and "ptss-mp run jobs.py" in text)
    assert ended.status == 1
    assert sorted(plain(ended.out + ended.err)) == sorted(plain(shown)[1:])
