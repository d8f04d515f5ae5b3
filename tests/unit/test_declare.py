"""Options, durations and Tasks: what is legal, what is refused and with which words."""

import pickle
from datetime import UTC, datetime, timedelta

import pytest

from ptss_mp.declare import UNSET, Options, options
from ptss_mp.errors import InvalidOption, InvalidType
from ptss_mp.rules import rules
from ptss_mp.tasks import Task, collect, task
from ptss_mp.units import DURATION_MAX_NS, duration_ns, size_bytes

NOON = datetime(2030, 1, 1, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("given", "ns"),
    [
        (1, 10**9),
        (0.25, 250_000_000),
        (timedelta(minutes=1), 60 * 10**9),
        (timedelta(days=3650), 3650 * 86_400 * 10**9),
        ("250ms", 250_000_000),
        ("90s", 90 * 10**9),
        ("1h30m", 5400 * 10**9),
        ("2d", 2 * 86_400 * 10**9),
        (" 1.5S ", 1_500_000_000),
        ("10µs", 10_000),
    ],
)
def test_durations(given, ns):
    assert duration_ns(given, "timeout") == ns


@pytest.mark.parametrize(
    "given",
    [
        0, -1, 0.0, float("nan"), float("inf"), 1e-10, 10**400, 1e300, "", "90", "s", "1x", "1h 30m", "-5s", "1e3s",
        "9" * 400 + "s", timedelta(0), timedelta(days=-1), timedelta(days=4000), DURATION_MAX_NS,
    ],
)  # fmt: skip
def test_refused_durations(given):
    with pytest.raises(InvalidOption, match=r"^timeout must "):
        Options(timeout=given)


@pytest.mark.parametrize("given", [True, [], b"5s", object()])
def test_durations_of_the_wrong_kind(given):
    with pytest.raises(InvalidType, match=r"^timeout must be seconds"):
        Options(timeout=given)


def test_bare_numbers_in_strings_only_where_asked_for():
    assert duration_ns("90", "--timeout", bare_strings=True) == 90 * 10**9


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (1, 1), ("1B", 1), ("2KB", 2000), ("2 kb", 2000), ("2KiB", 2048), ("2k", 2048), ("1.5M", 3 << 19),
        ("3MB", 3_000_000), ("3MiB", 3 << 20), ("1GB", 10**9), ("1GiB", 1 << 30), ("1G", 1 << 30), ("2TB", 2 * 10**12),
        ("1TiB", 1 << 40), (1 << 50, 1 << 50),
    ],
)  # fmt: skip
def test_sizes(given, expected):
    assert size_bytes(given, "memory") == expected
    assert Options(memory=given).memory == given


@pytest.mark.parametrize(
    "given",
    [
        0, -1, (1 << 50) + 1, "", "0", "90", "1e9B", "-1K", "K", "1 XB", "1KBB", "1K1M", "9" * 5000 + "G",
        pytest.param(10**5000, id="huge"),
    ],
)  # fmt: skip
def test_refused_sizes(given):
    with pytest.raises(InvalidOption, match=r"^memory must "):
        Options(memory=given)


@pytest.mark.parametrize("given", [True, 1.5, [], b"5K", object()])
def test_sizes_of_the_wrong_kind(given):
    with pytest.raises(InvalidType, match=r"^file_size must be bytes or text"):
        Options(file_size=given)


def test_bare_sizes_in_strings_only_where_asked_for():
    assert size_bytes("4096", "--memory", bare_strings=True) == 4096


@pytest.mark.parametrize(
    ("field", "value", "error"),
    [
        ("open_files", 0, InvalidOption),
        ("open_files", 1 << 21, InvalidOption),
        ("processes", 0, InvalidOption),
        ("processes", "2", InvalidType),
        ("cpu_time", 0, InvalidOption),
        ("name", "", InvalidOption),
        ("name", "two\nlines", InvalidOption),
        ("name", "x" * 1001, InvalidOption),
        ("name", 5, InvalidType),
        ("priority", 1 << 15, InvalidOption),
        ("priority", True, InvalidType),
        ("priority", 1.0, InvalidType),
        ("retries", -1, InvalidOption),
        ("retries", 1001, InvalidOption),
        ("start_time", 5, InvalidType),
        ("start_time", datetime(2030, 1, 1), InvalidOption),
        ("deadline", datetime(2030, 1, 1), InvalidOption),
        ("on_miss", "explode", InvalidOption),
        ("run_if", "maybe", InvalidOption),
        ("run_if", [], InvalidOption),
        ("fresh", 1, InvalidType),
        ("args", 7, InvalidType),
        ("kwargs", {1: 2}, InvalidType),
        ("priority", None, InvalidType),
        ("fresh", None, InvalidType),
    ],
)
def test_refused_values(field, value, error):
    with pytest.raises(error, match=field):
        Options(**{field: value})


def test_unknown_option_names_the_nearest():
    with pytest.raises(InvalidOption, match="did you mean 'timeout'"):
        options(timeuot=5)


def test_only_given_fields_count():
    given = Options(timeout=5, priority=0)
    assert given.given() == ("priority", "timeout")
    assert given.get("timeout") == 5
    assert given.get("retries", 7) == 7
    assert given.retries is UNSET
    assert repr(given) == "Options(priority=0, timeout=5)"


def test_merging_the_later_wins_and_none_lifts():
    merged = Options(timeout=5, retries=1) | Options(timeout=None, priority=2)
    assert merged == Options(timeout=None, retries=1, priority=2)
    assert rules(merged).timeout_ns == 0
    assert Options() | merged == merged | Options() == merged


def test_merging_something_else_is_refused():
    with pytest.raises(TypeError):
        Options() | {"timeout": 5}


def test_options_are_frozen_and_pickle():
    given = Options(timeout="90s", deadline=NOON, retries=2)
    with pytest.raises(AttributeError):
        given.timeout = 3
    copy = pickle.loads(pickle.dumps(given))
    assert copy == given
    assert copy.priority is UNSET


def test_rules_are_whole_nanoseconds():
    made = rules(Options(timeout="90s", deadline="2m", on_miss="finish", run_if="done", retries=2, fresh=True))
    assert made[:7] == (0, 90 * 10**9, 120 * 10**9, False, "done", 2, True)
    assert not any(made[7:])
    limited = rules(Options(memory="2GiB", cpu_time="1m", file_size="1KB", open_files=9, processes=3))
    assert limited[7:] == (2 << 30, 60 * 10**9, 1000, 9, 3, (), ())
    lifted = Options(memory="2GiB", cpu_time=1, file_size=1, open_files=9, processes=3) | Options(
        memory=None, cpu_time=None, file_size=None, open_files=None, processes=None
    )
    assert rules(lifted) == rules(Options())
    assert rules(Options(deadline=NOON)).deadline_ns == 0
    assert hash(made) == hash(rules(Options()) and made)


@task
def bare(x):
    """Double."""
    return 2 * x


@task(timeout=5, name="adder")
def add(x, y=1):
    return x + y


def unmarked(x):
    return x


def test_task_is_called_here_and_now():
    assert bare(4) == 8
    assert add(1, y=2) == 3


def test_task_looks_like_its_function():
    assert (bare.name, bare.__name__, bare.__doc__) == ("bare", "bare", "Double.")
    assert (add.name, add.options) == ("adder", Options(timeout=5, name="adder"))
    assert repr(add) == "<Task 'adder'>"


def test_task_pickles_by_reference_like_the_function_it_replaces():
    assert pickle.loads(pickle.dumps(add)) is add
    assert b"adder" not in pickle.dumps(add)


def test_task_beside_its_function_pickles_by_value():
    beside = task(retries=1)(unmarked)
    copy = pickle.loads(pickle.dumps(beside))
    assert copy.fn is unmarked
    assert copy.options == beside.options


def test_batch_zips_like_map():
    batch = task(timeout=5).map(unmarked, [1, 2, 3], "ab")
    assert batch.items == [(1, "a"), (2, "b")]


def test_batch_needs_iterables_and_takes_no_args():
    with pytest.raises(InvalidType, match="at least one iterable"):
        task().map(unmarked)
    with pytest.raises(InvalidOption, match="from the iterables"):
        task(args=(1,)).map(unmarked, [1])


def test_task_needs_a_function_and_options_go_first():
    with pytest.raises(InvalidType, match="needs a function"):
        task(timeout=1)(5)
    with pytest.raises(InvalidType, match="before the function"):
        task(unmarked, timeout=5)


def test_declarations_are_collected_in_order_with_their_place():
    found = []
    collect(found)
    try:
        first = task(unmarked)
        second = task(priority=1)(unmarked)
    finally:
        collect(None)
    task(unmarked)
    assert [entry.task for entry in found] == [first, second]
    assert {entry.module for entry in found} == {__name__}
    assert found[0].line < found[1].line


def test_task_takes_any_callable():
    assert Task(len, Options())([1, 2]) == 2


@pytest.mark.parametrize("field", ["timeout", "deadline", "priority", "retries"])
def test_a_number_too_long_to_be_shown_is_refused_like_any_other(field):
    """Regression: Python shows no number of 4301 digits, and it was that which was told."""
    with pytest.raises(InvalidOption, match=f"{field} must be .* int too long"):
        Options(**{field: 10**5000})
