"""Workers and wardens that do not come, or do not stay: a clear end with its reason, never a spin, never a hang."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time

import beginnings
import deeds
import pytest
from support import CAP_S, lines, until, wait_for_lines, within

from ptss_mp import Executor, PoolBroken, WorkerCrashed

INTENSITY = (3, 10)
JOBS = 20


def broken(ex):
    """Let a pool break over some jobs; return why, when all of them were told."""
    futures = []
    with contextlib.suppress(PoolBroken):  # it may break before the last of them
        futures.extend(ex.submit(deeds.double, number) for number in range(JOBS))
    for future in futures:
        error = future.exception(CAP_S)
        assert isinstance(error, PoolBroken)
        assert not error.pool_usable
        assert future.outcome().status == "crashed"
        assert "\n" not in future.outcome().error
    with pytest.raises(PoolBroken) as refused:
        ex.submit(deeds.double, 1)
    within(10, ex.shutdown)
    return str(refused.value)


def works():
    """An executor that is made afterwards does."""
    with Executor(1, preload=["deeds"]) as ex:
        assert ex.submit(deeds.double, 21).result(CAP_S) == 42


def spent(pid):
    """Return the processor time of a process and of its reaped children, s."""
    with open(f"/proc/{pid}/stat") as file:
        fields = file.read().rsplit(")", 1)[1].split()
    return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")


# ---- initializers


@pytest.mark.parametrize("context", [None, "spawn"])
@pytest.mark.parametrize("kind", beginnings.FAILING)
def test_an_initializer_that_fails(pool, context, kind):
    initializer, arguments, words = beginnings.FAILING[kind]
    ex = pool(2, context, initializer=initializer, initargs=arguments, restart_intensity=INTENSITY)
    began = time.process_time()
    why = broken(ex)
    assert time.process_time() - began < 1.0, "the program itself has little to do with it"
    for word in (*words, "(restart_intensity allows 3"):
        assert word in why
    assert "mainmodule.py" not in why
    assert ex._pool.core.hired <= 12
    works()


@pytest.mark.parametrize("context", [None, "spawn"])
@pytest.mark.parametrize("kind", beginnings.LATE)
def test_an_initializer_that_hangs(pool, context, kind):
    initializer, words = beginnings.LATE[kind]
    limit = 2  # it holds for the warden too, on a busy machine
    ex = pool(1, context, initializer=initializer, start_timeout=limit, restart_intensity=(0, 10))
    why = broken(ex)
    for word in (*words, f"it was not ready after {limit} s, and was killed", "start_timeout"):
        assert word in why
    works()


def test_starts_that_take_longer_to_fail_than_the_period_allows_for(pool):
    """Regression: within the period there were never enough of them, and the jobs waited for ever."""
    ex = pool(1, initializer=beginnings.refuse_slowly, initargs=(0.3,), restart_intensity=(2, 0.4))
    why = broken(ex)
    assert "3 times in a row" in why
    assert "no model here" in why


def test_workers_that_are_late_again_and_again_however_long_the_limit(pool):
    ex = pool(1, initializer=beginnings.hang, start_timeout=1.5, restart_intensity=(2, 1.6))
    assert "workers were not ready in time, 3 times in a row" in broken(ex)


@pytest.mark.parametrize("context", [None, "spawn"])
@pytest.mark.parametrize("initializer", [beginnings.child_goes_on, beginnings.child_raises, beginnings.thread])
def test_an_initializer_that_forks_or_leaves_a_thread(pool, context, initializer, tmp_path):
    """Regression: the child that came back read the calls too, and answered."""
    ex = pool(2, context, initializer=initializer)
    log = tmp_path / "log"
    assert [f.result(CAP_S) for f in [ex.submit(deeds.note, str(log), i) for i in range(50)]] == list(range(50))
    assert sorted(map(int, lines(log))) == list(range(50)), "each was made once"
    if initializer is beginnings.child_goes_on:
        assert all(f.result(CAP_S) for f in [ex.submit(beginnings.is_its_own) for _ in range(50)])


def test_some_workers_that_fail_break_nothing_while_others_work(pool, gate, tmp_path):
    """One in two has its way; the row of failures ends with each answer."""
    flag = tmp_path / "flag"
    rules = {"max_tasks_per_child": 1, "restart_intensity": (4, 0.05)}
    ex = pool(2, initializer=beginnings.every_other, initargs=(str(flag),), **rules)
    assert [f.result(CAP_S) for f in [ex.submit(deeds.double, i) for i in range(20)]] == [2 * i for i in range(20)]



def test_a_fork_that_hangs_on_its_way_is_late_too(pool, tmp_path, monkeypatch):
    """What a preload has registered for forks runs before anything of ours; without an initializer too."""
    source = "import os, time\nos.register_at_fork(after_in_child=lambda: time.sleep(1000))\n"
    (tmp_path / "hanging_fork.py").write_text(source)
    monkeypatch.syspath_prepend(tmp_path)
    ex = pool(1, preload=["hanging_fork"], start_timeout=2, restart_intensity=(0, 10))
    assert "workers were not ready in time" in broken(ex)


def test_a_fork_that_dies_on_its_way_is_no_jobs_fault(pool, tmp_path, monkeypatch):
    source = "import os\nos.register_at_fork(after_in_child=lambda: os._exit(5))\n"
    (tmp_path / "dying_fork.py").write_text(source)
    monkeypatch.syspath_prepend(tmp_path)
    why = broken(pool(2, preload=["dying_fork"]))
    assert "workers died before they were ready, 11 times" in why
    assert "it exited with status 5" in why


# ---- preloads


@pytest.mark.parametrize("context", [None, "spawn"])
@pytest.mark.parametrize("kind", beginnings.PRELOADS)
def test_a_preload_that_fails(pool, tmp_path, monkeypatch, context, kind):
    source, words = beginnings.PRELOADS[kind]
    (tmp_path / "bad_preload.py").write_text(source + "\n")
    monkeypatch.syspath_prepend(tmp_path)
    ex = pool(2, context, preload=["bad_preload"], restart_intensity=INTENSITY)
    why = broken(ex)
    for word in words:
        assert word in why
    assert "mainmodule.py" not in why
    works()


@pytest.mark.parametrize("context", [None, "spawn"])
def test_a_preload_that_hangs(pool, tmp_path, monkeypatch, context):
    (tmp_path / "hanging_preload.py").write_text("import time\ntime.sleep(1000)\n")
    monkeypatch.syspath_prepend(tmp_path)
    ex = pool(1, context, preload=["hanging_preload"], start_timeout=0.5, restart_intensity=(1, 10))
    assert "not ready after 0.5 s" in broken(ex)


@pytest.mark.parametrize("context", [None, "spawn"])
def test_a_preload_whose_child_comes_back(pool, tmp_path, monkeypatch, context):
    """Regression: it became a second warden, or a second worker."""
    (tmp_path / "forking_preload.py").write_text("import os\nos.fork()\n")
    monkeypatch.syspath_prepend(tmp_path)
    ex = pool(2, context, preload=["deeds", "forking_preload"])
    log = tmp_path / "log"
    assert [f.result(CAP_S) for f in [ex.submit(deeds.note, str(log), i) for i in range(50)]] == list(range(50))
    assert len(lines(log)) == 50
    assert ex._pool.wardens == 1


# ---- killed from outside


class Killer:
    """Kills what `pids` gives, again and again, until the end of a `with`."""

    def __init__(self, pids):
        self.pids, self.killed, self._over = pids, 0, threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._over.set()
        self._thread.join()

    def _run(self):
        while not self._over.wait(0.001):
            for pid in self.pids():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
                    self.killed += 1


def pids_of_workers(ex):
    return lambda: [channel.pid for channel in list(ex._pool.channels.values()) if not channel.buried]


def test_idle_workers_that_are_killed_are_not_made_again_for_nobody(pool):
    ex = pool(2, spares=1)
    ex.submit(deeds.double, 1).result(CAP_S)
    warden = ex._pool.warden.process.pid
    with Killer(pids_of_workers(ex)) as killer:
        until(lambda: not ex._pool.channels, "their end")
        hired, before = ex._pool.core.hired, spent(warden)
        time.sleep(0.5)  # nothing is to happen in it
        assert ex._pool.core.hired == hired
        assert spent(warden) - before < 0.1
    assert killer.killed
    assert ex.submit(deeds.double, 2).result(CAP_S) == 4


def test_workers_that_are_killed_whenever_they_come(pool):
    """Each job ends, as crashed if it ran or was four times the next; or the pool does."""
    ex = pool(2, restart_intensity=INTENSITY)
    ex.submit(deeds.double, 1).result(CAP_S)
    with Killer(pids_of_workers(ex)):
        futures = []
        with contextlib.suppress(PoolBroken):
            futures.extend(ex.submit(deeds.nap, 5 + number) for number in range(5))
        for future in futures:
            assert future.outcome(CAP_S).status == "crashed"
            assert isinstance(future.exception(), WorkerCrashed | PoolBroken)
    works()


def test_workers_that_are_killed_before_they_are_ready(pool):
    ex = pool(2, initializer=deeds.nap, initargs=(1,), restart_intensity=INTENSITY)
    ex.start()
    with Killer(pids_of_workers(ex)):
        why = broken(ex)
    assert "workers died before they were ready, 4 times in" in why
    assert "it was killed by SIGKILL" in why


def test_a_warden_that_is_killed_whenever_it_comes(pool):
    ex = pool(2, restart_intensity=INTENSITY)
    ex.submit(deeds.double, 1).result(CAP_S)

    def ready_wardens():
        warden = ex._pool.warden
        return [warden.process.pid] if warden and warden.ready else []

    with Killer(ready_wardens):
        why = broken_by_the_warden(ex)
    assert "the warden died again and again, 4 times in" in why
    assert "it ended by SIGKILL" in why
    works()


def broken_by_the_warden(ex):
    """Submit until the pool refuses; every job has ended then."""
    futures = []
    end = time.monotonic() + CAP_S
    while time.monotonic() < end:
        try:
            futures.append(ex.submit(deeds.double, 1))
            futures[-1].outcome(CAP_S)
        except PoolBroken as error:
            assert all(future.done() for future in futures)
            return str(error)
    pytest.fail("it never broke")


def test_a_failing_pool_at_work_tries_on_slowly(pool, gate, tmp_path):
    """While a job runs the pool does not break for want of more workers; it costs next to nothing."""
    flag = tmp_path / "flag"
    ex = pool(2, initializer=beginnings.only_the_first, initargs=(str(flag),), restart_intensity=INTENSITY)
    log = tmp_path / "log"
    running = ex.submit(deeds.gated, str(log), gate.path, 1)
    wait_for_lines(log, 1)
    second = ex.submit(deeds.double, 2)
    until(lambda: ex._pool.core.restarts.in_a_row > 4, "more tries than the intensity allows")
    warden = ex._pool.warden.process.pid
    hired, before, mine = ex._pool.core.hired, spent(warden), time.process_time()
    time.sleep(2)  # what it does meanwhile is measured
    assert ex._pool.core.hired - hired <= 3
    assert spent(warden) - before < 0.4
    assert time.process_time() - mine < 0.2
    gate.open()
    assert running.result(CAP_S) == 1
    assert second.result(CAP_S) == 4
