"""A machine or a program that is short of something: descriptors, processes, slots, room in a message."""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator

import deeds
import pytest
from support import CAP_S, until, wait_for_lines

from ptss_mp import PoolBroken
from ptss_mp.shell import hire

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


@pytest.mark.parametrize("room", [3, 8, 16])
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


@pytest.mark.parametrize("room", [28, 40])
def test_with_room_for_some_workers_the_pool_goes_on_with_those(pool, gate, room, caplog):
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    ex = pool(20, capture=False)
    used = set(map(int, os.listdir("/proc/self/fd")))
    free = [fd for fd in range(len(used) + room) if fd not in used]
    resource.setrlimit(resource.RLIMIT_NOFILE, (free[room - 1] + 1, hard))
    try:
        futures = [ex.submit(deeds.gate, gate.path) for _ in range(20)]
        until(lambda: "Too many open files" in caplog.text, "a word about it")
        gate.open(20)
        assert [future.exception(CAP_S) for future in futures] == [None] * 20
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_a_warden_that_can_fork_none_says_so(pool):
    ex = pool(1, spares=0)
    ex.submit(deeds.pid).result(CAP_S)
    warden = ex._pool.warden.process.pid
    resource.prlimit(warden, resource.RLIMIT_NOFILE, (16, 16))
    assert ex.submit(deeds.crash, "kill").outcome(CAP_S).status == "crashed"
    assert "a worker cannot be forked: Too many open files" in str(ex.submit(deeds.pid).exception(CAP_S))
    assert ex._pool.wardens == 1


def test_a_warden_that_cannot_fork_for_a_while_harms_nobody(pool, gate, tmp_path):
    ex = pool(2, spares=0)
    log = tmp_path / "log"
    running = ex.submit(deeds.gated, str(log), gate.path, "running")
    wait_for_lines(log, 1)
    warden = ex._pool.warden.process.pid
    allowed = len(os.listdir(f"/proc/{warden}/fd"))
    before = resource.prlimit(warden, resource.RLIMIT_NOFILE, (allowed, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
    waiting = ex.submit(deeds.pid)
    with pytest.raises(TimeoutError):
        waiting.result(2)
    assert not running.done()
    resource.prlimit(warden, resource.RLIMIT_NOFILE, before)
    assert waiting.result(CAP_S) != running.worker_pid
    gate.open()
    assert running.result(CAP_S) == "running"
    assert ex._pool.wardens == 1


def test_more_messages_than_the_socket_holds(pool, gate, tmp_path, monkeypatch):
    """While the warden imports its preload it reads nothing; what it is asked for meanwhile is not lost."""
    monkeypatch.setattr(hire, "MESSAGE_MAX", 4096)  # what its socket holds
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "slow_preload.py").write_text("import time; time.sleep(0.5)")
    ex = pool(40, preload=["slow_preload"], spares=0)
    log = tmp_path / "log"
    futures = [ex.submit(deeds.gated, str(log), gate.path, i) for i in range(40)]
    wait_for_lines(log, 40)
    gate.open(40)
    assert [future.result(CAP_S) for future in futures] == list(range(40))
