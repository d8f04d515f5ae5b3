"""Parts of a plan, as pure functions: `only`, and what an earlier run has left."""

from __future__ import annotations

import pytest

from ptss_mp.cli import select
from ptss_mp.cli.exits import CommandError
from ptss_mp.cli.rehearsal import rehearse
from ptss_mp.declare import Options
from ptss_mp.jobsfile import Plan, Planned, Stored, TaskRef


def planned(name, *, takes=(), after=(), batch=None, **options):
    """A task; `takes` and `after` are names divided by blanks."""
    items = None if batch is None else tuple((Stored(b"N."),) for _ in range(batch))
    edges = tuple((f"p_{one}", one, False) for one in str(takes or "").split())
    waits = tuple(str(after or "").split())
    return Planned(name, "f:1", TaskRef("/f.py", 0, "f"), Options(**options), items=items, takes=edges, after=waits)


def names(plan):
    """What a plan holds: names of tasks, of a part of a batch those of its jobs."""
    return [name for t in plan.tasks for name in ([t.name] if t.chosen is None else map(t.job_name, t.chosen))]


PLAN = Plan((
    planned("a"), planned("b", takes="a"), planned("pages", takes="b", batch=4), planned("aside"),
    planned("total", takes="pages"), planned("last", after="total aside", run_if="done"),
    planned("alarm", after="pages aside", run_if="failure"),
))  # fmt: skip


@pytest.mark.parametrize(
    ("asked", "found"),
    [
        (["a"], ["a"]),
        (["b"], ["a", "b"]),
        (["aside", "a"], ["a", "aside"]),
        (["pages[2]", "pages[0]"], ["a", "b", "pages[0]", "pages[2]"]),
        (["pages"], ["a", "b", "pages"]),
        (["pages[1]", "total"], ["a", "b", "pages", "total"]),  # its value is the whole list
        (["last"], ["a", "b", "pages", "aside", "total", "last"]),
        ([task.name for task in PLAN.tasks], [task.name for task in PLAN.tasks]),
    ],
)
def test_only_takes_prerequisites_along(asked, found):
    assert names(select.only(PLAN, asked)) == found


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("tota", "no task named 'tota'; did you mean 'total'?"),
        ("pages[4]", "'pages[4]'; did you mean 'pages'?"),
        ("pages[04]", "'pages[04]'"),
        ("pages[-1]", "'pages[-1]'"),
        ("pages[٣]", "'pages[٣]'"),
        ("pages[" + "9" * 5000 + "]", "pages[999"),
        ("a[0]", "'a[0]'"),
        ("", "''"),
        ("zzzzzz", "no task named 'zzzzzz'"),
    ],
)
def test_an_unknown_name(name, told):
    with pytest.raises(CommandError) as caught:
        select.check_names(PLAN, ["a", "pages[3]", name], "jobs.py")
    assert caught.value.status == 2
    assert told in str(caught.value)


DONE = {"a": "succeeded", "b": "succeeded", "pages[0]": "succeeded", "pages[1]": "succeeded", "aside": "succeeded"}


@pytest.mark.parametrize(
    ("left", "ended", "found"),
    [
        (["aside"], {}, ["aside"]),
        # values are not kept: what it takes one from runs again, and what that takes one from
        (["pages[2]", "pages[3]"], DONE, ["a", "b", "pages[2]", "pages[3]"]),
        (["total"], DONE, ["a", "b", "pages", "total"]),
        # what only had to come first has been
        (["last"], {"total": "succeeded", "aside": "failed"}, ["last"]),
        (["last", "aside"], {"total": "succeeded"}, ["aside", "last"]),
    ],
)
def test_what_was_left(left, ended, found):
    assert names(select.left(PLAN, left, ended)) == found


def after(plan, name):
    return next((t.after, t.options.get("run_if")) for t in plan.tasks if t.name == name)


def test_a_failure_of_the_earlier_run_counts_for_the_alarm():
    half = {"pages[0]": "succeeded", "pages[1]": "crashed", "aside": "succeeded"}
    plan = select.left(PLAN, ["pages[2]", "pages[3]", "alarm"], half)
    assert after(plan, "alarm") == (("pages",), "done")
    plan = select.left(PLAN, ["pages[2]", "pages[3]", "alarm"], half | {"pages[1]": "succeeded"})
    assert after(plan, "alarm") == (("pages",), "failure")
    plan = select.left(PLAN, ["alarm"], dict.fromkeys(["pages[0]", "pages[3]", "aside"], "skipped"))
    assert after(plan, "alarm") == ((), "failure")
    assert [task.name for task, _ in rehearse(plan)[1]] == ["alarm"]


def test_a_prerequisite_that_did_not_succeed_is_asked_again():
    """The stop came before its dependent was submitted: only another attempt can tell."""
    plan = Plan((planned("first"), planned("second", after="first")))
    assert names(select.left(plan, ["second"], {"first": "failed"})) == ["first", "second"]
    assert after(select.left(plan, ["second"], {"first": "failed"}), "second")[0] == ("first",)
    assert names(select.left(plan, ["second"], {"first": "succeeded"})) == ["second"]


# ---- The order of a run.


def order(*tasks):
    begun, refused = rehearse(Plan(tasks))
    return [task.name for task in begun], {task.name: why for task, why in refused}


def test_the_earliest_deadline_goes_first_then_priority_then_the_file():
    tasks = (
        planned("plain"), planned("important", priority=9), planned("late", deadline="2h"),
        planned("soon", deadline="1h"), planned("also"),
    )  # fmt: skip
    assert order(*tasks) == (["soon", "late", "important", "plain", "also"], {})


def test_what_an_urgent_task_waits_for_is_urgent():
    tasks = (planned("slow", deadline="1h"), planned("needed"), planned("urgent", takes="needed", deadline="1m"))
    assert order(*tasks)[0] == ["needed", "urgent", "slow"]


def test_start_times_are_jumped_to():
    tasks = (planned("tomorrow", start_time="1d"), planned("now"), planned("soon", start_time="1h"))
    assert order(*tasks)[0] == ["now", "soon", "tomorrow"]


def test_what_would_not_run_is_told():
    tasks = (
        planned("ok"), planned("alarm", after="ok", run_if="failure"), planned("waits", after="alarm"),
        planned("empty", batch=0), planned("sum", takes="empty"), planned("done", after="ok empty", run_if="done"),
    )  # fmt: skip
    begun, refused = order(*tasks)
    assert begun == ["ok", "sum", "done"]
    assert set(refused) == {"alarm", "waits"}
    assert "failed" in refused["alarm"]


def test_a_deadline_that_has_passed():
    from datetime import UTC, datetime

    past = datetime(2020, 1, 1, tzinfo=UTC)
    begun, refused = order(planned("gone", deadline=past), planned("needs", takes="gone"), planned("ok"))
    assert begun == ["ok"]
    assert "deadline" in refused["gone"]
    assert set(refused) == {"gone", "needs"}


def test_a_start_that_never_comes():
    from datetime import UTC, datetime

    begun, refused = order(planned("ok"), planned("never", start_time=datetime(9999, 1, 1, tzinfo=UTC)))
    assert (begun, set(refused)) == (["ok"], {"never"})


def test_a_long_chain_is_no_recursion():
    chain = [planned("t0"), *(planned(f"t{n}", after=f"t{n - 1}") for n in range(1, 5000))]
    assert order(*chain)[0] == [f"t{n}" for n in range(5000)]
    assert len(select.only(Plan(tuple(chain)), ["t4999"]).tasks) == 5000


def test_a_batch_comes_whole_and_other_tasks_between_batches():
    tasks = (planned("b", batch=1000), planned("one"), planned("c", batch=1000, deadline="1h"))
    assert order(*tasks)[0] == ["c", "b", "one"]
