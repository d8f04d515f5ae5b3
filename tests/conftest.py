"""For every test: a temporary folder of this run, and a look at what it left behind."""

from __future__ import annotations

import os
import signal
import tempfile
import uuid
from collections.abc import Iterator

import pytest

from tests import leaks

os.environ[leaks.MARK] = uuid.uuid4().hex
# Whoever runs the tests in the background (`&`, nohup) starts them with these ignored, and what they start would
# inherit that: programs that are asked to end by them.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


@pytest.fixture(autouse=True, scope="session")
def own_temporary_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """All temporary files of this run go where nobody else's are, so that they can be counted."""
    folder = str(tmp_path_factory.mktemp("tmpdir"))
    before = os.environ.get("TMPDIR")
    os.environ["TMPDIR"] = tempfile.tempdir = folder
    yield
    tempfile.tempdir = None
    if before is None:
        del os.environ["TMPDIR"]
    else:
        os.environ["TMPDIR"] = before


@pytest.fixture(autouse=True)
def nothing_left(own_temporary_folder: None) -> Iterator[None]:
    """Processes, threads, descriptors, shared memory and temporary files are as before the test."""
    before = leaks.take()
    yield
    left = leaks.left_since(before)
    if left:
        pytest.fail("left behind:\n  " + "\n  ".join(left), pytrace=False)
