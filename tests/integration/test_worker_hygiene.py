"""What a worker holds: its own descriptors and one page, nothing of the program or of other workers."""

from __future__ import annotations

import os

import deeds
import pytest
from support import CAP_S, wait_for_lines

CONTEXTS = pytest.mark.parametrize("context", [None, "spawn"])


@CONTEXTS
def test_a_worker_holds_only_its_own_descriptors(pool, context, tmp_path):
    secret = os.open(tmp_path / "secret", os.O_RDWR | os.O_CREAT)
    os.set_inheritable(secret, True)
    try:
        ex = pool(3, context)
        found = [f.result(CAP_S) for f in [ex.options(fresh=True).submit(deeds.descriptors) for _ in range(3)]]
    finally:
        os.close(secret)
    for descriptors in found:
        kinds = {fd: target.split(":")[0] for fd, target in descriptors.items()}
        assert kinds.pop(0) == "/dev/null"
        assert kinds.pop(3) == "pipe"
        assert kinds.pop(4) == "pipe"
        assert all(kinds.pop(fd).startswith("/memfd") for fd in (1, 2, 5, 7, 8, 9))
        assert set(kinds) <= {10}, "more than mmap's own copy of the page's descriptor"
        assert all(descriptors[fd].startswith("/memfd:ptss_mp-page") for fd in kinds)
    pipes = [descriptors[fd] for descriptors in found for fd in (3, 4)]
    assert len(set(pipes)) == 6, "two workers share a pipe"


@CONTEXTS
def test_a_worker_maps_only_its_own_page(pool, context, gate, tmp_path):
    ex = pool(3, context)
    log = tmp_path / "log"
    others = [ex.submit(deeds.gated, str(log), gate.path, i) for i in range(2)]
    wait_for_lines(log, 2)
    mapped = [line for line in ex.submit(deeds.maps).result(CAP_S) if "memfd:ptss_mp" in line]
    gate.open(2)
    assert [f.result(CAP_S) for f in others] == [0, 1]
    assert len(mapped) == 1
    assert "ptss_mp-page" in mapped[0]


def test_a_program_that_a_job_starts_inherits_nothing(pool):
    ex = pool(1)
    assert ex.submit(deeds.descriptors_of_a_program).result(CAP_S) == ["0", "1", "2"]


def test_signals_are_as_a_program_expects_them(pool):
    ex = pool(1)
    ignored, blocked = ex.submit(deeds.signals).result(CAP_S)
    assert blocked == []
    assert set(ignored) <= {"SIGPIPE", "SIGXFSZ"}  # Python's own


def test_random_numbers_differ_between_workers(pool):
    ex = pool(2)
    view = ex.options(fresh=True)
    numbers = [f.result(CAP_S) for f in [view.submit(deeds.random_number) for _ in range(4)]]
    assert len(set(numbers)) == 4
