"""Attempts of the same job: what each cause costs, what is between two of them, what is never made again."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
import time
import types

import deeds
import pytest
import tries
from support import CAP_S, alive, beside_healthy, lines, until, wait_for_lines, within

from ptss_mp import Executor, Retry

AT_ONCE = {"backoff": 0}
SLACK_S = 2.0  # how late an attempt may be on a busy machine


@pytest.fixture
def log(tmp_path):
    return tmp_path / "log"


def starts(path):
    """Return the instants at which attempts began, s."""
    return [int(line.split()[0]) / 1e9 for line in lines(path)]


@pytest.mark.parametrize(
    ("deed", "cause", "status"),
    [
        ("value", "exception", "failed"),
        ("exit", "exception", "failed"),
        ("crash", "crash", "crashed"),
        ("leave", "crash", "crashed"),
        ("hang", "timeout", "timeout"),
        ("glutton", "memory", "memory"),
        ("burner", "cpu", "cpu"),
    ],
)
def test_each_cause_has_its_budget_and_no_other(pool, log, deed, cause, status):
    ex = pool(1)
    limit = {"glutton": {"memory": "64MiB"}, "burner": {"cpu_time": 0.2}}.get(deed, {"timeout": 0.3})
    view = ex.options(**limit)
    retry = Retry(**{cause: 1}, **AT_ONCE)
    _, outcome = beside_healthy(ex, lambda: view.options(retries=retry).submit(tries.by_plan, str(log), deed))
    assert (outcome.status, outcome.attempts, outcome.result()) == ("succeeded", 2, 2)
    others = Retry(**{name: 9 for name in ("exception", "crash", "timeout", "memory", "cpu") if name != cause})
    outcome = view.options(retries=others).submit(tries.by_plan, f"{log}2", deed).outcome(CAP_S)
    assert (outcome.status, outcome.attempts) == (status, 1)


def test_budgets_are_used_up_one_by_one(pool, log):
    ex = pool(1)
    retry = Retry(exception=2, crash=1, timeout=1, **AT_ONCE)
    plan = ("value", "crash", "hang", "value", "value")
    future = ex.options(retries=retry, timeout=0.3).submit(tries.by_plan, str(log), *plan)
    outcome = future.outcome(CAP_S)
    assert (outcome.status, outcome.attempts, outcome.error) == ("failed", 5, "ValueError: value")
    assert [line.split()[2] for line in lines(log)] == ["1", "2", "3", "4", "5"], "current().attempt"
    told = [event.detail.split(",")[0] for event in ex.story(future) if event.what == "postponed"]
    assert told == ["failed", "crashed", "timeout", "failed"]
    assert ex.metrics()["retries_total"] == 4


@pytest.mark.parametrize(
    ("only", "deed", "attempts"),
    [
        (tries.Busy, "busy", 2),
        ((KeyError, ConnectionError), "busy", 2),
        (tries.Busy, "value", 1),
        (ValueError, "exit", 1),
        (SystemExit, "exit", 2),
        ((), "exit", 2),
        (tries.Busy, "crash", 2),
    ],
)
def test_only_these_exceptions_are_followed_by_another_attempt(pool, log, only, deed, attempts):
    retry = Retry(exception=1, crash=1, only=only, **AT_ONCE)
    outcome = pool(1).options(retries=retry).submit(tries.by_plan, str(log), deed).outcome(CAP_S)
    assert (outcome.attempts, outcome.ok) == (attempts, attempts == 2)


@pytest.mark.parametrize("many", [1, 300])
def test_only_holds_for_its_own_jobs(pool, log, many):
    """Jobs with and without it share workers, and travel in one frame once their function is known to be short."""
    ex = pool(2)
    picky = ex.options(retries=Retry(exception=1, only=OSError, **AT_ONCE))
    easy = ex.options(retries=Retry(exception=1, **AT_ONCE))
    futures = [view.submit(deeds.fail) for _ in range(many) for view in (picky, easy)]
    assert [future.outcome(CAP_S).attempts for future in futures] == [1, 2] * many


def test_classes_that_no_worker_can_load_end_the_job_and_it_says_why(pool, log, monkeypatch):
    module = types.ModuleType("made_up_here")
    module.Gone = type("Gone", (Exception,), {"__module__": "made_up_here"})
    monkeypatch.setitem(sys.modules, "made_up_here", module)
    retry = Retry(exception=5, only=(module.Gone, ValueError), **AT_ONCE)
    future = pool(1).options(retries=retry).submit(tries.by_plan, str(log), "value")
    outcome = future.outcome(CAP_S)
    assert (outcome.status, outcome.attempts) == ("failed", 1)
    assert outcome.error.startswith("ValueError: value (not made again: Retry(only=...) cannot be used here: ")
    assert "No module named 'made_up_here'" in outcome.error
    assert isinstance(future.exception(), ValueError)
    assert "made_up_here" in str(future.exception().__cause__)


def test_a_class_that_cannot_be_asked_ends_the_job_and_it_says_why(pool, log):
    retry = Retry(exception=5, only=tries.Unasked, **AT_ONCE)
    outcome = pool(1).options(retries=retry).submit(tries.by_plan, str(log), "value").outcome(CAP_S)
    assert (outcome.status, outcome.attempts) == ("failed", 1)
    assert "RuntimeError: ask somebody else" in outcome.error


PROGRAM = """
from ptss_mp import Executor, Retry, current

class Mine(Exception):
    pass

def fails_twice():
    if current().attempt < 3:
        raise Mine(current().attempt)
    return current().attempt

if __name__ == "__main__":
    with Executor(1) as ex:
        retry = Retry(exception=9, only=Mine, backoff=0)
        print(ex.options(retries=retry).submit(fails_twice).result(30))
"""


@pytest.mark.parametrize("how", ["file", "-c"])
def test_a_class_of_the_main_module(tmp_path, how):
    if how == "-c":
        pytest.importorskip("cloudpickle", reason="cloudpickle is not installed: pip install 'ptss_mp[closures]'")
    file = tmp_path / "program.py"
    file.write_text(PROGRAM)
    command = [sys.executable, "-c", PROGRAM] if how == "-c" else [sys.executable, file]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=CAP_S, check=False)
    assert (ended.stdout, ended.stderr) == ("3\n", "")


def test_pauses_grow_by_the_factor_up_to_the_longest(pool, log):
    retry = Retry(exception=4, backoff="100ms", factor=3, jitter=0, max_delay=0.5)
    ex = pool(1)
    assert ex.options(retries=retry).submit(tries.by_plan, str(log), *["value"] * 4).result(CAP_S) == 5
    pauses = [after - before for before, after in itertools.pairwise(starts(log))]
    for pause, least in zip(pauses, (0.1, 0.3, 0.5, 0.5), strict=True):
        assert least <= pause <= least + SLACK_S


def test_pauses_are_spread_by_the_jitter(pool, tmp_path):
    """Jobs that failed together do not come back together."""
    ex = pool(2)
    view = ex.options(retries=Retry(exception=1, backoff=0.5, jitter=1.0))
    logs = [tmp_path / str(i) for i in range(20)]
    futures = [view.submit(tries.by_plan, str(path), "value") for path in logs]
    assert [future.result(CAP_S) for future in futures] == [2] * 20
    pauses = [second - first for first, second in map(starts, logs)]
    assert max(pauses) - min(pauses) > 0.4, "twenty of a second's width"
    assert max(pauses) <= 1.0 + SLACK_S


def test_a_pause_holds_up_nobody_and_the_job_counts_as_running(pool, log):
    ex = pool(1)
    future = ex.options(retries=Retry(exception=1, backoff=30)).submit(tries.by_plan, str(log), "value")
    wait_for_lines(log, 1)
    until(lambda: ex.status().delayed, "the pause")
    assert ex.submit(deeds.double, 2).result(CAP_S) == 4
    assert future.running()
    assert not future.done()
    assert future.cancel()
    assert future.outcome().attempts == 1


@pytest.mark.parametrize("cause", ["value", "crash"])
def test_no_attempt_begins_that_could_not_before_the_deadline(pool, log, cause):
    retry = Retry(exception=9, crash=9, backoff=5, jitter=0)
    began = time.monotonic()
    outcome = pool(1).options(retries=retry, deadline=4.0).submit(tries.by_plan, str(log), cause).outcome(CAP_S)
    assert outcome.status == {"value": "failed", "crash": "crashed"}[cause], "what it did, not that it was late"
    assert outcome.attempts == len(lines(log)) == 1
    assert time.monotonic() - began < 4.0, "it ends when that is known"


def test_a_deadline_that_only_orders_hinders_no_attempt(pool, log):
    view = pool(1).options(retries=Retry(exception=1, backoff=0.3), deadline=0.1, on_miss="finish")
    assert view.submit(tries.by_plan, str(log), "value").result(CAP_S) == 2


def test_a_deadline_that_ends_an_attempt_is_the_end(pool, log):
    view = pool(1).options(retries=9, timeout=30, deadline=3)
    outcome = view.submit(tries.by_plan, str(log), "hang").outcome(CAP_S)
    assert (outcome.status, outcome.attempts) == ("deadline", 1)


def test_stop_in_a_pause_ends_at_once(pool, log):
    ex = pool(1)
    future = ex.options(retries=Retry(exception=1, backoff=60)).submit(tries.by_plan, str(log), "value")
    wait_for_lines(log, 1)
    until(lambda: ex.status().delayed, "the pause")
    within(10, lambda: ex.stop(30))
    outcome = future.outcome(0)
    assert (outcome.status, outcome.attempts) == ("cancelled", 1)


def test_an_attempt_that_fails_within_the_grace_is_the_last(pool, log, gate, tmp_path):
    ex = pool(1)
    future = ex.options(retries=9).submit(deeds.gated, str(log), gate.path, 1)
    wait_for_lines(log, 1)
    failing = ex.options(retries=9).submit(tries.by_plan, str(tmp_path / "other"), "value")
    ex._pool.stop(30 * 10**9)
    until(lambda: ex._pool.core.dropping, "the loop's hearing of it")
    os.kill(future.worker_pid, 9)
    assert future.outcome(CAP_S).status == "crashed"
    assert future.outcome().attempts == 1
    assert failing.cancelled()


def test_shutdown_waits_for_attempts_to_come(pool, log):
    ex = pool(1)
    future = ex.options(retries=Retry(crash=2, backoff=0.1)).submit(tries.by_plan, str(log), "crash", "crash")
    within(CAP_S, ex.shutdown)
    assert future.result(0) == 3


@pytest.mark.parametrize("chunksize", [1, 7])
def test_each_item_of_a_map_has_budgets_of_its_own(pool, tmp_path, chunksize):
    ex = pool(2)
    plans = [(str(tmp_path / str(i)), *(["busy"] * (i % 3) + ["crash"] * (i % 2))) for i in range(12)]
    retry = Retry(exception=1, crash=1, only=tries.Busy, **AT_ONCE)
    view = ex.options(retries=retry)
    told = {}
    for size in {len(plan) for plan in plans}:
        chosen = [plan for plan in plans if len(plan) == size]
        for item, outcome in view.map_outcomes(tries.item, *zip(*chosen, strict=True), chunksize=chunksize):
            told[item if size > 1 else (item,)] = outcome
    for i, plan in enumerate(plans):
        outcome = told[plan]
        assert outcome.ok == (i % 3 < 2)
        assert outcome.attempts == len(plan) if outcome.ok else 2


def test_each_attempt_of_a_fresh_job_has_a_process_of_its_own(pool, log):
    ex = pool(1, fresh=True)
    retry = Retry(exception=2, crash=1, **AT_ONCE)
    outcome = ex.options(retries=retry).submit(tries.by_plan, str(log), "value", "crash", "value").outcome(CAP_S)
    assert outcome.result() == 4
    pids = [int(line.split()[1]) for line in lines(log)]
    assert len(set(pids)) == 4
    assert pids[-1] == outcome.worker_pid


def test_what_an_attempt_left_running_is_gone_before_the_next(pool, log):
    ex = pool(1)
    view = ex.options(retries=Retry(timeout=1, **AT_ONCE), timeout=0.5)
    outcome = view.submit(deeds.grow_and, "session", f"{log}.pids", "hang", str(log)).outcome(CAP_S)
    assert (outcome.status, outcome.attempts) == ("timeout", 2)
    until(lambda: not any(alive(int(pid)) for pid in lines(log.with_suffix(".pids"))), "the end of what it started")


def test_a_task_brings_its_retry_and_a_view_overrules_it(pool, log):
    from ptss_mp import task

    declared = task(retries=Retry(exception=1, **AT_ONCE))(tries.by_plan)
    ex = pool(1)
    assert ex.submit(declared, str(log), "value").outcome(CAP_S).attempts == 2
    assert ex.options(retries=0).submit(declared, f"{log}2", "value").outcome(CAP_S).attempts == 1


def test_an_outcome_of_an_executor_with_retries_for_all(pool, log):
    from ptss_mp import Options

    ex: Executor = pool(1, options=Options(retries=Retry(crash=1, **AT_ONCE)))
    facts = ex.submit(tries.by_plan, str(log), "crash").outcome(CAP_S).as_dict()
    assert (facts["status"], facts["attempts"]) == ("succeeded", 2)
    json.dumps(facts)
