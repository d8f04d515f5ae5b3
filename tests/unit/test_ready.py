"""The ready queue: least key first, dead entries skipped, re-keyed jobs under one key."""

from ptss_mp.core.job import ID_MASK, NEVER, Spec, key_of
from ptss_mp.core.ready import STALE_MIN, ReadyQueue
from ptss_mp.core.slices import Slice

SPEC = Spec(1)


def key(job, due=NEVER, release=1):
    return key_of(SPEC, due, release, job)


def drain(queue):
    ids = []
    while head := queue.head():
        queue.pop(head)
        ids.append(head & ID_MASK)
    return ids


def filled(*keys):
    live = dict.fromkeys(k & ID_MASK for k in keys)
    queue = ReadyQueue(live, Slice(10**6))
    for k in keys:
        queue.push(k)
    return queue, live


def test_earliest_deadline_then_release_then_id():
    queue, _ = filled(key(1), key(2, due=9), key(3, due=5), key(4, release=0), key(5, due=5))
    assert drain(queue) == [3, 5, 2, 4, 1]


def test_higher_priority_breaks_ties_of_deadlines_only():
    urgent, important = key_of(SPEC, 5, 1, 1), key_of(Spec(1, priority=9), 6, 1, 2)
    low, high = key_of(SPEC, 7, 1, 3), key_of(Spec(1, priority=1), 7, 1, 4)
    queue, _ = filled(low, important, high, urgent)
    assert drain(queue) == [1, 2, 4, 3]


def test_dead_entries_are_skipped():
    queue, live = filled(key(1), key(2), key(3))
    del live[1], live[2]
    assert drain(queue) == [3]


def test_rekeyed_job_stands_under_its_new_key_alone():
    queue, _ = filled(key(1, due=5), key(2, due=6))
    queue.rekey(key(2, due=1))
    assert drain(queue) == [2, 1]


def test_rekeyed_there_and_back_comes_once():
    queue, _ = filled(key(1, due=5), key(2, due=6))
    queue.rekey(key(2, due=1))
    queue.rekey(key(2, due=6))
    assert drain(queue) == [1, 2]


def test_taken_and_pushed_again_comes_again():
    queue, _ = filled(key(1, due=5))
    queue.rekey(key(1, due=1))
    assert drain(queue) == [1]
    queue.push_soft(key(1, due=1))
    assert drain(queue) == [1]


def test_expired_yields_killing_deadlines_alone():
    queue, live = filled(key(1, due=5), key(3, due=4), key(4, due=9))
    live[2] = None
    queue.push_soft(key(2, due=3))
    assert queue.expires_at == 4
    assert sorted(queue.expired(5)) == [1, 3]
    assert drain(queue) == [2, 4]


def test_expired_sees_what_its_consumer_adds():
    queue, live = filled(key(1, due=5), key(2, due=4))
    got = []
    for job in queue.expired(6):
        if not got:
            live[9] = None
            queue.push(key(9, due=6))
        got.append(job)
    assert sorted(got) == [1, 2, 9]


def test_half_dead_queue_is_rebuilt():
    count = 4 * STALE_MIN
    queue, live = filled(*(key(i, due=count - i) for i in range(1, count)))
    for job in range(1, 3 * STALE_MIN):
        del live[job]
        queue.drop_later()
    assert len(queue) < 2 * STALE_MIN
    assert drain(queue) == list(range(count - 1, 3 * STALE_MIN - 1, -1))
