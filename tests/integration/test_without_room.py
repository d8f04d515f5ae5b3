"""A machine or a program that is short of something: descriptors, processes, slots, room in a message."""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator

import deeds
import pytest
from support import CAP_S

from ptss_mp import PoolBroken

MANY = 1_100  # descriptors; select(2) takes none beyond 1023


@pytest.fixture
def descriptors() -> Iterator[None]:
    """Let this program hold more than 1023 descriptors."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < 2 * MANY:
        pytest.skip("no such number of descriptors is allowed here")
    resource.setrlimit(resource.RLIMIT_NOFILE, (2 * MANY, hard))
    held = [os.open(os.devnull, os.O_RDONLY) for _ in range(MANY)]
    yield
    for fd in held:
        os.close(fd)
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_a_program_with_many_open_files(pool, descriptors):
    ex = pool(2)
    assert ex.submit(deeds.double, 4).result(CAP_S) == 8
    ex.shutdown()


@pytest.mark.parametrize("context", [None, "spawn"])
def test_initargs_of_many_megabytes(pool, context):
    ex = pool(1, context, len, (b"x" * (20 << 20),))
    assert ex.submit(deeds.double, 4).result(CAP_S) == 8


def test_workers_that_leave_slowly_only_delay(pool):
    ex = pool(2, fresh=True)
    futures = [ex.submit(deeds.leave_slowly, 0.3) for _ in range(60)]
    assert {future.outcome(CAP_S).status for future in futures} == {"succeeded"}


@pytest.mark.parametrize("room", [16, 28, 40])
def test_too_few_descriptors_break_the_pool_with_the_reason(pool, gate, room):
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    ex = pool(20, capture=False)
    used = set(map(int, os.listdir("/proc/self/fd")))
    free = [fd for fd in range(len(used) + room) if fd not in used]
    resource.setrlimit(resource.RLIMIT_NOFILE, (free[room - 1] + 1, hard))
    try:
        futures = [ex.submit(deeds.gate, gate.path) for _ in range(20)]
        errors = {str(future.exception(CAP_S)) for future in futures}
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert len(errors) == 1
    assert "Too many open files" in str(errors) or "ulimit -n" in str(errors)
    with pytest.raises(PoolBroken):
        ex.submit(deeds.pid)
