"""A job that ends in the moment in which it is condemned: what stands behind it in its worker's pipe is innocent."""

from __future__ import annotations

from pathlib import Path

import deeds
import pytest
from support import CAP_S, lines, until

LIMIT_S = 0.3


def beginnings(log: Path) -> list[str]:
    return [line.split()[1] for line in lines(log) if line.startswith("begin")]


@pytest.fixture
def behind(pool, tmp_path, monkeypatch):
    """Let a job run a moment longer than its limit, with three short ones behind it; return the Futures and the log."""

    def make(pause: str):
        monkeypatch.setenv("PAUSE", pause)
        ex = pool(1, spares=0, preload=["deeds", "slow_to_shoot"])
        log = tmp_path / "log"
        for number in range(200):  # short ones: several are sent at a time
            ex.submit(deeds.logged, str(log), number).result(CAP_S)
        log.unlink()
        ex.pause()
        late = ex.options(timeout=LIMIT_S).submit(deeds.logged, str(log), 1, LIMIT_S + 0.03)
        others = [ex.submit(deeds.logged, str(log), number, 0.2) for number in range(2, 5)]
        ex.resume()
        until(lambda: beginnings(log) == ["1"], "the late one")
        return late, others, log

    return make


def test_between_the_last_look_and_the_signal(behind):
    """The worker dies in the name of the late one; nothing has begun meanwhile, so nothing is begun twice."""
    late, others, log = behind("shoot")
    assert late.outcome(CAP_S).status in ("timeout", "succeeded")  # as the verdict or the answer was told first
    assert [f.result(CAP_S) for f in others] == [2, 3, 4]
    # The second may be seen as begun, and so be taken back only at the death, when another worker has the third.
    assert beginnings(log)[0] == "1"
    assert sorted(beginnings(log)) == ["1", "2", "3", "4"]
    assert late.worker_pid not in {f.worker_pid for f in others}


def test_before_the_last_look(behind):
    """Nobody is killed, and what was held back begins."""
    late, others, log = behind("sign")
    assert late.outcome(CAP_S).ok
    assert [f.result(CAP_S) for f in others] == [2, 3, 4]
    assert beginnings(log) == ["1", "2", "3", "4"]
    assert {f.worker_pid for f in others} == {late.worker_pid}
