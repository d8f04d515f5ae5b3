"""Rendering, as pure functions."""

from __future__ import annotations

import json
import logging
import os
import signal
import sys
import sysconfig
from datetime import UTC, datetime

import pytest

import ptss_mp
from ptss_mp.cli import exits, logs, text
from ptss_mp.outcome import Outcome, Status
from ptss_mp.units import shown_size

NOW = datetime(2026, 1, 1, tzinfo=UTC)
LIBRARY = os.path.join(sysconfig.get_path("stdlib"), "json", "decoder.py")
TRACEBACK = f"""Traceback (most recent call last):
  File "/home/me/jobs.py", line 7, in outer
    inner()
  File "/home/me/my lib/helper.py", line 3, in inner
    json.loads("")
  File "{LIBRARY}", line 355, in raw_decode
    raise JSONDecodeError("Expecting value", s, err.value) from None
"""
CRASH = f"""Fatal Python error: Segmentation fault

Thread 0x00007f (most recent call first):
  File "/home/me/other.py", line 1 in background

Current thread 0x00007e (most recent call first):
  File "{LIBRARY}", line 5 in string_at
  File "/home/me/jobs.py", line 9 in reads
"""


def outcome(status, name="job", **facts):
    return Outcome(status, name, "key", NOW, NOW, **facts)


@pytest.mark.parametrize(
    ("raw", "shown"),
    [
        ("plain ümläut 漢", "plain ümläut 漢"),
        ("\x1b[31m", r"\x1b[31m"),
        ("a\nb\r\tc", r"a\nb\r\tc"),
        ("\0", r"\x00"),
        ("a\u202eb", r"a\u202eb"),
        ("\udcff", r"\udcff"),
    ],
)
def test_visible(raw, shown):
    assert text.visible(raw) == shown


def test_some_may_be_kept():
    assert text.visible("a\n\tb\r\x1b", keep="\n\t") == "a\n\tb\\r\\x1b"


@pytest.mark.parametrize("number", [*range(0x20), *range(0x7F, 0xA0), *range(0x200B, 0x2010), *range(0x2028, 0x202F),
                                    *range(0x2060, 0x2070), 0xAD, 0x61C, 0xFEFF, 0xD800, 0xDFFF, 0xE0001])  # fmt: skip
def test_no_control_character_gets_through(number):
    assert text.visible(f"a{chr(number)}b").isprintable()
    line = text.json_line(NOW, "INFO", "l", f"a{chr(number)}b", fact=chr(number))
    assert line.isprintable()
    assert json.loads(line) == {
        "at": "2026-01-01T00:00:00Z", "level": "INFO", "logger": "l", "message": f"a{chr(number)}b", "fact": chr(number)
    }  # fmt: skip


def test_a_log_line_cannot_be_forged():
    record = logging.LogRecord("a\nb", logging.INFO, "f", 1, "x\n2026 CRITICAL forged\x1b[31m", (), None)
    assert "\n" not in logs.Lines().format(record)
    assert "\x1b" not in logs.Lines().format(record)
    try:
        raise ValueError("x\x1b[31m\ry")
    except ValueError:
        record = logging.LogRecord("a", logging.ERROR, "f", 1, "m", (), sys.exc_info(), sinfo="s\x1b\nt")
    told = logs.Lines().format(record)
    assert told.splitlines()[1] == "Traceback (most recent call last):"
    assert r"ValueError: x\x1b[31m\ry" in told
    assert told.endswith("s\\x1b\nt")
    assert "Traceback" in json.loads(logs.JsonLines().format(record))["traceback"]
    record.exc_info, record.exc_text, record.ptss_job = None, "came as\ntext\x1b", "pages[3]"
    assert logs.Lines().format(record).splitlines()[0].endswith(" ERROR a: m (job pages[3])")
    assert "came as\ntext\\x1b" in logs.Lines().format(record)
    assert json.loads(logs.JsonLines().format(record))["job"] == "pages[3]"


def test_where_is_the_users_own_innermost_line():
    assert text.where(TRACEBACK) == "/home/me/my lib/helper.py:3 in inner"
    assert text.where(CRASH) == "/home/me/jobs.py:9 in reads"
    assert text.where(TRACEBACK, "/home/me/jobs.py") == "/home/me/jobs.py:7 in outer"
    assert text.where(f'  File "{LIBRARY}", line 5 in f (most recent call first)') == f"{LIBRARY}:5 in f"
    assert text.where(None) == ""
    ours = f'  File "{os.path.dirname(ptss_mp.__file__)}/pickling.py", line 32, in dumps\n'
    assert text.where(ours) == "", "a result that cannot be pickled: nothing of the user's is to be seen"
    assert text.where(f'{ours}  File "{LIBRARY}", line 5, in f\n') == f"{LIBRARY}:5 in f"
    assert text.where('  File "/x/jobs.py", line 3, in <module>') == "/x/jobs.py:3"


def test_where_is_relative_to_the_current_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert text.where(f'  File "{tmp_path}/a/jobs.py", line 3, in f') == "a/jobs.py:3 in f"


def test_a_failure_is_one_line():
    crashed = outcome(
        Status.CRASHED,
        signal=signal.SIGSEGV,
        error="was killed",
        stack=CRASH,
        wall_time=0.0123,
        max_rss=12 << 20,
        attempts=2,
        stderr="first\nlast words\n",
    )
    assert text.failure(crashed) == (
        "job: crashed (SIGSEGV): was killed | at /home/me/jobs.py:9 in reads | 0.012 s | 12.0 MiB | 2 attempts"
        " | stderr: last words"
    )
    assert text.failure(outcome(Status.CANCELLED)) == "job: cancelled"
    assert text.failure(outcome(Status.CRASHED, exit_code=0)) == "job: crashed (exit status 0)"


@pytest.mark.parametrize(
    ("number", "shown"),
    [(0, "0 B"), (1023, "1023 B"), (1536, "1.5 KiB"), (5 << 30, "5.0 GiB"), (1 << 50, "1024.0 TiB")],
)
def test_size(number, shown):
    assert shown_size(number) == shown


def test_totals():
    assert text.totals({"succeeded": 1}, 0.5) == "1 job: 1 succeeded | 0.500 s"
    assert text.totals({"crashed": 1, "succeeded": 2, "failed": 0}, 12) == "3 jobs: 2 succeeded, 1 crashed | 12.0 s"
    assert text.by_status({"not settled": 2, "protocol": 1}) == "1 protocol, 2 not settled"
    assert text.totals({}, 12) == "0 jobs: nothing to do | 12.0 s"


def test_a_long_line_keeps_its_end(capsys):
    text.say("head " + "x" * 10_000 + " tail")
    line = capsys.readouterr().err
    assert len(line) <= text.LINE_CHARS_MAX + 1
    assert line.startswith("head ")
    assert line.endswith(" tail\n")


@pytest.mark.parametrize(
    ("status", "facts", "counts"),
    [
        (Status.SUCCEEDED, {}, 0),
        (Status.SUCCEEDED, {"tardiness": 0.1}, 3),
        (Status.SKIPPED, {}, 0),
        (Status.DEADLINE, {}, 3),
        *((s, {}, 1) for s in (Status.FAILED, Status.CRASHED, Status.TIMEOUT, Status.CANCELLED, Status.PROTOCOL)),
        *((s, {}, 1) for s in (Status.NOT_PICKLABLE, Status.INTERRUPTED)),
        (Status.DEPENDENCY, {"root": "late"}, 3),
        (Status.DEPENDENCY, {"root": "crashed"}, 1),
        (Status.DEPENDENCY, {"root": "unheard of"}, 1),
        (Status.DEPENDENCY, {}, 1),
    ],
)
def test_what_an_outcome_counts(status, facts, counts):
    failed = {"late": outcome(Status.DEADLINE), "crashed": outcome(Status.CRASHED)}
    assert exits.weight(outcome(status, **facts), failed) == counts


def test_one_beats_three():
    assert exits.together({0, 1, 3}) == 1
    assert exits.together({0, 3}) == 3
    assert exits.together({0}) == exits.together(set()) == 0


def test_how_late_the_tasks_were():
    from ptss_mp.shell.lateness import Tardiness

    assert text.late({}) == []
    told = text.late({"a": Tardiness(1, 0.25, 0.25), "b": Tardiness(3, 30.0, 12.5)})
    assert told == [
        "b: 3 jobs ended after their deadlines, 12.5 s late at most", "a: 1 job ended after its deadline, 0.250 s late"
    ]  # fmt: skip
    many = {f"t{i}": Tardiness(1, i, i) for i in range(text.LATE_MAX + 1)}
    assert text.late(many)[-1] == "1 further task had jobs that ended after their deadlines"
