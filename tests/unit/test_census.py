"""Which processes count, how often they are counted, and what that may cost."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from ptss_mp.warden import census, proc
from ptss_mp.warden.census import BEYOND_MAX, LOOK_MAX_NS, LOOK_NS, NEVER_NS, Census

MS = 1_000_000


class Machine:
    """A table of processes: pid -> (parent, state, birth); births in ns since boot, which is when the clocks began."""

    def __init__(self) -> None:
        self.table: dict[int, tuple[int, str, int]] = {}
        self.newest = b"1"
        self.looks = self.cpu_ns = self.cost_ns = 0

    def children(self, pid: int) -> list[int]:
        self.looks += 1
        self.cpu_ns += self.cost_ns
        return [child for child, (parent, _, _) in self.table.items() if parent == pid]

    def life(self, pid: int) -> tuple[str, int]:
        return self.table[pid][1:]

    def born(self, pid: int, parent: int, at: int, state: str = "S") -> None:
        self.table[pid] = parent, state, at // proc.TICK_NS * proc.TICK_NS
        self.newest = b"%d" % pid


@pytest.fixture
def machine(monkeypatch):
    machine = Machine()
    for name in ("children", "life"):
        monkeypatch.setattr(proc, name, getattr(machine, name))
    monkeypatch.setattr(proc, "newest", lambda: machine.newest)
    clock = SimpleNamespace(
        clock_gettime_ns=lambda _clock: 0,
        CLOCK_BOOTTIME=7,
        monotonic_ns=lambda: 0,
        thread_time_ns=lambda: machine.cpu_ns,
    )
    monkeypatch.setattr(census, "time", clock)
    return machine


def worker(processes: int, pid: int = 10, sent: int = 1_000 * MS, **facts: Any) -> Any:
    return SimpleNamespace(
        **{"pid": pid, "processes": processes, "sent": sent, "doomed": False, "group": None, "bounded": 0} | facts
    )


def test_who_has_no_limit_is_not_looked_at(machine):
    counts = Census()
    assert counts.over([worker(0), worker(2, doomed=True)], 0) == []
    assert (counts.due_at, machine.looks) == (NEVER_NS, 0)


def test_the_tree_counts_but_not_the_dead_and_not_what_was_there_before(machine):
    one = worker(3)
    machine.born(20, 10, 900 * MS)  # an earlier job's
    machine.born(21, 20, 1_100 * MS)  # and what it forks now
    machine.born(30, 10, 1_000 * MS)  # in the tick of the dispatch
    machine.born(31, 10, 1_200 * MS, "Z")
    machine.born(32, 30, 1_200 * MS)
    assert Census().over([one], 0) == []
    machine.born(33, 32, 1_300 * MS)
    assert Census().over([one], 0) == [(one, 4)]


def test_no_count_goes_on_for_ever(machine):
    for pid in range(100, 100 + 5 * BEYOND_MAX):
        machine.born(pid, 10 if pid == 100 else pid - 1, 1_100 * MS)
    one = worker(1)
    assert Census().over([one], 0) == [(one, 1 + BEYOND_MAX)]


def test_nothing_is_walked_while_nobody_forks(machine):
    counts, one = Census(), worker(1)
    assert counts.over([one], 0) == []
    looks = machine.looks
    assert counts.over([one], LOOK_NS - 1) == []
    assert counts.over([one], LOOK_NS) == []
    assert machine.looks == looks
    machine.born(20, 10, 1_100 * MS)
    assert counts.over([one], counts.due_at) == [(one, 2)]


def test_an_unknown_newest_walks_each_time(machine):
    machine.newest = b""
    counts, one = Census(), worker(1)
    counts.over([one], 0)
    looks = machine.looks
    counts.over([one], counts.due_at)
    assert machine.looks == 2 * looks


def test_counts_come_less_often_the_more_they_cost_within_a_bound(machine):
    counts, one = Census(), worker(1)
    machine.cost_ns = 1 * MS
    counts.over([one], 0)
    assert counts.due_at == (1 * MS + census.ROUND_NS) * census.COST_SHARE
    machine.cost_ns, machine.newest = 900 * MS, b"2"
    now = counts.due_at
    counts.over([one], now)
    assert counts.due_at == now + LOOK_MAX_NS


def test_the_first_limited_attempt_after_a_rest_is_counted_at_once(machine):
    counts, one = Census(), worker(1)
    counts.over([one], 0)
    one.processes = 0
    counts.over([one], 1)
    one.processes = 1
    machine.born(20, 10, 1_100 * MS)
    assert counts.over([one], 2) == [(one, 2)]


class Group:
    def __init__(self, tasks: int) -> None:
        self._tasks, self.limits = tasks, []

    def tasks(self) -> int:
        return self._tasks

    def limit_tasks(self, most: int) -> None:
        self.limits.append(most)


def test_a_group_spares_the_walk_as_long_as_it_tells_enough(machine):
    group = Group(2)
    one = worker(2, group=group)
    machine.born(20, 10, 1_100 * MS)
    machine.born(21, 10, 1_100 * MS)
    assert Census().over([one], 0) == []
    assert machine.looks == 0
    group._tasks = 3
    assert Census().over([one], 0) == [(one, 3)]
    group._tasks = 0  # its worker did not get in
    assert Census().over([one], 0) == [(one, 3)]


def test_a_group_is_bounded_for_the_attempt_only(machine):
    counts, group = Census(), Group(1)
    one = worker(2, group=group)
    for now, processes in enumerate((2, 2, 5, 0, 0, 2)):
        one.processes = processes
        counts.over([one], now)
    spare, free = census.fences.SPARE_TASKS, census.fences.NO_LIMIT
    assert group.limits == [2 + spare, 5 + spare, free, 2 + spare]
