"""Tokens and environments: who may pass whom, what is held until when, which worker is whose."""

import pytest

from ptss_mp.core import commands as do
from ptss_mp.core import events as on
from ptss_mp.core.job import Spec, State
from ptss_mp.core.lines import Lines
from ptss_mp.core.tokens import Tokens, expand

from .driving import MS, Drive, S, edge, row

GPUS = {"gpu": ("0", "1")}
TEMPLATE = (("CUDA", ("", "gpu", "")),)


def needs(spec=1, env=(), **how):
    return Spec(spec, needs=tuple(sorted(how.items())), env=env)


GPU, BOTH = needs(gpu=1), needs(gpu=2)
CUDA = needs(gpu=1, env=TEMPLATE)


def drive(workers=4, resources=GPUS, **how):
    return Drive(workers, resources=resources, **how)


class TestTokens:
    def test_lowest_free_units_first_and_given_back_in_order(self):
        tokens = Tokens({"gpu": ("a", "b", "c")})
        held = [tokens.choose((("gpu", 1),)) for _ in range(2) if not tokens.take(tokens.choose((("gpu", 1),)))]
        assert held == [{"gpu": ("b",)}, {"gpu": ("c",)}]
        tokens.give({"gpu": ("b",)})
        tokens.give({"gpu": ("a",)})
        assert tokens.units("gpu") == ("a", "b", "c")

    def test_a_wish_is_heeded_if_all_of_it_is_free_and_fits(self):
        tokens = Tokens(GPUS)
        assert tokens.choose((("gpu", 1),), {"gpu": ("1",)}) == {"gpu": ("1",)}
        assert tokens.choose((("gpu", 2),), {"gpu": ("1",)}) == {"gpu": ("0", "1")}
        tokens.take({"gpu": ("1",)})
        assert tokens.choose((("gpu", 1),), {"gpu": ("1",)}) == {"gpu": ("0",)}

    def test_amounts(self):
        tokens = Tokens({"memory": 10})
        tokens.take(tokens.choose((("memory", 7),)))
        assert tokens.choose((("memory", 4),)) is None
        assert tokens.left("memory") == 3

    def test_an_environment_names_units_and_amounts(self):
        template = (("A", ("", "gpu", "/", "memory", "!")), ("B", ("plain",)))
        assert expand(template, {"gpu": ("0", "3"), "memory": 5}) == (("A", "0,3/5!"), ("B", "plain"))


def test_a_unit_is_held_by_one_job_at_a_time():
    d = drive()
    d.submit(row(1, GPU), row(2, GPU), row(3, GPU))
    assert sorted(d.sent.values()) == [[1], [2]]
    assert [command.tokens for command in d.all(do.Dispatch)] == [{"gpu": ("0",)}, {"gpu": ("1",)}]
    assert d.core.state_of(3) is State.READY
    worker = next(w for w, ids in d.sent.items() if ids == [2])
    d.answer(worker, 2)
    assert [command.tokens for command in d.all(do.Dispatch)] == [{"gpu": ("1",)}]


def test_who_needs_none_of_what_is_lacking_may_pass():
    d = drive()
    d.submit(row(1, GPU), row(2, BOTH), row(3, GPU), row(4))
    assert sorted(ids for ids in d.sent.values()) == [[1], [4]], "3 needs what 2 lacks"


def test_who_needs_what_is_lacking_does_not_pass_though_it_is_free():
    d = drive()
    d.submit(row(1, GPU), row(2, BOTH))
    d.submit(row(3, GPU))
    assert not d.sent
    d.answer(1, 1)
    assert list(d.sent.values()) == [[2]]
    d.answer(*next((w, i) for w, [i] in d.sent.items()))
    assert list(d.sent.values()) == [[3]]


def test_a_lack_is_of_the_token_that_is_short_alone():
    d = drive(resources={"gpu": ("0",), "db": ("a", "b")})
    d.submit(row(1, needs(gpu=1)), row(2, needs(gpu=1, db=1)), row(3, needs(db=1)))
    assert sorted(d.sent.values()) == [[1], [3]]


def test_one_behind_the_first_of_its_kind_may_lack_more():
    d = drive(workers=6, resources={"gpu": ("0",), "db": ("a", "b", "c")})
    d.submit(row(1, needs(gpu=1)), row(2, needs(db=1)))
    d.submit(row(3, needs(gpu=1, db=1)), row(4, needs(gpu=1, db=3)), row(5, needs(db=1)))
    assert not d.sent, "5 needs db, which 4 lacks"


def test_a_more_urgent_job_is_first_among_those_who_lack():
    d = drive(resources={"gpu": ("0",)})
    d.submit(row(1, GPU))
    d.submit(row(2, GPU), row(3, GPU, due=2 * S))
    d.answer(1, 1)
    assert list(d.sent.values()) == [[3]]


def test_an_heir_lends_its_deadline_to_one_that_lacks_tokens():
    d = drive(resources={"gpu": ("0",)})
    d.submit(row(1, GPU))
    d.submit(row(2, GPU), row(3, GPU), row(4, due=3 * S, after=[edge(3)]))
    d.answer(1, 1)
    assert list(d.sent.values()) == [[3]]


def test_plain_jobs_keep_their_depth_beside_those_who_lack():
    d = drive(workers=1, resources={"gpu": ("0",)})
    d.teach()
    d.submit(row(1, GPU), *(row(i, GPU) for i in range(2, 50)))
    d.submit(*(row(i) for i in range(100, 130)))
    d.answer(1, 1)
    assert d.sent == {1: [2]}, "2 came first"


@pytest.mark.parametrize("end", [on.OK, on.FAILED, on.RESULT_NOT_PICKLABLE, on.EXPIRED])
def test_an_answer_frees_what_was_held(end):
    d = drive(resources={"gpu": ("0",)})
    d.submit(row(1, GPU), row(2, GPU))
    d.answer(1, 1, end=end)
    assert list(d.sent.values()) == [[2]]


@pytest.mark.parametrize("why", ["crashed", "timeout", "memory"])
def test_a_death_frees_it_when_the_process_has_ended(why):
    d = drive(resources={"gpu": ("0",)})
    d.submit(row(1, GPU), row(2, GPU))
    d.step(on.Condemned(d.now, 1, 1, why, d.now))
    d.die(1, 1, why)
    assert d.ends == {1: why}
    assert not d.sent, "the process is dying, and has the GPU still"
    d.reap(1)
    assert list(d.sent.values()) == [[2]]


def test_a_cancelled_job_keeps_its_tokens_until_its_process_has_ended():
    d = drive(resources={"gpu": ("0",)})
    d.submit(row(1, GPU), row(2, GPU))
    d.step(on.Cancelled(d.now, [1]))
    assert d.ends == {1: "cancelled"}
    assert not d.sent
    d.die(1, 1, "cancelled")
    assert not d.sent
    d.reap(1)
    assert list(d.sent.values()) == [[2]]


def test_a_cancelled_job_that_never_began_frees_them_by_its_answer():
    d = drive(resources={"gpu": ("0",)})
    d.submit(row(1, GPU), row(2, GPU))
    d.step(on.Cancelled(d.now, [1]))
    d.answer(1, 1, end=on.REVOKED)
    assert list(d.sent.values()) == [[2]]


def test_an_innocent_return_waits_for_its_own_tokens():
    d = drive(resources={"gpu": ("0",)})
    d.submit(row(1, GPU))
    d.die(1)
    assert not d.sent
    d.reap(1)
    assert list(d.sent.values()) == [[1]]


def test_a_stranger_in_another_workers_answer_frees_nothing():
    d = drive(resources={"gpu": ("0",)})
    d.submit(row(1, GPU), row(2, GPU), row(3))
    d.step(on.Answered(d.now, 2, [(1, on.OK, d.now, 1)]))
    assert not d.sent
    d.answer(1, 1)
    assert [2] in d.sent.values()


def test_a_deadline_ends_one_that_lacks_tokens():
    d = drive(resources={"gpu": ("0",)})
    d.submit(row(1, GPU))
    d.submit(row(2, GPU, due=S + 5 * MS))
    d.wait(5 * MS - 1)
    assert d.core.wake_at == S + 5 * MS
    d.wait(1)
    assert d.ends == {2: "deadline"}


def test_cancel_pause_and_drop_of_those_who_lack():
    d = drive(resources={"gpu": ("0",)})
    d.submit(row(1, GPU), row(2, GPU), row(3, GPU), row(4, GPU))
    d.step(on.Cancelled(d.now, [2]))
    d.step(on.Paused(d.now))
    d.answer(1, 1)
    assert not d.sent
    d.step(on.Resumed(d.now))
    assert list(d.sent.values()) == [[3]]
    d.step(on.Closed(d.now, True))
    assert d.ends == {1: "succeeded", 2: "cancelled", 4: "cancelled"}


def test_no_workers_are_started_for_those_who_lack():
    d = Drive(8, resources={"gpu": ("0", "1")}, ready=False)
    d.submit(*(row(i, GPU) for i in range(1, 100)))
    assert len(d.all(do.StartWorker)) == 2


def test_it_is_said_what_is_waited_for():
    d = drive(resources={"gpu": ("0",)})
    d.submit(row(1, GPU), row(2, GPU), row(3, needs(env=TEMPLATE[:0])))
    assert d.all(do.Waits) == [do.Waits(("gpu",), [2])]
    d.submit(row(4, GPU))
    assert d.all(do.Waits) == [do.Waits(("gpu",), [4])]
    d.wait(1)
    assert not d.all(do.Waits)


def test_of_those_behind_a_blocked_one_none_is_looked_at(monkeypatch):
    d = drive(resources={"gpu": ("0",)})
    d.core.step([on.Submitted(d.now, [row(i, GPU) for i in range(1, 100_001)])])
    looked, look = [], Lines._short
    monkeypatch.setattr(Lines, "_short", lambda lines, job, lacked: looked.append(job) or look(lines, job, lacked))
    for i in range(200_000, 200_050):
        d.core.step([on.Submitted(d.now, [row(i)])])
        d.core.step([on.Answered(d.now, w.id, [(i, 0, d.now, 0)]) for w in d.core.workers.values() if i in w.queue])
    assert len(looked) < 500


def test_memory_that_is_short_starts_nothing():
    d = drive()
    d.step(on.MemoryLooked(d.now, True))
    d.submit(row(1), row(2, GPU))
    assert not d.sent
    d.step(on.MemoryLooked(d.now, False))
    assert sorted(d.sent.values()) == [[1], [2]]


class TestEnvironments:
    def test_each_worker_keeps_its_gpu(self):
        d = Drive(2, resources=GPUS, ready=False)
        d.submit(*(row(i, CUDA) for i in range(1, 11)))
        assert d.start() == [{"CUDA": "0"}, {"CUDA": "1"}]
        for i in range(1, 11):
            worker = next(w for w in d.core.workers.values() if i in w.queue)
            assert d.core.held[i] == worker.units
            d.answer(worker.id, i)
            assert not d.all(do.StartWorker), "no process is started for a job"
            assert not d.all(do.RetireWorker)
        assert len(d.core.workers) == 2

    def test_a_worker_is_reused_for_an_equal_environment_only(self):
        d = drive(workers=1)
        d.submit(row(1, Spec(1, env=(("A", ("1",)),))))
        assert [type(c) for c in d.out] == [do.RetireWorker, do.StartWorker]
        d.die(1, why="left")
        d.step(on.WorkerReady(d.now, 2))
        assert d.sent == {2: [1]}
        d.answer(2, 1)
        d.submit(row(2, Spec(2, env=(("A", ("1",)),))))
        assert d.sent == {2: [2]}
        d.answer(2, 2)
        d.submit(row(3))
        assert [type(c) for c in d.out] == [do.RetireWorker, do.StartWorker], "a plain job wants a plain worker"

    def test_an_idle_worker_gives_its_place_to_a_spare_that_fits(self):
        d = drive(workers=1, spares=1)
        d.submit(row(1, CUDA))
        assert d.all(do.RetireWorker) == [do.RetireWorker(2)], "the spare goes, for the staff is full"
        d.die(2, why="left")
        assert d.core.workers[3].env == (("CUDA", "0"),)
        d.step(on.WorkerReady(d.now, 3))
        assert d.sent == {3: [1]}
        assert [w.id for w in d.core.spares] == [1]
        d.answer(3, 1)
        d.submit(row(2))
        assert d.sent == {1: [2]}, "and back, without another process"
        assert not d.all(do.StartWorker)

    def test_nobody_passes_one_whose_process_is_on_its_way(self):
        d = drive(workers=2)
        d.submit(row(1, CUDA), row(2), row(3))
        assert not d.sent
        d.start()
        assert sorted(d.sent.values()) == [[1]] or [1] in d.sent.values()

    def test_a_more_urgent_one_that_takes_its_unit_leaves_it_another(self):
        d = Drive(2, resources=GPUS, ready=False)
        d.submit(row(1, CUDA))
        d.submit(row(2, GPU, due=9 * S))
        while d.start():
            pass
        assert {1, 2} <= set(d.core.held), "both run, on units of their own"

    def test_a_dead_worker_is_replaced_with_the_same_environment(self):
        d = Drive(1, resources={"gpu": ("0",)}, ready=False)
        d.submit(row(1, CUDA))
        d.start()
        d.submit(row(2, CUDA))
        d.die(1, 1)
        d.reap(1)
        assert d.start() == [{"CUDA": "0"}]
        assert d.core.held == {2: {"gpu": ("0",)}}

    def test_fresh_in_an_environment(self):
        d = Drive(1, resources={"gpu": ("0",)}, ready=False)
        fresh = Spec(1, fresh=True, needs=(("gpu", 1),), env=TEMPLATE)
        d.submit(row(1, fresh), row(2, fresh))
        for worker, job in ((1, 1), (2, 2)):
            assert d.start() == [{"CUDA": "0"}]
            d.answer(worker, job)
            d.die(worker, why="left")
        assert d.ends == {1: "succeeded", 2: "succeeded"}
