"""How many processes the attempts that may have only so many have: a count by the tree, again and again.

The kernel's own limits do not fit: RLIMIT_NPROC counts all that a user runs (and root never), a pids cgroup counts
threads too (docs/notes/0017-kernel-limits.md).
"""

from __future__ import annotations

import time
from collections.abc import Collection

from . import fences, proc
from .clock import Watched

LOOK_NS = 10_000_000  # between two counts; a process that came and went in between was never seen
LOOK_MAX_NS = 500_000_000  # but no longer, however much there is to count
COST_SHARE = 200  # counts take one part in so many of a processor, as long as LOOK_MAX_NS allows that
ROUND_NS = 10_000  # what the warden's round of looks costs for each worker, when it wakes for a count
BEYOND_MAX = 200  # no count goes on further beyond what is allowed: the verdict is clear
NEVER_NS = 1 << 62


class Census:
    """Counts, for all workers together.

    Attributes:
        due_at: instant of the next count.
    """

    def __init__(self) -> None:
        self.due_at = 0
        self._newest = b""

    def over(self, workers: Collection[Watched], now: int) -> list[tuple[Watched, int]]:
        """Return who has too many processes, with how many they are."""
        limited = []
        for worker in workers:
            if worker.group and worker.bounded != worker.processes and not worker.doomed:
                worker.bounded = worker.processes
                fences.bound(worker.group, worker.processes)
            if worker.processes and not worker.doomed:
                limited.append(worker)
        if not limited:
            self.due_at = NEVER_NS
            return []
        if self.due_at != NEVER_NS and now < self.due_at:
            return []
        found, began = [], time.thread_time_ns()  # of our own: while a bomb goes off nobody gets his turn
        newest = proc.newest()
        if newest != self._newest or not newest:  # else nothing was forked since the last count, by anybody
            self._newest = newest
            found = [(worker, count) for worker in limited if (count := self._count(worker)) > worker.processes]
        cost = time.thread_time_ns() - began + len(workers) * ROUND_NS
        self.due_at = now + min(max(LOOK_NS, cost * COST_SHARE), LOOK_MAX_NS)
        return found

    def _count(self, worker: Watched) -> int:
        """Return how many live processes the attempt has, itself included; 0 if its group tells: not too many.

        What was there when it was sent is an earlier job's, with all that it forks.  When it began is not asked: a job
        can scribble on that.
        """
        if fences.surely_within(worker.group, worker.processes):
            return 0
        since = worker.sent + time.clock_gettime_ns(time.CLOCK_BOOTTIME) - time.monotonic_ns()
        count, todo, most = 1, [worker.pid], worker.processes + BEYOND_MAX
        while todo and count < most:
            for pid in _children(todo.pop()):
                state, born = proc.life(pid)
                if state not in "ZX" and born + proc.TICK_NS > since:  # born within that tick: counted
                    count += 1
                    todo.append(pid)
        return count


def _children(pid: int) -> list[int]:
    try:
        return proc.children(pid)
    except OSError:  # no descriptor is left here: they are counted another time
        return []
