"""`cpu_time`: user and system time of one attempt and what it started; never early."""

from __future__ import annotations

import time

import hogs
import pytest
from support import CAP_S, beside_healthy, lines, wait_gone

from ptss_mp import CpuLimitExceeded

LIMIT_S = 0.3


def test_a_busy_job_ends_at_its_limit(pool, tmp_path):
    ex = pool(2, preload=["hogs", "deeds"])
    log = tmp_path / "log"
    future, outcome = beside_healthy(ex, lambda: ex.options(cpu_time=LIMIT_S).submit(hogs.burn, 60, str(log)))
    assert outcome.status == "cpu", outcome
    assert outcome.limit == LIMIT_S <= outcome.observed < LIMIT_S + 0.1
    assert LIMIT_S <= outcome.cpu_time < LIMIT_S + 0.1
    assert "in burn" in outcome.stack
    assert "allowed are 0.3 s (cpu_time)" in outcome.error
    error = future.exception()
    assert isinstance(error, CpuLimitExceeded)
    assert (error.limit, error.observed) == (outcome.limit, outcome.observed)
    wait_gone([int(lines(log)[0])], 5)


@pytest.mark.parametrize("context", [None, "spawn"])
def test_never_early_in_a_reused_worker(pool, context):
    """Each attempt has the whole of it, whatever the worker has used before."""
    ex = pool(1, context, preload=["hogs"])
    limited = ex.options(cpu_time=0.4)
    futures = [limited.submit(hogs.burn, 0.37) for _ in range(6)]
    assert [f.outcome(CAP_S).status for f in futures] == ["succeeded"] * 6
    assert len({f.worker_pid for f in futures}) == 1


def test_sleeping_costs_nothing(pool):
    ex = pool(1, preload=["hogs"])
    assert ex.options(cpu_time=0.1).submit(time.sleep, 0.5).outcome(CAP_S).ok


@pytest.mark.parametrize("where", ["child", "many children", "daemon", "threads"])
def test_what_it_starts_counts(pool, where, tmp_path):
    ex = pool(1, preload=["hogs"])
    log = tmp_path / "log"
    outcome = ex.options(cpu_time=LIMIT_S).submit(hogs.burn_in, where, 20, str(log)).outcome(CAP_S)
    assert outcome.status == "cpu", outcome
    assert LIMIT_S <= outcome.observed < LIMIT_S + 0.3
    wait_gone([int(lines(log)[0])], 5)


def test_what_was_left_running_is_not_charged(pool):
    ex = pool(1, preload=["hogs"])
    left = ex.submit(hogs.leave_burning, 600).result(CAP_S)
    outcome = ex.options(cpu_time=0.3).submit(hogs.burn, 0.2).outcome(CAP_S)
    assert outcome.ok, outcome
    wait_gone([left], 5)


def test_a_cpu_limit_is_retried_if_asked_for(pool, tmp_path):
    ex = pool(1, preload=["hogs"])
    log = tmp_path / "log"
    outcome = ex.options(cpu_time=0.1, retries=1).submit(hogs.burn, 60, str(log)).outcome(CAP_S)
    assert (outcome.status, outcome.attempts, len(lines(log))) == ("cpu", 2, 2)
