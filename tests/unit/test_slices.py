"""Work without a bound goes on from step to step: what a step may do, that nothing is lost, that others are served."""

import pytest

from ptss_mp.core import commands as do
from ptss_mp.core import events as on
from ptss_mp.core.heap import Heap
from ptss_mp.core.job import NEVER, Spec
from ptss_mp.core.ready import STALE_MIN, ReadyQueue
from ptss_mp.core.slices import END, SLICE, Slice

from .driving import MS, PLAIN, Drive, S, edge, row

MANY = 20 * SLICE  # far more than a step takes
DONE = Spec(1, run_if="done")


class Steps(Drive):
    """Counts steps, and how much each settles."""

    def __init__(self, **options):
        self.most = self.steps = 0
        super().__init__(**options)
        self.core_step, self.core.step = self.core.step, self.counted

    def counted(self, events):
        out = self.core_step(events)
        self.steps += 1
        self.most = max(self.most, sum(len(c.ids) for c in out if type(c) is do.Settle))
        return out

    def bounded(self, least_steps):
        """Assert that it took so many steps, and that none did more than three slices of ends."""
        assert self.steps >= least_steps, self.steps
        assert self.most <= 3 * SLICE // END, self.most


@pytest.fixture
def drive(monkeypatch):
    """A worker that holds job 1, whose state is not looked through at every step."""
    monkeypatch.setattr("ptss_mp.core.invariants.check", lambda core: None)
    drive = Steps()
    drive.submit(row(1))
    return drive


def begin(drive):
    drive.most = drive.steps = 0


def test_a_million_deadlines_in_one_instant(drive):
    drive.submit(*(row(i, due=2 * S) for i in range(2, MANY)))
    begin(drive)
    drive.wait(2 * S)
    drive.bounded(MANY * END // SLICE // 2)
    assert list(drive.ends.values()) == ["deadline"] * (MANY - 2)


def test_start_times_in_one_instant_let_others_start_meanwhile(drive):
    drive.submit(*(row(i, release=2 * S) for i in range(2, MANY)))
    drive.now += 2 * S
    out = drive.core_step([on.Fired(drive.now, {}), on.Answered(drive.now, 1, [(1, on.OK, S, 2 * MS)])])
    assert drive.core.behind
    assert drive.core.wake_at == drive.now
    assert [c.ids for c in out if type(c) is do.Dispatch] == [[2]]
    drive.step(on.Submitted(drive.now, [row(MANY, due=9 * S)]))
    assert not drive.core.delayed
    assert drive.core.ready.head() == min(drive.core.ready.valid_keys())


@pytest.mark.parametrize("event", [on.Closed(10 * S, True), on.Stopped(10 * S, 5 * S)])
def test_a_stop_cancels_in_slices_and_starts_nothing_meanwhile(drive, event):
    drive.submit(*(row(i) for i in range(2, MANY)))
    begin(drive)
    drive.now = 10 * S
    out = drive.core_step([event])
    out += drive.core_step([on.Answered(drive.now, 1, [(1, on.OK, S, 2 * MS)])])
    assert not [c for c in out if type(c) is do.Dispatch]
    assert drive.core.behind
    drive.submit(*(row(i) for i in range(MANY, MANY + 9)) if type(event) is on.Stopped else ())
    drive.bounded(MANY * END // SLICE // 2)
    assert drive.core.halted
    assert not drive.core.jobs


def test_a_failure_with_many_dependents(drive):
    drive.submit(*(row(i, after=[1]) for i in range(2, MANY)), *(row(MANY + i, after=[MANY - 1]) for i in range(9)))
    begin(drive)
    drive.answer(1, 1, end=on.FAILED)
    drive.bounded(MANY * END // SLICE // 2)
    assert drive.ends.pop(1) == "failed"
    assert list(drive.ends.values()) == ["dependency"] * (MANY - 2 + 9)


def test_a_success_with_many_dependents_lets_them_start_before_all_are_told(drive):
    drive.submit(*(row(i, after=[1]) for i in range(2, MANY)))
    drive.now += S
    out = drive.core_step([on.Answered(drive.now, 1, [(1, on.OK, S, 2 * MS)])])
    assert drive.core.behind
    assert [c.ids for c in out if type(c) is do.Dispatch] == [[2]]
    drive.step()
    assert len(drive.core.ready) == MANY - 3


def test_a_job_with_many_prerequisites_is_told_in_parts():
    drive = Drive()
    drive.submit(row(1), row(2), row(3), row(4))
    whole = row(9, due=99 * S)
    drive.step(on.Linked(drive.now, whole._replace(after=(edge(1), edge(2))), True, False))
    drive.answer(1, 1)
    drive.answer(1, 2)
    assert drive.core.state_of(9) == "waiting"  # there may be more
    drive.step(on.Linked(drive.now, whole._replace(after=(edge(3), edge(4))), False, True))
    assert drive.core.ready.current[4] >> 118 == 99 * S  # lent by each part
    drive.answer(1, 3)
    drive.answer(1, 4)
    assert drive.sent == {1: [9]}


@pytest.mark.parametrize(("status", "end"), [("failed", "dependency"), ("succeeded", ""), ("", "")])
def test_a_part_whose_jobs_have_ended(status, end):
    drive = Drive()
    drive.submit(row(1))
    drive.step(on.Linked(drive.now, row(9, after=[1]), True, False))
    drive.step(on.Linked(drive.now, row(9)._replace(after=(edge(5, status),)), False, True))
    drive.answer(1, 1)
    assert drive.ends.get(9, "") == end
    assert drive.sent == ({} if end else {1: [9]})


def test_a_job_cancelled_between_two_parts():
    drive = Drive()
    drive.submit(row(1))
    drive.step(on.Linked(drive.now, row(9, after=[1]), True, False))
    drive.step(on.Cancelled(drive.now, [9]))
    drive.step(on.Linked(drive.now, row(9, after=[1]), False, True))
    assert drive.ends == {9: "cancelled"}


def test_a_deadline_is_lent_along_a_chain_in_slices_and_given_back(drive):
    drive.submit(*(row(i, DONE, after=[i - 1]) for i in range(2, MANY)))
    begin(drive)
    drive.submit(row(MANY, after=[MANY - 1], due=9 * S))
    assert drive.steps >= MANY // SLICE // 2
    assert drive.core.graph.waiting[2].key >> 118 == 9 * S
    drive.step(on.Cancelled(drive.now, [MANY]))
    assert drive.core.graph.waiting[2].key >> 118 == NEVER


def test_many_lenders_leave_at_once(drive):
    drive.submit(row(2), *(row(i, after=[2], due=(9 + i) * S) for i in range(3, MANY)))
    assert drive.core.ready.head() >> 118 == 12 * S
    drive.step(on.Cancelled(drive.now, list(range(3, MANY - 1))))
    assert drive.core.ready.head() >> 118 == (9 + MANY - 1) * S


def test_the_dead_at_the_head_are_skipped_in_slices():
    live = dict.fromkeys(range(1, MANY))
    work = Slice()
    queue = ReadyQueue(live, work)
    for i in range(1, MANY):
        queue.push(i)
    for i in range(1, MANY - 1):
        del live[i]
    heads = 0
    while not queue.head():
        assert work.cut
        work.renew()
        heads += 1
    assert heads >= MANY // SLICE // 2
    assert queue.head() == MANY - 1


@pytest.mark.parametrize("order", [1, -1])
def test_cleaning_looks_at_a_few_for_each_death(order):
    looks = 0

    class Live(dict):
        def __contains__(self, job):
            nonlocal looks
            looks += 1
            return super().__contains__(job)

    count = 8 * STALE_MIN
    live = Live.fromkeys(range(1, count))
    queue = ReadyQueue(live, Slice(count))
    for i in range(1, count)[::order]:
        queue.push(i)
    most = 0
    for i in [*range(2, count, 2), *range(1, count // 2, 2)]:
        del live[i]
        looks = 0
        queue.drop_later()
        most = max(most, looks)
    assert 0 < most <= 8
    assert len(queue) < 2 * len(live)
    assert sorted(queue.valid_keys()) == sorted(live)
    assert queue.head() == min(live)


def test_a_heap_that_is_being_cleaned_gives_the_least():
    live = set(range(1, 1000))
    heap = Heap(live.__contains__)
    for entry in live:
        heap.push(entry)
    live -= set(range(2, 1000, 3))
    seen = []
    while least := heap.least():
        heap.sift()
        assert heap.pop() == least
        seen.append(least)
    assert seen == sorted(seen)
    assert live <= set(seen)


def test_plain_jobs_are_no_work_that_goes_on():
    drive = Drive()
    drive.submit(*(row(i, PLAIN) for i in range(1, 100)))
    assert not drive.core.behind
