"""Cancels at random moments from four threads: each Future has one end, and nobody else pays for it.

    CANCELS=1000000 python -m pytest tests/integration/test_cancel_races.py

asks for another number than the hundred thousand of the issue.
"""

from __future__ import annotations

import os
import random
import signal
import struct
import threading
import time
from collections import Counter
from concurrent.futures import wait

import deeds
import pytest
from support import CAP_S, Settled, lines, until, within

from ptss_mp import Executor
from ptss_mp.core import commands as do
from ptss_mp.core import events as on

CANCELS = int(os.environ.get("CANCELS", "100000"))
THREADS = 4
NAP_S = 0.0005
SEED = 20_261_130
RECORD = struct.Struct("<II")


class Canceller:
    """Submits jobs and cancels some of its last ones, at whatever moment it comes to that.

    Attributes:
        futures: by the job's number.
        won: numbers of the jobs whose `cancel()` returned True.
        calls: cancels so far.
    """

    def __init__(self, ex, log, first, settled, number):
        self.futures, self.won, self.calls = {}, set(), 0
        self._ex, self._log, self._first, self._settled = ex, log, first, settled
        self._random = random.Random(SEED + number)
        self.thread = threading.Thread(target=self._run)
        self.error = None

    def _run(self):
        try:
            while self.calls < CANCELS // THREADS:
                self._random.choices(self.MOMENTS, self.WEIGHTS)[0](self)
        except BaseException as error:  # told by the test
            self.error = error

    def _many(self):
        """Some of many that wait, are sent together, run, have ended."""
        chance = self._random
        window = [self._submit(NAP_S if chance.random() < 0.02 else 0.0) for _ in range(chance.randrange(1, 80))]
        if chance.random() < 0.2:
            wait([self.futures[chance.choice(window)]], CAP_S)
        for number in chance.sample(window, chance.randrange(len(window) + 1)):
            self._cancel(number)

    def _at_the_start(self):
        """One that was sent in this moment: it begins, or just has, or is over."""
        number = self._submit(0.0)
        while self.futures[number]._pid == 0:
            time.sleep(0)
        self._cancel(number)

    def _in_the_run(self):
        """One that takes a while, at some moment of that."""
        number = self._submit(NAP_S)
        time.sleep(self._random.random() * 4 * NAP_S)
        self._cancel(number)

    MOMENTS, WEIGHTS = (_many, _at_the_start, _in_the_run), (20, 40, 40)

    def _submit(self, seconds):
        number = self._first + len(self.futures)
        future = self._ex.submit(deeds.record, self._log, number, seconds)
        self.futures[number] = self._settled.watch(future)
        return number

    def _cancel(self, number):
        future = self.futures[number]
        won = future.cancel()
        assert won == future.cancelled()
        assert future.done()
        self.calls += 1
        if won:
            self.won.add(number)


def test_a_hundred_thousand_cancels(pool, tmp_path):
    ex = pool(2)
    log = str(tmp_path / "log")
    settled = Settled()
    cancellers = [Canceller(ex, log, i << 28, settled, i) for i in range(THREADS)]
    for canceller in cancellers:
        canceller.thread.start()
    for canceller in cancellers:
        canceller.thread.join(600)
        assert canceller.error is None, canceller.error
    futures = {number: future for c in cancellers for number, future in c.futures.items()}
    won = set().union(*(c.won for c in cancellers))
    within(CAP_S, ex.join)
    settled.check(ex)
    began, ended = runs(log)
    ends = Counter(str(future.outcome(0).status) for future in futures.values())
    killed = sum(1 for number in won if futures[number].outcome().attempts)
    print(f"{sum(c.calls for c in cancellers)} cancels of {len(futures)} jobs, {dict(ends)}, {killed} had begun")
    assert set(ends) == {"succeeded", "cancelled"}
    assert ends["cancelled"] == len(won)
    twice = [number for number, count in began.items() if count > 1]
    assert not twice, [(futures[n].outcome(), began[n], ended[n], ex.story(futures[n])) for n in twice[:2]]
    for number, future in futures.items():
        assert future.cancelled() == (number in won)
        if number not in won:
            assert future.result() == number
            assert ended[number] == 1
    assert killed > CANCELS // 1000, "the moments were not what they should be"
    assert ex._pool.wardens == 1
    assert ex.submit(deeds.double, 4).result(CAP_S) == 8


def _together(ex, gate, folder, log):
    """Let one job wait at the gate, three stand behind it in the same worker; return their Futures."""
    warm = [ex.submit(deeds.gate_or_not, None) for _ in range(150)]
    warm += [ex.submit(deeds.logged, str(folder / "other"), i) for i in range(150)]
    assert all(f.outcome(CAP_S).ok for f in warm)  # known as short: they travel together
    ex.pause()
    cancelled = ex.submit(deeds.gate_or_not, gate.path)
    behind = [ex.submit(deeds.logged, str(log), i, 0.2) for i in range(3)]
    ex.resume()
    until(lambda: next(iter(ex._pool.channels.values())).marked()[0] == cancelled._id, "its begin")
    return cancelled, behind


def test_no_other_job_dies_in_the_place_of_a_cancelled_one(pool, gate, tmp_path, monkeypatch):
    """Regression: the cancelled job ended just before the signal, the next one had begun, died and ran again."""
    ex = pool(1, spares=0)
    for attempt in range(20):  # how many travel together is a matter of how short the machine lets them be
        log = tmp_path / f"log {attempt}"
        cancelled, behind = _together(ex, gate, tmp_path, log)
        if len(ex._pool.core.workers[next(iter(ex._pool.channels))].queue) > 1:
            break
        gate.open()
        assert all(f.outcome(CAP_S).ok for f in (cancelled, *behind))
    else:
        pytest.fail("in twenty tries no jobs travelled together: a batch of short ones should")
    send = signal.pidfd_send_signal

    def late(pidfd, number):
        if number == signal.SIGKILL:
            gate.open()
            time.sleep(0.1)  # the worker goes on, and may begin whatever it still may
        send(pidfd, number)

    monkeypatch.setattr(signal, "pidfd_send_signal", late)
    assert cancelled.cancel()
    assert [f.result(CAP_S) for f in behind] == [0, 1, 2]
    monkeypatch.undo()
    assert sorted(line.split()[1] for line in lines(log) if line.startswith("begin")) == ["0", "1", "2"]


def runs(log):
    """Return how often each job was begun and came to its end."""
    began, ended = Counter(), Counter()
    with open(log, "rb") as file:
        for number, end in RECORD.iter_unpack(file.read()):
            (ended if end else began)[number] += 1
    return began, ended


def test_a_cancel_that_came_just_as_its_job_ended_is_forgotten():
    """The core does not know the job any more, as it does not know one whose row is still to come."""
    with Executor(max_workers=1) as ex:
        job = ex.submit(abs, -1)
        assert job.result(CAP_S) == 1
        ex._pool.gone.append(job._id)  # the last that such a `cancel` does
        ex._pool.wake()
        until(lambda: ex._pool.early, "it is heard")
        until(lambda: ex._pool.wake() or not ex._pool.early, "it is forgotten", 5.0)


def test_a_dispatch_to_a_worker_that_has_just_been_let_go(pool):
    """Regression: the loop died.  A kill may find an innocent job and let the worker leave, within a step that sends
    it more: the core hears of that in the next one."""
    ex = pool(1, spares=0)
    first = ex.submit(os.getpid).result(CAP_S)
    ex.pause()
    job, inner = ex.submit(os.getpid), ex._pool

    def let_go_and_send(now):
        worker = next(iter(inner.channels))
        inner._retire(do.RetireWorker(worker))
        inner._dispatch(do.Dispatch(worker, [job._id], {}))
        return on.Condemned(now, worker, 0, "cancelled", now)

    inner.control(let_go_and_send)
    ex.resume()
    assert job.result(CAP_S) != first
