"""Jobs that mean harm, or do it by accident, and bad moments: what they may cost others is nothing."""

from __future__ import annotations

import contextlib
import errno
import gc
import os
import resource
import signal
import time
from collections.abc import Iterator

import deeds
import pytest
from support import CAP_S, lines, until, wait_for_lines, wait_gone

from ptss_mp import Executor, PoolBroken, TaskRaised

MANY = 12  # more than the restart intensity allows


# ---- what a job leaves behind


def test_a_thread_that_a_job_leaves_does_not_act_under_the_next_one(pool):
    ex = pool(1, spares=0)
    first = ex.submit(deeds.exit_later, 0.3)
    assert first.result(CAP_S)
    second = ex.submit(deeds.nap, 0.6)
    assert second.outcome(CAP_S).ok
    assert second.worker_pid != first.worker_pid


def test_a_thread_that_is_just_ending_costs_no_worker(pool):
    ex = pool(1, spares=0)
    pids = {ex.submit(deeds.use_threads, 20).result(CAP_S) for _ in range(30)}
    assert len(pids) == 1


def test_what_waits_behind_such_a_job_is_not_suspected(pool, tmp_path):
    ex = pool(1, spares=0)
    log = tmp_path / "log"
    for _ in range(150):  # proven short, so that the next ones travel together
        ex.submit(deeds.note, str(log), "x").result(CAP_S)
    for _ in range(6):
        ex.submit(deeds.exit_later, 0).result(CAP_S)
    ex.pause()
    futures = [ex.submit(deeds.exit_later, 60) if i % 2 else ex.submit(deeds.note, str(log), i) for i in range(40)]
    ex.resume()
    assert [f.outcome(CAP_S).status for f in futures] == ["succeeded"] * 40
    assert sorted(int(line) for line in lines(log) if line != "x") == list(range(0, 40, 2))


def test_a_child_that_a_job_leaves_cannot_speak_for_the_next_one(pool):
    ex = pool(1, spares=0)
    assert ex.submit(deeds.forked_noise, 0.2).result(CAP_S)
    assert ex.submit(deeds.nap, 0.5).outcome(CAP_S).ok


def test_a_program_that_a_job_leaves_may_print_for_ever(pool):
    ex = pool(1, spares=0)
    pid = ex.submit(deeds.leave_running, ["yes", "y" * 1_000]).result(CAP_S)
    channel = next(iter(ex._pool.channels.values()))
    time.sleep(1)  # the warden would have fallen asleep
    held = [os.fstat(channel.output.fds[0]).st_blocks * 512 for _ in range(20) if not time.sleep(0.1)]
    assert max(held) < 500 << 20, "at 1 GiB/s, looked at ten times a second"
    ex.kill_workers()
    wait_gone([pid], 2)


def test_another_environ_is_set_back(pool):
    ex = pool(1, spares=0)
    assert ex.submit(deeds.replace_environ).outcome(CAP_S).ok
    assert ex.submit(os.getenv, "PATH").result(CAP_S) == os.environ["PATH"]


# ---- the pipe and the page


def test_a_job_that_turns_its_pipe_away_ends(pool):
    """Its answer never comes, though it lives: nothing would have told."""
    ex = pool(1, spares=0)
    outcome = ex.submit(deeds.turn_away, 4).outcome(CAP_S)
    assert outcome.status == "protocol"
    assert ex.submit(deeds.double, 4).result(CAP_S) == 8


def test_a_forged_answer_does_not_stand_for_anothers(pool, tmp_path):
    ex = pool(2, spares=0)
    victim = ex.submit(deeds.exit_later_in_call, 1.0)
    until(victim.running, "a start")
    outcome = ex.submit(deeds.forge_for, victim._id).outcome(CAP_S)
    assert outcome.status == "protocol"
    assert victim.outcome(CAP_S).status == "crashed"
    assert victim.outcome().exit_code == 9
    assert "exited with status 9" in victim.outcome().error


LARGE = 40_000  # bytes: such an answer comes while the marker still shows its job


def test_a_job_that_answers_and_goes_on_has_not_ended(pool, tmp_path):
    ex, log = pool(1, spares=0), tmp_path / "log"
    assert ex.submit(deeds.answer_and_go_on, str(log)).outcome(CAP_S).status == "protocol"
    wait_gone([int(wait_for_lines(log, 1)[0])], 1)
    assert ex.submit(deeds.double, 4).result(CAP_S) == 8


def test_a_job_that_answers_at_length_and_goes_on_keeps_its_limit(pool, tmp_path):
    ex, log = pool(1, spares=0), tmp_path / "log"
    assert ex.options(timeout=0.5).submit(deeds.answer_and_go_on, str(log), LARGE).result(CAP_S) == bytes(LARGE)
    wait_gone([int(wait_for_lines(log, 1)[0])], 0.5 + 0.5)
    assert ex.submit(deeds.double, 4).result(CAP_S) == 8


@pytest.mark.parametrize("size", [0, LARGE])
def test_who_answers_and_goes_on_holds_up_none_and_costs_none_an_answer(pool, tmp_path, size):
    """Regression: those behind waited as long as it went on, and for those before it, whose answers stood unsent."""
    ex, log = pool(1, spares=0), tmp_path / "log"
    for n in range(150):  # proven short: then they travel together
        ex.submit(deeds.answer_at, n, -1, str(log)).result(CAP_S)
    ex.pause()
    futures = [ex.submit(deeds.answer_at, n, 10, str(log), size) for n in range(20)]
    ex.resume()
    outcomes = [future.outcome(CAP_S) for future in futures]
    assert outcomes.pop(10).status == ("succeeded" if size else "protocol")
    assert {(outcome.status, outcome.attempts) for outcome in outcomes} == {("succeeded", 1)}
    assert len(lines(log)) == 1
    wait_gone([int(lines(log)[0])], 1)


def test_a_job_that_answers_and_goes_on_is_in_nobodys_way(pool, tmp_path):
    """It has no limit: its worker is put out when the next job comes up there, and that one is made elsewhere."""
    ex, log = pool(1, spares=0), tmp_path / "log"
    assert ex.submit(deeds.answer_and_go_on, str(log), LARGE).result(CAP_S) == bytes(LARGE)
    outcome = ex.submit(deeds.pid).outcome(CAP_S)
    assert (outcome.status, outcome.attempts) == ("succeeded", 1)
    assert outcome.result() != int(lines(log)[0])
    wait_gone([int(lines(log)[0])], 1)


def test_a_worker_that_has_just_sent_a_large_answer_is_not_put_out(pool):
    """It marks its job as done behind the last byte, which the program may have read by then."""
    ex = pool(1, spares=0)
    assert len({ex.submit(deeds.sized_pid, 200_000).result(CAP_S)[:8] for _ in range(300)}) == 1


def test_what_was_finished_and_lost_in_noise_is_not_made_again(pool, tmp_path):
    ex, log = pool(1, spares=0), tmp_path / "log"
    for _ in ex.map(deeds.append_with_noise, range(400), [-1] * 400, [str(log)] * 400):
        pass  # a function that has proven itself travels in batches
    log.unlink()
    futures = [ex.submit(deeds.append_with_noise, n, 20, str(log)) for n in range(100)]
    ends = [future.outcome(CAP_S).status for future in futures]
    assert set(ends) <= {"succeeded", "protocol"}  # who of a batch wrote it cannot be told
    assert ends[0] == ends[99] == "succeeded"
    ran = lines(log)
    assert len(ran) == len(set(ran)), "none twice"
    assert {n for n in range(100) if ends[n] == "succeeded"} <= set(map(int, ran))


@pytest.mark.parametrize("how", ["idle", "done", "sending"])
def test_no_limit_is_evaded_by_writing_into_the_page(pool, tmp_path, how):
    ex = pool(1, spares=0)
    log = tmp_path / "log"
    outcome = ex.options(timeout=0.2).submit(deeds.hide_and_hang, str(log), how).outcome(10)
    assert outcome.status == "timeout"
    assert outcome.error
    assert len(lines(log)) <= 4
    assert ex.submit(deeds.double, 4).result(CAP_S) == 8


def test_no_job_breaks_the_pool_by_writing_into_the_page(pool):
    """Regression: deaths of workers that seemed never to have been ready counted against the restart intensity."""
    ex = pool(2)
    futures = [ex.submit(deeds.wipe_and_die) for _ in range(MANY)]
    healthy = [ex.submit(deeds.double, i) for i in range(MANY)]
    assert [f.result(CAP_S) for f in healthy] == [2 * i for i in range(MANY)]
    assert {f.outcome(CAP_S).status for f in futures} == {"crashed"}


def test_a_number_of_revoked_jobs_that_cannot_be_revokes_none(pool):
    """Regression: the whole page was looked through, and whoever's id was the same as some word in it never began."""
    ex = pool(1)
    spoilt = ex.submit(deeds.revoke_without_end)
    after = [ex.submit(abs, -n) for n in range(40)]
    assert spoilt.result(CAP_S) is None
    assert [future.outcome(CAP_S).status for future in after] == ["succeeded"] * 40


def test_a_transfer_is_not_the_jobs_time(pool):
    """Regression: a job was killed because its result took longer to copy and to send than was left of its timeout."""
    ex = pool(1, spares=0)
    future = ex.options(timeout=0.6).submit(bytes, 700 << 20)
    assert future.outcome(60).ok
    assert future.outcome().wall_time < 0.6


def test_nothing_is_kept_of_cancelled_jobs(pool, tmp_path):
    ex = pool(2)
    for i in range(20):
        log = tmp_path / f"log{i}"
        future = ex.submit(deeds.log_and_nap, str(log), i, i % 2 * 0.002 + 30 * (i % 3 == 0))
        wait_for_lines(log, 1)
        future.cancel()
    assert ex.drain(CAP_S)
    assert ex.submit(deeds.double, 4).result(CAP_S) == 8
    until(lambda: not ex._pool.reports and not ex._pool.answers, "an empty desk", 5)


# ---- errors


def test_a_frozen_exception_arrives_as_itself(pool):
    error = pool(1).submit(deeds.raise_frozen).exception(CAP_S)
    assert type(error) is deeds.Frozen
    assert "in raise_frozen" in str(error.__cause__)


@pytest.mark.parametrize("kind", ["name", "text"])
def test_errors_that_refuse_to_be_described(pool, kind):
    ex = pool(1, spares=0)
    before = ex.submit(deeds.pid).result(CAP_S)
    future = ex.submit(deeds.raise_hostile, kind)
    assert future.outcome(CAP_S).status == "failed"
    assert isinstance(future.exception(), TaskRaised)
    assert ex.submit(deeds.pid).result(CAP_S) == before


# ---- bad moments


def test_a_warden_that_dies_of_a_nameless_signal(pool, tmp_path):
    ex = pool(1)
    running = ex.submit(deeds.log_and_nap, str(tmp_path / "log"), 1, 60)
    wait_for_lines(tmp_path / "log", 1)
    os.kill(ex._pool.warden.process.pid, signal.SIGRTMIN + 6)
    assert running.outcome(CAP_S).status == "crashed"
    assert ex.submit(deeds.double, 4).result(CAP_S) == 8


def test_a_warden_that_is_stopped_goes_on_when_it_is_needed(pool):
    ex = pool(2)
    assert ex.submit(deeds.double, 4).result(CAP_S) == 8
    os.kill(ex._pool.warden.process.pid, signal.SIGSTOP)
    crashes = [ex.submit(deeds.crash, "exit 3") for _ in range(5)]
    assert {f.outcome(CAP_S).exit_code for f in crashes} <= {3, None}
    assert ex.submit(deeds.double, 4).result(CAP_S) == 8
    assert ex._pool.wardens == 1


@contextlib.contextmanager
def room_for(count: int) -> Iterator[None]:
    """Let this program open so many more descriptors."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    used = set(map(int, os.listdir("/proc/self/fd")))
    free = [fd for fd in range(len(used) + count + 1) if fd not in used]
    resource.setrlimit(resource.RLIMIT_NOFILE, (free[count], hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_a_start_without_descriptors_can_be_repeated():
    ex = Executor(1)
    with room_for(1), pytest.raises(OSError, match=os.strerror(errno.EMFILE)):
        ex.start()
    assert ex.submit(pow, 2, 3).result(CAP_S) == 8
    ex.shutdown()


def test_a_start_that_fails_leaves_nothing():
    gc.collect()
    before = sorted(os.listdir("/proc/self/fd"))
    for room in range(25):
        ex = Executor(1)
        with room_for(room), contextlib.suppress(OSError, PoolBroken):
            ex.start().submit(pow, 2, 3).exception(CAP_S)
        ex.shutdown()
        del ex
        gc.collect()
        assert sorted(os.listdir("/proc/self/fd")) == before, room
