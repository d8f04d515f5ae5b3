"""`processes`: a job that has more than it may dies with all of them, and nobody else does."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import deeds
import limit_deeds as jobs
import ordinary
import pytest
from support import CAP_S, alive, beside_healthy, lines, until, wait_gone

from ptss_mp import Executor, WorkerCrashed
from ptss_mp.shell import use
from ptss_mp.warden import means
from ptss_mp.warden.cgroup import PIDS, Place, owner_of

CONTEXTS = pytest.mark.parametrize("context", [None, "spawn"])
LONG_S = 0.2  # twenty counts


def pids(log: Path) -> list[int]:
    return [int(line) for line in lines(log)]


@CONTEXTS
def test_too_many_children_end_the_job_with_all_of_them(pool, context, tmp_path):
    ex = pool(2, context)
    log = tmp_path / "log"
    future, outcome = beside_healthy(ex, lambda: ex.options(processes=4).submit(jobs.family, 11, 1_000, str(log)))
    assert outcome.status == "crashed"
    assert outcome.limit == 4
    assert 5 <= outcome.observed <= 12
    assert outcome.error == f"had {outcome.observed:g} processes, allowed are 4 (processes); it was killed"
    assert outcome.attempts == 1
    error = future.exception()
    assert isinstance(error, WorkerCrashed)
    assert outcome.error in str(error)
    wait_gone(pids(log), 1)


@CONTEXTS
def test_as_many_as_are_allowed_are_no_affair_of_anybodys(pool, context, tmp_path):
    ex = pool(1, context, spares=0)
    pid = ex.options(processes=4).submit(jobs.family, 3, LONG_S).result(CAP_S)
    assert ex.options(processes=1).submit(jobs.family, 0, LONG_S).result(CAP_S) == pid
    assert ex.submit(jobs.family, 11, LONG_S).result(CAP_S) == pid, "the next one may have any number"


def test_grandchildren_in_sessions_of_their_own_count(pool, tmp_path):
    ex = pool(1)
    log = tmp_path / "log"
    outcome = ex.options(processes=3).submit(jobs.chain, 6, str(log)).outcome(CAP_S)
    assert outcome.status == "crashed"
    assert 4 <= outcome.observed <= 7
    wait_gone(pids(log), 1)


def test_what_has_ended_does_not_count(pool):
    ex = pool(1)
    view = ex.options(processes=2)
    view.submit(jobs.one_after_the_other, 20).result(CAP_S)
    view.submit(jobs.zombies, 5, LONG_S).result(CAP_S)


def test_threads_do_not_count(pool):
    ex = pool(1)
    ex.options(processes=1).submit(jobs.many_threads, 30, LONG_S).result(CAP_S)


def test_what_an_earlier_job_has_left_does_not_count(pool, tmp_path):
    """Nor if it was born in the same hundredth of a second as the next job was sent: births are told no better."""
    ex = pool(1, spares=0)
    log = tmp_path / "log"
    for _ in range(5):
        pid = ex.submit(jobs.leave_children, 4, str(log)).result(CAP_S)
        assert ex.options(processes=2).submit(jobs.family, 1, LONG_S).result(CAP_S) == pid
    assert all(map(alive, pids(log)))


def test_what_the_initializer_has_started_does_not_count(pool, tmp_path):
    ex = pool(1, None, jobs.leave_children, (4, str(tmp_path / "log")), spares=0, fresh=True)
    for _ in range(5):
        ex.options(processes=2).submit(jobs.family, 1, LONG_S).result(CAP_S)


def test_jobs_side_by_side_are_counted_apart(pool):
    ex = pool(3)
    view = ex.options(processes=4)
    for future in [view.submit(jobs.family, 3, LONG_S) for _ in range(6)]:
        future.result(CAP_S)


def test_a_retry_covers_it_as_a_crash(pool, tmp_path):
    ex = pool(1)
    log = tmp_path / "log"
    outcome = ex.options(processes=2, retries=1).submit(jobs.family, 5, 1_000, str(log)).outcome(CAP_S)
    assert (outcome.status, outcome.attempts, outcome.limit) == ("crashed", 2, 2)
    wait_gone(pids(log), 1)


@pytest.mark.parametrize("processes", [1, 8])
def test_a_bomb_of_three_hundred_is_put_out(pool, processes, tmp_path):
    ex = pool(2)
    log = tmp_path / "log"
    log.touch()
    _, outcome = beside_healthy(ex, lambda: ex.options(processes=processes).submit(jobs.bomb, 300, str(log)))
    assert outcome.status == "crashed"
    assert outcome.limit == processes
    assert outcome.observed > processes
    wait_gone(pids(log), 2)


def test_a_job_that_says_it_runs_not_is_counted_all_the_same(pool, tmp_path):
    ex = pool(1)
    log = tmp_path / "log"
    outcome = ex.options(processes=2, timeout=20).submit(jobs.hide_and_fork, 6, str(log)).outcome(CAP_S)
    assert outcome.status == "crashed"
    wait_gone(pids(log), 1)


PROGRAM = """
import sys
sys.path[:0] = [{package!r}, {here!r}]
from ptss_mp import Executor
import limit_deeds as jobs
if __name__ == "__main__":
    with Executor(1) as ex:
        outcome = ex.options(processes=4).submit(jobs.family, 9, 1_000).outcome(30)
        print(outcome.status == "crashed" and outcome.limit == 4 and outcome.observed > 4)
        print(ex.options(processes=4).submit(jobs.family, 3, 0.1).outcome(30).ok)
"""


def test_an_ordinary_user_is_limited_too():
    with ordinary.home() as folder:
        done = ordinary.run(PROGRAM.format(package=ordinary.PACKAGE, here=ordinary.HERE), folder)
        assert done.stdout.split() == ["True"] * 2, done.stderr


# ---- the kernel's help, where a pids cgroup is to be had


def place() -> Place:
    offered = means.offer(PIDS)
    if not isinstance(offered, Place):
        pytest.skip(f"no pids cgroup here: {offered}")
    return offered


def own_group() -> str:
    lines = Path("/proc/self/cgroup").read_text().splitlines()
    return next(line for line in lines if ":pids:" in line or "0::" in line)


def groups_of(folder: str, warden: int) -> set[str]:
    """Return the groups of one warden."""
    return {name for name in os.listdir(folder) if (owner := owner_of(name)) and owner.pid == warden}


def warden_of(ex: Executor) -> int:
    return int(Path(f"/proc/{ex.submit(deeds.pid).result(CAP_S)}/stat").read_text().rsplit(")", 1)[1].split()[1])


@CONTEXTS
def test_workers_are_in_groups_of_their_own_once_processes_are_limited(pool, context):
    folder = place().folder
    ex = pool(2, context)
    view = ex.options(processes=3)
    found = view.submit(own_group).result(CAP_S)
    warden = warden_of(ex)
    (name,) = groups_of(folder, warden)
    assert f"/{name}/" in found
    assert view.submit(jobs.family, 11, 1_000).outcome(CAP_S).status == "crashed"
    assert ex.submit(jobs.family, 11, 0).result(CAP_S), "who has no limit is not bounded"
    ex.shutdown()
    until(lambda: not groups_of(folder, warden), "its groups are removed", 5)


def test_pools_that_limit_no_processes_make_no_groups(pool):
    folder = place().folder
    ex = pool(2)
    ex.options(open_files=50, timeout=20).submit(own_group).result(CAP_S)
    assert groups_of(folder, warden_of(ex)) == set()


def test_groups_of_a_warden_that_was_killed_are_removed_by_the_next(pool):
    folder = place().folder
    ex = pool(1)
    view = ex.options(processes=3)
    view.submit(own_group).result(CAP_S)
    warden = warden_of(ex)
    assert groups_of(folder, warden)
    os.kill(warden, signal.SIGKILL)
    wait_gone([warden], 5)
    until(lambda: view.submit(own_group).outcome(CAP_S).ok, "the next warden is at work")
    assert not groups_of(folder, warden)


KILLED = """
import os, sys, time
sys.path[:0] = [{package!r}, {here!r}]
from ptss_mp import Executor
import limit_deeds as jobs
if __name__ == "__main__":
    ex = Executor(2)
    ex.options(processes=9).submit(jobs.family, 3, 1_000)
    print(ex.submit(os.getppid).result(30), flush=True)
    time.sleep(1_000)
"""


def test_groups_of_a_program_that_was_killed_are_removed():
    folder = place().folder
    source = KILLED.format(package=ordinary.PACKAGE, here=ordinary.HERE)
    with subprocess.Popen([sys.executable, "-c", source], stdout=subprocess.PIPE, text=True) as program:
        assert program.stdout
        warden = int(program.stdout.readline())
        assert groups_of(folder, warden)
        program.kill()
    until(lambda: not groups_of(folder, warden), "its groups are removed", 5)


@pytest.mark.parametrize("fenced", [True, False])
def test_nothing_forks_any_more_in_a_tree_that_is_condemned(pool, fenced, monkeypatch, tmp_path):
    """A bomb, with and without a group around it."""
    if fenced:
        place()
    else:
        monkeypatch.setattr(use, "PIDS_GROUP", 0)
    ex = pool(1)
    log = tmp_path / "log"
    for _ in range(3):
        log.write_text("")
        assert ex.options(processes=2).submit(jobs.bomb, 300, str(log)).outcome(CAP_S).status == "crashed"
        wait_gone(pids(log), 2)
