"""The earliest instant that matters: a heap of (instant, id) as one int, with lazy deletion.

An entry is dropped when it comes up and nobody waits for it any more; when the
dead outnumber the living, the heap is rebuilt (else a day of timeouts that
never fire would stand in it until the evening).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from heapq import heapify, heappop, heappush

from .job import ID_BITS, ID_MASK, NEVER

COMPACT_MIN = 1024  # a smaller heap is not worth a rebuild


class Timers:
    """Instants of ids.  `wanted(id)` tells whether an entry still matters."""

    __slots__ = ("_heap", "_limit", "_wanted")

    def __init__(self, wanted: Callable[[int], bool]) -> None:
        self._heap: list[int] = []
        self._wanted = wanted
        self._limit = COMPACT_MIN

    def __len__(self) -> int:
        return len(self._heap)

    def push(self, at: int, job: int) -> None:
        """Wake `job` at the instant `at`."""
        heappush(self._heap, at << ID_BITS | job)
        if len(self._heap) > self._limit:
            self._heap = [entry for entry in self._heap if self._wanted(entry & ID_MASK)]
            heapify(self._heap)
            self._limit = max(COMPACT_MIN, 2 * len(self._heap))

    @property
    def next_at(self) -> int:
        """The earliest instant noted, NEVER if none (a dead entry may make it early, never late)."""
        return self._heap[0] >> ID_BITS if self._heap else NEVER

    def due(self, now: int) -> Iterator[int]:
        """Take and yield the ids whose instant is not after `now`, in order of instant and id."""
        limit = (now + 1) << ID_BITS
        while self._heap and self._heap[0] < limit:
            job = heappop(self._heap) & ID_MASK
            if self._wanted(job):
                yield job
