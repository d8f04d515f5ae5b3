"""A program run by a user without rights, for what root alone would not show."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

import ptss_mp

NOBODY = 65534
HERE = str(Path(__file__).parent)
PACKAGE = str(Path(ptss_mp.__file__).parents[1])
CAP_S = 60.0
_PROBE = f"import sys; sys.path[:0] = [{PACKAGE!r}, {HERE!r}]; import ptss_mp.executor, limit_deeds"


@contextlib.contextmanager
def home() -> Iterator[str]:
    """A folder of nobody's; skips the test if no interpreter is readable to that user."""
    if os.getuid() != 0:
        pytest.skip("this user is an ordinary one: every other test has shown it")
    if _python() is None:
        pytest.skip("no Python of this machine, with this package, can be run by an ordinary user")
    folder = tempfile.mkdtemp(prefix="ptss_mp-ordinary-", dir="/var/tmp")  # pytest's own are root's alone
    os.chown(folder, NOBODY, NOBODY)
    try:
        yield folder
    finally:
        shutil.rmtree(folder)


def run(source: str, folder: str) -> subprocess.CompletedProcess[str]:
    """Run a program as nobody."""
    python = _python()
    assert python
    return _run(python, source, folder)


def _python() -> str | None:
    for python in (sys.executable, f"/usr/bin/python3.{sys.version_info[1]}", "/usr/bin/python3"):
        with contextlib.suppress(OSError, subprocess.SubprocessError):
            if _run(python, _PROBE, "/").returncode == 0:
                return python
    return None


def _run(python: str, source: str, folder: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [python, "-B", "-c", source], user=NOBODY, group=NOBODY, extra_groups=[], cwd=folder,
        capture_output=True, text=True, timeout=CAP_S,
    )  # fmt: skip
