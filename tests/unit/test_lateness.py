"""Warnings of deadlines are summed up before they flood; tardiness is kept per task."""

from __future__ import annotations

import logging
from types import SimpleNamespace

import pytest

from ptss_mp.core import commands as do
from ptss_mp.core.job import NEVER
from ptss_mp.shell import lateness
from ptss_mp.shell.lateness import LINES, OTHERS, PERIOD_NS, Lateness, task_of

MS = 1_000_000


class Calls:
    """In place of the callback thread: keeps what is logged."""

    def __init__(self):
        self.lines = []

    def log(self, level, text, *facts):
        self.lines.append((level, text % facts))


def future(name, running=False):
    return SimpleNamespace(_use=SimpleNamespace(name=name), running=lambda: running)


@pytest.fixture
def late():
    found = Lateness("pool", Calls())
    found.lines = found._callbacks.lines
    return found


def test_each_of_a_few_has_a_line(late):
    futures = {1: future("backup", running=True), 2: future("report")}
    late.tell(do.TellDeadline("soon", [1], [3_000 * MS]), futures, 0)
    late.tell(do.TellDeadline("critical", [2], [100 * MS]), futures, 50 * MS)
    late.tell(do.TellDeadline("exceeded", [2], [100 * MS]), futures, 101 * MS)
    assert late.lines == [
        (logging.WARNING, "job 'backup': 30 % or less of its time is left: its deadline is in 3.000 s, "
                          "and it still runs"),
        (logging.WARNING, "job 'report': 5 % or less of its time is left: its deadline is in 0.050 s, "
                          "and it still waits"),
        (logging.INFO, "job 'report': its time is over: its deadline was 0.001 s ago, and it still waits"),
    ]  # fmt: skip
    assert late.sum_at == PERIOD_NS
    late.sum_up()
    assert (len(late.lines), late.sum_at) == (3, NEVER)


def test_many_are_summed_up(late):
    futures = {job: future(f"j{job}") for job in range(1_000_000, 1_001_000)}
    for start in range(1_000_000, 1_001_000, 250):
        late.tell(do.TellDeadline("soon", list(range(start, start + 250)), [MS] * 250), futures, 5)
    assert len(late.lines) == LINES
    late.sum_up()
    assert len(late.lines) == LINES + 1
    first = f"'j{1_000_000 + LINES}' the first of them"
    text = f"pool: of {1_000 - LINES} more jobs, {first}: 30 % or less of its time is left"
    assert late.lines[-1] == (logging.WARNING, text)
    late.tell(do.TellDeadline("soon", [1_000_000], [MS]), futures, 2 * PERIOD_NS)
    assert len(late.lines) == LINES + 2, "a period begins anew"


def test_who_was_cancelled_meanwhile_has_no_line(late):
    late.tell(do.TellDeadline("soon", [7], [MS]), {}, 0)
    assert late.lines == []
    late.tell(do.TellDeadline("soon", list(range(50)), [MS] * 50), {}, 0)
    late.sum_up()
    text = f"pool: of {51 - LINES} more jobs, '?' the first of them: 30 % or less of its time is left"
    assert late.lines == [(logging.WARNING, text)]


@pytest.mark.parametrize(
    ("name", "task"),
    [("pages[7]", "pages"), ("pages", "pages"), ("a[x]", "a[x]"), ("[3]", "[3]"), ("a[1][2]", "a[1]"), ("a3]", "a3]"),
     ("a[3", "a[3"), ("a[]", "a[]")],
)  # fmt: skip
def test_the_task_of_a_job(name, task):
    assert task_of(name) == task


def test_tardiness_of_each_task(late, monkeypatch):
    for number, ns in enumerate((2_000, 500, 1_000)):
        late.note(f"pages[{number}]", ns * MS)
    late.note("backup", 5)
    assert late.tasks == {"pages": (3, 3.5, 2.0), "backup": (1, 5e-9, 5e-9)}
    monkeypatch.setattr(lateness, "NAMES_MAX", 3)
    for number in range(5):
        late.note(f"other {number}", MS)
    assert late.tasks["pages"].jobs == 3
    assert late.tasks[OTHERS].jobs == 4
