"""How little is left until a deadline: soon, critical, exceeded, at the instant at which it comes true.

For jobs that wait and for those that run.  A job whose deadline kills it is never told to have exceeded it: it ends.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from .job import DUE_SHIFT, ID_MASK, RELEASE_MASK, RELEASE_SHIFT, Spec
from .radix import Radix
from .slices import Slice

SOON, CRITICAL, EXCEEDED = "soon", "critical", "exceeded"
SOON_PERCENT, CRITICAL_PERCENT = 30, 5  # of the window release…deadline that is left


def _soon_at(key: int) -> int:
    due = key >> DUE_SHIFT
    window = due - (key >> RELEASE_SHIFT & RELEASE_MASK)
    return due - window * SOON_PERCENT // 100 if window > 0 else due


def _critical_at(key: int) -> int:
    due = key >> DUE_SHIFT
    window = due - (key >> RELEASE_SHIFT & RELEASE_MASK)
    return due - window * CRITICAL_PERCENT // 100 if window > 0 else due


def _due_at(key: int) -> int:
    return key >> DUE_SHIFT


class Nearing:
    """The jobs that have a deadline of their own, each waiting for the next that is to be told of it.

    Args:
        live: the job table.
        work: what `due` may take in one go.
    """

    __slots__ = ("_critical", "_exceeded", "_live", "_soon", "push")

    def __init__(self, live: Mapping[int, Spec], work: Slice) -> None:
        self._live = live
        self._soon = Radix(_soon_at, live, work)
        self._critical = Radix(_critical_at, live, work)
        self._exceeded = Radix(_due_at, live, work)
        self.push = self._soon.push  # a key that is due at the job's own deadline, when the job comes

    def __len__(self) -> int:
        """Return the number of entries, those of ended jobs included."""
        return len(self._soon) + len(self._critical) + len(self._exceeded)

    @property
    def next_at(self) -> int:
        """The next instant at which `due` is to be asked; NEVER if there is none."""
        return min(self._soon.next_at, self._critical.next_at, self._exceeded.next_at)

    def due(self, now: int) -> Iterator[tuple[str, int, int]]:
        """Yield (status, job, deadline) of what is true by now and was not told; a slice of it.

        What has become critical before anybody could tell that it is soon is told to be critical.
        """
        living = len(self._live)
        for key in self._soon.come(now, living):
            self._critical.push(key)
            if now < _critical_at(key):
                yield SOON, key & ID_MASK, key >> DUE_SHIFT
        for key in self._critical.come(now, living):
            if not self._live[key & ID_MASK].kill_at_deadline:
                self._exceeded.push(key)
            if now < key >> DUE_SHIFT:
                yield CRITICAL, key & ID_MASK, key >> DUE_SHIFT
        for key in self._exceeded.come(now, living):
            yield EXCEEDED, key & ID_MASK, key >> DUE_SHIFT
