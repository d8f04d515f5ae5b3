"""`map` and `map_outcomes`: lazy, bounded, an item a job of its own, and nothing lost."""

from __future__ import annotations

import asyncio
import concurrent.futures as cf
import gc
import io
import itertools
import logging
import os
import pty
import subprocess
import sys
import threading
import time
import weakref
from pathlib import Path

import deeds
import pytest
from support import CAP_S, lines, until, wait_for_lines, within

from ptss_mp import ExecutorClosed, InvalidOption, InvalidType, Options, QueueFull, WorkerCrashed, task

BOTH = pytest.mark.parametrize("ordered", [False, True])


class Counted:
    """An input that knows how much of it was pulled, by whom, and how much was given back."""

    def __init__(self, items):
        self.items, self.pulled, self.back, self.most, self.threads = iter(items), 0, 0, 0, set()

    def __iter__(self):
        return self

    def __next__(self):
        item = next(self.items)
        self.pulled += 1
        self.most = max(self.most, self.pulled - self.back)
        self.threads.add(threading.get_ident())
        return item

    def through(self, results):
        for result in results:
            self.back += 1
            yield result


# ---- what is given back


@BOTH
def test_outcomes_come_with_their_items(pool, ordered):
    ex = pool(2)
    found = list(ex.map_outcomes(deeds.double, range(300), ordered=ordered))
    assert all(out.ok and out.result() == 2 * item for item, out in found)
    items = [item for item, _ in found]
    assert (items if ordered else sorted(items)) == list(range(300))
    pairs = ex.map_outcomes(deeds.add, [1, 2, 3], iter([10, 20]), ordered=True)  # the shortest ends it
    assert [(item, out.result()) for item, out in pairs] == [((1, 10), 11), ((2, 20), 22)]
    assert list(ex.map_outcomes(deeds.double, [], ordered=ordered)) == []
    assert list(ex.map_outcomes(deeds.double, ordered=ordered)) == []


def test_outcomes_come_as_they_settle_or_in_order(pool, gate, tmp_path):
    ex = pool(2)
    log = tmp_path / "log"

    def calls():
        yield deeds.gated, (str(log), gate.path, "slow")
        yield deeds.double, (1,)
        yield deeds.double, (2,)

    as_settled = ex.map_outcomes(deeds.call, calls())
    assert [next(as_settled)[0][1] for _ in range(2)] == [(1,), (2,)]  # the slow one came first
    gate.open()
    assert next(as_settled)[1].result() == "slow"
    ordered = ex.map_outcomes(deeds.call, calls(), ordered=True)
    gate.open()
    assert [out.result() for _, out in ordered] == ["slow", 2, 4]


@BOTH
def test_no_failure_of_a_job_raises(pool, ordered):
    ex = pool(2, options=Options(timeout=0.3))
    calls = [
        (deeds.double, (1,)), (deeds.fail, ()), (deeds.crash, ("abort",)), (deeds.nap, (60,)),
        (deeds.same, (threading.Lock(),)), (sys.exit, (3,)), (deeds.double, (2,)),
    ]  # fmt: skip
    told = {
        item[0]: out.status for item, out in ex.map_outcomes(deeds.call, calls, ordered=ordered) if item[1] != (2,)
    }
    assert told == {
        deeds.double: "succeeded", deeds.fail: "failed", deeds.crash: "crashed", deeds.nap: "timeout",
        deeds.same: "not_picklable", sys.exit: "failed",
    }  # fmt: skip


def test_a_task_and_its_options_and_a_view(pool):
    ex = pool(1)
    assert list(ex.map(deeds.declared, [1, 2])) == [2, 4]
    out = dict(ex.options(name="n").map_outcomes(deeds.declared, [1, 2]))
    assert {o.name for o in out.values()} == {"n"}
    with pytest.raises(InvalidType, match="batch"):
        ex.map_outcomes(task().map(deeds.double, [1]), [1])


def test_a_future_among_the_items_is_a_prerequisite(pool):
    ex = pool(2)
    first = ex.submit(deeds.double, 4)
    ((item, out),) = ex.map_outcomes(deeds.double, [first])
    assert item is first
    assert out.result() == 16


# ---- one item, one job, whatever the chunk size


@pytest.mark.parametrize("chunksize", [1, 16, None])
def test_a_crash_costs_its_item(pool, chunksize):
    ex = pool(2)
    list(ex.map(deeds.double, range(500)))  # known as short: they travel in batches
    kinds = [None] * 20 + ["abort"] + [None] * 20
    found = dict(ex.map_outcomes(deeds.maybe_crash, enumerate(kinds), ordered=True, chunksize=chunksize))
    assert [n for (n, _), out in found.items() if not out.ok] == [20]
    assert found[20, "abort"].status == "crashed"
    assert [out.attempts for out in found.values()] == [1] * 41
    results = ex.map(deeds.maybe_crash, enumerate(kinds), chunksize=chunksize)
    assert list(itertools.islice(results, 20)) == list(range(20))
    with pytest.raises(WorkerCrashed):
        next(results)
    assert ex.submit(deeds.double, 1).result(CAP_S) == 2


@pytest.mark.parametrize("chunksize", [1, 16, None])
def test_a_timeout_holds_per_item(pool, chunksize):
    """Each takes less than it may, all together far more; only the one that hangs is late."""
    ex = pool(1)
    naps = [0.05] * 12 + [60.0] + [0.05] * 12
    view = ex.options(timeout=0.5)
    found = list(view.map_outcomes(deeds.nap, naps, ordered=True, chunksize=chunksize))
    assert [out.status for _, out in found] == ["succeeded"] * 12 + ["timeout"] + ["succeeded"] * 12
    assert found[12][1].limit == 0.5


@pytest.mark.parametrize("chunksize", [1, 16, None])
def test_retries_hold_per_item(pool, tmp_path, chunksize):
    ex = pool(2)
    paths = [str(tmp_path / str(n)) for n in range(20)]
    wanted = [1] * 9 + [2] + [1] * 10
    found = list(
        ex.options(retries=1).map_outcomes(deeds.fail_until, paths, wanted, ordered=True, chunksize=chunksize)
    )
    assert [out.attempts for _, out in found] == wanted
    assert all(out.ok for _, out in found)
    failed = list(ex.map_outcomes(deeds.fail_until, [str(tmp_path / "x")] * 3, [9] * 3, chunksize=chunksize))
    assert [(out.status, out.attempts) for _, out in failed] == [("failed", 1)] * 3


# ---- the bound


@BOTH
@pytest.mark.parametrize("buffersize", [1, 2, 7, None])
def test_no_more_is_accepted_than_the_buffer_holds(pool, ordered, buffersize):
    ex = pool(2)
    counted = Counted(range(400))
    results = ex.map_outcomes(deeds.double, counted, ordered=ordered, buffersize=buffersize)
    assert counted.pulled == 0  # nothing before somebody asks
    assert len(list(counted.through(results))) == 400
    assert counted.most <= (buffersize or 128)
    assert counted.threads == {threading.get_ident()}


@BOTH
def test_an_endless_input_and_flat_memory(pool, ordered):
    ex = pool(2)
    results = ex.map_outcomes(deeds.double, itertools.count(), ordered=ordered)
    for _ in itertools.islice(results, 500):
        pass
    gc.collect()
    before = count_futures()
    for _ in itertools.islice(results, 5_000):
        pass
    gc.collect()
    assert count_futures() <= max(before, 2 * 64) + 64
    assert len(ex._pool.futures) <= 128
    results.close()
    until(lambda: ex.status().unsettled == 0, "the end of what was accepted")


def count_futures():
    from ptss_mp import Future

    return sum(1 for o in gc.get_objects() if type(o) is Future)


def test_map_with_a_buffersize_counts_as_the_standard_librarys(pool):
    """As of Python 3.14: so many at the call, and one more for each that was given back."""
    ex = pool(2)
    counted = Counted(itertools.count())
    results = ex.map(deeds.double, counted, buffersize=4)
    assert counted.pulled == 4
    for n in range(10):
        assert next(results) == 2 * n
        assert counted.pulled == 5 + n
    with pytest.raises(TypeError):
        ex.map(deeds.double, [1], buffersize="4")
    for wrong in (0, -1):
        with pytest.raises(ValueError, match="buffersize"):
            ex.map(deeds.double, [1], buffersize=wrong)
        with pytest.raises(InvalidOption, match="buffersize"):
            ex.map_outcomes(deeds.double, [1], buffersize=wrong)
        with pytest.raises(InvalidOption, match="chunksize"):
            ex.map_outcomes(deeds.double, [1], chunksize=wrong)


def test_a_slow_input_holds_back_what_is_ready_by_one_item(pool):
    ex = pool(2)
    asked = []

    def slow():
        for n in range(5):
            asked.append(n)
            if n:  # what was given before is done by now
                until(lambda: len(ex._pool.futures) == 0, "the end of the one before")
            yield n

    results = ex.map_outcomes(deeds.double, slow(), ordered=True)
    for n in range(5):
        assert next(results)[0] == n
        assert len(asked) <= n + 2


def test_results_are_kept_by_nobody(pool):
    ex = pool(1)
    results = ex.map_outcomes(deeds.Weak, [1, 2, 3], ordered=True)
    item, out = next(results)
    ref = weakref.ref(out.result())
    assert ref() is None
    assert item == 1
    for result in ex.map(deeds.Weak, [1, 2]):
        ref = weakref.ref(result)
        del result
        assert ref() is None


# ---- an end before the end


def broken_input(count):
    yield from range(count)
    raise OSError("the disk is gone")


@BOTH
def test_an_exception_of_the_input_comes_behind_what_was_accepted(pool, ordered):
    ex = pool(2)
    got = []
    with pytest.raises(OSError, match="disk"):
        collect((item for item, _ in ex.map_outcomes(deeds.double, broken_input(30), ordered=ordered)), got)
    assert sorted(got) == list(range(30))
    for buffersize in (None, 1, 4):
        results, got = ex.map(deeds.double, broken_input(5), buffersize=buffersize), []
        with pytest.raises(OSError, match="disk"):
            collect(results, got)
        assert got == [0, 2, 4, 6, 8]
        assert list(results) == []


def collect(results, into):
    for result in results:
        into.append(result)


@BOTH
def test_a_shutdown_in_the_middle_comes_behind_what_was_accepted(pool, ordered):
    ex = pool(2)
    results = ex.map_outcomes(deeds.double, itertools.count(), ordered=ordered, buffersize=8)
    got = [next(results)[0] for _ in range(3)]
    ex.shutdown(wait=False)
    with pytest.raises(ExecutorClosed):
        collect((item for item, out in results if out.ok), got)
    assert sorted(got) == list(range(len(got)))
    for call in (ex.map, ex.map_outcomes):
        with pytest.raises(ExecutorClosed):  # at the call, as `submit`
            call(deeds.double, [1])


def test_what_can_never_be_right_is_refused_at_the_call(pool):
    ex = pool(1)
    with pytest.raises(InvalidType):
        ex.map_outcomes(42, [1])
    with pytest.raises(TypeError):
        ex.map_outcomes(deeds.double, 42)
    with pytest.raises(InvalidType, match="progress"):
        ex.map_outcomes(deeds.double, [1], progress="yes")
    with pytest.raises(InvalidType, match=r"Counted\(total=100\)"):
        ex.map(deeds.double, [1], progress=Counted)


@BOTH
@pytest.mark.parametrize("how", ["close", "drop", "error"])
def test_leaving_early_cancels_only_what_has_not_started(pool, gate, tmp_path, ordered, how):
    ex = pool(1, spares=0)
    log = tmp_path / "log"
    rows = [[str(log)] * 9, [gate.path] * 9, range(9)]
    results = ex.map_outcomes(deeds.gated, *rows, ordered=ordered)
    gate.open()
    assert next(results)[0][2] == 0
    wait_for_lines(log, 3)  # the second runs
    if how == "close":
        results.close()
        assert list(results) == []
    elif how == "drop":
        del results
    else:
        with pytest.raises(ZeroDivisionError):
            consume_badly(results, gate)
        del results
    gate.open(2)
    assert ex.submit(deeds.double, 1).result(CAP_S) == 2
    begun = [line.split()[1] for line in lines(log) if line.startswith("begin")]
    assert begun == [line.split()[1] for line in lines(log) if line.startswith("end")]  # nobody was killed
    assert begun == (["0", "1", "2"] if how == "error" else ["0", "1"])


def consume_badly(results, gate):
    gate.open()
    for _ in results:
        raise ZeroDivisionError


def test_leaving_early_never_kills_one_that_starts_just_then(pool):
    """The look and the cancel are one moment of the loop: a caller's look would be old when it acts on it."""
    ex = pool(2)
    for _ in range(60):
        results = ex.map_outcomes(deeds.note_pid, range(40), buffersize=40)
        next(results)
        futures = list(ex._pool.futures.values())
        results.close()
        cf.wait(futures, CAP_S)
        assert all(f.outcome().started is None for f in futures if f.cancelled())


# ---- threads, callbacks, event loops, bounds of the pool


@BOTH
def test_two_threads_consume_one_map(pool, ordered):
    ex = pool(2)
    for results, value in (
        (ex.map_outcomes(deeds.double, range(2_000), ordered=ordered), lambda pair: pair[0]),
        (ex.map(deeds.same, range(2_000), buffersize=50), lambda x: x),
    ):
        with cf.ThreadPoolExecutor(4) as threads:
            parts = list(threads.map(lambda _, r=results: [value(x) for x in r], range(4)))
        assert sorted(itertools.chain(*parts)) == list(range(2_000))


def test_an_input_that_consumes_its_own_output_is_told_so(pool):
    ex = pool(1)
    own = []

    def inputs():
        yield 1
        yield next(own[0])

    own.append(ex.map_outcomes(deeds.double, inputs()))
    assert next(own[0])[0] == 1
    with pytest.raises(ValueError, match="already executing"):
        within(CAP_S, lambda: next(own[0]))


@BOTH
def test_a_pool_with_fewer_places_than_the_buffer(pool, ordered):
    ex = pool(2, max_pending=3)
    found = list(ex.map_outcomes(deeds.double, range(200), ordered=ordered))
    assert sorted(item for item, _ in found) == list(range(200))
    assert list(ex.map(deeds.double, range(50))) == list(range(0, 100, 2))


@BOTH
def test_where_blocking_would_freeze_a_full_queue_only_pauses_the_input(pool, ordered):
    ex = pool(2, max_pending=3)

    async def consume():
        items = [item for item, out in ex.map_outcomes(deeds.double, range(50), ordered=ordered) if out.ok]
        return items, list(ex.map(deeds.double, range(50)))

    items, values = within(CAP_S, lambda: asyncio.run(consume()))
    assert sorted(items) == list(range(50))
    assert values == list(range(0, 100, 2))


def test_queue_full_is_raised_if_no_job_of_the_map_can_make_room(pool, gate, tmp_path):
    ex = pool(1, max_pending=1)
    ex.submit(deeds.gated, str(tmp_path / "log"), gate.path, 1)

    async def consume():
        with pytest.raises(QueueFull):
            next(ex.map_outcomes(deeds.double, [1]))
        with pytest.raises(QueueFull):
            ex.map(deeds.double, [1])

    within(CAP_S, lambda: asyncio.run(consume()))
    gate.open()


@BOTH
def test_a_map_inside_a_done_callback(pool, ordered):
    ex = pool(2, max_pending=4)
    told = []

    def use(_):
        told.append(sorted(out.result() for _, out in ex.map_outcomes(deeds.double, range(20), ordered=ordered)))
        told.append(list(ex.map(deeds.double, range(20))))

    ex.submit(deeds.double, 1).add_done_callback(use)
    assert within(CAP_S, lambda: ex.drain(CAP_S))
    assert told == [list(range(0, 40, 2))] * 2


def test_an_event_loop_goes_on_while_a_thread_waits_for_the_next(pool):
    ex = pool(2)

    async def consume():
        results, got = ex.map_outcomes(deeds.double, range(20)), []
        while (pair := await asyncio.to_thread(next, results, None)) is not None:
            got.append(pair[0])
        return got

    assert sorted(asyncio.run(consume())) == list(range(20))


def test_the_timeout_of_map_is_counted_from_the_call(pool):
    ex = pool(1)
    results = ex.map(deeds.nap, [0.0, 30.0, 0.0], timeout=0.5)
    assert next(results) == 0.0
    began = time.monotonic()
    with pytest.raises(TimeoutError):
        next(results)
    assert time.monotonic() - began < 5
    assert list(results) == []


SCRIPT = """
import itertools, sys, time
sys.path.insert(0, {here!r})
import deeds
from ptss_mp import Executor

ex = Executor(2, preload=["deeds"])
results = ex.{verb}
print(next(results), flush=True)
{end}
"""


@pytest.mark.parametrize("end", ["", "ex.shutdown(wait=False)", "sys.exit(0)", "del ex", "del results"])
@pytest.mark.parametrize("verb", ["map_outcomes(deeds.double, itertools.count())", "map(deeds.same, range(500))"])
def test_interpreter_exit_in_the_middle(verb, end):
    script = SCRIPT.format(here=str(Path(__file__).parent), verb=verb, end=end)
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=CAP_S, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert len(done.stdout.splitlines()) == 1


FORKS = """
import itertools, os, sys, warnings
sys.path.insert(0, {here!r})
warnings.simplefilter("ignore")  # a program with threads that forks is warned
import deeds
from ptss_mp import Executor

with Executor(2, preload=["deeds"]) as ex:
    results = ex.{verb}
    next(results)
    if not os.fork():
        try:
            for _ in results:  # what has settled already may be had here too
                pass
        except RuntimeError as error:
            os._exit(7 if "fork" in str(error) else 8)
        os._exit(9)
    print(os.waitstatus_to_exitcode(os.wait()[1]), next(results), flush=True)
"""


@pytest.mark.parametrize(
    "verb", ["map_outcomes(deeds.nap, itertools.repeat(0.01))", "map(deeds.same, itertools.count(), buffersize=9)"]
)
def test_a_fork_of_the_program_is_told_and_not_hung(verb):
    script = FORKS.format(here=str(Path(__file__).parent), verb=verb)
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=CAP_S, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("7 ")


# ---- progress


def test_progress_may_be_a_callable_a_bar_or_a_line(pool, monkeypatch, caplog):
    ex = pool(2)
    calls = []
    list(ex.map_outcomes(deeds.double, [1, 2, 3], progress=lambda *args: calls.append(args)))
    assert [(done, total, out.status) for done, total, out in calls] == [(n, 3, "succeeded") for n in (1, 2, 3)]
    calls.clear()
    list(ex.map(deeds.double, iter([1, 2]), progress=lambda *args: calls.append(args)))
    assert [(done, total) for done, total, _ in calls] == [(1, None), (2, None)]

    class Bar:
        n = 0

        def update(self, n):
            self.n += n

    bar = Bar()
    list(ex.map_outcomes(deeds.double, range(5), progress=bar))
    assert bar.n == 5

    def broken(*_):
        calls.append("once")
        raise RuntimeError("no bar today")

    calls.clear()
    with caplog.at_level(logging.ERROR, "ptss_mp"):
        assert len(list(ex.map_outcomes(deeds.double, range(5), progress=broken))) == 5
    assert calls == ["once"]
    assert "no bar today" in caplog.text
    caplog.clear()  # its traceback keeps the pool
    text = io.StringIO()  # no terminal: nothing
    monkeypatch.setattr(sys, "stderr", text)
    list(ex.map_outcomes(deeds.double, range(5), progress=True))
    assert text.getvalue() == ""


def test_a_line_of_progress_on_a_terminal(pool, monkeypatch):
    ex = pool(2)
    ours, theirs = pty.openpty()
    try:
        with os.fdopen(theirs, "w") as terminal:
            monkeypatch.setattr(sys, "stderr", terminal)
            list(ex.map_outcomes(deeds.maybe_crash, [(1, None), (2, "abort")], progress=True))
            shown = ""
            while not shown.endswith("\n"):
                shown += os.read(ours, 10_000).decode().replace("stderr before abort\r\n", "")
            monkeypatch.undo()
    finally:
        os.close(ours)
    assert "2/2 done, 1 failed, " in shown
    assert shown.endswith("\r\n")


class HungUp(io.StringIO):
    """A terminal, until somebody pulls the plug."""

    gone = False

    def isatty(self):
        return True

    def write(self, text):
        if self.gone:
            raise OSError(5, "Input/output error")
        return super().write(text)


def test_a_terminal_that_hangs_up_costs_no_result(pool, monkeypatch):
    """Regression: the last drawing raised, in the place of the end."""
    terminal = HungUp()
    monkeypatch.setattr(sys, "stderr", terminal)
    outcomes = pool(1).map_outcomes(deeds.double, [1, 2, 3], progress=True)
    got = [next(outcomes)]
    terminal.gone = True
    got += outcomes
    monkeypatch.undo()
    assert [out.result() for _, out in got] == [2, 4, 6]


class NoLength:
    """As a bar around a generator: it has `__len__`, and does not know."""

    def __init__(self, length: object) -> None:
        self.length = length

    def __iter__(self):
        return iter([1, 2])

    def __len__(self):
        return self.length  # None: a TypeError


@pytest.mark.parametrize("items", [NoLength(None), NoLength(-1), range(10**30)], ids=["none", "negative", "long"])
@pytest.mark.parametrize("progress", [False, True])
def test_an_input_whose_length_cannot_be_told_is_mapped_all_the_same(pool, items, progress):
    """Regression: its `len` was asked, also if nobody wanted to see progress, and what it raised came through."""
    totals = []
    ex = pool(1)
    shown = (lambda _done, total, _out: totals.append(total)) if progress else None
    found = itertools.islice(ex.map_outcomes(deeds.double, items, ordered=True, progress=shown), 2)
    assert [out.result() for _, out in found] == [2 * item for item in itertools.islice(items, 2)]
    assert totals == [None, None] * progress
    if len(totals) < 2 and not isinstance(items, range):
        assert list(ex.map(deeds.double, items)) == [2, 4]


def test_a_length_that_nobody_wants_is_not_asked_for(pool):
    """To know it may be dear: that of a query reads the whole of it."""

    class Dear(NoLength):
        def __len__(self):
            raise AssertionError("asked")

    assert list(pool(1).map(deeds.double, Dear(0))) == [2, 4]
