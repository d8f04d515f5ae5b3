"""Control groups of this very host, where they are to be had: limits that the kernel holds, and nothing left behind."""

from __future__ import annotations

import contextlib
import mmap
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from support import until

from ptss_mp.warden import cgroup, means
from ptss_mp.warden.cgroup import MEMORY, PIDS, Group, Groups, Owner, Place

MIB = 1 << 20


def place_of(controller: str) -> Place:
    offered = means.offer(controller)
    if not isinstance(offered, Place):
        pytest.skip(f"no cgroup with {controller} here: {offered}")
    return offered


@pytest.mark.parametrize("controller", [MEMORY, PIDS])
def test_a_place_is_found_where_a_group_can_be_made_by_hand(controller):
    """Whoever skips for want of one asks the product: here it is asked by somebody who knows."""
    own = next((line for line in Path("/proc/self/cgroup").read_text().splitlines() if f":{controller}:" in line), "")
    folder = Path(f"/sys/fs/cgroup/{controller}{own.rpartition(':')[2]}") / f"by-hand-{os.getpid()}"
    try:
        folder.mkdir()
    except OSError as error:
        pytest.skip(f"no group of version 1 can be made by hand: {error}")
    folder.rmdir()
    assert isinstance(means.offer(controller), Place)


@pytest.fixture
def group() -> Iterator[Group]:
    groups = Groups({controller: place_of(controller) for controller in (MEMORY, PIDS)})
    group = groups.make("test")
    yield group
    with contextlib.suppress(FileNotFoundError):  # a test has removed it
        until(lambda: group.kill() == 0, "the group is empty", 5)
    assert group.remove(5)
    assert groups.remove()


class Member:
    """A process in a group, which obeys single letters."""

    def __init__(self, group: Group) -> None:
        self._commands, commands = os.pipe()
        answers, self._answers = os.pipe()
        self.into, self.out = commands, answers
        self.pid = os.fork()
        if self.pid == 0:
            try:
                group.attach()
                os.write(self._answers, b".")
                while (letter := os.read(self._commands, 1)) != b"q":
                    os.write(self._answers, DEEDS[letter]())
            finally:
                os._exit(0)
        os.close(self._commands)
        os.close(self._answers)
        assert os.read(self.out, 1) == b"."

    def does(self, letter: bytes) -> bytes:
        os.write(self.into, letter)
        return os.read(self.out, 1)

    def end(self) -> int:
        with contextlib.suppress(BrokenPipeError):
            os.write(self.into, b"q")  # no end of file: later members hold this end too
        os.close(self.into)
        os.close(self.out)
        return int(until(lambda: any(found := os.waitpid(self.pid, os.WNOHANG)) and found, "its end")[1])


_held: list[mmap.mmap] = []


def touch(private: bool, size: int) -> bytes:
    flags = mmap.MAP_ANONYMOUS | (mmap.MAP_PRIVATE if private else mmap.MAP_SHARED)
    _held.append(mmap.mmap(-1, size, flags=flags))
    for at in range(0, size, mmap.PAGESIZE):
        _held[-1][at] = 1
    return b"."


def fork() -> bytes:
    try:
        pid = os.fork()
    except BlockingIOError:
        return b"r"
    if pid == 0:
        time.sleep(60)
        os._exit(0)
    return b"f"


DEEDS = {
    b"p": lambda: touch(True, 16 * MIB),
    b"s": lambda: touch(False, 16 * MIB),
    b"h": lambda: touch(True, 128 * MIB),
    b"f": fork,
}


def names(place: Place) -> set[str]:
    return {name for name in os.listdir(place.folder) if name.startswith(cgroup.PREFIX)}


@pytest.mark.parametrize("controller", [MEMORY, PIDS])
def test_a_trial_leaves_nothing(controller):
    place = place_of(controller)
    before = names(place)
    assert means.trial(controller, place) == ""
    assert names(place) == before


def test_no_fork_goes_beyond_the_limit(group):
    member = Member(group)
    group.limit_tasks(3)
    assert [member.does(b"f") for _ in range(4)] == [b"f", b"f", b"r", b"r"]
    assert group.tasks() == 3
    assert len(group.members()) == 3
    group.limit_tasks(cgroup.NO_LIMIT)
    assert member.does(b"f") == b"f"
    assert group.kill() == 4
    assert os.WTERMSIG(member.end()) == signal.SIGKILL
    until(lambda: group.members() == [], "all are dead and reaped")


def unified() -> str:
    """Return a group of version 2 that is this process's own, or skip."""
    lines = [line.split() for line in Path("/proc/self/mountinfo").read_text().splitlines() if " - cgroup2 " in line]
    own = next(line for line in Path("/proc/self/cgroup").read_text().splitlines() if line.startswith("0::"))[3:]
    folder = lines[0][4] + own if lines else ""
    if not lines or not os.access(folder, os.W_OK) or not Path(folder, "cgroup.procs").exists():
        pytest.skip(f"needs a group of version 2 of its own that uid {os.getuid()} may write to: {folder or 'none'}")
    return folder


def test_version_2_kills_a_whole_group_at_once():
    """Needs no controllers, so this much of version 2 can be seen on hybrid hosts too."""
    folder = f"{unified()}/{Owner.me().name}"
    os.mkdir(folder)
    group = Group({PIDS: Place(2, folder)})
    try:
        member = Member(group)
        assert [member.does(b"f") for _ in range(5)] == [b"f"] * 5
        assert len(group.members()) == 6
        assert group.kill() == 6
        assert os.WTERMSIG(member.end()) == signal.SIGKILL
        until(lambda: group.members() == [], "all are dead")
    finally:
        assert group.remove(5)


def test_private_and_shared_memory_of_all_members_is_counted(group):
    first, second = Member(group), Member(group)
    before = sum(group.held_bytes())
    first.does(b"p")
    second.does(b"s")
    assert 32 * MIB <= sum(group.held_bytes()) - before < 40 * MIB
    assert group.charged_bytes() >= sum(group.held_bytes()) - MIB
    assert group.oom_kills() == 0
    for member in (first, second):
        member.end()


def test_beyond_the_memory_limit_the_kernel_kills_and_says_so(group):
    member = Member(group)
    for limit in (256 * MIB, cgroup.NO_LIMIT, 64 * MIB):
        group.limit_memory(limit)
    member.does(b"p")
    assert group.oom_kills() == 0
    assert member.does(b"h") == b"", "it is gone"
    assert os.WTERMSIG(member.end()) == signal.SIGKILL
    assert group.oom_kills() == 1


def test_a_group_with_a_process_is_not_removed(group):
    member = Member(group)
    assert not group.remove()
    member.end()
    assert group.remove(5)


def test_a_dead_owners_groups_are_removed_but_not_if_somebody_lives_there():
    place = place_of(PIDS)
    out, into = os.pipe()
    pid = os.fork()
    if pid == 0:
        Groups({PIDS: place}).make("1").attach()
        os.write(into, Owner.me().name.encode())
        if os.fork():
            os._exit(0)
        time.sleep(60)
        os._exit(0)
    os.waitpid(pid, 0)
    name = os.read(out, 200).decode()
    os.close(out)
    os.close(into)
    assert name in names(place)
    cgroup.remove_leftovers(place)
    assert name in names(place), "its child lives"
    inner = Path(place.folder) / name / "1"
    assert Group({PIDS: Place(place.version, str(inner))}).kill() == 1
    until(lambda: cgroup.remove_leftovers(place) == 1, "it is removed", 5)
    assert name not in names(place)
