"""Futures under many threads at once: whoever waits, however, while they settle, is told once and the truth."""

from __future__ import annotations

import asyncio
import concurrent.futures as cf
import random
import threading
from collections import Counter

import deeds
import pytest
from support import CAP_S, Settled, wait

JOBS = 3_000  # take about a second, and each of the threads sees most of them pending


class Threads:
    """Threads that begin at the same moment, and what went wrong in them."""

    def __init__(self):
        self.begin = threading.Event()
        self.errors, self.threads = [], []

    def add(self, do, *args):
        def run():
            self.begin.wait(CAP_S)
            try:
                do(*args)
            except BaseException as error:
                self.errors.append(error)

        self.threads.append(threading.Thread(target=run))
        self.threads[-1].start()

    def run(self):
        """Let them go; return when all are done."""
        self.begin.set()
        for thread in self.threads:
            thread.join(CAP_S)
        assert not any(thread.is_alive() for thread in self.threads), "a thread waits for ever"
        assert not self.errors, self.errors


def crowd(pool):
    """Return a pool that is paused, and Futures of jobs that double their number or fail."""
    ex = pool(2)
    ex.pause()
    return ex, [ex.submit(deeds.fail, str(i)) if i % 50 == 7 else ex.submit(deeds.double, i) for i in range(JOBS)]


def check(futures, may_cancel=False):
    """Assert that each has its own end."""
    for i, future in enumerate(futures):
        assert future.done()
        if may_cancel and future.cancelled():
            continue
        if i % 50 == 7:
            assert str(future.exception()) == str(i)
        else:
            assert future.result() == 2 * i


def test_all_ways_to_wait_at_once(pool):
    ex, futures = crowd(pool)
    threads, called = Threads(), Counter()

    def callbacks(seed):
        order = random.Random(seed).sample(futures, JOBS)
        for future in order:
            future.add_done_callback(lambda f: called.update((id(f),)))

    def waits(seed):
        for future in random.Random(seed).sample(futures, 300):
            future.exception(CAP_S)

    def wait_all(_):
        done, left = cf.wait(futures, CAP_S)
        assert len(done) == JOBS
        assert not left

    def wait_first(seed):
        left = set(random.Random(seed).sample(futures, 300))
        while left:
            done, left = cf.wait(left, CAP_S, cf.FIRST_COMPLETED)
            assert done
            assert all(future.done() for future in done)

    def wait_error(_):
        done, _ = cf.wait(futures, CAP_S, cf.FIRST_EXCEPTION)
        assert any(f.exception() for f in done)

    def completed(_):
        seen = list(cf.as_completed(futures, CAP_S))
        assert len(seen) == len(set(seen)) == JOBS

    async def gathered(seed):
        some = random.Random(seed).sample(futures, 300)
        loop = asyncio.get_running_loop()
        ends = await asyncio.gather(*some, *map(asyncio.wrap_future, some), return_exceptions=True)
        assert ends[:300] == [f.exception() or f.result() for f in some]
        assert [str(end) for end in ends[300:]] == [str(end) for end in ends[:300]]
        assert await loop.run_in_executor(ex, deeds.double, 4) == 8

    def awaits(seed):
        asyncio.run(asyncio.wait_for(gathered(seed), CAP_S))

    for number, do in enumerate((callbacks, waits, wait_all, wait_first, wait_error, completed, awaits) * 2):
        threads.add(do, number)
    threads.add(ex.resume)
    threads.run()
    ex.drain(CAP_S)
    check(futures)
    assert set(called) == set(map(id, futures))
    assert set(called.values()) == {2}




def test_cancels_among_those_who_wait(pool):
    ex, futures = crowd(pool)
    settled, threads, won = Settled(), Threads(), Counter()
    for future in futures:
        settled.watch(future)

    def cancels(seed):
        for future in random.Random(seed).sample(futures, JOBS // 2):
            if future.cancel():
                won[future._id] += 1
                assert future.cancelled()
                with pytest.raises(cf.CancelledError):
                    future.result(0)

    def completed():
        assert len(set(cf.as_completed(futures, CAP_S))) == JOBS

    def wait_all():
        assert len(cf.wait(futures, CAP_S).done) == JOBS

    for seed in range(3):
        threads.add(cancels, seed)
    for do in (completed, wait_all, ex.resume):
        threads.add(do)
    threads.run()
    wait(futures, CAP_S)
    check(futures, may_cancel=True)
    assert {f._id for f in futures if f.cancelled()} == set(won)
    settled.check(ex)


def test_first_touch_while_it_settles(pool):
    """Conditions, lists of waiters and callbacks are made by whoever comes first, also in the moment of the end."""
    ex = pool(2)
    rounds, hands = 300, 6
    futures, barrier = [], threading.Barrier(hands + 1)
    called, threads = Counter(), Threads()

    def touch(hand):
        for number in range(rounds):
            barrier.wait(CAP_S)
            future = futures[number]
            if hand % 3 == 0:
                future.add_done_callback(lambda f, h=hand: called.update(((h, f._id),)))
            elif hand % 3 == 1:
                assert cf.wait([future], CAP_S).done
            assert future.result(CAP_S) == 2 * number

    def feed():
        for number in range(rounds):
            futures.append(ex.submit(deeds.double, number))
            barrier.wait(CAP_S)

    for hand in range(hands):
        threads.add(touch, hand)
    threads.add(feed)
    threads.run()
    assert ex.drain(CAP_S)
    assert len(called) == rounds * 2
    assert set(called.values()) == {1}
