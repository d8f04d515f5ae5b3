"""The line of progress, without a terminal or a clock."""

from __future__ import annotations

import pytest

from ptss_mp.observe.progress import Line, clock


@pytest.mark.parametrize(
    ("seconds", "told"),
    [(0, "0:00"), (7.4, "0:07"), (59.6, "1:00"), (750, "12:30"), (10_800, "3:00:00"), (360_000, "100:00:00")],
)
def test_a_duration_as_a_clock_shows_it(seconds, told):
    assert clock(seconds) == told


def test_the_line_tells_what_is_known(capsys):
    line = Line(total=None)
    for n in range(8):
        line.count(good=n != 3)
    assert line.text(2.0) == "8 done, 1 failed, 4.0/s"
    line = Line(total=2_000)
    for _ in range(1_000):
        line.count(good=True)
    assert line.text(4.0) == "1000/2000 done, 250/s, 0:04 left"
    assert line.text(0.0).startswith("1000/2000 done, 1000000000/s")  # no clock is so fast, and no division fails
    line.end()
    assert capsys.readouterr().err.endswith("\n")


def test_a_shorter_line_paints_over_a_longer_one(capsys):
    line = Line(total=None)
    line._draw("a long line")
    line._draw("short")
    assert capsys.readouterr().err == "\ra long line\rshort      "
