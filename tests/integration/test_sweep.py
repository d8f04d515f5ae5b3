"""The sweep by itself (warden/trees.py): what it may forget, and when it may stop."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NoReturn

import pytest
from support import alive, children_of, until, wait_gone

from ptss_mp.warden import trees as room
from ptss_mp.warden.trees import Trees

LAST_PID = Path("/proc/sys/kernel/ns_last_pid")

# Reads numbers; forks a sleeper for each, with that pid if it can be had (0: any), and says who it is.
MOTHER = """
import os, signal, sys, time
signal.signal(signal.SIGCHLD, signal.SIG_IGN if sys.argv[1] == "deaf" else signal.SIG_DFL)
for line in sys.stdin:
    if int(line):
        with open("/proc/sys/kernel/ns_last_pid", "w") as f:
            f.write(str(int(line) - 1))
    child = os.fork()
    if not child:
        time.sleep(1000)
    print(child, flush=True)
"""


class Mother:
    """A process that forks when it is told to; of the trees below it this test is the warden."""

    def __init__(self, kind: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", MOTHER, kind], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.pid = self.process.pid

    def fork(self, pid: int = 0) -> int:
        assert self.process.stdin
        assert self.process.stdout
        self.process.stdin.write(f"{pid}\n")
        self.process.stdin.flush()
        return int(self.process.stdout.readline())

    def end(self) -> None:
        for pid in [*children_of(self.pid), self.pid]:
            os.kill(pid, signal.SIGKILL)
        self.process.communicate()


@pytest.fixture
def mother() -> Iterator[Callable[[str], Mother]]:
    made: list[Mother] = []

    def make(kind: str) -> Mother:
        made.append(Mother(kind))
        return made[-1]

    yield make
    for one in made:
        one.end()


def sweeper(dying: Mother) -> Trees:
    """Return a sweeper that takes the mother for a dying worker, and nothing else of this process for a stray."""
    trees = Trees({})
    trees.kept = set(children_of(os.getpid()))
    trees.dying = {dying.pid: None}  # type: ignore[dict-item]
    return trees


def lacks_a_descriptor(_pid: int | str) -> NoReturn:
    raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))


def test_a_number_that_was_shot_and_came_back_is_shot_again(mother):
    """Whoever reaped the first one did not tell us: here the kernel, for its parent ignores SIGCHLD."""
    if not os.access(LAST_PID, os.W_OK):
        pytest.skip(f"needs to choose a pid: {LAST_PID} is missing, or not writable for uid {os.getuid()}")
    one = mother("deaf")
    trees = sweeper(one)
    first = one.fork()
    trees.sweep()
    until(lambda: not children_of(one.pid), "end of the first")
    trees.sweep()
    for _ in range(20):  # somebody else may be given that number in between
        second = one.fork(first)
        if second == first:
            break
        os.kill(second, signal.SIGKILL)
    else:
        pytest.fail("the number went to others twenty times")
    trees.sweep()
    wait_gone([second], 1)


def test_a_look_that_cannot_be_taken_is_taken_again(mother, monkeypatch):
    """No descriptor is left for a moment: that nobody was seen does not mean that nobody is there."""
    one = mother("")
    trees = sweeper(one)
    pid = one.fork()

    with monkeypatch.context() as patched:
        patched.setattr(room.proc, "children", lacks_a_descriptor)
        trees.sweep()
    assert trees.dirty
    trees.sweep()
    wait_gone([pid], 1)


def test_who_cannot_be_seen_is_not_taken_for_gone(mother, monkeypatch):
    """His tokens would be another job's while he lives."""
    one = mother("")
    trees = sweeper(one)
    pid = one.fork()
    trees.mourned[1] = {pid}
    trees.shot.add(pid)

    with monkeypatch.context() as patched:
        patched.setattr(room.proc, "_stat", lacks_a_descriptor)
        assert trees.gone() == []
    os.kill(pid, signal.SIGKILL)
    until(lambda: not alive(pid), "its end")
    assert trees.gone() == [1]


def test_what_was_reparented_to_a_dying_worker_while_it_was_looked_at_is_shot_at_once(mother):
    """Listed below one parent, and below another a moment later: it is still ours."""
    one = mother("")
    trees = sweeper(one)
    pid = one.fork()
    trees._shoot(pid, 1 << 30)  # as if its parent had been another when it was listed
    wait_gone([pid], 1)


def test_a_sweep_ends_in_time_however_many_there_are(mother, monkeypatch):
    """Limits of neighbours wait for it: what is left is for the next one."""
    monkeypatch.setattr(room, "SLICE_NS", 0)
    one = mother("")
    trees = sweeper(one)
    pids = [one.fork() for _ in range(3)]
    trees.sweep()
    assert trees.dirty
    assert any(map(alive, pids))
    monkeypatch.undo()
    trees.sweep()
    wait_gone(pids, 1)
