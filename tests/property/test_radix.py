"""The radix heap against a sorted list: what comes, when, and in which order."""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st

from ptss_mp.core import radix
from ptss_mp.core.job import DUE_SHIFT, ID_MASK, NEVER
from ptss_mp.core.radix import NEAR_NS, Radix
from ptss_mp.core.slices import Slice

MOMENTS = st.integers(0, 60).flatmap(lambda bits: st.integers(0, 1 << bits))  # as many small ones as large ones
STEPS = st.lists(
    st.tuples(st.lists(MOMENTS, max_size=8), st.sets(st.integers(0, 30)), MOMENTS), min_size=1, max_size=12
)


def instant(key):
    return key >> DUE_SHIFT


@given(start=MOMENTS, steps=STEPS, size=st.integers(1, 20), least=st.sampled_from((0, 4096)))
@example(start=0, steps=[([(1 << 40) - 1], set(), 1 << 40)], size=20, least=0)  # the last that a list may hold
def test_each_living_entry_comes_once_and_in_time(start, steps, size, least):
    """Entries come, some of their jobs end, time passes; a slice may be of one entry."""
    live, work, now, number = {}, Slice(size), start, 0
    queue = Radix(instant, live, work)
    before, radix.SWEEP_MIN = radix.SWEEP_MIN, least
    try:
        for delays, ended, passed in steps:
            for delay in delays:
                number += 1
                live[number] = min(now + delay, NEVER - 1)
                queue.push(live[number] << DUE_SHIFT | number)
            for job in ended:
                live.pop(job, None)
            now = min(now + passed, NEVER - 1)
            assert queue.next_at <= min(live.values(), default=NEVER)
            expected = sorted((at, job) for job, at in live.items() if at <= now)
            come = []
            for _ in range(10_000):
                work.renew()
                come += [(instant(key), key & ID_MASK) for key in queue.come(now, len(live))]
                if queue.next_at > now:
                    break
            assert sorted(come) == expected
            assert queue.next_at > now
            for _, job in come:
                del live[job]
        assert len(queue) >= len(live)
    finally:
        radix.SWEEP_MIN = before


def test_in_order_where_one_slice_is_enough():
    queue = Radix(instant, range(1, 1000), Slice(10_000))
    keys = [(997 * job % 1000 * NEAR_NS) << DUE_SHIFT | job for job in range(1, 1000)]
    for key in keys:
        queue.push(key)
    assert list(queue.come(NEVER - 1, 999)) == sorted(keys)
    assert len(queue) == 0


def test_the_dead_are_dropped_once_they_are_more_than_half():
    """A day's deadlines of jobs that take microseconds must not stand there until the evening."""
    live, work, day = set(), Slice(), 86_400 * 10**9
    queue, most = Radix(instant, live, work), 0
    for job in range(1, 100_001):
        queue.push((day + job) << DUE_SHIFT | job)
        if job % 100 == 0:
            work.renew()
            assert list(queue.come(job, len(live))) == []
            most = max(most, len(queue))
    assert most <= 2 * radix.SWEEP_MIN
    live.add(100_001)
    queue.push((day + 100_001) << DUE_SHIFT | 100_001)
    while queue.next_at <= day + 100_001:
        work.renew()
        found = list(queue.come(day + 100_001, 1))
    assert [key & ID_MASK for key in found] == [100_001]
