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
PYTHONS = (sys.executable, f"/usr/bin/python3.{sys.version_info[1]}", "/usr/bin/python3")
# What is ours is only read, not imported: that it fails there would be the test's to say.
_PROBE = (
    f"import sys; assert sys.version_info >= (3, 11), sys.version; "
    f"open({PACKAGE + '/ptss_mp/executor.py'!r}).close(); open({HERE + '/limit_deeds.py'!r}).close()"
)


@contextlib.contextmanager
def home() -> Iterator[str]:
    """A folder of nobody's; skips the test if that user cannot run a Python, or cannot read this package."""
    if os.getuid() != 0:
        pytest.skip(f"needs root to become an ordinary user; this is uid {os.getuid()}")
    if _python() is None:
        pytest.skip(f"uid {NOBODY} can run none of {PYTHONS} with what stands in {PACKAGE}")
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
    for python in PYTHONS:
        with contextlib.suppress(OSError, subprocess.SubprocessError):
            if _run(python, _PROBE, "/").returncode == 0:
                return python
    return None


def _run(python: str, source: str, folder: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [python, "-B", "-c", source], user=NOBODY, group=NOBODY, extra_groups=[], cwd=folder,
        capture_output=True, text=True, timeout=CAP_S,
    )  # fmt: skip
