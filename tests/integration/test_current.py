"""`current()`: what a job may ask about itself, and tell."""

from __future__ import annotations

import subprocess
import sys
import threading
import weakref
from datetime import UTC, datetime, timedelta

import deeds
import pytest
from support import CAP_S, until

from ptss_mp import Executor, InvalidOption, InvalidType, current, task


def test_outside_a_worker_there_is_none():
    assert current() is None


@pytest.mark.parametrize("context", [None, "spawn"])
def test_a_job_knows_what_it_is(pool, context):
    ex = pool(1, mp_context=context)
    plain = ex.submit(deeds.about_me)
    assert plain.result(CAP_S) == {
        "name": "about_me", "key": "deeds.about_me", "attempt": 1, "deadline": None, "remaining": None, "state": {},
    }  # fmt: skip
    assert (plain.outcome().name, plain.outcome().key) == ("about_me", "deeds.about_me")
    now = datetime.now(UTC)
    told = ex.options(name="n", timeout=50, deadline=90).submit(deeds.about_me).result(CAP_S)
    assert told["name"] == "n"
    assert timedelta(seconds=89) < told["deadline"] - now < timedelta(seconds=95)
    assert told["deadline"].tzinfo is UTC
    assert 45 < told["remaining"] <= 50  # the earlier of the two
    at = now + timedelta(seconds=40)
    told = ex.options(timeout=50, deadline=at).submit(deeds.about_me).result(CAP_S)
    assert abs(told["deadline"] - at) < timedelta(seconds=0.1)
    assert 30 < told["remaining"] <= 40
    told = task(name="declared", timeout=30)(deeds.about_me)
    assert ex.submit(told).result(CAP_S)["name"] == "declared"


def test_a_deadline_that_does_not_kill_is_one_too(pool):
    ex = pool(1)
    soft = ex.options(on_miss="finish")
    for seconds in (20, 30):
        told = soft.options(deadline=seconds).submit(deeds.about_me).result(CAP_S)
        assert seconds - 5 < told["remaining"] <= seconds
    assert soft.submit(deeds.about_me).result(CAP_S)["deadline"] is None
    late = soft.options(deadline=0.001).submit(deeds.remaining_twice, 0.05).result(CAP_S)
    assert late[1] == 0.0


def test_what_remains_grows_less(pool):
    first, second = pool(1).options(timeout=20).submit(deeds.remaining_twice, 0.05).result(CAP_S)
    assert 0.05 <= first - second < 5


def test_jobs_of_many_names_and_views_do_not_mix(pool):
    ex = pool(2)
    views = [ex, ex.options(name="b"), ex.options(timeout=30), ex.options(name="d", deadline=60, on_miss="finish")]
    jobs = [(n, views[n % 4].submit(deeds.named_twice, n)) for n in range(400)]
    jobs += [(n, views[n // 100].submit(deeds.named_twice, n)) for n in range(400)]
    for _, future in jobs:
        out = future.outcome(CAP_S)
        assert out.result() == (out.name, "deeds.named_twice", 1)


def test_the_number_of_the_attempt(pool):
    ex = pool(2)
    view = ex.options(retries=5)
    jobs = []
    for n in range(10):
        jobs.append((ex.submit(deeds.named_twice, n), 1))
        jobs.append((view.submit(deeds.third_time), 3))
    for future, attempts in jobs:
        out = future.outcome(CAP_S)
        assert out.attempts == attempts
        assert out.result() in (3, ("named_twice", "deeds.named_twice", 1))


def test_state_is_the_workers_and_stays(pool):
    ex = pool(1, spares=0)
    assert ex.submit(deeds.put, "k", 5).result(CAP_S) == ex.submit(deeds.found, "k").result(CAP_S)[0]
    assert ex.submit(deeds.found, "k").result(CAP_S)[1] == 5
    fresh = ex.options(fresh=True)
    assert fresh.submit(deeds.found, "k").result(CAP_S)[1] is None


@pytest.mark.parametrize("context", [None, "spawn"])
def test_an_initializer_has_the_state_and_nothing_else(pool, context):
    ex = pool(1, mp_context=context, initializer=deeds.setting_up, initargs=("model", [1, 2]))
    state = ex.submit(deeds.about_me).result(CAP_S)["state"]
    assert state.pop("model") == [1, 2]
    assert set(state) == {"name", "key", "attempt", "deadline", "remaining"}
    assert all("only .state" in told for told in state.values())


def test_threads_forks_and_decoding(pool):
    ex = pool(1).options(name="me")
    assert ex.submit(deeds.elsewhere).result(CAP_S) == ("me", "None", 1)
    assert ex.submit(deeds.same, deeds.AsksWhileDecoded()).result(CAP_S) == "me"


def test_what_a_worker_was_told_last_keeps_no_object_alive(pool):
    ex = pool(1)
    item = deeds.Weak(3)
    ref = weakref.ref(item)
    assert ex.submit(item.shout).result(CAP_S) == 3
    del item
    until(lambda: ref() is None, "the end of an object whose method was a job")


@pytest.mark.parametrize("end", [Executor.kill_workers, Executor.shutdown])
def test_what_a_worker_was_told_last_ties_no_ended_pool_into_a_cycle(pool, end):
    ex = pool(2)
    assert [ex.submit(deeds.double, n).result(CAP_S) for n in range(9)] == list(range(0, 18, 2))
    channels = list(ex._pool.channels.values())
    assert any(channel.use for channel in channels)
    end(ex)
    assert ex._pool.join(CAP_S)
    assert not any(channel.use for channel in channels)


# ---- progress


def test_progress_is_an_event_for_subscribers(pool, gate):
    ex = pool(1)
    told, came = [], threading.Condition()

    def note(event):
        if event.what == "progress":
            with came:
                told.append((event.name, event.detail))
                came.notify_all()

    def wait_for(count):
        with came:
            assert came.wait_for(lambda: len(told) >= count, CAP_S), told

    with ex.subscribe(note):
        future = ex.options(name="n").submit(
            deeds.reporting, gate.path, (1,), (2.5, 10), (10, 10, "the end"), (10, 10, "the end")
        )
        for count in (1, 2, 3):
            wait_for(count)
            gate.open()
        wait_for(4)  # told again is told again
        gate.open()
        future.result(CAP_S)
    end = ("n", "10 of 10, the end")
    assert told == [("n", "1"), ("n", "2.5 of 10"), end, end]
    ex.submit(deeds.reports_much, 1).result(CAP_S)
    assert ex.drain(CAP_S)
    until(lambda: ex._pool.look_at == ex._pool.never or not ex._pool.observers, "no more looks")
    assert len(told) == 4


def test_progress_can_be_asked_for_while_the_job_runs(pool, gate):
    ex = pool(2)
    assert ex._pool.progress() == []
    future = ex.submit(deeds.reporting, gate.path, (1, 4, "a"), (2, None))
    (found,) = until(ex._pool.progress, "a report")
    assert found[0] is future
    assert found[1][2:] == (1.0, 4.0, "a")
    gate.open()
    until(lambda: [told[2:] for _, told in ex._pool.progress()] == [(2.0, None, "")], "the second report")
    gate.open()
    future.result(CAP_S)
    assert ex._pool.progress() == []  # it does not run any more


def test_reporting_never_blocks_and_text_is_cut(pool):
    ex = pool(1)
    assert ex.submit(deeds.reports_much, 100_000).result(CAP_S) < 5  # one that waited for a reader would take hours


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (("3",), InvalidType), ((True,), InvalidType), ((1, "x"), InvalidType), ((1, 2, b"x"), InvalidType),
        ((float("nan"),), InvalidOption), ((-1,), InvalidOption), ((1, float("inf")), InvalidOption),
        ((10**400,), InvalidOption), ((10**5000,), InvalidOption),
    ],
)  # fmt: skip
def test_a_report_that_makes_no_sense_is_refused_in_the_job(pool, gate, arguments, error):
    with pytest.raises(error):
        pool(1).submit(deeds.reporting, gate.path, arguments).result(CAP_S)


def test_noise_in_the_page_harms_nobody(pool, gate):
    ex = pool(1)
    future = ex.submit(deeds.scribbles_progress, gate.path)
    until(ex._pool.progress, "the true report")
    gate.open()
    for _ in range(5_000):
        for _, told in ex._pool.progress():
            assert told.done >= 0
            assert len(told.text) <= 200
    gate.open()
    assert future.outcome(CAP_S).ok
    assert ex.submit(deeds.double, 1).result(CAP_S) == 2


MODEL_PER_WORKER = """
import os
from ptss_mp import Executor, current

def load(path):
    current().state["model"] = path

def answer(question):
    if question == "die\\n":
        os.abort()
    return current().state["model"] + question.strip()[::-1]

if __name__ == "__main__":
    with Executor(2, mp_context={context!r}, initializer=load, initargs=("model: ",)) as ex:
        view = ex.options(timeout="1m")
        with open("questions.txt") as lines:
            for question, out in view.map_outcomes(answer, lines, ordered=True):
                print(question.strip(), "->", out.result() if out.ok else out.status)
"""


@pytest.mark.parametrize("context", [None, "spawn"])
def test_a_model_per_worker_that_the_main_module_loads(tmp_path, context):
    (tmp_path / "program.py").write_text(MODEL_PER_WORKER.format(context=context))
    (tmp_path / "questions.txt").write_text("abc\ndie\n" * 3 + "end\n")
    done = subprocess.run(
        [sys.executable, "program.py"], cwd=tmp_path, capture_output=True, text=True, timeout=CAP_S, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == ["abc -> model: cba", "die -> crashed"] * 3 + ["end -> model: dne"]
