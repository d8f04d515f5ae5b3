"""Deadlines that cannot be met, or may not, and by which bound."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from ptss_mp.declare import Options
from ptss_mp.feasibility import findings
from ptss_mp.jobsfile import Plan, Planned, TaskRef
from ptss_mp.shell.clock import monotonic_ns
from ptss_mp.units import shown_duration


def planned(name, *, after=(), jobs=None, **options):
    items = None if jobs is None else ((),) * jobs
    return Planned(name, "jobs.py:1", TaskRef("/jobs.py", 0, name), Options(**options), after=tuple(after), items=items)


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
    (_, certain, text), = found(*tasks[:2], late)
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
