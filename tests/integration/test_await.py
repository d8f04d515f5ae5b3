"""Futures among the standard library's waiters: `await`, `wrap_future`, `run_in_executor`, `wait`, `as_completed`."""

from __future__ import annotations

import asyncio
import concurrent.futures as cf
import functools
import threading
import time

import deeds
import pytest
from support import CAP_S, lines, until, wait_for_lines, wait_gone

from ptss_mp import TaskTimeout, WorkerCrashed


def run(main):
    """Run a coroutine with a cap on all that it waits for."""

    async def capped():
        return await asyncio.wait_for(main, CAP_S)

    return asyncio.run(capped())


def three_ways(loop, ex, fn, *args):
    """Yield an awaitable for each way to wait for a job."""

    async def awaits(future):
        return await future

    yield awaits(ex.submit(fn, *args))
    yield asyncio.wrap_future(ex.submit(fn, *args))
    yield loop.run_in_executor(ex, functools.partial(fn, *args))


# ---- results and errors


def test_a_future_can_be_awaited(pool):
    ex = pool(2)

    async def main():
        loop = asyncio.get_running_loop()
        for awaited in three_ways(loop, ex, deeds.double, 21):
            assert await awaited == 42
        for awaited in three_ways(loop, ex, deeds.fail, "no"):
            with pytest.raises(ValueError, match="no"):
                await awaited
        for awaited in three_ways(loop, ex, deeds.crash, "abort"):
            with pytest.raises(WorkerCrashed, match="SIGABRT"):
                await awaited
        for awaited in three_ways(loop, ex.options(timeout=0.2), deeds.nap, 60):
            with pytest.raises(TaskTimeout):
                await awaited
        settled = ex.submit(deeds.double, 1)
        cf.wait([settled], CAP_S)
        assert [await settled, await settled] == [2, 2]  # also when it is settled, and again
        return await asyncio.gather(*(ex.submit(deeds.double, n) for n in range(500)))

    assert run(main()) == list(range(0, 1_000, 2))


def test_a_view_is_an_executor_of_the_event_loop_too(pool):
    ex = pool(1)

    async def main():
        view = ex.options(timeout=0.2)
        with pytest.raises(TaskTimeout):
            await asyncio.get_running_loop().run_in_executor(view, deeds.nap, 60)

    run(main())


# ---- cancelling, in every state of the job


@pytest.fixture
def busy(pool, gate, tmp_path):
    """Make a pool whose one worker waits at the gate."""

    def make():
        ex = pool(1, spares=0)
        ex.submit(deeds.gated, str(tmp_path / "busy"), gate.path, 0)
        wait_for_lines(tmp_path / "busy", 1)
        return ex

    return make


async def cancelled(awaitable):
    """Let a task wait for it, cancel the task, and see it cancelled."""

    async def awaits():
        await awaitable

    waiting = asyncio.ensure_future(awaits())
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting


@pytest.mark.parametrize("state", ["waiting", "delayed", "ready"])
def test_cancelling_the_task_cancels_a_job_that_has_not_started(busy, state):
    ex = busy()
    view = {
        "waiting": lambda: ex.options(after=ex.submit(deeds.double, 1)),
        "delayed": lambda: ex.options(start_time="1h"),
        "ready": lambda: ex,
    }[state]()
    future = view.submit(deeds.double, 2)
    run(cancelled(future))
    assert future.cancelled()
    assert future.outcome(CAP_S).started is None


@pytest.mark.parametrize("way", [0, 1, 2])
def test_cancelling_the_task_kills_a_job_that_runs(pool, tmp_path, way):
    ex, log = pool(1), tmp_path / "log"

    async def main():
        ways = list(three_ways(asyncio.get_running_loop(), ex, deeds.logged, str(log), 1, 300))
        for other in ways:
            if other is not ways[way]:
                other.cancel() if isinstance(other, asyncio.Future) else other.close()
        for future in list(ex._pool.futures.values()):
            if future._id != way + 1:
                future.cancel()
        waiting = asyncio.ensure_future(ways[way])
        while not lines(log):
            await asyncio.sleep(0.001)
        pid = int(lines(log)[0].split()[2])
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        return pid

    wait_gone([run(main())], CAP_S)
    assert ex.submit(deeds.double, 1).result(CAP_S) == 2
    assert all(line.startswith("begin") for line in lines(log))


def test_cancelling_the_task_between_two_attempts(pool, tmp_path):
    ex, log = pool(1), tmp_path / "log"
    future = ex.options(retries=1000).submit(deeds.fail_until, str(log), 10**6)
    wait_for_lines(log, 1)
    until(lambda: future._extra and future._extra.tries, "the pause before another attempt")
    run(cancelled(future))
    assert future.cancelled()
    assert future.outcome().attempts >= 1


def test_cancelling_the_task_of_a_settled_job_changes_nothing(pool):
    ex = pool(1)
    future = ex.submit(deeds.double, 1)
    cf.wait([future], CAP_S)
    run(cancelled(asyncio_shielded(future)))
    assert not future.cancelled()
    assert future.result() == 2


def asyncio_shielded(future):
    """An awaitable that asks for a settled job, and then for ever."""

    class Waits:
        def __await__(self):
            yield from future.__await__()
            yield from asyncio.Event().wait().__await__()

    return Waits()


def test_a_job_cancelled_elsewhere_ends_the_await(busy):
    ex = busy()

    async def main():
        for how in (lambda f: f, asyncio.wrap_future):
            future = ex.submit(deeds.double, 1)
            asyncio.get_running_loop().call_soon(future.cancel)
            with pytest.raises(asyncio.CancelledError):
                await how(future)

    run(main())


def test_a_timeout_of_asyncio_kills_the_job(pool, tmp_path):
    ex, log = pool(1), tmp_path / "log"

    async def main():
        job = ex.submit(deeds.logged, str(log), 1, 300)
        while not lines(log):
            await asyncio.sleep(0.001)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(job, 0.05)
        return job

    assert run(main()).cancelled()
    wait_gone([int(lines(log)[0].split()[2])], CAP_S)


def test_a_shield_keeps_the_job(pool):
    ex = pool(1)

    async def main():
        job = ex.submit(deeds.nap, 0.3)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(asyncio.shield(asyncio.wrap_future(job)), 0.01)
        assert not job.cancelled()
        return await job

    assert run(main()) == 0.3


# ---- the standard library's own


def test_as_completed_and_wait(pool, gate, tmp_path):
    ex = pool(2)
    slow = ex.submit(deeds.gated, str(tmp_path / "log"), gate.path, "slow")
    quick = [ex.submit(deeds.double, n) for n in range(50)]
    order = cf.as_completed([slow, *quick], CAP_S)
    assert {next(order) for _ in quick} == set(quick)
    with pytest.raises(TimeoutError):
        next(cf.as_completed([slow], 0.01))
    assert cf.wait([slow, *quick], 0.01).not_done == {slow}
    assert cf.wait([slow, *quick], CAP_S, cf.FIRST_COMPLETED).done == set(quick)
    gate.open()
    assert next(order) is slow
    failing = ex.submit(deeds.fail)
    hanging = ex.submit(deeds.nap, 300)
    assert failing in cf.wait([hanging, failing], CAP_S, cf.FIRST_EXCEPTION).done
    crashing = ex.submit(deeds.crash, "abort")
    assert crashing in cf.wait([hanging, crashing], CAP_S, cf.FIRST_EXCEPTION).done
    waiting = ex.options(after=hanging).submit(deeds.double, 1)
    threading.Timer(0.05, waiting.cancel).start()
    assert cf.wait([waiting], CAP_S).done == {waiting}
    threading.Timer(0.05, hanging.cancel).start()
    assert list(cf.as_completed([hanging], CAP_S)) == [hanging]
    assert hanging.cancelled()


def test_many_tasks_cancelled_at_random_moments_leave_the_pool_whole(pool):
    ex = pool(2)

    async def one(n):
        awaiting = asyncio.ensure_future(asyncio.wrap_future(ex.submit(deeds.nap, 0.002)))
        await asyncio.sleep(n % 7 * 0.002)
        awaiting.cancel()
        try:
            return await awaiting
        except asyncio.CancelledError:
            return None

    async def main():
        return await asyncio.gather(*(one(n) for n in range(150)))

    began = time.monotonic()
    assert set(run(main())) <= {None, 0.002}
    assert time.monotonic() - began < CAP_S
    assert ex.drain(CAP_S)
    assert [ex.submit(deeds.double, n).result(CAP_S) for n in range(20)] == list(range(0, 40, 2))


def test_a_waiter_that_comes_as_the_state_is_there_is_not_told_once_more(pool):
    """Regression: `as_completed` counted it as finished, was told of it as well, and failed with KeyError."""
    ex = pool(1)
    ex.pause()
    future = ex.submit(deeds.double, 21)
    told = []

    class Latecomer:
        add_result = add_exception = add_cancelled = staticmethod(told.append)

    class Condition:
        """The Future's, by which somebody else comes in each time it is let go of."""

        def __init__(self, inner):
            self.inner = inner

        def __enter__(self):
            return self.inner.__enter__()

        def __exit__(self, *error):
            self.inner.__exit__(*error)
            with self.inner:
                if future.done() and not future._waiters:
                    future._waiters.append(Latecomer())

        def notify_all(self):
            self.inner.notify_all()

    future._waits.condition = Condition(future._condition)
    ex.resume()
    assert future.result(CAP_S) == 42
    assert ex.drain(CAP_S)
    assert told == []
