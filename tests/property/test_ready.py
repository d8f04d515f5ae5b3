"""The ready queue against `sorted`."""

from unittest import mock

from hypothesis import given
from hypothesis import strategies as st

from ptss_mp.core.job import DUE_SHIFT, ID_MASK, NEVER, Spec, key_of
from ptss_mp.core.ready import ReadyQueue
from ptss_mp.core.slices import Slice

SPECS = [Spec(1, priority=p) for p in (-3, 0, 5)]
dues = st.sampled_from([NEVER, 0, 1, 5, 1 << 40]) | st.integers(0, 50)
places = st.tuples(st.sampled_from(SPECS), dues, st.integers(0, 9))
acts = st.sampled_from(["push", "soft", "rekey", "die", "pop", "expire"])


def drain(queue):
    keys = []
    while key := queue.head():
        queue.pop(key)
        keys.append(key)
    return keys


@given(st.lists(places))
def test_comes_out_sorted(jobs):
    keys = [key_of(spec, due, release, job) for job, (spec, due, release) in enumerate(jobs, 1)]
    queue = ReadyQueue(dict.fromkeys(range(1, len(jobs) + 1)), Slice(10**6))
    for key in keys:
        queue.push(key)
    assert drain(queue) == sorted(keys)


@given(st.lists(places))
def test_key_orders_as_the_promise_says(jobs):
    """Due, then higher priority, then release, then id."""
    rows = [(due, spec.priority, release, job, spec) for job, (spec, due, release) in enumerate(jobs, 1)]
    by_key = sorted(rows, key=lambda row: key_of(row[4], row[0], row[2], row[3]))
    assert by_key == sorted(rows, key=lambda row: row[:4])


@given(st.lists(st.tuples(acts, places, st.integers(0, 10**6))), st.sampled_from([0, 2, 1000]))
def test_any_history_against_a_dict(history, stale_min):
    with mock.patch("ptss_mp.core.ready.STALE_MIN", stale_min):  # small: it is being cleaned most of the time
        check(history)


def check(history):
    live, queue, model, hard = {}, None, {}, set()
    queue = ReadyQueue(live, Slice(10**6))
    for job, (act, (spec, due, release), draw) in enumerate(history, 1):
        key = key_of(spec, due, release, job)
        some = sorted(model)[draw % len(model)] if model else 0
        if act in ("push", "soft"):
            live[job] = None
            queue.push(key) if act == "push" else queue.push_soft(key)
            model[job] = key
            hard |= {job} if act == "push" else set()
        elif act == "rekey" and some:
            moved = (due << DUE_SHIFT) + (model[some] & ((1 << DUE_SHIFT) - 1))
            queue.rekey(moved)
            model[some] = moved
            hard.discard(some)
        elif act == "die" and some:
            del live[some], model[some]
            queue.drop_later()
            queue.forget(some)
        elif act == "pop" and model:
            head = queue.head()
            assert head == min(model.values())
            queue.pop(head)
            del model[head & ID_MASK], live[head & ID_MASK]
            queue.forget(head & ID_MASK)
        elif act == "expire":
            now = draw % 60
            expected = {j for j in hard if j in model and model[j] >> DUE_SHIFT <= now}
            got = set(queue.expired(now))
            assert expected <= got <= {j for j in model if model[j] >> DUE_SHIFT <= now}
            for dead in got:
                del live[dead], model[dead]
                queue.forget(dead)
        assert {key & ID_MASK: key for key in queue.valid_keys()} == model
    assert drain(queue) == sorted(model.values())
