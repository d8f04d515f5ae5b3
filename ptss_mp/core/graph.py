"""The dependency graph: who waits for whom, and what an end means for those who wait.

A graph of Futures cannot hold a cycle; one of names can, and `order` refuses
it by naming it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from heapq import heappop, heappush

from ..errors import InvalidOption
from .job import DUE_SHIFT, ID_BITS, ID_MASK, NEVER, Prerequisite
from .slices import Slice

GOOD, SKIPPED = "succeeded", "skipped"


class Waiting:
    """A job with open prerequisites.

    Attributes:
        key: its place among the ready, once it gets there.
        run_if: "success", "done" or "failure".
        after: the edges, for inheritance upwards.
        open: how many are not settled yet, and one more as long as there is `more`.
        failed: one ended neither succeeded nor skipped.
        more: further edges are still to be told.
    """

    __slots__ = ("after", "failed", "key", "more", "open", "run_if")

    def __init__(self, key: int, run_if: str, after: Sequence[Prerequisite], more: bool = False) -> None:
        self.key = key
        self.run_if = run_if
        self.after = after
        self.open = len(after) + more
        self.more = more
        self.failed = False


class Graph:
    """The edges between unsettled jobs.

    Attributes:
        waiting: every job with open prerequisites.
        successors: job -> those that wait for it (some may have ended meanwhile).
        heirs: job -> heap of (due, successor), each pair as one int, of those that have lent it their deadlines.
    """

    __slots__ = ("heirs", "successors", "waiting")

    def __init__(self) -> None:
        self.waiting: dict[int, Waiting] = {}
        self.successors: dict[int, list[int]] = {}
        self.heirs: dict[int, list[int]] = {}

    def link(self, prerequisite: int, job: int) -> None:
        """Note that `job` waits for `prerequisite`."""
        found = self.successors.get(prerequisite)
        if found is None:
            self.successors[prerequisite] = [job]
        else:
            found.append(job)

    def lend(self, prerequisite: int, due: int, heir: int) -> None:
        """Note that a job that waits for `prerequisite` is due then."""
        heap = self.heirs.get(prerequisite)
        if heap is None:
            self.heirs[prerequisite] = [due << ID_BITS | heir]
        else:
            heappush(heap, due << ID_BITS | heir)

    def earliest_heir(self, prerequisite: int, work: Slice) -> int:
        """Return the earliest effective deadline of what waits for a job, NEVER if nothing does.

        If the slice is over before it is found (`work.cut`), that of one that may wait no longer.
        """
        heap = self.heirs.get(prerequisite)
        while heap:
            due, job = heap[0] >> ID_BITS, heap[0] & ID_MASK
            waiting = self.waiting.get(job)
            now_due = waiting.key >> DUE_SHIFT if waiting else NEVER
            if now_due == due or work.over():
                return due
            work.left -= 1
            heappop(heap)
            if now_due != NEVER:
                heappush(heap, now_due << ID_BITS | job)
        return NEVER


def judge(waiting: Waiting, status: str) -> str:
    """Take one settled prerequisite into account.

    Returns:
        "ready" if the job may go on, "" if it still waits, else the status it
        ends with: "dependency" or "skipped".
    """
    if waiting.run_if == "success" and status != GOOD:
        return SKIPPED if status == SKIPPED else "dependency"
    waiting.open -= 1
    if status not in (GOOD, SKIPPED):
        waiting.failed = True
    return verdict(waiting)


def verdict(waiting: Waiting) -> str:
    """Return what `judge` returns, with nothing new known."""
    if waiting.open:
        return ""
    return "ready" if waiting.run_if != "failure" or waiting.failed else SKIPPED


def order(needs: Mapping[str, Iterable[str]]) -> list[str]:
    """Return the names so that each comes after what it needs; else in the given order.

    Raises:
        InvalidOption: there is a cycle; the text names it (attribute `cycle`).
    """
    done: dict[str, None] = {}
    for start in needs:
        path: dict[str, None] = {}
        stack = [(start, iter(needs[start]))]
        if start in done:
            continue
        path[start] = None
        while stack:
            name, rest = stack[-1]
            following = next(rest, None)
            if following is None:
                stack.pop()
                path.pop(name)
                done[name] = None
            elif following in path:
                names = list(path)
                cycle = (*names[names.index(following) :], following)
                shown = cycle if len(cycle) <= 12 else (*cycle[:6], "…", *cycle[-5:])
                text = f"these {len(cycle) - 1} tasks wait for each other: {' -> '.join(shown)}"
                raise InvalidOption(text, cycle=cycle)
            elif following not in done:
                path[following] = None
                stack.append((following, iter(needs[following])))
    return list(done)
