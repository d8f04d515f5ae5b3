"""A machine or a program that is short of something: descriptors, processes, slots, room in a message."""

from __future__ import annotations

import os
import resource
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import deeds
import pytest
from support import CAP_S, alive, children_of, parent_of, until, wait_for_lines

from ptss_mp import PoolBroken
from ptss_mp.shell import hire
from ptss_mp.warden import kernel

MANY = 1_100  # descriptors; select(2) takes none beyond 1023


@pytest.fixture
def descriptors() -> Iterator[None]:
    """Let this program hold more than 1023 descriptors."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < 2 * MANY:
        pytest.skip(f"needs {2 * MANY} open descriptors; the hard limit of this process (ulimit -Hn) is {hard}")
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


@contextmanager
def room_for(descriptors: int) -> Iterator[None]:
    """Let this program open only so many more descriptors."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    used = set(map(int, os.listdir("/proc/self/fd")))
    free = [fd for fd in range(len(used) + descriptors) if fd not in used]
    resource.setrlimit(resource.RLIMIT_NOFILE, (free[descriptors - 1] + 1, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@contextmanager
def no_room() -> Iterator[None]:
    """Let this program open not a single descriptor more."""
    with room_for(100), ExitStack() as held:
        with suppress(OSError):
            while True:
                held.callback(os.close, os.open(os.devnull, os.O_RDONLY))
        yield


def told(ex: Any) -> BaseException | None:
    """Return why a job cannot run; a pool that breaks at once says so in `submit` already."""
    try:
        return ex.submit(deeds.pid).exception(CAP_S)
    except PoolBroken as error:
        return error


def test_no_room_for_one_worker_breaks_the_pool_with_the_reason(pool):
    ex = pool(20, capture=False)
    with room_for(16):
        error = str(told(ex))
    assert "Too many open files" in error or "ulimit -n" in error
    with pytest.raises(PoolBroken):
        ex.submit(deeds.pid)


@pytest.mark.parametrize("room", [32, 48])
def test_room_for_some_workers_is_enough(pool, gate, tmp_path, room):
    """A pool whose workers are at work does not break because it cannot have more of them."""
    ex = pool(20, capture=False)
    log = tmp_path / "log"
    with room_for(room):
        futures = [ex.submit(deeds.gated, str(log), gate.path, i) for i in range(20)]
        wait_for_lines(log, 1)
        gate.open(20)
        assert [future.result(CAP_S) for future in futures] == list(range(20))


def test_a_warden_that_cannot_fork_lives_and_tries_again(pool, gate, tmp_path):
    ex = pool(2, spares=0)
    log = tmp_path / "log"
    running = ex.submit(deeds.gated, str(log), gate.path, "running")
    wait_for_lines(log, 1)
    warden = ex._pool.warden.process.pid
    limits = resource.prlimit(warden, resource.RLIMIT_NOFILE)
    allowed = len(os.listdir(f"/proc/{warden}/fd"))
    resource.prlimit(warden, resource.RLIMIT_NOFILE, (allowed, limits[1]))
    second = ex.submit(deeds.pid)
    until(lambda: len(ex._pool.core.restarts._deaths) > 10, "more tries than the intensity allows")
    assert not second.done()
    resource.prlimit(warden, resource.RLIMIT_NOFILE, limits)
    assert second.result(CAP_S) != running.worker_pid
    gate.open()
    assert running.result(CAP_S) == "running"
    assert ex._pool.wardens == 1


def test_a_warden_that_dies_while_no_descriptor_is_left(pool):
    """Then there can be no other one, and the reason is told; the supervisor itself does not fail."""
    ex = pool(1, spares=0, fresh=True)
    ex.submit(deeds.pid).result(CAP_S)
    until(lambda: not ex._pool.channels, "the worker's end")
    warden = ex._pool.warden
    with no_room():
        os.kill(warden.process.pid, signal.SIGKILL)
        until(lambda: ex._pool.ended, "the pool's end")
    assert "no warden can be started: [Errno 24] Too many open files" in str(told(ex))


def test_a_warden_that_can_never_fork_breaks_the_pool_with_the_reason(pool):
    ex = pool(2, spares=0)
    ex.submit(deeds.pid).result(CAP_S)
    warden = ex._pool.warden.process.pid
    allowed = len(os.listdir(f"/proc/{warden}/fd")) - 2
    resource.prlimit(warden, resource.RLIMIT_NOFILE, (allowed, allowed))
    error = ex.options(fresh=True).submit(deeds.pid).exception(CAP_S)  # no worker that has run something will do
    assert "a worker cannot be forked: Too many open files" in str(error)


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


class _BreaksMeanwhile:
    """An argument in whose pickling the pool breaks: between the look of `submit` at the pool and its append."""

    def __init__(self, pool):
        self.pool, self.broken = pool, pool.broken
        pool.broken = None

    def __reduce__(self):
        self.pool.broken = self.broken
        return int, ()


def test_a_job_that_comes_as_the_pool_breaks_is_told_why(pool, monkeypatch):
    monkeypatch.setattr(hire, "DESCRIPTORS_MIN", 1 << 40)
    ex = pool(1)
    first = told(ex)
    assert "open files are allowed (ulimit -n)" in str(first)
    until(lambda: ex._pool.ended and not ex._pool.thread.is_alive(), "the loop's end")
    late = ex.submit(deeds.double, _BreaksMeanwhile(ex._pool)).outcome(CAP_S)
    assert (late.status, str(late.exception())) == ("crashed", str(first))
    assert isinstance(late.exception(), PoolBroken)


# ---- descriptors on their way

CROWDED = """
import sys
import deeds
from ptss_mp import Executor

with Executor(2, preload=["deeds"], spares=0) as ex:
    first = ex.submit(deeds.gated, sys.argv[1], sys.argv[2], "first")
    sys.stdin.readline()
    second = ex.submit(deeds.double, 21)
    print(second.outcome().status.value, first.outcome().status.value, ex._pool.wardens)
"""


def without_capabilities() -> None:
    """Let root be bound by what binds everybody (capabilities(7)), and by few descriptors."""
    for number in range(64):
        with suppress(OSError):  # it is no capability; or is not to be dropped, and not there either
            kernel.prctl(24, number)  # PR_CAPBSET_DROP
    resource.setrlimit(resource.RLIMIT_NOFILE, (100, 100))


@contextmanager
def on_their_way(descriptors: int) -> Iterator[None]:
    """Let so many descriptors of this user be sent and not be received."""
    ends = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ends[0], ends[1]:
        for _ in range(descriptors // 100):
            socket.send_fds(ends[0], [b"."], [ends[0].fileno()] * 100)
        yield


def test_a_warden_whose_descriptors_find_no_room_waits(gate, tmp_path):
    """Regression: it took that for the end of its program, and all jobs failed."""
    path = os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")])
    log = tmp_path / "log"
    process = subprocess.Popen(
        [sys.executable, "-c", CROWDED, str(log), gate.path],
        env=os.environ | {"PYTHONPATH": path}, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        preexec_fn=without_capabilities,
    )  # fmt: skip
    with process:
        try:
            worker = int(wait_for_lines(log, 1)[0].split()[2])
            warden = parent_of(worker)
            with on_their_way(400):
                process.stdin.write("\n")
                process.stdin.flush()
                until(lambda: len(children_of(warden)) != 1, "another worker, or the end of all")
                time.sleep(0.1)
                assert alive(worker)
            gate.open()
            assert process.communicate(timeout=CAP_S)[0].split() == ["succeeded", "succeeded", "1"]
        finally:
            process.kill()
