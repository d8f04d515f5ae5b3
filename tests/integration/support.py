"""Waits with a cap, and a look at processes."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import wait
from pathlib import Path
from typing import Any

import deeds

from ptss_mp import Executor, Future, Outcome

CAP_S = 30.0  # no wait takes longer; nothing here needs a tenth of it


def until(true: Callable[[], Any], what: str, cap_s: float = CAP_S) -> Any:
    """Return what `true` returns once it is true; fail after `cap_s`."""
    end = time.monotonic() + cap_s
    while not (found := true()):
        assert time.monotonic() < end, f"{what}: not within {cap_s} s"
        time.sleep(0.001)
    return found


def lines(path: Path) -> list[str]:
    """Return the whole lines of a file, [] if there is none yet."""
    try:
        return path.read_text().split("\n")[:-1]
    except FileNotFoundError:
        return []


def wait_for_lines(path: Path, count: int) -> list[str]:
    """Return the lines of a file once there are so many."""
    until(lambda: len(lines(path)) >= count, f"{count} lines in {path.name}")
    return lines(path)


def within(cap_s: float, call: Callable[[], Any]) -> Any:
    """Return what a call returns, or raise what it raises; fail if it takes longer."""
    box: dict[str, Any] = {}

    def run() -> None:
        try:
            box["value"] = call()
        except BaseException as error:  # raised again in the test's thread
            box["error"] = error

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(cap_s)
    assert not thread.is_alive(), f"{call} did not return within {cap_s} s"
    if "error" in box:
        raise box["error"]
    return box.get("value")


def alive(pid: int) -> bool:
    """Return True if a process is there and is no zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


def wait_gone(pids: Iterable[int], cap_s: float) -> None:
    """Fail if a process lives longer than so many seconds from now."""
    pids = list(pids)
    until(lambda: not any(map(alive, pids)), f"end of {[p for p in pids if alive(p)]}", cap_s)


class Settled:
    """Counts how often each Future's callbacks were run: once is right."""

    def __init__(self) -> None:
        self.counts: dict[Future[Any], int] = {}

    def watch(self, future: Future[Any]) -> Future[Any]:
        self.counts[future] = 0
        future.add_done_callback(self._count)
        return future

    def _count(self, future: Future[Any]) -> None:
        self.counts[future] += 1

    def check(self, ex: Executor) -> None:
        """Every watched Future was settled exactly once."""
        assert ex.drain(CAP_S)
        assert set(self.counts.values()) <= {1}, "a Future was settled twice, or never"


def beside_healthy(ex: Executor, guilty: Callable[[], Future[Any]]) -> tuple[Future[Any], Outcome[Any]]:
    """Submit a job among eight healthy ones; they succeed, and the pool is usable afterwards."""
    settled = Settled()
    before = [settled.watch(ex.submit(deeds.double, i)) for i in range(4)]
    future = settled.watch(guilty())
    after = [settled.watch(ex.submit(deeds.double, i)) for i in range(4, 8)]
    done, _ = wait([*before, future, *after], CAP_S)
    assert len(done) == 9, "a job never ended"
    assert [f.result() for f in before + after] == [2 * i for i in range(8)]
    assert ex.submit(deeds.double, 21).result(CAP_S) == 42
    settled.check(ex)
    return future, future.outcome()


def worker_pids(ex: Executor) -> set[int]:
    """Return the pids of the workers that serve a pool, as their jobs tell them."""
    return {f.result(CAP_S) for f in [ex.submit(deeds.pid) for _ in range(200)]}


def children_of(pid: int) -> list[int]:
    """Return the children of all threads of a process."""
    found: list[int] = []
    try:
        for task in os.listdir(f"/proc/{pid}/task"):
            found += map(int, Path(f"/proc/{pid}/task/{task}/children").read_text().split())
    except FileNotFoundError:
        pass
    return found


def parent_of(pid: int) -> int:
    """Return the parent of a process."""
    return int(Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[1])
