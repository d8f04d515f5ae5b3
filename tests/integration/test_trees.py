"""What a job has started dies with it: children, daemons, sessions of their own, chains."""

from __future__ import annotations

from pathlib import Path

import deeds
import pytest
from support import CAP_S, alive, lines, wait_for_lines, wait_gone

SHAPES = pytest.mark.parametrize("shape", deeds.TREES)
GONE_S = 1.0  # settled when the kill is told; reaped soon after


def pids(log: Path) -> list[int]:
    return [int(line) for line in lines(log)]


@SHAPES
@pytest.mark.parametrize("how", ["timeout", "deadline", "cancel", "crash", "kill_workers", "shutdown"])
def test_the_tree_dies_with_the_job(pool, shape, how, tmp_path):
    ex = pool(2)
    log, ready = tmp_path / "tree", tmp_path / "ready"
    then = {"crash": "crash", "shutdown": "return"}.get(how, "hang")
    limits = {how: 0.4} if how in ("timeout", "deadline") else {}
    ex.submit(deeds.double, 1).result(CAP_S)
    future = ex.options(**limits).submit(deeds.grow_and, shape, str(log), then, str(ready))
    if how not in limits:
        wait_for_lines(ready, 1)
    if how == "cancel":
        assert future.cancel()
    elif how == "kill_workers":
        ex.kill_workers()
    elif how == "shutdown":
        assert future.result(CAP_S) is None
        ex.shutdown()
    outcome = future.outcome(CAP_S)
    assert outcome.status == {
        "cancel": "cancelled", "crash": "crashed", "kill_workers": "interrupted", "shutdown": "succeeded",
    }.get(how, how)  # fmt: skip
    assert len(pids(log)) == deeds.TREE_SIZES[shape]
    wait_gone(pids(log), GONE_S)
    if how in ("timeout", "deadline", "cancel", "crash"):
        assert ex.submit(deeds.double, 4).result(CAP_S) == 8


def test_children_of_a_job_that_succeeded_may_live_until_its_worker_ends(pool, tmp_path):
    ex = pool(1, spares=0, max_tasks_per_child=2)
    log, ready = tmp_path / "tree", tmp_path / "ready"
    ex.submit(deeds.grow_and, "program", str(log), "return", str(ready)).result(CAP_S)
    assert alive(pids(log)[0])
    ex.submit(deeds.double, 1).result(CAP_S)  # its last one
    ex.submit(deeds.double, 1).result(CAP_S)
    wait_gone(pids(log), 5)


def test_children_of_a_fresh_job_die_with_it(pool, tmp_path):
    ex = pool(1)
    log, ready = tmp_path / "tree", tmp_path / "ready"
    view = ex.options(fresh=True)
    view.submit(deeds.grow_and, "daemon", str(log), "return", str(ready)).result(CAP_S)
    wait_gone(pids(log), 5)
