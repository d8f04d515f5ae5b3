"""The earliest instant that matters: a heap of (instant, id) as one int, with lazy deletion.

An entry is dropped when it comes up and nobody waits for it any more; when the
heap has doubled, it is looked through for dead ones (else a day of timeouts
that never fire would stand in it until the evening).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from .heap import Heap
from .job import ID_BITS, ID_MASK, NEVER
from .slices import Slice

COMPACT_MIN = 1024  # a smaller heap is not worth a look


class Timers:
    """Instants of ids.

    Args:
        wanted: tells whether an id's entry still matters.
        work: what `due` may take in one go.
    """

    __slots__ = ("_heap", "_limit", "_sifting", "_wanted", "_work")

    def __init__(self, wanted: Callable[[int], bool], work: Slice) -> None:
        self._heap = Heap(lambda entry: wanted(entry & ID_MASK))
        self._wanted, self._work = wanted, work
        self._limit = COMPACT_MIN
        self._sifting = False

    def __len__(self) -> int:
        return len(self._heap)

    def __bool__(self) -> bool:
        return bool(self._heap.main or self._heap.kept)

    def push(self, at: int, job: int) -> None:
        """Wake `job` at the instant `at`."""
        self._heap.push(at << ID_BITS | job)
        if self._sifting or len(self._heap) > self._limit:
            self._sifting = not self._heap.sift()
            if not self._sifting:
                self._limit = max(COMPACT_MIN, 2 * len(self._heap))

    @property
    def next_at(self) -> int:
        """The earliest instant noted, NEVER if none (a dead entry may make it early, never late)."""
        entry = self._heap.least()
        return entry >> ID_BITS if entry else NEVER

    def due(self, now: int) -> Iterator[int]:
        """Take and yield the ids whose instant is not after `now`, in order of instant and id; a slice of them."""
        limit, work = (now + 1) << ID_BITS, self._work
        while 0 < self._heap.least() < limit and not work.over():
            job = self._heap.pop() & ID_MASK
            work.left -= 2  # of a million, each is a way down through memory that nobody has looked at for long
            if self._wanted(job):
                yield job
