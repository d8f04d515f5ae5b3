"""Added tasks and the life of their pool: join, serve, shutdown, views, forks, threads, many of them."""

from __future__ import annotations

import gc
import os
import pickle
import signal
import threading
import weakref
from collections import Counter
from typing import Any

import deeds
import programs
import pytest
from support import CAP_S, alive, lines, until, wait_for_lines, within

from ptss_mp import Executor, ExecutorClosed, InvalidOption, InvalidType, Options, PoolBroken
from ptss_mp import recurring as releases
from ptss_mp.pool import State


def forever(ex: Any, name: str = "forever", **options: Any) -> Any:
    return ex.add(deeds.double, name, interval="20ms", args=(1,), **options)


# ---- join, drain, serve


def test_join_waits_for_further_releases_and_drain_does_not(pool):
    ex = pool(1)
    handle = forever(ex)
    ex.add(deeds.double, "hourly", "1h", "1h", args=(1,))
    ex.start()
    until(lambda: handle.runs >= 2, "runs")
    handle.cancel()
    assert ex.drain(CAP_S)
    assert not ex.join(0.05)
    ex.tasks["hourly"].cancel()
    assert ex.join(CAP_S)
    assert ex.state is State.RUNNING


def test_join_returns_after_the_last_run_and_its_callbacks(pool):
    ex, seen = pool(1), []
    handle = forever(ex, max_runs=5)
    handle.add_done_callback(lambda future: seen.append(future.result()))
    assert ex.start().join(CAP_S)
    assert (seen, handle.runs) == ([2] * 5, 5)
    assert ex.submit(deeds.double, 1).result(CAP_S) == 2


def test_drain_waits_for_what_was_added_a_moment_ago(pool):
    """Regression: it returned before the loop had taken the task."""
    ex = pool(1).start()
    for number in range(50):
        handle = ex.add(deeds.double, f"task {number}", args=(number,))
        assert ex.drain(CAP_S)
        assert handle.last_outcome.result() == 2 * number
        assert handle.runs == 1


def test_to_join_what_was_added_to_a_pool_that_never_started_is_refused(pool):
    ex = pool(1)
    assert ex.join(0)
    forever(ex, max_runs=1)
    assert ex.drain(0)  # nothing is released
    with pytest.raises(RuntimeError, match="nothing has started the pool"):
        ex.join()
    assert ex.start().join(CAP_S)


@pytest.mark.parametrize("outcome", [0, 1])
def test_serve_goes_on_until_nothing_is_left(pool, outcome):
    ex = pool(1)
    handle = ex.add(deeds.fail if outcome else deeds.pid, "one", interval="20ms", max_runs=3)
    assert ex.serve() == outcome
    assert handle.runs == 3


def test_serve_ends_a_recurrence_at_a_signal(pool):
    ex = pool(1)
    handle = forever(ex)
    calls: list[None] = []

    def once(_future: Any) -> None:
        if not calls:
            calls.append(None)
            os.kill(os.getpid(), signal.SIGTERM)

    handle.add_done_callback(once)
    assert within_main(ex) == 143
    assert ex.state is State.STOPPED
    assert handle.next_run is None


def within_main(ex: Executor) -> int:
    """Serve with a cap: a signal would end a wait that forgets the pool."""
    timer = threading.Timer(CAP_S, lambda: os.kill(os.getpid(), signal.SIGINT))
    timer.start()
    try:
        return ex.serve()
    finally:
        timer.cancel()
        timer.join()


# ---- the end


@pytest.mark.parametrize("how", ["shutdown", "with", "no wait"])
def test_the_end_waits_for_what_was_released_and_releases_nothing_more(pool, gate, tmp_path, how):
    log, ex = tmp_path / "log", pool(2)
    handle = ex.add(deeds.gated, "one", interval="20ms", args=(str(log), gate.path, 1), overlap="queue")
    below = ex.add(deeds.same, "below", args=(handle,))
    later = ex.add(deeds.double, "later", "1h", "1h", args=(1,))
    ex.start()
    wait_for_lines(log, 1)
    if how == "with":
        threading.Timer(0.1, gate.open, (2,)).start()
        with ex:
            pass
    else:
        ex.shutdown(wait=False)
        assert (handle.next_run, below.next_run, later.next_run) == (None, None, None)
        gate.open(2)
        if how == "shutdown":
            within(CAP_S, ex.shutdown)
    until(lambda: below.last_outcome, "the end of the run")
    assert ex.join(CAP_S)
    assert len(lines(log)) == 2
    assert (handle.runs, below.last_outcome.result(), later.runs) == (1, 1, 0)
    with pytest.raises(ExecutorClosed):
        ex.add(deeds.double, "more", args=(1,))
    handle.cancel(kill=True)
    handle.pause()


def test_stop_kills_what_runs_after_the_grace(pool, tmp_path):
    log, ex = tmp_path / "log", pool(1)
    handle = ex.add(deeds.hang, "one", interval="20ms", args=("loop", str(log)))
    waits = ex.add(deeds.double, "waits", args=(handle,))
    ex.start()
    pid = int(wait_for_lines(log, 1)[0].split()[0])
    within(CAP_S, lambda: ex.stop(grace=0.1))
    assert (handle.last_outcome.status, handle.runs) == ("interrupted", 1)
    assert waits.last_outcome.status in ("cancelled", "dependency")
    assert not alive(pid)
    assert handle.next_run is None


def test_a_with_left_by_keyboard_interrupt_kills(pool, tmp_path):
    log, ex = tmp_path / "log", pool(2)

    def body() -> None:
        with ex:
            ex.add(deeds.hang, "one", interval="20ms", args=("loop", str(log)))
            wait_for_lines(log, 1)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        within(CAP_S, body)
    assert ex.state is State.STOPPED
    assert not alive(int(lines(log)[0].split()[0]))


def test_a_view_left_by_keyboard_interrupt_kills_its_own(pool, tmp_path):
    log, ex = tmp_path / "log", pool(2)
    other = forever(ex, "other")

    def body() -> None:
        with ex.options(priority=1) as view:
            view.add(deeds.hang, "one", interval="20ms", args=("loop", str(log)), overlap="allow")
            ex.start()
            wait_for_lines(log, 1)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        within(CAP_S, body)
    assert ex.tasks["one"].next_run is None
    runs = other.runs
    until(lambda: other.runs > runs + 2, "runs of the other")


def test_a_pool_that_breaks_releases_nothing_more(pool, caplog):
    ex = pool(1, initializer=deeds.die_at_start, restart_intensity=(1, 10.0))
    handle = forever(ex)
    handle.add_done_callback(lambda _future: None)
    ex.start()
    until(lambda: handle.runs, "its end")
    assert isinstance(handle.last_outcome.exception(), PoolBroken)
    until(lambda: ex._pool.ended, "the end of the loop")
    assert handle.next_run is None
    assert handle.runs == 1
    with pytest.raises(PoolBroken):
        ex.add(deeds.double, "more", args=(1,))


def test_a_loop_that_fails_leaves_nobody_waiting(pool, caplog, monkeypatch):
    ex = pool(1)
    handle = forever(ex)
    ex.start()
    until(lambda: handle.runs, "a run")
    monkeypatch.setattr(ex._pool.releases, "_told", None)  # whatever it does with that raises
    assert not within(CAP_S, lambda: ex._pool.thread.join(CAP_S))
    until(lambda: not ex._pool.callbacks.thread.is_alive(), "the end of the callbacks")
    with pytest.raises(PoolBroken):
        ex.submit(deeds.double, 1)
    monkeypatch.undo()
    caplog.clear()


def test_a_pool_that_never_started_is_just_closed(pool):
    ex = pool(1)
    handle = forever(ex)
    once = ex.add(deeds.double, "once", "1h", args=(1,))
    ex.shutdown()
    assert (ex.state, handle.next_run, once.next_run) == (State.STOPPED, None, None)


def test_an_executor_that_is_dropped_ends_its_recurrences():
    ex = Executor(1, preload=["deeds"])
    handle, thread = forever(ex), None
    ex.start()
    thread = ex._pool.thread
    until(lambda: handle.runs >= 2, "runs")
    del ex
    gc.collect()
    thread.join(CAP_S)
    assert not thread.is_alive()
    assert handle.next_run is None


def test_callbacks_that_know_the_executor_do_not_keep_it_after_its_end():
    """Regression: what ends a pool that is dropped held the pool, that its tasks, these the callbacks."""
    ex = Executor(1, preload=["deeds"])
    handle = forever(ex)
    handle.add_done_callback(lambda _future, ex=ex: ex.state)
    ex.add(deeds.double, "once", args=(1,)).add_done_callback(lambda _future, ex=ex: ex.state)
    ex.start()
    until(lambda handle=handle: handle.runs, "a run")
    within(CAP_S, ex.shutdown)
    gone = weakref.ref(ex)
    del ex, handle
    until(lambda: gc.collect() is None or gone() is None, "its end")


def test_originals_of_arguments_are_not_kept(pool):
    class Original(set):  # type: ignore[type-arg]
        def __reduce__(self) -> Any:
            return int, (3,)

    ex, original = pool(1), Original()
    forever_more = ex.add(deeds.double, "one", "1h", "1h", args=(original,))
    gone = weakref.ref(original)
    del original
    gc.collect()
    assert gone() is None
    assert forever_more.next_run


def test_the_exit_of_the_interpreter_ends_recurrences(tmp_path):
    program = """
import deeds
from ptss_mp import Executor
ex = Executor(1)
handle = ex.add(deeds.double, "one", interval="20ms", args=(1,))
done = []
handle.add_done_callback(done.append)
ex.add(deeds.double, "later", "1h", "1h", args=(1,))
ex.start()
while not done:
    pass
print("leaving", handle.next_run is not None)
"""
    assert programs.run(tmp_path, program) == ["leaving True"]


def test_a_fork_of_the_program_leaves_tasks_alone(tmp_path):
    program = """
import os, sys, warnings
import deeds
from ptss_mp import Executor
warnings.simplefilter("ignore")
ex, fresh = Executor(1), Executor(1)
handle = ex.add(deeds.double, "one", interval="20ms", args=(1,))
own = fresh.add(deeds.double, "one", interval="20ms", args=(1,), max_runs=2)
ex.start()
while not handle.runs:
    pass
child = os.fork()
if child == 0:
    for verb in (handle.cancel, handle.pause, handle.resume, lambda: ex.add(deeds.double, "two", args=(1,))):
        try:
            verb()
        except RuntimeError as error:
            print("refused", "fork" in str(error))
    ex.options(priority=1).shutdown()
    ex.shutdown()
    print("fresh", fresh.start().join(10), own.runs, flush=True)
    sys.exit(0)
print("child", os.waitpid(child, 0)[1], flush=True)
runs = handle.runs
while handle.runs < runs + 2:
    pass
print("goes on", fresh.start().join(10), own.runs)
ex.shutdown()
"""
    refused = ["refused True"] * 4
    assert programs.run(tmp_path, program) == [*refused, "fresh True 2", "child 0", "goes on True 2"]


# ---- views


def test_a_view_ends_its_own_recurrences_and_no_others(pool, gate, tmp_path):
    log, ex = tmp_path / "log", pool(2)
    mine = forever(ex, "mine")
    view = ex.options(priority=1)
    inner = view.options(timeout=9)
    yours = view.add(deeds.gated, "yours", interval="20ms", args=(str(log), gate.path, 1))
    inners = forever(inner, "inners")
    below = view.add(deeds.same, "below", args=(mine,))
    assert list(view.tasks) == list(ex.tasks) == ["mine", "yours", "inners", "below"]
    ex.start()
    wait_for_lines(log, 1)
    gate.open(2)
    within(CAP_S, view.shutdown)
    assert (yours.next_run, inners.next_run, below.next_run) == (None, None, None)
    begun = len(lines(log))
    assert begun % 2 == 0  # what was released was waited for
    runs = mine.runs
    until(lambda: mine.runs > runs + 3, "runs of the others")
    ended = below.runs
    until(lambda: mine.runs > runs + 6, "runs of the others")
    assert (len(lines(log)), below.runs) == (begun, ended)
    with pytest.raises(ExecutorClosed):
        inner.add(deeds.double, "more", args=(1,))


def test_no_run_begins_behind_the_end_of_a_view(pool, tmp_path):
    """What `shutdown` returns from has ended, also what was being released at that moment."""
    ex, log = pool(2).start(), tmp_path / "log"
    for number in range(20):
        with ex.options(priority=1) as view:
            handle = view.add(deeds.logged, f"task {number}", interval="1ms", args=(str(log), number))
            until(lambda handle=handle: handle.runs, "a run")
        words = Counter(line.split()[0] for line in lines(log))
        assert words["begin"] == words["end"]


# ---- what is refused elsewhere


def test_submit_map_and_options_know_no_recurrence(pool):
    ex = pool(1)
    for options in ({"interval": 1}, {"delay": 1}, {"cron": "* * * * *"}, {"max_runs": 2}, {"overlap": "skip"}):
        (name,) = options
        with pytest.raises(InvalidOption, match=f"^{name} belongs to a task; add"):
            ex.options(**options)
        with pytest.raises(InvalidOption, match=f"^{name} belongs to a task"):
            Executor(1, options=Options(**options))
    for call in (
        lambda: ex.submit(deeds.twice_doubled, 1),
        lambda: list(ex.map(deeds.twice_doubled, [1, 2])),
        lambda: list(ex.map(deeds.twice_doubled, [1, 2], chunksize=2)),
        lambda: list(ex.map_outcomes(deeds.twice_doubled, [1, 2])),
    ):
        with pytest.raises(InvalidOption, match="interval: task 'twice_doubled' recurs"):
            call()


def test_a_recurring_task_is_no_argument_and_no_prerequisite_of_a_job(pool):
    ex = pool(1)
    handle = forever(ex, max_runs=1)
    for call in (
        lambda: ex.submit(deeds.same, handle),
        lambda: ex.submit(deeds.same, [{1: handle}]),
        lambda: ex.options(after=handle).submit(deeds.double, 1),
        lambda: ex.options(after=[handle]).submit(deeds.double, 1),
    ):
        with pytest.raises(InvalidType, match="Recurring"):
            call()
    with pytest.raises(InvalidType, match="Recurring"):
        list(ex.map(deeds.same, [handle, handle], chunksize=2))
    with pytest.raises(TypeError, match="only as an argument of add"):
        pickle.dumps(handle)


def test_after_finds_the_last_job_of_a_recurring_task(pool, gate, tmp_path):
    log, ex = tmp_path / "log", pool(2)
    handle = ex.add(deeds.gated, "one", interval="20ms", args=(str(log), gate.path, 1), max_runs=2)
    ex.start()
    wait_for_lines(log, 1)
    behind = ex.options(after="one").submit(deeds.double, 1)
    assert not behind.done()
    gate.open()
    assert behind.result(CAP_S) == 2
    gate.open()
    assert ex.join(CAP_S)
    assert handle.runs == 2
    assert ex.options(after="one").submit(deeds.double, 2).result(CAP_S) == 4


# ---- many


def test_add_from_many_threads(pool):
    ex = pool(2).start()
    errors: list[Exception] = []

    def work(thread: int) -> None:
        for number in range(25):
            try:
                ex.add(deeds.double, f"{thread} {number}", interval="10ms", max_runs=2, args=(number,))
                ex.add(deeds.double, f"same {number}", args=(number,))
            except InvalidOption as error:
                errors.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(CAP_S)
    assert ex.join(CAP_S)
    assert len(errors) == 7 * 25  # of the names that all have asked for
    assert len(ex.tasks) == 9 * 25
    assert {(handle.runs, handle.last_outcome.ok) for handle in ex.tasks.values()} == {(2, True), (1, True)}


def test_a_thousand_tasks_recur_and_end(pool):
    ex = pool(2)
    handles = [ex.add(deeds.double, f"task {n}", interval="50ms", args=(n,)) for n in range(1000)]
    below = [ex.add(deeds.same, f"below {n}", args=(handles[n],)) for n in range(0, 1000, 10)]
    ex.start()
    until(lambda: min(handle.runs for handle in handles) >= 3, "three runs of each")
    assert ex.submit(deeds.double, 21).result(CAP_S) == 42
    within(CAP_S, ex.shutdown)
    assert ex.state is State.STOPPED
    for n, handle in enumerate(handles):
        assert handle.next_run is None
        assert handle.last_outcome.result() == 2 * n
    assert [one.last_outcome.result() for one in below] == [2 * n for n in range(0, 1000, 10)]
    assert not ex._pool.futures


def test_ten_thousand_tasks_that_wait_cost_a_look_at_none(pool):
    ex = pool(1)
    for n in range(10_000):
        ex.add(deeds.double, f"task {n}", "1h", "1h", args=(n,))
    ex.start()
    until(lambda: len(ex._pool.releases.core.courses) == 10_000, "all to be taken")
    handle = forever(ex)
    until(lambda: handle.runs >= 5, "runs beside them")
    within(CAP_S, ex.shutdown)
    assert {one.runs for one in ex.tasks.values() if one is not handle} == {0}


def test_memory_stays_flat_however_many_runs(pool):
    ex = pool(1)
    handle = ex.add(deeds.sized, "one", interval="1ms", args=(100,))
    below = ex.add(deeds.same, "below", args=(handle,))
    ex.start()
    until(lambda: below.runs > 100, "runs")
    handle.cancel()
    assert ex.join(CAP_S)
    assert not ex._pool.futures
    assert not handle._entry.root.runs
    gc.collect()
    kept = [one for one in gc.get_objects() if type(one) is releases.Run]
    assert len(kept) <= 1


def test_a_slow_callback_holds_releases_back_and_not_for_ever(pool, monkeypatch, gate):
    monkeypatch.setattr(releases, "DUE_MAX", 20)
    monkeypatch.setattr(releases, "LOOK_NS", 50_000_000)
    ex, hold = pool(1), threading.Event()
    handle = ex.add(deeds.double, "one", interval="2ms", args=(1,))
    handle.add_done_callback(lambda _future: hold.wait(CAP_S))
    ex.start()
    until(lambda: len(ex._pool.callbacks.due) >= 20, "callbacks")
    for _ in range(100):
        assert ex.submit(deeds.double, 1).result(CAP_S) == 2  # jobs of callers go on
    assert len(ex._pool.callbacks.due) <= 25
    runs = handle.runs
    hold.set()
    until(lambda: handle.runs > runs + 3, "runs once it has returned")


def test_max_pending_holds_submit_back_and_no_release(pool, gate, tmp_path):
    log, ex = tmp_path / "log", pool(3, max_pending=2)
    ex.start()
    gates = [ex.submit(deeds.gated, str(log), gate.path, n) for n in range(2)]
    wait_for_lines(log, 2)
    handle = forever(ex, max_runs=3)
    until(lambda: handle.runs == 3, "its runs")
    gate.open(2)
    assert ex.join(CAP_S)
    assert all(future.done() for future in gates)


def test_the_main_module_is_known_to_tasks(tmp_path):
    program = """
from ptss_mp import Executor

def work(x):
    return x + 1

if __name__ == "__main__":
    with Executor(1) as ex:
        first = ex.add(work, "first", interval="20ms", max_runs=2, args=(1,))
        second = ex.add(work, "second", args=(first,))
        ex.join(20)
        print(first.runs, second.last_outcome.result())
"""
    assert programs.run(tmp_path, program) == ["2 3"]
