"""The heap of instants: order, dead entries, and no growth."""

from ptss_mp.core.job import NEVER
from ptss_mp.core.slices import Slice
from ptss_mp.core.timers import COMPACT_MIN, Timers


def test_due_in_order_of_instant_and_id():
    timers = Timers(lambda job: True, Slice(10**6))
    for at, job in ((5, 1), (3, 2), (5, 0), (9, 4)):
        timers.push(at, job)
    assert timers.next_at == 3
    assert list(timers.due(5)) == [2, 0, 1]
    assert timers.next_at == 9


def test_empty_never_rings():
    assert Timers(lambda job: True, Slice(10**6)).next_at == NEVER


def test_unwanted_are_dropped():
    timers = Timers({2}.__contains__, Slice(10**6))
    timers.push(1, 1)
    timers.push(1, 2)
    assert list(timers.due(1)) == [2]


def test_dead_entries_do_not_pile_up():
    wanted = set()
    timers = Timers(wanted.__contains__, Slice(10**6))
    for job in range(10 * COMPACT_MIN):
        timers.push(10**9 + job, job)
    assert len(timers) <= COMPACT_MIN + 1
