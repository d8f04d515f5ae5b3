"""Cron lines in zones: against cronsim, on the nights when the clocks are changed, and everything that is refused."""

import os
import subprocess
import sys
from datetime import UTC, datetime, timedelta, timezone
from itertools import islice, pairwise, product
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ptss_mp import InvalidOption, InvalidType, next_runs
from ptss_mp.timetable import COUNT_MAX, CronTable, utc, wall_ns, zone

cronsim = pytest.importorskip("cronsim", reason="cron lines are an extra: pip install 'ptss_mp[cron]'")

S = 1_000_000_000
# The nights of a year in which local times are left out, or come twice (UTC instants of the change).
CHANGES = {
    "Europe/Berlin": ["2026-03-29T01:00", "2026-10-25T01:00"],
    "America/New_York": ["2026-03-08T07:00", "2026-11-01T06:00"],
    "Australia/Lord_Howe": ["2026-10-03T15:30", "2026-04-04T15:00"],  # by half an hour
    "Pacific/Apia": ["2011-12-30T10:00", "2012-03-31T14:00"],  # the 30th of December was left out
    "America/St_Johns": ["2006-04-02T03:31", "2006-10-29T02:31"],  # at one minute past midnight
    "Africa/Casablanca": ["2026-02-15T02:00", "2026-03-22T02:00"],
    "UTC": ["2026-01-01T00:00"],
}
# Hours and minutes that begin with no star: cronsim places such lines as cron does, each local time once.
FIXED = ["0 2 * * *", "30 2 * * *", "30 1,2,3 * * *", "5 0-4 * * *", "0,15,30,45 0-5/1 * * *", "45 23 * * *",
         "10 2 * * 0", "59 1 29,30,31 * *", "0 0 30 12 *", "0 12 L * *", "15 2 * * SUN"]  # fmt: skip
STARRED = ["* * * * *", "*/7 * * * *", "0 * * * *", "30 * * * *", "*/15 2 * * *", "20 */2 * * *", "*/30 1-3 * * SUN"]


def at(text, name="UTC"):
    return datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(name))


def around(changes):
    return [at(change) + timedelta(hours=hours) for change in changes for hours in (-49, -25, -3, -1, 0, 1, 3)]


def shown(moments):
    return [moment.strftime("%m-%d %H:%M %z") for moment in moments]


@pytest.mark.parametrize("name", CHANGES)
def test_lines_with_fixed_hours_are_as_cronsim_has_them(name):
    for line, start in product(FIXED, around(CHANGES[name])):
        expected = []
        for moment in cronsim.CronSim(line, start.astimezone(ZoneInfo(name))):
            instant = moment.astimezone(UTC)
            if instant > start and instant not in expected:  # several left-out times become one instant
                expected.append(instant)
            if len(expected) == 12:
                break
        got = next_runs(line, tz=name, start=start, count=12)
        assert [moment.astimezone(UTC) for moment in got] == expected, line


@pytest.mark.parametrize("name", CHANGES)
def test_each_local_time_once_and_what_is_left_out_right_after(name):
    """By brute force: go through the minutes of the world, and keep what the words of the promise say."""
    there, minutes = ZoneInfo(name), 56 * 60
    for change in map(at, CHANGES[name]):
        first = change - timedelta(hours=27)
        local = [(first + timedelta(minutes=i)).astimezone(there).replace(tzinfo=None) for i in range(minutes)]
        seen, meant = set(local[:1]), []  # the local times that each minute stands for
        for before, now in pairwise(local):
            meant.append({before + timedelta(minutes=k) for k in range(1, gap(before, now))})
            if now not in seen:
                meant[-1].add(now)
            seen.add(now)
        for line in FIXED + STARRED:
            matching = matches(line, local[0] - timedelta(hours=26), local[-1] + timedelta(hours=2))
            expected = [first + timedelta(minutes=i) for i, these in enumerate(meant, 1) if these & matching]
            got = islice(each(CronTable(line, name), wall_ns(first)), len(expected))
            assert [utc(wall) for wall in got] == expected, line


def gap(before, now):
    return max(1, round((now - before) / timedelta(minutes=1)))


def matches(line, first, last):
    found = set()
    for moment in cronsim.CronSim(line, first):
        if moment > last:
            return found
        found.add(moment)
    return found


def each(table, wall):
    while (found := table.after(wall)) is not None:
        yield (wall := found)


@pytest.mark.parametrize(
    ("line", "name", "start", "runs"),
    [
        ("30 2 * * *", "Europe/Berlin", "2026-03-28T00:00",
         ["03-28 02:30 +0100", "03-29 03:00 +0200", "03-30 02:30 +0200"]),
        ("30 2 * * *", "Europe/Berlin", "2026-10-24T00:00",
         ["10-24 02:30 +0200", "10-25 02:30 +0200", "10-26 02:30 +0100"]),
        ("0 * * * *", "Europe/Berlin", "2026-10-25T00:30",
         ["10-25 01:00 +0200", "10-25 02:00 +0200", "10-25 03:00 +0100"]),  # none in the second hour from two
        ("*/20 2 * * *", "Europe/Berlin", "2026-03-28T02:30",
         ["03-28 02:40 +0100", "03-29 03:00 +0200", "03-30 02:00 +0200"]),  # three of them become one
        ("30 1 * * *", "America/New_York", "2026-10-31T12:00",
         ["11-01 01:30 -0400", "11-02 01:30 -0500", "11-03 01:30 -0500"]),
        ("15 2 * * *", "America/New_York", "2026-03-07T12:00",
         ["03-08 03:00 -0400", "03-09 02:15 -0400", "03-10 02:15 -0400"]),
        ("15 2 * * *", "Australia/Lord_Howe", "2026-10-03T12:00",
         ["10-04 02:30 +1100", "10-05 02:15 +1100", "10-06 02:15 +1100"]),
        ("45 1 * * *", "Australia/Lord_Howe", "2026-04-04T12:00",
         ["04-05 01:45 +1100", "04-06 01:45 +1030", "04-07 01:45 +1030"]),
        ("0 6 * * *", "Pacific/Apia", "2011-12-28T12:00",
         ["12-29 06:00 -1000", "12-31 00:00 +1400", "12-31 06:00 +1400"]),  # of the lost day at its end
        ("0 0 31 * *", "UTC", "2026-01-31T12:00", ["03-31 00:00 +0000", "05-31 00:00 +0000", "07-31 00:00 +0000"]),
        ("0 0 L * *", "UTC", "2028-01-31T12:00", ["02-29 00:00 +0000", "03-31 00:00 +0000", "04-30 00:00 +0000"]),
        ("0 0 1 * *", "UTC", "2026-11-30T12:00", ["12-01 00:00 +0000", "01-01 00:00 +0000", "02-01 00:00 +0000"]),
    ],
)  # fmt: skip
def test_nights_and_month_ends(line, name, start, runs):
    assert shown(next_runs(line, tz=name, start=at(start, name), count=3)) == runs


def test_the_29th_of_february():
    years = [moment.year for moment in next_runs("0 0 29 2 *", tz="UTC", start=at("2027-01-01"), count=25)]
    assert years[:3] == [2028, 2032, 2036]
    assert years[17:] == [2096, 2104, 2108, 2112, 2116, 2120, 2124, 2128], "2100 has none; and 2043 is no end"


instants = st.integers(0, 4_000_000_000_000_000).map(lambda us: us * 1000 + us % 1000)  # until 2096
fields = st.tuples(
    st.sampled_from(["*", "*/5", "*/7", "0", "30", "59", "1,2,58"]),
    st.sampled_from(["*", "*/3", "0", "2", "1-3", "23", "2,14"]),
    st.sampled_from(["*", "1", "29", "30,31", "L", "*/10"]),
    st.sampled_from(["*", "2", "3,10", "*/4", "12"]),
    st.sampled_from(["*", "*", "0", "SUN", "1-5", "7"]),
)


@settings(max_examples=250)
@given(fields, st.sampled_from(list(CHANGES)), instants, st.integers(-3 * 86_400 * S, 3 * 86_400 * S), st.booleans())
def test_after_and_before_are_each_the_inverse_of_the_other(line, name, wall, by, near):
    if near:
        wall = wall_ns(at(CHANGES[name][wall % len(CHANGES[name])])) + by
    try:
        table = CronTable(" ".join(line), name)
    except InvalidOption:
        assert line[2] == "30,31"
        assert line[3] == "2"
        return
    found = table.after(wall)
    assert found is not None
    assert found > wall
    assert table.before(found) == found
    assert table.before(found - 1) <= wall, "there is none between"
    last = table.before(wall)
    assert last <= wall
    assert table.after(last) == found
    assert table.after(last - 1) == last
    following = table.after(found)
    assert table.before(following - 1) == found


@given(instants)
def test_walls_and_datetimes(wall):
    assert wall_ns(utc(wall)) == wall // 1000 * 1000


# ---- what is refused


@pytest.mark.parametrize(
    "line",
    ["", " ", "* * * *", "* * * * * *", "60 * * * *", "* 24 * * *", "* * 0 * *", "* * 32 * *", "* * * 13 * ",
     "* * * * 8", "a * * * *", "*/0 * * * *", "5-1 * * * *", "-1 * * * *", "1- * * * *", "1,,2 * * * *", "@daily",
     "* * * FOO *", "* * * * MON#6", "² * * * *", "1.5 * * * *", "*/" + "9" * 5000 + " * * * *",
     "0 0 L/x * *", "x" * 10_000],
)  # fmt: skip
def test_bad_lines(line):
    with pytest.raises(InvalidOption) as caught:
        next_runs(line, tz="UTC")
    assert "cron" in str(caught.value)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 250


@pytest.mark.parametrize("line", ["0 0 30 2 *", "0 0 31 4,6,9,11 *", "0 0 31 2 */7", "0 0 * 2 MON#6", "0 0 31 2 *"])
def test_dates_that_never_come(line):
    with pytest.raises(InvalidOption, match=r"never comes|Bad day"):
        CronTable(line, "UTC")


@pytest.mark.parametrize("line", [5, b"* * * * *", ["*"] * 5, True])
def test_lines_of_a_wrong_kind(line):
    with pytest.raises(InvalidType, match="cron must be a line"):
        next_runs(line)


@pytest.mark.parametrize("name", ["Mars/Base", "", "../etc/passwd", "/etc/localtime", "Europe", "a\0b", "x" * 10_000])
def test_bad_zones(name):
    with pytest.raises(InvalidOption, match="no zone") as caught:
        zone(name)
    assert len(str(caught.value)) < 250


@pytest.mark.parametrize("name", [5, b"UTC", UTC])
def test_zones_of_a_wrong_kind(name):
    with pytest.raises(InvalidType, match="must be the name of a zone"):
        next_runs("* * * * *", tz=name)


@pytest.mark.parametrize(
    ("given", "error", "word"),
    [
        ({}, InvalidOption, "either cron or interval"),
        ({"cron": "* * * * *", "interval": 5}, InvalidOption, "either cron or interval"),
        ({"interval": 5, "start": datetime(2026, 1, 1)}, InvalidOption, "time zone"),
        ({"cron": "* * * * *", "start": datetime(2026, 1, 1)}, InvalidOption, "time zone"),
        ({"interval": 5, "start": "2026-01-01"}, InvalidType, "aware datetime"),
        ({"interval": 5, "count": 0}, InvalidOption, "count"),
        ({"interval": 5, "count": COUNT_MAX + 1}, InvalidOption, "count"),
        ({"interval": 5, "count": 1.5}, InvalidType, "count"),
        ({"interval": 5, "count": True}, InvalidType, "count"),
        ({"interval": 0}, InvalidOption, "interval"),
        ({"interval": -1}, InvalidOption, "interval"),
        ({"interval": "soon"}, InvalidOption, "interval"),
        ({"interval": True}, InvalidType, "interval"),
        ({"interval": 5, "tz": "Mars/Base"}, InvalidOption, "no zone"),
    ],
)
def test_what_next_runs_refuses(given, error, word):
    with pytest.raises(error, match=word):
        next_runs(**given)


# ---- intervals, the ends of time, the machine's zone


def test_an_interval_begins_at_its_start_and_knows_no_summer_time():
    got = next_runs(interval="12h", tz="Europe/Berlin", start=at("2026-03-28T12:00", "Europe/Berlin"), count=4)
    assert shown(got) == ["03-28 12:00 +0100", "03-29 00:00 +0100", "03-29 13:00 +0200", "03-30 01:00 +0200"]


def test_without_a_start_it_is_now():
    now = datetime.now(UTC)
    first, second = next_runs(interval=3600, tz="UTC", count=2)
    assert now <= first <= datetime.now(UTC)
    assert second - first == timedelta(hours=1)
    (soon,) = next_runs("* * * * *", tz="UTC", count=1)
    assert timedelta(0) < soon - now <= timedelta(minutes=2)


@pytest.mark.parametrize("what", [{"cron": "0 0 1 1 *"}, {"interval": timedelta(days=3660)}, {"cron": "* * * * *"}])
@pytest.mark.parametrize("name", ["UTC", "Pacific/Apia", "America/New_York"])
def test_the_ends_of_time_are_no_errors(what, name):
    for start in (at("9899-12-31T23:58"), at("9890-01-01"), at("0100-01-01")):
        got = next_runs(**what, tz=name, start=start, count=12)
        assert 1 <= len(got) <= 12
        assert got == sorted(got)
        assert all(moment >= start for moment in got)
    for moment in (datetime.max, datetime.min, datetime(9900, 1, 1), datetime(99, 12, 31)):
        for offset in (-14, 0, 14):
            start = moment.replace(tzinfo=timezone(timedelta(hours=offset)))
            with pytest.raises(InvalidOption, match="the years 100 to 9899"):
                next_runs(**what, tz=name, start=start + timedelta(days=3) if moment.year == 9900 else start)


@pytest.mark.parametrize("line", ["0 0 29 2 *", "* * * * *"])
def test_a_table_has_an_end_and_a_beginning(line):
    table = CronTable(line, "Pacific/Apia")
    assert table.after(wall_ns(datetime.max.replace(tzinfo=UTC))) is None
    assert table.after(10**30) is None
    last = wall_ns(at("9899-12-31T23:59"))
    assert table.after(table.before(last) - 1) == table.before(last)
    assert table.before(table.after(wall_ns(at("0100-01-01")))) > wall_ns(at("0100-01-01"))


def run_with(environment, program):
    kept = {name: value for name, value in os.environ.items() if name != "TZ"}
    done = subprocess.run(
        [sys.executable, "-c", program], env={**kept, **environment}, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


SHOW = """
from datetime import UTC, datetime
from ptss_mp import next_runs
print(next_runs("0 12 1 7 *", start=datetime(2026, 1, 1, tzinfo=UTC), count=1)[0].isoformat())
"""


@pytest.mark.parametrize(
    ("tz", "shown"),
    [
        ("Europe/Berlin", "2026-07-01T12:00:00+02:00"),
        (":America/New_York", "2026-07-01T12:00:00-04:00"),
        ("UTC", "2026-07-01T12:00:00+00:00"),
        ("Mars/Base", "2026-07-01T12:00:00+00:00"),
    ],
)
def test_the_zone_of_the_machine_is_as_tz_says(tz, shown):
    assert run_with({"TZ": tz}, SHOW) == shown


def test_without_tz_it_is_that_of_the_system():
    by_libc = "from datetime import datetime; print(datetime(2026, 7, 1, 12).astimezone().isoformat())"
    assert run_with({}, SHOW) == run_with({}, by_libc)


def test_a_missing_cronsim_is_named_with_what_brings_it():
    told = run_with({}, """
import sys
sys.modules["cronsim"] = None
from ptss_mp import InvalidOption, next_runs
assert next_runs(interval=5, tz="UTC", count=2)
try:
    next_runs("* * * * *")
except InvalidOption as error:
    print(error)
""")  # fmt: skip
    assert told == "cron lines need cronsim: pip install 'ptss_mp[cron]'"


def test_cronsim_is_imported_only_where_it_is_used():
    assert run_with({}, "import sys, ptss_mp.timetable; print('cronsim' in sys.modules)") == "False"
