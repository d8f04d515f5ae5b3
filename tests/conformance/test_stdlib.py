"""CPython's own executor tests pass, but for a list of exclusions, each with its reason."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from . import stdlib_suite

ROOT = Path(__file__).parents[2]
SUITE = "test.test_concurrent_futures"
EXCLUSIONS_MAX = 12
RAN_MIN = 80  # of 47 public tests, each with the warden and with spawn, less the exclusions


def has_suite(python: str) -> bool:
    """Return True if an interpreter is new enough and ships the tests."""
    code = f"import sys, importlib.util as u; sys.exit(sys.version_info < (3, 12) or u.find_spec({SUITE!r}) is None)"
    return subprocess.run([python, "-c", code], stderr=subprocess.DEVNULL, check=False).returncode == 0


def interpreter() -> str | None:
    """Return this interpreter if it ships the tests, else a 3.13 or 3.12 that is on the path, or pyenv's, and does."""
    found = [sys.executable, *filter(None, map(shutil.which, ("python3.13", "python3.12")))]
    found += map(str, Path.home().glob(".pyenv/versions/3.1[23]*/bin/python"))
    return next(filter(has_suite, found), None)


def test_it_is_not_skipped_where_the_suite_is_shipped():
    if sys.version_info >= (3, 13) and importlib.util.find_spec("test.test_concurrent_futures"):
        assert interpreter() == sys.executable


def test_the_exclusions_are_few_and_have_reasons():
    assert len(stdlib_suite.EXCLUDED) <= EXCLUSIONS_MAX
    assert all(len(reason) > 10 for reason in stdlib_suite.EXCLUDED.values())


@pytest.mark.timeout(300)
def test_the_standard_library_s_own_tests_pass():
    python = interpreter()
    if python is None:
        pytest.skip(f"needs a CPython from 3.12 on that ships {SUITE}: {sys.executable}, PATH and pyenv have none")
    run = subprocess.run(
        [python, "-m", "tests.conformance.stdlib_suite"],
        cwd=ROOT, env=os.environ | {"PYTHONPATH": str(ROOT)}, capture_output=True, text=True, timeout=280, check=False,
    )  # fmt: skip
    ran = re.search(r"ran (\d+), skipped (\d+)", run.stdout)
    assert run.returncode == 0, run.stderr[-6000:]
    assert ran
    assert int(ran[1]) >= RAN_MIN
    assert int(ran[2]) == 0
