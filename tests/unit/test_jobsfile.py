"""Jobs files: what `describe` finds in one (imported in the test itself), what `compile_jobs` makes of it."""

from __future__ import annotations

import pickle
import sys
from datetime import UTC, datetime, timedelta

import pytest

from ptss_mp import jobsimport
from ptss_mp.errors import InvalidOption
from ptss_mp.jobsfile import Stored, TaskRef, compile_jobs, describe, resolve
from ptss_mp.retrying import Detached

HEAD = "from ptss_mp import task\n"


@pytest.fixture(autouse=True)
def fresh_imports(monkeypatch):
    """Each test is a worker of its own: nothing imported, nothing left in sys.modules or sys.path."""
    monkeypatch.setattr(jobsimport, "_loaded", {})
    monkeypatch.setattr(sys, "path", list(sys.path))
    before = dict(sys.modules)
    yield
    for name in set(sys.modules) - set(before):
        del sys.modules[name]


@pytest.fixture
def write(tmp_path):
    def write(source, name="jobs.py"):
        path = tmp_path / name
        path.write_text(source)
        return str(path)

    return write


@pytest.fixture
def plan(write):
    return lambda source, name="jobs.py": compile_jobs(describe(write(HEAD + source, name)))


def names(plan):
    return [task.name for task in plan.tasks]


def by_name(plan):
    return {task.name: task for task in plan.tasks}


def call(task, **values):
    """Do what a worker does with a planned task."""
    function = pickle.loads(pickle.dumps(task.ref))
    args, kwargs = pickle.loads(pickle.dumps((task.args, dict(task.kwargs))))
    return function(*args, **kwargs, **values)


# ---- Which tasks, in which order, under which names.


def test_tasks_come_in_the_order_of_the_file(plan):
    found = plan("@task\ndef b(): ...\n@task\ndef a(): ...\n")
    assert names(found) == ["b", "a"]
    assert [task.where.rpartition(":")[2] for task in found.tasks] == ["2", "4"]


def test_name_is_the_option_else_the_variable_else_the_function(plan):
    found = plan("def f(): ...\na = task(f)\nb = task(name='c')(f)\nfor _ in 'x':\n    [task(f)]\n")
    assert names(found) == ["a", "c", "f"]


def test_tasks_of_loops_count(plan):
    found = plan("for i in range(3):\n    task(name=f't{i}', args=(i,))(abs)\n")
    assert names(found) == ["t0", "t1", "t2"]
    assert call(by_name(found)["t2"]) == 2


def test_imported_tasks_count_only_where_they_are_bound_to_a_name(plan, write):
    write(HEAD + "@task\ndef shared(): return 7\n@task\ndef other(): ...\n", "common.py")
    found = plan("from common import shared\n@task\ndef own(shared): ...\n")
    assert set(names(found)) == {"own", "shared"}
    assert by_name(found)["own"].needs == ("shared",)
    assert call(by_name(found)["shared"]) == 7
    assert by_name(found)["shared"].where.endswith("common.py:2")


def test_two_equal_names_are_refused_with_both_lines(plan):
    with pytest.raises(InvalidOption, match=r"jobs.py:4: a task named 'a' is declared at .*:2 already"):
        plan("a = task(name='a')(abs)\n\nb = task(name='a')(abs)\n")


def test_a_name_that_a_batch_gives_is_refused(plan):
    with pytest.raises(InvalidOption, match=r"'p\[1\]' names a job of the batch"):
        plan("p = task().map(abs, [1, 2])\nq = task(name='p[1]')(abs)\n")


def test_a_file_without_tasks_has_an_empty_plan(plan):
    assert plan("x = 1\n").tasks == ()


# ---- Dependencies.


def test_a_parameter_named_like_a_variable_is_a_dependency(plan):
    found = plan("@task(name='Take a snapshot')\ndef snapshot(): ...\n@task\ndef backup(snapshot): ...\n")
    assert by_name(found)["backup"].takes == (("snapshot", "Take a snapshot", False),)


@pytest.mark.parametrize(
    "head",
    [
        "def b(a=1)",
        "def b(*a)",
        "def b(**a)",
        "@task(args=(1,))\ndef b(a)",
        "@task(kwargs={'a': 1})\ndef b(a)",
    ],
)
def test_what_has_a_value_is_no_dependency(plan, head):
    head = head if head.startswith("@") else "@task\n" + head
    found = plan(f"@task\ndef a(): ...\n{head}: ...\n")
    assert by_name(found)["b"].needs == ()


def test_a_positional_only_parameter_is_given_by_position(plan):
    found = plan("@task\ndef a(): ...\n@task(args=(1,))\ndef b(x, a, /): ...\n")
    assert by_name(found)["b"].takes == (("a", "a", True),)


def test_a_required_parameter_that_nothing_gives_is_refused_with_the_nearest_name(plan):
    told = r"jobs.py:4: task 'backup' .* 'snapshott' .*did you mean 'snapshot'\?"
    with pytest.raises(InvalidOption, match=told):
        plan("@task\ndef snapshot(): ...\n@task\ndef backup(snapshott): ...\n")


def test_arguments_that_do_not_fit_are_refused(plan):
    with pytest.raises(InvalidOption, match=r"jobs.py:2: task 'a': its arguments do not fit a\(x\)"):
        plan("@task(args=(1, 2))\ndef a(x): ...\n")


def test_after_takes_tasks_and_names(plan):
    found = plan("@task\ndef a(): ...\n@task\ndef b(): ...\n@task(after=[a, 'b'])\ndef c(): ...\n")
    assert by_name(found)["c"].after == ("a", "b")
    found = plan("@task\ndef x(): ...\n@task(after='x')\ndef y(): ...\n", "other.py")
    assert by_name(found)["y"].after == ("x",)


@pytest.mark.parametrize(
    ("after", "told"),
    [
        ("'aa'", r"comes after 'aa', which is no task of this file; did you mean 'a'\?"),
        ("7", "after must hold tasks and names, not int"),
        ("[7]", "after must hold tasks and names, not int"),
        ("[other.hidden]", "after holds the task 'hidden', not one of this file"),
    ],
)
def test_after_refuses_what_is_none(plan, write, after, told):
    write(HEAD + "@task\ndef hidden(): ...\n", "other.py")
    with pytest.raises(InvalidOption, match=told):
        plan(f"import other\n@task\ndef a(): ...\n@task(after={after})\ndef b(): ...\n")


def test_each_comes_after_what_it_needs(plan):
    found = plan("@task(after='c')\ndef a(b): ...\n@task\ndef b(c): ...\n@task\ndef c(): ...\n")
    assert names(found) == ["c", "b", "a"]


def test_a_cycle_is_named(plan):
    with pytest.raises(InvalidOption, match=r"jobs.py:\d: these 3 tasks wait .*: a -> b -> c -> a"):
        plan("@task\ndef a(b): ...\n@task\ndef b(c): ...\n@task(after='a')\ndef c(): ...\n")
    with pytest.raises(InvalidOption, match="task 'a' waits for itself"):
        plan("@task\ndef a(a): ...\n", "own.py")


def test_a_deep_chain_needs_no_recursion(plan):
    found = plan(
        "task(name='t0')(int)\nfor i in range(1, 5_000):\n    task(name=f't{i}', after=f't{i - 1}')(int)\n"
        "task(name='first', after='t4999')(int)\n"
    )
    assert names(found)[-1] == "first"
    assert len(found.tasks) == 5_001


# ---- Batches.


def test_a_batch_keeps_its_items_and_is_one_prerequisite(plan):
    found = plan("def f(x, y): ...\np = task(timeout=5).map(f, [1, 2, 3], 'ab')\n@task\ndef all(p): ...\n")
    assert [pickle.loads(pickle.dumps(item)) for item in by_name(found)["p"].items] == [(1, "a"), (2, "b")]
    assert by_name(found)["all"].takes == (("p", "p", False),)
    assert found.jobs == 3


def test_an_empty_batch_needs_nothing(plan):
    found = plan("p = task().map(lambda x: x, [])\n@task\ndef all(p): ...\n")
    assert by_name(found)["p"].items == ()
    assert found.jobs == 1


def test_a_batch_may_depend_on_a_task(plan):
    found = plan("@task\ndef config(): ...\ndef f(x, config): ...\np = task().map(f, [1])\n")
    assert by_name(found)["p"].takes == (("config", "config", False),)


# ---- Options and arguments are plain.


def test_options_become_plain_types(plan):
    found = plan(
        "import enum\nfrom datetime import *\nclass S(str, enum.Enum): X = '5s'\n"
        "class Z(tzinfo):\n    def utcoffset(self, _): return timedelta(hours=2)\n"
        "at = datetime(2030, 1, 1, 2, tzinfo=Z())\n"
        "@task(timeout=S.X, start_time=at, deadline=timedelta(1), retries=True + 1)\n"
        "def a(): ...\n"
    )
    options = found.tasks[0].options
    assert type(options.timeout) is str
    assert options.timeout == "5s"
    assert options.start_time == datetime(2030, 1, 1, tzinfo=UTC)
    assert options.start_time.tzinfo is UTC
    assert options.deadline == timedelta(1)
    assert options.retries == 2


def test_a_retry_becomes_plain_and_names_its_classes_by_bytes(plan):
    """The parent has no class of the file's, and imports none."""
    found = plan(
        "import enum\nfrom ptss_mp import Retry\nclass Busy(Exception): ...\n"
        "class N(int, enum.Enum): TWO = 2\n"
        "@task(retries=Retry(exception=N.TWO, crash=1, only=Busy, backoff='10ms'))\ndef a(): ...\n"
        "@task(retries=Retry(crash=1))\ndef b(): ...\n"
    )
    retry, other = (task.options.retries for task in found.tasks)
    assert (type(retry.exception), retry.exception, retry.backoff_ns) == (int, 2, 10_000_000)
    assert type(retry.only) is Detached
    (busy,) = pickle.loads(retry.pickled_only())
    assert (busy.__module__, busy.__name__) == ("jobs", "Busy")
    assert (other.only, other.pickled_only()) == ((), b"")


def test_arguments_of_the_files_own_classes_are_rebuilt_in_the_worker(plan):
    head = "class C:\n    x = 7\n@task(args=(C(),), kwargs={'k': C()})\n"
    found = plan(head + "def a(c, k): return c.x + k.x\n")
    assert isinstance(found.tasks[0].args[0], Stored)
    assert call(found.tasks[0]) == 14


def test_an_argument_that_cannot_be_pickled_is_named(plan):
    with pytest.raises(InvalidOption, match=r"jobs.py:3: task 'a': argument 2 cannot be pickled: "):
        plan("import threading\n@task(args=(1, threading.Lock()))\ndef a(x, y): ...\n")
    with pytest.raises(InvalidOption, match=r"argument 1 of item 1 cannot be pickled: "):
        plan("import threading\np = task().map(id, [1, threading.Lock()])\n", "batch.py")


# ---- What is wrong with a file is told, with its line.


@pytest.mark.parametrize(
    ("source", "told"),
    [
        ("def f(:\n", r"jobs.py:1: SyntaxError: "),
        ("\n\n1 / 0\n", r"jobs.py:3: ZeroDivisionError: division by zero"),
        ("def f():\n    raise KeyError('x')\nf()\n", r"jobs.py:2: KeyError: 'x'"),
        ("import sys\nsys.exit(0)\n", r"jobs.py:2: it called sys.exit\(0\) while it was imported"),
        ("raise KeyboardInterrupt\n", r"jobs.py:1: KeyboardInterrupt"),
        ("class E(Exception):\n    def __str__(self): 1 / 0\nraise E\n", r"jobs.py:3: E: \(its text cannot"),
        ("import no_such_module_anywhere\n", "jobs.py:1: ModuleNotFoundError: "),
        (HEAD + "@task(intervall='15m')\ndef a(): ...\n", r"jobs.py:2: no option 'intervall'"),
        (HEAD + "@task(timeout=-1)\ndef a(): ...\n", r"jobs.py:2: timeout must be above zero, not -1"),
        (HEAD + "@task(name='a\\x1b')\ndef a(): ...\n", r"jobs.py:2: name must be printable"),
        (HEAD + "@task\ndef a(): ...\na.fn.__name__ = 'x\\ny'\nb = [a]\ndel a\n", "must be printable"),
    ],
)
def test_what_is_wrong_is_told_with_its_line(write, source, told):
    with pytest.raises(InvalidOption, match=told):
        compile_jobs(describe(write(source)))


def test_a_failed_import_leaves_no_module(write):
    describe(write("1 / 0\n", "broken_jobs.py"))
    assert "broken_jobs" not in sys.modules


# ---- Modules and references.


@pytest.mark.parametrize(
    ("file", "module"),
    [
        ("jobs_of_mine.py", "jobs_of_mine"),
        ("json.py", "jobsfile_json"),
        ("string.py", "jobsfile_string"),
        ("my-jobs.v2.py", "jobsfile_my_jobs_v2"),
        ("__main__.py", "jobsfile___main__"),
    ],
)
def test_the_module_is_named_like_the_file_where_that_is_free(write, file, module):
    path = write(HEAD + "class C: ...\n@task(args=(C(),))\ndef a(c): return __name__\n", file)
    assert call(compile_jobs(describe(path)).tasks[0]) == module
    import json

    assert json.dumps(1) == "1"


def test_the_files_folder_is_first_on_the_path(plan, tmp_path):
    found = plan("@task\ndef a():\n    import sys\n    return sys.path[0]\n")
    assert call(found.tasks[0]) == str(tmp_path)


def test_a_reference_is_frozen_hashable_and_resolves_once(plan):
    ref = plan("@task\ndef a(): ...\n").tasks[0].ref
    assert ref == TaskRef(ref.path, 0, "a")
    assert hash(ref) == hash(TaskRef(ref.path, 0, "a"))
    assert (ref.__name__, ref.__module__, ref.by_reference) == ("a", "jobs", True)
    assert pickle.loads(pickle.dumps(ref)) is resolve(ref.path, 0, "a")
    with pytest.raises(TypeError, match="runs in workers only"):
        ref()


def test_a_file_that_changed_meanwhile_is_noticed(plan, write, monkeypatch):
    ref = plan("@task\ndef a(): ...\n").tasks[0].ref
    monkeypatch.setattr(jobsimport, "_loaded", {})
    write(HEAD + "@task\ndef other_one(): ...\n")
    with pytest.raises(jobsimport.Refused, match="number 0 was 'a' and is 'other_one'"):
        pickle.loads(pickle.dumps(ref))
    with pytest.raises(jobsimport.Refused, match="number 5 was 'x' and is None"):
        resolve(ref.path, 5, "x")


def test_what_the_file_prints_at_import_goes_to_stderr(write, capfd):
    describe(write(HEAD + "import os\nos.write(1, b'raw')\n"))
    out, err = capfd.readouterr()
    assert out == ""
    assert "raw" in err
