"""A storage call that fails: no outcome is wrong, lost or invented (scripts/measure/journal.py tries them all)."""

from __future__ import annotations

import pytest

from tests.journal import strace
from tests.journal.faults import with_fault

WHY = strace.missing()


@pytest.mark.skipif(bool(WHY), reason=WHY or "strace is there")
@pytest.mark.parametrize(
    ("name", "number", "error"),
    [
        ("pwrite64", 40, "EIO"), ("pwrite64", 41, "ENOSPC"), ("pwrite64", 52, "EIO"), ("fdatasync", 4, "EIO"),
        ("fdatasync", 9, "ENOSPC"), ("write", 5, "ENOSPC"), ("pread64", 4, "EIO"), ("openat", 3, "EIO"),
        ("unlink", 1, "EIO"),
    ],
)  # fmt: skip
def test_one_call_fails(tmp_path, name, number, error):
    with_fault(tmp_path, 15, name, number, error)
