"""Deadlines that cannot be met, or may not, and by which bound."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from ptss_mp.declare import Options
from ptss_mp.feasibility import findings
from ptss_mp.jobsfile import Plan, Planned, TaskRef
from ptss_mp.shell.clock import monotonic_ns
from ptss_mp.units import shown_duration


def planned(name, *, after=(), jobs=None, root="", **options):
    items = None if jobs is None else ((),) * jobs
    ref = TaskRef("/jobs.py", 0, name)
    return Planned(name, "jobs.py:1", ref, Options(**options), after=tuple(after), items=items, root=root)


def found(*tasks, workers=2):
    return [(f.task, f.certain, f.text) for f in findings(Plan(tasks), monotonic_ns(), workers)]


def test_nothing_to_say():
    assert found() == []
    assert found(planned("a"), planned("b", after="a"), planned("c", deadline="1h", timeout="1h")) == []
    assert found(planned("a", timeout="20m"), planned("b", after="a", timeout="40m", deadline="1h")) == []
    assert found(planned("a", start_time="2h", deadline="1h")) == [], "an hour from its start"


def test_a_prerequisite_that_starts_too_late():
    tasks = planned("a", start_time="2h"), planned("b", after="a"), planned("c", after="b", deadline="30m")
    why = "the start time of 'a', which it comes after, is 1h30m after the deadline"
    assert found(*tasks) == [
        ("c", True, f"cannot meet its deadline: {why}; it would end `deadline` without having run")
    ]
    late = planned("c", after="b", deadline="2h", on_miss="finish")
    ((_, certain, text),) = found(*tasks[:2], late)
    assert certain
    assert text.endswith("is no earlier than the deadline; it would be late")


def test_its_own_start_time():
    at = datetime.now(UTC) + timedelta(hours=1)
    ((_, certain, text),) = found(planned("a", start_time="2h", deadline=at))
    assert certain
    assert text.startswith("cannot meet its deadline: its own start time is 1h")


def test_who_runs_when_others_have_failed_may_start_before_them():
    assert found(planned("a", start_time="2h"), planned("b", after="a", run_if="failure", deadline="1h")) == []


def test_a_chain_of_timeouts():
    last = planned("c", after="b", timeout="30m", deadline="1h")
    tasks = [planned("a", timeout="40m"), planned("b", after="a"), last]
    assert found(*tasks) == [
        ("c", False, "may miss its deadline: with every timeout used up, a -> c ends 10m after it")
    ]
    names = [f"t{i}" for i in range(9)]
    tasks = [planned(n, after=names[max(0, i - 1) : i], timeout="10m") for i, n in enumerate(names)]
    ((_, _, text),) = found(*tasks, planned("end", after=[names[-1]], deadline="1h"))
    assert "t0 -> … -> t8 ends 30m after it" in text


def test_a_batch_takes_as_many_rounds_as_the_workers_need():
    batch = planned("pages", jobs=10, timeout="10m")
    tasks = batch, planned("end", after=["pages"], deadline="1h")
    assert [name for name, _, _ in found(*tasks, workers=5)] == []
    ((_, _, text),) = found(*tasks, workers=1)
    assert "pages ends 40m after it" in text
    assert found(planned("pages", jobs=0, timeout="10h"), tasks[1]) == []


def test_more_work_than_the_workers_can_do():
    tasks = [planned(f"t{i}", timeout="30m", deadline="1h") for i in range(5)]
    assert found(*tasks, workers=3) == []
    why = "with every timeout used up, what is due by then takes 2h30m, and 2 workers have 2h together"
    assert found(*tasks, workers=2) == [("t4", False, f"may miss its deadline: {why}")]


class TestRecurring:
    def test_a_deadline_counts_from_each_release(self):
        past = datetime.now(UTC) - timedelta(days=9)
        assert found(planned("a", root="a", interval="1h", start_time=past, deadline="30m", timeout="30m")) == []
        assert found(planned("a", root="a", interval="10m", deadline="1h", timeout="10m")) == [], "longer than interval"
        root = planned("a", root="a", interval="1d", start_time="2h")
        run = [root, planned("b", after="a", root="a", deadline="30m")]
        assert found(*run) == [], "from the release of the run"
        run_once = planned("once", start_time="2h", timeout="2h")
        assert found(run_once, planned("a", after=["once"], root="a", interval="1h", deadline="30m")) == []

    def test_a_run_whose_chain_is_too_long(self):
        tasks = [planned("a", root="a", cron="0 2 * * *", timeout="40m"), planned("b", after="a", root="a")]
        last = planned("c", after="b", root="a", timeout="30m", deadline="1h")
        assert found(*tasks, last) == [
            ("c", False, "may miss its deadline: with every timeout used up, a -> c ends 10m after it")
        ]

    def test_a_run_that_outlasts_its_interval(self):
        tasks = [
            planned("a", root="a", interval="15m", timeout="10m"),
            planned("b", after="a", root="a", timeout="10m"),
        ]
        told = "with every timeout used up, one takes 20m, and the next is due 15m after it began"
        assert found(*tasks) == [("a", False, f"may leave runs out: {told}")]
        assert found(planned("a", root="a", interval="15m", timeout="15m")) == []
        assert found(planned("a", root="a", interval="15m", timeout="20m", max_runs=1)) == []
        for overlap, number in (("queue", 1), ("allow", 0), ("replace", 0)):
            task = planned("a", root="a", interval="15m", timeout="20m", overlap=overlap)
            assert len(found(task)) == number, overlap

    def test_more_than_the_workers_can_do_for_long(self):
        tasks = [planned(f"t{i}", root=f"t{i}", interval="1h", timeout="40m") for i in range(4)]
        assert found(*tasks, workers=3) == []
        why = "with every timeout used up, it takes 2.7 workers at any time, and there are 2"
        assert found(*tasks, workers=2) == [("t3", False, f"may be late, as all that recurs: {why}")]
        longer = [planned(f"t{i}", root=f"t{i}", interval="10m", timeout="40m") for i in range(2)]
        assert {text[:21] for _, _, text in found(*longer, workers=2)} == {"may leave runs out: w"}, (
            "one at a time each"
        )
        both = [planned(f"t{i}", root=f"t{i}", interval="10m", timeout="40m", overlap="allow") for i in range(2)]
        assert "it takes 8.0 workers" in found(*both, workers=2)[0][2]

    def test_a_rehearsal_agrees(self):
        from ptss_mp.cli.rehearsal import rehearse

        past = datetime.now(UTC) - timedelta(days=9)
        plan = Plan((
            planned("a", root="a", interval="1h", start_time=past, deadline="30m"),
            planned("b", root="b", interval="1h", start_time="2h"), planned("c", after="b", root="b", deadline="30m"),
        ))  # fmt: skip
        assert [[task.name for task in tasks] for tasks in rehearse(plan)] == [["a", "b", "c"], []]


@pytest.mark.parametrize(
    ("ns", "text"),
    [(250_000_000, "250ms"), (1_500_000_000, "1.5s"), (725 * 10**9, "12m5s"), (5_400 * 10**9, "1h30m"),
     (2 * 86_400 * 10**9, "2d"), (3_601 * 10**9, "1h"), (60 * 10**9, "1m"), (500_000, "0.5ms")],
)  # fmt: skip
def test_durations_as_people_write_them(ns, text):
    assert shown_duration(ns) == text


def test_the_core_agrees_with_what_is_certain():
    """`--dry-run` on a machine that takes no time refuses the same tasks."""
    from ptss_mp.cli.rehearsal import rehearse

    plan = Plan((
        planned("a", start_time="2h"), planned("b", after="a", deadline="30m"), planned("c", after="a", deadline="3h"),
        planned("d", deadline="1s"), planned("e", start_time="1h", deadline="1s"),
    ))  # fmt: skip
    _, refused = rehearse(plan)
    certain = [finding.task for finding in findings(plan, monotonic_ns(), 1) if finding.certain]
    assert [task.name for task, _ in refused] == certain == ["b"]
