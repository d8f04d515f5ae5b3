"""How a task recurs, in options: what is legal, what is refused and with which words."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from ptss_mp.declare import RECURRENCE, UNSET, Options
from ptss_mp.errors import InvalidOption, InvalidType
from ptss_mp.making import for_tasks_only
from ptss_mp.rules import rule_of
from ptss_mp.tasks import task

NOON = datetime(2030, 1, 1, 12, tzinfo=UTC)
SECOND = 1_000_000_000


@pytest.mark.parametrize("field", ["interval", "delay", "jitter"])
@pytest.mark.parametrize("value", [0, -1, 0.0, float("nan"), "", "90", timedelta(0), timedelta(days=4000)])
def test_durations_that_can_never_be_right(field, value):
    with pytest.raises(InvalidOption, match=f"^{field} must "):
        Options(**{field: value})


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"interval": True}, "interval must be seconds"),
        ({"delay": b"5s"}, "delay must be seconds"),
        ({"cron": 5}, "cron must be"),
        ({"tz": UTC}, "tz must be"),
        ({"max_runs": 1.0}, "max_runs must be a whole number"),
        ({"max_runs": True}, "max_runs must be a whole number"),
        ({"until": "2030-01-01"}, "until must be an aware datetime, not str"),
        ({"misfire": None}, "misfire cannot be None"),
        ({"overlap": None}, "overlap cannot be None"),
        ({"until": timedelta(1)}, "until must be an aware datetime, not timedelta"),
    ],
)
def test_values_of_the_wrong_kind(options, words):
    with pytest.raises(InvalidType, match=words):
        Options(**options)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"max_runs": 0}, "max_runs must be within 1 and"),
        ({"max_runs": -1}, "max_runs must be within 1 and"),
        ({"until": datetime(2030, 1, 1)}, "until"),
        ({"overlap": "kill"}, "overlap must be one of"),
    ],
)
def test_values_that_can_never_be_right(options, words):
    with pytest.raises(InvalidOption, match=words):
        Options(**options)


def test_none_takes_an_inherited_recurrence_back():
    inherited = Options(interval=1, max_runs=3, jitter=0.1, until=NOON)
    lifted = inherited | Options(interval=None, max_runs=None, jitter=None, until=None)
    assert rule_of(inherited).every_ns == SECOND
    assert rule_of(lifted) is None


def test_a_rule_says_what_the_options_say():
    rule = rule_of(Options(interval="90s", jitter="1s", max_runs=5, until=NOON, overlap="queue", misfire="run_all"))
    assert (rule.every_ns, rule.delay_ns, rule.table, rule.jitter_ns) == (90 * SECOND, 0, None, SECOND)
    assert (rule.overlap, rule.misfire, rule.max_runs) == ("queue", "run_all", 5)
    assert rule.until == int(NOON.timestamp()) * SECOND
    rule = rule_of(Options(delay=0.5))
    assert (rule.every_ns, rule.delay_ns, rule.overlap, rule.misfire) == (0, SECOND // 2, "skip", "run_once")
    assert rule_of(Options(timeout=5)) is None


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"interval": 1, "delay": 1}, "interval and delay do not go together"),
        ({"interval": 1, "cron": "* * * * *"}, "interval and cron do not go together"),
        ({"delay": 1, "cron": "* * * * *"}, "delay and cron do not go together"),
        ({"max_runs": 2}, "max_runs without interval, delay or cron says nothing"),
        ({"overlap": "queue"}, "overlap without interval"),
        ({"jitter": 1}, "jitter without interval"),
        ({"tz": "UTC"}, "tz without interval"),
        ({"interval": 1, "tz": "UTC"}, "tz goes with cron: interval is a duration"),
        ({"interval": 1, "jitter": 1}, "jitter must be shorter than interval"),
        ({"interval": 1, "deadline": NOON}, "must be a duration, counted from each release"),
    ],
)
def test_what_does_not_go_together(options, words):
    with pytest.raises(InvalidOption, match=words):
        rule_of(Options(**options))


@pytest.mark.parametrize("field", RECURRENCE)
def test_recurrence_is_for_tasks_only(field):
    value = {
        "interval": 1, "delay": 1, "cron": "* * * * *", "tz": "UTC", "jitter": 1, "max_runs": 1, "until": NOON,
        "overlap": "skip", "misfire": "skip",
    }[field]  # fmt: skip
    options = Options(**{field: value})
    with pytest.raises(InvalidOption, match=rf"^{field} belongs to a task; add\(\) and @task take it"):
        for_tasks_only(options)
    assert getattr(task(**{field: value})(len).options, field) == value
    assert getattr(Options(), field) is UNSET
    for_tasks_only(Options(priority=1))


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("* * * *", "must have five fields"),
        ("0 0 0 * *", "is no cron line"),
        ("0 0 30 2 *", "is no cron line|never comes"),
        ("61 * * * *", "is no cron line"),
        ("x", "five fields"),
    ],
)
def test_cron_lines_that_are_none(line, words):
    pytest.importorskip("cronsim", reason="the extra [cron] is not installed here")
    with pytest.raises(InvalidOption, match=words):
        rule_of(Options(cron=line))


def test_a_zone_that_is_none():
    pytest.importorskip("cronsim", reason="the extra [cron] is not installed here")
    for name in ("Nowhere/City", "../../etc/passwd", ""):
        with pytest.raises(InvalidOption):
            rule_of(Options(cron="* * * * *", tz=name))


def test_a_missing_cronsim_is_named_with_the_way_to_get_it(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "cronsim", None)
    with pytest.raises(InvalidOption, match=r"pip install 'ptss_mp\[cron\]'"):
        rule_of(Options(cron="* * * * *"))
