"""A graph of jobs under a journal, to be killed and resumed; and a checker that trusts nothing but files.

    python graph.py FOLDER JOBS fail|rerun

Each job appends a line to `log` when it begins and when it ends, the program one for each outcome that is told.
"""

from __future__ import annotations

import os
import random
import sqlite3
import sys
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

MODULUS = 1_000_003


def note(path: str, line: str) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(fd, f"{line}\n".encode())
    os.close(fd)


def step(number: int, log: str, *before: int) -> int:
    note(log, f"b {number}")
    value = (number + sum(before)) % MODULUS
    note(log, f"e {number}")
    return value


def needs(number: int) -> list[int]:
    """Return the jobs whose values a job takes: none for every fourth, else up to three of the last fifty."""
    chance = random.Random(number)
    if number % 4 == 0:
        return []
    return sorted({chance.randrange(max(0, number - 50), number) for _ in range(chance.randint(1, 3))})


def expected(jobs: int, needs: Callable[[int], list[int]] = needs) -> list[int]:
    values: list[int] = []
    for number in range(jobs):
        values.append((number + sum(values[n] for n in needs(number))) % MODULUS)
    return values


def run(folder: str, jobs: int, policy: str) -> None:
    from ptss_mp import Executor

    log = os.path.join(folder, "log")
    futures: list[Any] = []

    def tell(number: int, future: Any) -> None:
        outcome = future.outcome()
        value = outcome.result() if outcome.ok else "-"
        note(log, f"t {number} {outcome.status} {int(outcome.resumed)} {value}")

    journal = os.path.join(folder, "journal.db")
    with Executor(max_workers=2, journal=journal, resume=True, on_interrupted=policy, spares=0) as ex:
        for number in range(jobs):
            view = ex.options(key=f"job {number}") if number % 2 else ex  # both kinds of keys
            future = view.submit(step, number, log, *(futures[n] for n in needs(number)))
            future.add_done_callback(lambda future, number=number: tell(number, future))
            futures.append(future)


def lines(path: Path) -> list[list[str]]:
    try:
        return [line.split() for line in path.read_text().splitlines()]
    except FileNotFoundError:
        return []


def finals(folder: Path) -> list[tuple[str, str]]:
    """Return (key, status) of the newest row of each key."""
    with closing(sqlite3.connect(folder / "journal.db")) as db:
        (ok,) = db.execute("PRAGMA integrity_check").fetchone()
        assert ok == "ok"
        query = "SELECT key, status FROM jobs JOIN (SELECT max(job) AS job FROM jobs GROUP BY key) USING (job)"
        return db.execute(query).fetchall()


def check(folder: Path, jobs: int, policy: str, needs: Callable[[int], list[int]] = needs) -> Counter[str]:
    """Fail unless each job has exactly one outcome, none was repeated or forgotten; return how they ended."""
    values, rows = expected(jobs, needs), finals(folder)
    assert len(rows) == jobs, f"{len(rows)} keys of {jobs} jobs"
    ends = Counter(status for _, status in rows)
    assert None not in ends, "a job was forgotten"
    again = {"dependency", "interrupted"} if policy == "rerun" else {"dependency"}
    began, ended = Counter[int](), Counter[int]()
    last: dict[int, tuple[str, str]] = {}
    for what, number, *facts in lines(folder / "log"):
        n = int(number)
        if what == "b":
            began[n] += 1
            assert n not in last or last[n][0] in again, f"job {n} was told as {last[n][0]}, and began once more"
        if what == "e":
            ended[n] += 1
        if what != "t":
            continue
        status, _resumed, value = facts
        if n in last and last[n][0] not in again:
            assert last[n] == (status, value), f"job {n} was told {last[n]} and later {status} {value}"
        last[n] = status, value
    assert len(last) == jobs, "an outcome was never told"
    for n, (status, value) in last.items():
        if status == "succeeded":
            assert int(value) == values[n], f"job {n} gave {value}"
            assert ended[n] >= 1, f"job {n} never ran to its end"
        else:
            assert status in ("interrupted", "dependency"), f"job {n} is {status}"
        if status == "dependency":
            assert began[n] == 0, f"job {n} ran without what it needs"
    told = Counter(status for status, _ in last.values())
    assert told == ends, f"told {told}, on disk {ends}"
    if policy == "fail":
        assert max(began.values()) == 1, "a job ran twice"
    return ends


if __name__ == "__main__":
    run(sys.argv[1], int(sys.argv[2]), sys.argv[3])
