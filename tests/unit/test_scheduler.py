"""The scheduler, step by step: lists of events in, lists of commands out."""

import pytest

from ptss_mp.core import commands as do
from ptss_mp.core import events as on
from ptss_mp.core import invariants
from ptss_mp.core.crew import EXIT_NS, RETURNS_MAX, WorkerState
from ptss_mp.core.job import NEVER, State
from ptss_mp.core.restart import PAUSE_BEYOND_NS, PAUSE_MAX_NS, PAUSE_NS, Retries
from ptss_mp.core.scheduler import BUDGET_NS, DEPTH, PEEK_NS, WORD_NS
from ptss_mp.errors import InternalError

from .driving import MS, US, Drive, S, Spec, edge, row

# ---------------------------------------------------------------------- the plain way


def test_submit_dispatch_settle():
    drive = Drive()
    assert drive.submit(row(1)) == [do.Dispatch(1, [1])]
    assert drive.answer(1, 1) == [do.Settle("succeeded", [1], [])]
    assert drive.core.wake_at == NEVER


def test_workers_are_asked_for_on_demand():
    drive = Drive(workers=4, spares=1, ready=False)
    assert drive.submit(row(1)) == [do.StartWorker(1), do.StartWorker(2)]
    assert drive.submit(row(2)) == [do.StartWorker(3)]
    assert drive.step(on.WorkerReady(drive.now, 2)) == [do.Dispatch(2, [1])]


def test_time_never_goes_back():
    drive = Drive()
    with pytest.raises(InternalError, match="backwards"):
        drive.step(on.Fired(drive.now - 1, {}))


def test_state_of():
    drive = Drive()
    drive.submit(row(1), row(2), row(3, after=[1]), row(4, release=drive.now + S))
    states = [drive.core.state_of(job) for job in range(1, 6)]
    assert states == [State.SENT, State.READY, State.WAITING, State.DELAYED, State.SETTLED]


def test_state_of_worker():
    drive = Drive(workers=2, spares=1, ready=False)
    drive.submit(row(1), row(2))
    states = [drive.core.state_of_worker(worker) for worker in range(1, 5)]
    assert states == [*[WorkerState.STARTING] * 3, WorkerState.GONE]
    drive.step(*(on.WorkerReady(drive.now, worker) for worker in (1, 2, 3)))
    drive.answer(1, 1)
    states = [drive.core.state_of_worker(worker) for worker in (1, 2, 3)]
    assert states == [WorkerState.IDLE, WorkerState.BUSY, WorkerState.SPARE]
    drive.step(on.Condemned(drive.now, 2, 2, "timeout", drive.now))
    states = [drive.core.state_of_worker(worker) for worker in (2, 3)]
    assert states == [WorkerState.EXITING, WorkerState.IDLE], "the spare takes its place"


def test_a_move_that_is_not_in_the_table_is_named():
    invariants.check_worker_moves({1: WorkerState.BUSY}, {})
    with pytest.raises(AssertionError, match="worker 7 went from exiting to idle"):
        invariants.check_worker_moves({7: WorkerState.EXITING}, {7: WorkerState.IDLE})


# ---------------------------------------------------------------------- order and depth


def test_earliest_deadline_first():
    drive = Drive()
    drive.submit(row(1))
    drive.submit(row(2), row(3, due=drive.now + 9 * S), row(4, due=drive.now + 5 * S))
    order = [drive.answer(1, job)[-1].ids[0] for job in (1, 4, 3)]
    assert order == [4, 3, 2]


def test_unknown_function_gets_depth_one():
    drive = Drive()
    drive.submit(*(row(i) for i in range(1, 9)))
    assert drive.sent == {1: [1]}


def test_known_short_function_gets_depth():
    drive = Drive()
    drive.teach(took=US)
    drive.submit(*(row(i) for i in range(1, DEPTH + 100)))
    assert len(drive.sent[1]) == DEPTH


def test_depth_keeps_queued_work_under_the_budget():
    drive = Drive()
    drive.teach(took=300 * US)
    drive.submit(*(row(i) for i in range(1, 101)))
    assert len(drive.sent[1]) * 300 * US <= BUDGET_NS


def test_estimate_jumps_when_a_function_becomes_slow():
    drive = Drive()
    drive.teach(took=10 * US)
    drive.teach(took=40 * MS)
    drive.submit(row(1), row(2))
    assert drive.sent == {1: [1]}


def test_expired_and_revoked_answers_teach_nothing():
    drive = Drive()
    drive.submit(row(1, due=drive.now + S))
    drive.answer(1, 1, end=on.EXPIRED, took=0)
    assert drive.ends[1] == "deadline"
    drive.submit(row(2), row(3))
    assert drive.sent == {1: [2]}


def test_few_jobs_are_shared_evenly():
    drive = Drive(workers=3)
    drive.teach()
    drive.submit(*(row(i) for i in range(1, 7)))
    assert sorted(map(len, drive.sent.values())) == [2, 2, 2]


# ---------------------------------------------------------------------- release and deadline


def test_not_before_its_start_time():
    drive = Drive()
    start = drive.now + S
    assert drive.submit(row(1, release=start)) == []
    assert drive.core.wake_at == start
    assert drive.wait(S - 1) == []
    assert drive.wait(1) == [do.Dispatch(1, [1])]


@pytest.mark.parametrize("where", ["ready", "delayed", "waiting"])
def test_deadline_passes_before_the_start(where):
    drive = Drive()
    drive.submit(row(1))
    release = drive.now + 2 * S if where == "delayed" else drive.now
    after = [1] if where == "waiting" else None
    due = drive.now + S
    drive.submit(row(2, due=due, release=release, after=after))
    drive.wait(S - 1)
    assert not drive.ends
    assert drive.core.wake_at == due
    assert drive.wait(1) == [do.Settle("deadline", [2], [])]


def test_deadline_that_had_passed_at_the_submission():
    drive = Drive()
    drive.submit(row(1), row(2, due=drive.now, after=[1]), row(3, due=drive.now))
    assert drive.ends == {2: "deadline", 3: "deadline"}


def test_deadline_that_only_orders():
    drive = Drive()
    finish = Spec(1, kill_at_deadline=False)
    drive.submit(row(1))
    drive.submit(row(2), row(3, finish, due=drive.now + 1))
    drive.wait(S)
    assert drive.answer(1, 1)[-1] == do.Dispatch(1, [3])


def test_lending_a_deadline_does_not_outlive_the_lenders_own_death():
    """An own deadline that has passed is found even if the job was re-keyed in the same step."""
    drive = Drive()
    drive.submit(row(1))
    drive.submit(row(2, due=drive.now + 5 * MS))
    drive.now += 5 * MS
    lender = row(3, due=drive.now + MS, after=[edge(2, due=drive.now)])
    drive.step(on.Submitted(drive.now, [lender]))
    assert drive.ends[2] == "deadline"
    assert drive.ends[3] == "dependency"


def test_a_long_chain_of_expired_jobs_is_no_recursion():
    drive = Drive()
    done = Spec(1, run_if="done")
    due = drive.now + S
    drive.submit(row(1))
    drive.step(on.Paused(drive.now))
    chain = (row(i, done, due=due, after=[edge(i - 1, due=due)]) for i in range(3, 5000))
    drive.submit(row(2, due=due), *chain)
    drive.wait(2 * S)
    assert len(drive.ends) == 4998


# ---------------------------------------------------------------------- dependencies


def test_cascade_settles_with_the_blame():
    drive = Drive()
    drive.submit(row(1), row(2, after=[1]), row(3, after=[2]))
    drive.answer(1, 1, end=on.FAILED)
    assert drive.out[:2] == [do.Settle("failed", [1], []), do.Settle("dependency", [2, 3], [1, 2])]


@pytest.mark.parametrize(
    ("run_if", "status", "end"),
    [
        ("success", "failed", "dependency"),
        ("success", "skipped", "skipped"),
        ("failure", "succeeded", "skipped"),
        ("failure", "failed", None),
        ("done", "crashed", None),
        ("success", "succeeded", None),
    ],
)
def test_prerequisite_had_ended_before_the_submission(run_if, status, end):
    drive = Drive()
    drive.submit(row(1, Spec(1, run_if=run_if), after=[edge(99, status)]))
    assert drive.ends.get(1) == end
    assert bool(drive.sent) == (end is None)


def test_failure_without_prerequisites_is_skipped():
    drive = Drive()
    drive.submit(row(1, Spec(1, run_if="failure")), row(2, Spec(1, run_if="failure"), due=9 * S))
    assert drive.ends == {1: "skipped", 2: "skipped"}


def test_cancelling_a_dependent_leaves_its_prerequisite_alone():
    drive = Drive()
    drive.submit(row(1), row(2), row(3, after=[2]))
    assert drive.step(on.Cancelled(drive.now, [3])) == [do.Settle("cancelled", [3], [])]
    assert drive.answer(1, 1)[-1] == do.Dispatch(1, [2])


# ---------------------------------------------------------------------- inheritance


def busy():
    """Return a drive whose one worker is at work on job 1, with jobs 2 and 3 ready behind it."""
    drive = Drive()
    drive.submit(row(1))
    drive.submit(row(2), row(3))
    return drive


def test_a_job_is_as_urgent_as_what_waits_for_it():
    drive = busy()
    drive.submit(row(4, due=9 * S, after=[3]))
    assert drive.answer(1, 1)[-1] == do.Dispatch(1, [3])


def test_inheritance_goes_up_a_chain():
    drive = busy()
    drive.submit(row(4, after=[3]), row(5, due=9 * S, after=[4]))
    assert drive.answer(1, 1)[-1] == do.Dispatch(1, [3])


def test_what_was_lent_is_given_back():
    drive = busy()
    drive.submit(row(4, due=9 * S, after=[3]))
    drive.step(on.Cancelled(drive.now, [4]))
    assert drive.answer(1, 1)[-1] == do.Dispatch(1, [2])


def test_inherited_while_waiting_and_given_back_when_ready():
    drive = busy()
    drive.submit(row(4, after=[1]), row(5, due=9 * S, after=[4]))
    drive.step(on.Paused(drive.now))
    drive.answer(1, 1)
    drive.step(on.Cancelled(drive.now, [5]))
    assert drive.step(on.Resumed(drive.now))[-1] == do.Dispatch(1, [2])


def test_heir_that_came_while_the_job_was_away():
    drive = busy()
    drive.submit(row(4, due=9 * S, after=[1]), row(5, due=10 * S))
    drive.step(on.WorkerDied(drive.now, 1, 0, "crashed", True))
    assert drive.step(on.WorkerReady(drive.now, 2)) == [do.Dispatch(2, [1])]


def test_inherited_deadline_does_not_kill():
    drive = busy()
    drive.submit(row(4, due=drive.now + S, after=[3]))
    drive.wait(2 * S)
    assert drive.ends == {4: "deadline"}


# ---------------------------------------------------------------------- attempts that fail


@pytest.mark.parametrize(
    ("end", "status"),
    [
        (on.FAILED, "failed"),
        (on.RESULT_NOT_PICKLABLE, "not_picklable"),
        (on.CALL_NOT_LOADABLE, "not_picklable"),
    ],
)
def test_end_by_the_workers_word(end, status):
    drive = Drive()
    drive.submit(row(1))
    assert drive.answer(1, 1, end=end) == [do.Settle(status, [1], [])]


def test_retry_after_a_pause_and_no_more_than_asked():
    drive = Drive()
    drive.submit(row(1, Spec(1, retries=1)))
    (again,) = drive.answer(1, 1, end=on.FAILED)
    assert again[:2] == (1, "failed")
    assert 0.9 * S <= again.until - drive.now <= 1.1 * S
    assert drive.wait(again.until - drive.now) == [do.Dispatch(1, [1])]
    assert drive.answer(1, 1, end=on.FAILED) == [do.Settle("failed", [1], [])]


def test_an_attempt_that_could_not_start_before_the_deadline_is_not_made():
    drive = Drive()
    drive.submit(row(1, Spec(1, retries=5), due=drive.now + S // 2))
    assert drive.answer(1, 1, end=on.FAILED) == [do.Settle("failed", [1], [])]


def end_attempt(drive, job, status):
    """Let the job's attempt end so; return what the core said."""
    worker = next(w.id for w in drive.core.workers.values() if job in w.queue)
    if status == "failed":
        return drive.answer(worker, job, end=on.FAILED)
    drive.die(worker, job, status)
    out = drive.out
    staff(drive)
    return out


def staff(drive):
    """Give the core the workers that it has just asked for."""
    for start in drive.all(do.StartWorker):
        drive.step(on.WorkerReady(drive.now, start.worker))


CAUSES = ("failed", "crashed", "timeout", "memory", "cpu")


@pytest.mark.parametrize("status", CAUSES)
def test_each_cause_uses_up_its_own_budget(status):
    drive = Drive(2)
    retries = Retries(**dict.fromkeys(CAUSES, 1) | {status: 2}, backoff_ns=0)
    drive.submit(row(1, Spec(1, retries=retries)))
    for ends in (*CAUSES, status):
        out = end_attempt(drive, 1, ends)
        assert do.Postpone(1, ends, drive.now) in out
    assert do.Settle(status, [1], []) in end_attempt(drive, 1, status)
    assert not drive.core.spent


@pytest.mark.parametrize("status", CAUSES)
def test_one_budget_for_all_causes_together(status):
    drive = Drive(2)
    drive.submit(row(1, Spec(1, retries=Retries(2, backoff_ns=0))))
    for ends in ("failed", status):
        assert drive.ends == {}
        end_attempt(drive, 1, ends)
    assert do.Settle("crashed", [1], []) in end_attempt(drive, 1, "crashed")


@pytest.mark.parametrize("status", ["deadline", "protocol", "interrupted", "cancelled"])
def test_what_is_never_made_again(status):
    for retries in (9, Retries(failed=9, crashed=9, timeout=9, memory=9, cpu=9)):
        drive = Drive(1)
        drive.submit(row(1, Spec(1, retries=retries)))
        drive.die(1, 1, status)
        assert drive.ends == {1: status}


def test_a_cause_without_a_budget_ends_the_job():
    drive = Drive()
    drive.submit(row(1, Spec(1, retries=Retries(crashed=5))))
    assert drive.answer(1, 1, end=on.FAILED) == [do.Settle("failed", [1], [])]


def test_the_pause_grows_with_the_failures_of_all_causes():
    drive = Drive(1)
    drive.submit(row(1, Spec(1, retries=Retries(failed=2, crashed=2, factor=3.0, jitter=0.0))))
    for status, pause in (("failed", S), ("crashed", 3 * S), ("failed", 9 * S), ("crashed", 27 * S)):
        (again,) = [c for c in end_attempt(drive, 1, status) if type(c) is do.Postpone]
        assert again.until - drive.now == pause
        drive.wait(pause)
        staff(drive)
    assert drive.ends == {}


def test_without_a_pause_the_next_attempt_is_sent_in_the_same_step():
    drive = Drive()
    drive.submit(row(1, Spec(1, retries=Retries(failed=1, backoff_ns=0))))
    assert drive.answer(1, 1, end=on.FAILED) == [do.Postpone(1, "failed", drive.now), do.Dispatch(1, [1])]


def test_an_exception_that_is_not_to_be_tried_again():
    drive = Drive()
    drive.submit(row(1, Spec(1, retries=9)), row(2, after=[1]))
    drive.answer(1, 1, end=on.FAILED_FOR_GOOD)
    assert drive.ends == {1: "failed", 2: "dependency"}


def test_only_the_running_job_is_blamed_for_a_death():
    drive = Drive()
    drive.teach()
    drive.submit(row(1), row(2), row(3))
    assert drive.die(1, 1) == [do.Settle("crashed", [1], []), do.StartWorker(2)]
    assert drive.step(on.WorkerReady(drive.now, 2)) == [do.Dispatch(2, [2, 3])]


def test_finished_answers_count_before_the_death():
    drive = Drive()
    drive.teach()
    drive.submit(row(1), row(2))
    answered = on.Answered(drive.now, 1, [(1, on.OK, drive.now, 5)])
    drive.step(answered, on.WorkerDied(drive.now, 1, 2, "crashed", True))
    assert drive.ends == {1: "succeeded", 2: "crashed"}


def test_answer_after_the_verdict_does_not_count():
    drive = Drive()
    drive.submit(row(1))
    drive.step(on.Condemned(drive.now, 1, 1, "timeout", drive.now))
    assert drive.answer(1, 1) == []
    drive.die(1, 1, "timeout")
    assert drive.ends == {1: "timeout"}


def test_answer_within_the_limit_counts_whenever_it_is_read():
    drive = Drive()
    drive.submit(row(1))
    drive.step(on.Condemned(drive.now, 1, 1, "timeout", drive.now))
    drive.step(on.Answered(drive.now, 1, [(1, on.OK, drive.now - 10, 10)]))
    drive.die(1, 1, "timeout")
    assert drive.ends == {1: "succeeded"}


@pytest.mark.parametrize("bad", [(1, 99, 0, 0), (7, on.OK, 0, 0)])
def test_nonsense_ends_the_worker_and_the_shell_says_whose_it_was(bad):
    drive = Drive()
    drive.submit(row(1))
    assert drive.step(on.Answered(drive.now, 1, [bad])) == [do.KillWorker(1, "protocol", 0)]
    assert drive.step(on.Answered(drive.now, 1, [bad])) == []
    drive.die(1, 1, "protocol")
    assert drive.ends == {1: "protocol"}


def test_who_is_first_in_line_at_death_after_death_is_not_innocent():
    drive = Drive(spares=1)
    drive.submit(row(1), row(2))
    for _ in range(RETURNS_MAX + 1):
        assert drive.ends == {}
        (worker,) = drive.core.active
        drive.step(on.WorkerDied(drive.now, worker, 0, "crashed", True))
        for start in drive.all(do.StartWorker):
            drive.step(on.WorkerReady(drive.now, start.worker))
    assert drive.ends == {1: "crashed"}


def test_a_job_that_is_taken_back_again_and_again_is_not_blamed():
    """Regression: it ended as protocol at the fourth time, which a storm of cancels brings about."""
    drive = Drive()
    drive.submit(row(1))
    for _ in range(10 * RETURNS_MAX):
        drive.answer(1, 1, end=on.REVOKED)
        assert drive.sent == {1: [1]}
    drive.answer(1, 1, end=on.LOST)
    assert drive.ends == {1: "protocol"}


# ---------------------------------------------------------------------- cancel


def test_cancel_settles_before_it_kills():
    drive = Drive()
    drive.submit(row(1))
    out = drive.step(on.Cancelled(drive.now, [1]))
    assert out == [do.Settle("cancelled", [1], []), do.Revoke(1, 1)]
    assert drive.answer(1, 1) == []  # a late answer is dropped


def test_cancel_of_a_settled_job_is_nothing():
    assert Drive().step(on.Cancelled(S, [5])) == []


# ---------------------------------------------------------------------- the second clock


def test_a_job_beyond_its_limit_without_a_word_is_killed_from_here():
    drive = Drive()
    drive.submit(row(1, Spec(1, timeout_ns=5 * MS)))
    assert drive.core.wake_at == drive.now + 5 * MS + WORD_NS
    start = drive.now + MS
    assert drive.wait(5 * MS + WORD_NS, marks={1: (1, start)}) == []
    assert drive.core.wake_at == start + 5 * MS + WORD_NS
    assert drive.wait(MS, marks={1: (1, start)}) == [do.KillWorker(1, "timeout", 1)]


def test_a_job_of_its_deadline_likewise():
    drive = Drive()
    drive.submit(row(1, due=drive.now + 5 * MS))
    assert drive.wait(5 * MS + WORD_NS, marks={1: (1, S)}) == [do.KillWorker(1, "deadline", 1)]


def with_two_out():
    """A worker that was sent two jobs, of which the first has answered."""
    drive = Drive()
    drive.teach()
    drive.submit(row(1), row(2))
    assert drive.sent == {1: [1, 2]}
    drive.answer(1, 1)
    return drive


def test_who_has_answered_and_goes_on_is_put_out_after_two_looks():
    drive = with_two_out()
    assert drive.wait(MS, marks={1: (1, S)}) == []
    assert drive.core.wake_at == drive.now + WORD_NS
    assert drive.wait(WORD_NS, marks={1: (1, S)}) == [do.KillWorker(1, "protocol", 1)]
    drive.die(1, 0, "protocol")
    assert 2 not in drive.ends
    assert drive.core.returns == {2: 1}  # a mark can be forged: who is there each time is no bystander


def test_who_has_answered_and_was_seen_just_before_its_end_is_not():
    drive = with_two_out()
    assert drive.wait(MS, marks={1: (1, S)}) == []
    assert drive.wait(WORD_NS, marks={1: (2, drive.now)}) == []
    assert drive.wait(WORD_NS, marks={1: (1, S)}) == []


def test_one_who_shows_another_job_at_each_look_is_put_out_too():
    drive = with_two_out()
    assert drive.wait(MS, marks={1: (77, S)}) == []
    assert drive.wait(WORD_NS, marks={1: (78, S)}) == [do.KillWorker(1, "protocol", 78)]


def test_a_scribbled_start_counts_from_its_first_sight():
    drive = Drive()
    drive.submit(row(1, Spec(1, timeout_ns=5 * MS)))
    assert drive.wait(5 * MS + WORD_NS, marks={1: (1, 0)}) == []
    assert drive.wait(5 * MS + WORD_NS, marks={1: (1, 0)}) == [do.KillWorker(1, "timeout", 1)]


def test_what_stands_behind_a_slow_job_goes_to_an_idle_worker():
    drive = Drive(workers=2)
    drive.teach()
    drive.submit(*(row(job) for job in range(1, 9)))
    assert drive.sent == {1: [1, 2, 3, 4], 2: [5, 6, 7, 8]}
    drive.answer(2, 5, 6, 7, 8, took=10 * US)
    assert drive.wait(PEEK_NS, marks={1: (1, S)}) == [do.Peek(1), do.Recall(1, [2, 3, 4])]
    drive.step(on.Recalled(drive.now, 1, [2, 3]))  # 4 had begun meanwhile, or was finished
    assert drive.sent == {2: [2, 3]}
    drive.submit(row(9))
    assert drive.sent == {2: [9]}, "a worker that is late is not free"
    drive.answer(1, 1, took=5 * S)
    drive.step(on.Answered(drive.now, 1, [(2, on.REVOKED, drive.now, 0), (3, on.REVOKED, drive.now, 0)]))
    drive.answer(2, 2, 3, 9, took=10 * US)
    drive.answer(1, 4, took=10 * US)
    assert set(drive.ends) == {1, 2, 3, 4, 5, 6, 7, 8, 9}
    assert set(drive.ends.values()) == {"succeeded"}


def test_nothing_is_taken_back_while_nobody_is_idle():
    drive = Drive(workers=1)
    drive.teach()
    drive.submit(row(1), row(2))
    assert drive.wait(PEEK_NS, marks={1: (1, S)}) == [do.Peek(1)]
    assert drive.core.wake_at == drive.now + WORD_NS


def test_silent_worker_with_more_than_one_job_is_peeked_at():
    drive = Drive()
    drive.teach()
    drive.submit(row(1), row(2))
    assert drive.wait(PEEK_NS, marks={1: (1, S)}) == [do.Peek(1)]
    drive.answer(1, 1)
    assert drive.wait(PEEK_NS) == []


# ---------------------------------------------------------------------- workers come and go


def test_spare_takes_the_place_of_the_dead():
    drive = Drive(workers=1, spares=1)
    drive.submit(row(1), row(2))
    out = drive.die(1, 1)
    assert do.Dispatch(2, [2]) in out
    assert do.StartWorker(3) in out


def test_worker_is_replaced_after_its_tasks():
    drive = Drive(max_tasks=2)
    drive.submit(row(1))
    drive.answer(1, 1)
    drive.submit(row(2), row(3))
    assert drive.sent == {1: [2]}
    assert drive.answer(1, 2)[1:] == [do.RetireWorker(1), do.StartWorker(2)]
    assert drive.wait(EXIT_NS) == [do.KillWorker(1, "crashed", 0)]  # it hangs in its exit handlers


def test_fresh_job_gets_an_unused_process_to_itself():
    fresh = Spec(1, fresh=True)
    drive = Drive(workers=1, spares=1)
    drive.submit(row(1, fresh), row(2, fresh))
    assert drive.sent == {1: [1]}
    drive.answer(1, 1)
    assert do.RetireWorker(1) in drive.out
    assert drive.sent == {2: [2]}


def test_fresh_job_takes_an_unused_worker_first():
    drive = Drive(workers=2)
    drive.teach(worker=1)
    drive.submit(row(1, Spec(2, fresh=True)))
    assert drive.out == [do.Dispatch(2, [1])]


def test_one_worker_gives_way_to_a_fresh_job_not_all():
    drive = Drive(workers=3, spares=1)
    drive.submit(row(1), row(2), row(3))
    for worker, job in ((1, 1), (2, 2), (3, 3)):
        drive.answer(worker, job)
    drive.submit(row(4, Spec(2, fresh=True)))
    assert len(drive.all(do.RetireWorker)) == 1
    assert drive.sent == {4: [4]}


def test_fresh_job_without_spares_makes_room_once():
    drive = Drive(workers=2)
    drive.submit(row(1), row(2))
    drive.answer(1, 1)
    drive.answer(2, 2)
    drive.submit(row(3, Spec(2, fresh=True)))
    assert drive.out == [do.RetireWorker(1), do.StartWorker(3)]
    assert drive.wait(MS) == []
    assert drive.step(on.WorkerReady(drive.now, 3)) == [do.Dispatch(3, [3])]


def test_worker_that_is_not_ready_in_time_is_killed():
    drive = Drive(ready=False, start_timeout_ns=5 * MS)
    drive.submit(row(1))
    assert drive.wait(5 * MS)[0] == do.KillWorker(1, "crashed", 0)
    assert do.StartWorker(2) in drive.out


# ---------------------------------------------------------------------- restart intensity


def test_pool_gives_up_and_says_why():
    drive = Drive(ready=False, intensity=2)
    drive.submit(row(1))
    assert drive.die(1, ready=False) == [do.StartWorker(2)]
    assert drive.die(2, ready=False) == [], "from the second on it waits a little"
    assert drive.core.wake_at == drive.now + PAUSE_NS
    assert drive.wait(PAUSE_NS) == [do.StartWorker(3)]
    (halt,) = drive.die(3, ready=False)
    assert halt.broken == (
        "workers died before they were ready, 3 times in 0.01 s (restart_intensity allows 2 in 10 s)"
    )


def test_starts_that_take_long_to_fail_break_the_pool_too():
    """Regression: within the period there were never enough of them, and it went on for ever."""
    drive = Drive(ready=False, intensity=2)
    drive.submit(row(1))
    for worker in (1, 2, 3):
        drive.wait(60 * S)
        drive.die(worker, ready=False)
        drive.wait(PAUSE_MAX_NS) if worker < 3 else None
    assert "3 times in a row, in 120 s (restart_intensity allows 2)" in drive.core.broken


def test_an_answer_in_between_begins_a_new_row():
    drive = Drive(workers=2, ready=False, intensity=2)
    drive.submit(row(1), row(2))
    drive.step(on.WorkerReady(drive.now, 1))
    for worker in (2, 3, 4, 5, 6):
        drive.wait(60 * S)
        drive.die(worker, ready=False)
        drive.wait(PAUSE_MAX_NS)
        drive.submit(row(10 + worker))
        drive.answer(1, *drive.core.workers[1].queue)
    assert not drive.core.broken


def test_a_death_of_a_job_in_between_begins_a_new_row_too():
    drive = Drive(workers=1, ready=False, intensity=2)
    for job, worker in ((1, 1), (2, 4), (3, 7)):
        drive.submit(row(job))
        for failing in (worker, worker + 1):
            drive.wait(60 * S)
            drive.die(failing, ready=False)
            drive.wait(PAUSE_MAX_NS)
        drive.step(on.WorkerReady(drive.now, worker + 2))
        drive.die(worker + 2, job)
    assert drive.ends == {1: "crashed", 2: "crashed", 3: "crashed"}
    assert not drive.core.broken


def test_no_job_is_blamed_for_a_worker_that_never_came():
    """It was sent ahead, to a worker that died on its way: that says nothing of the job."""
    drive = Drive(workers=1, ready=False, intensity=9)
    drive.submit(row(1))
    for worker in range(1, 8):
        drive.step(on.WorkerReady(drive.now, worker))
        drive.die(worker, ready=False)
        drive.wait(PAUSE_MAX_NS)
    assert drive.ends == {}
    assert not drive.core.returns


def test_a_pool_at_work_does_not_give_up_for_want_of_more_workers():
    drive = Drive(workers=1, spares=1, intensity=1)
    drive.submit(row(1), row(2))
    while drive.core.spares:
        drive.step(on.WorkerDied(drive.now, drive.core.spares[0].id, 0, "crashed", True))
    for _ in range(5):
        starting = next(w.id for w in drive.core.workers.values() if not w.ready)
        drive.die(starting, ready=False)
        drive.wait(PAUSE_BEYOND_NS)
    assert not drive.core.broken
    drive.answer(1, 1)
    assert drive.ends == {1: "succeeded"}


def test_one_death_of_the_warden_is_one_death_however_many_were_starting():
    drive = Drive(workers=20, ready=False, intensity=1)
    drive.submit(*(row(i) for i in range(1, 21)))
    first = [start.worker for start in drive.all(do.StartWorker)]
    drive.step(on.WardenDied(drive.now), *(on.WorkerDied(drive.now, w, 0, "crashed", False) for w in first))
    assert len(drive.all(do.StartWorker)) == 20
    (halt,) = drive.step(on.WardenDied(drive.now), on.Submitted(drive.now, [row(99)]))
    assert "warden" in halt.broken


# ---------------------------------------------------------------------- life


def test_nothing_starts_while_paused():
    drive = Drive()
    drive.step(on.Paused(drive.now))
    assert drive.submit(row(1)) == []
    assert drive.step(on.Resumed(drive.now)) == [do.Dispatch(1, [1])]


def test_close_finishes_what_was_accepted_even_if_paused():
    drive = Drive()
    drive.step(on.Paused(drive.now))
    drive.submit(row(1))
    assert drive.step(on.Closed(drive.now, False)) == [do.Dispatch(1, [1])]
    assert drive.answer(1, 1)[-1] == do.Halt("")


def test_close_and_drop_cancels_what_was_not_sent():
    drive = Drive()
    drive.submit(row(1), row(2), row(3, after=[1]), row(4, release=9 * S))
    assert drive.step(on.Closed(drive.now, True)) == [do.Settle("cancelled", [2, 3, 4], [])]
    assert drive.answer(1, 1) == [do.Settle("succeeded", [1], []), do.Halt("")]


def test_close_and_drop_leaves_what_pauses_between_two_attempts():
    drive = Drive()
    drive.submit(row(1, Spec(1, retries=1)), row(2, after=[1]))
    (again,) = drive.answer(1, 1, end=on.FAILED)
    assert drive.step(on.Closed(drive.now, True)) == [do.Settle("cancelled", [2], [])]
    assert drive.wait(again.until - drive.now) == [do.Dispatch(1, [1])]
    assert drive.answer(1, 1) == [do.Settle("succeeded", [1], []), do.Halt("")]


def test_stop_gives_grace_then_kills():
    drive = Drive()
    drive.submit(row(1, Spec(1, retries=3)), row(2))
    assert drive.step(on.Stopped(drive.now, 5 * MS)) == [do.Settle("cancelled", [2], [])]
    assert drive.core.wake_at == drive.now + 5 * MS
    assert drive.wait(5 * MS) == [do.KillWorker(1, "interrupted", 0)]
    assert drive.die(1, 1, "interrupted") == [do.Settle("interrupted", [1], []), do.Halt("")]


def test_the_end_of_the_grace_ends_a_worker_too_that_was_left_to_its_last_job():
    """It was to be killed for a job that had given way to another by then: the shell lets it leave by itself."""
    drive = Drive(1)
    drive.teach()
    drive.submit(row(1, Spec(1, timeout_ns=S)), row(2))
    assert drive.sent == {1: [1, 2]}
    drive.wait(2 * S, {1: (1, drive.now)})
    assert drive.all(do.KillWorker) == [do.KillWorker(1, "timeout", 1)]
    drive.answer(1, 1)
    drive.step(on.Stopped(drive.now, S))
    assert drive.wait(S) == [do.KillWorker(1, "interrupted", 0)]


def test_stopped_pool_makes_no_further_attempt_and_cancels_what_comes_back():
    drive = Drive()
    drive.teach()
    drive.submit(row(1, Spec(1, retries=3)), row(2))
    drive.step(on.Stopped(drive.now, S))
    drive.die(1, 1)
    assert drive.ends == {1: "crashed", 2: "cancelled"}
    assert drive.out[-1] == do.Halt("")
