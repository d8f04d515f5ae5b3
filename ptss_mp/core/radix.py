"""A queue of instants to come at 8 bytes an entry: the radix heap, for what seldom comes true.

An entry is a reference to a key that its job has anyway; its instant is made from the key again whenever it is wanted
(an int of its own in a heap would be 48 bytes).  Entries that are far stand in one list for each highest bit in which
their instant differs from `_base` (Ahuja, Mehlhorn, Orlin, Tarjan, J. ACM 37, 1990).  When time comes near a list, its
entries move to lists of lower bits, or into `_near`, an ordinary heap.  The dead are dropped then, or once they are
more than half.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator
from heapq import heappop, heappush

from .job import DUE_SHIFT, ID_MASK, NEVER
from .slices import Slice

NEAR_NS = 1 << 27  # 134 ms: what comes so soon stands in order; a million entries move in a few times that
SWEEP_MIN = 4096  # fewer dead entries are not worth a look
KEY_BITS = DUE_SHIFT + 62
KEY_MASK = (1 << KEY_BITS) - 1
LISTS = 64  # instants have 62 bits; the first one stays empty


class Radix:
    """Keys, in the order of their instants.

    Args:
        instant: of a key; the same each time.
        live: ids of jobs whose entries count.
        work: what `come` may take in one go.
    """

    __slots__ = ("_base", "_count", "_draining", "_far", "_full", "_instant", "_live", "_near", "_work")

    def __init__(self, instant: Callable[[int], int], live: Container[int], work: Slice) -> None:
        self._instant, self._live, self._work = instant, live, work
        self._near: list[int] = []  # heap of (instant, key) as one int
        self._far: list[list[int]] = [[] for _ in range(LISTS)]  # by (instant ^ _base).bit_length()
        self._full = 0  # a bit for each list that holds something
        self._base = 0  # all instants in `_far` are later
        self._count = 0  # entries in `_far`
        self._draining: list[list[int]] = []  # lists whose entries are to be put again

    def __len__(self) -> int:
        """Return the number of entries, dead ones included."""
        return len(self._near) + self._count + sum(map(len, self._draining))

    def push(self, key: int) -> None:
        """Add a key."""
        at, base = self._instant(key), self._base
        if at <= base:
            heappush(self._near, at << KEY_BITS | key)
            return
        number = (at ^ base).bit_length()
        found = self._far[number]
        if not found:
            self._full |= 1 << number
        found.append(key)
        self._count += 1

    @property
    def next_at(self) -> int:
        """The next instant at which `come` is to be asked; NEVER if there is none."""
        if self._draining:
            return 0
        at = self._near[0] >> KEY_BITS if self._near else NEVER
        return min(at, self._first()[1] - NEAR_NS) if self._full else at

    def come(self, now: int, living: int) -> Iterator[int]:
        """Take and yield the keys of living jobs whose instant is not after `now`, in order; a slice of them.

        Args:
            living: how many jobs there are at most whose entries count.
        """
        if self._count > 2 * living + SWEEP_MIN and not self._draining:
            self._draining = [found for found in self._far if found]
            self._far, self._full, self._count = [[] for _ in range(LISTS)], 0, 0
        self._drain()
        while self._full and not self._draining and (first := self._first())[1] - NEAR_NS <= now:
            self._open(*first, now)
        near, work, limit = self._near, self._work, (now + 1) << KEY_BITS
        while near and near[0] < limit and not work.over():
            work.left -= 2
            key = heappop(near) & KEY_MASK
            if key & ID_MASK in self._live:
                yield key

    def _first(self) -> tuple[int, int]:
        """Return the first list that holds something, and the earliest instant that it may hold."""
        number = (self._full & -self._full).bit_length() - 1
        return number, (self._base >> number - 1 | 1) << number - 1

    def _open(self, number: int, start: int, now: int) -> None:
        """Put the entries of a list again, by a base within its span: the lists beyond it stay as they are."""
        found, self._far[number] = self._far[number], []
        self._full &= ~(1 << number)
        self._count -= len(found)
        self._base = max(start, min(now + NEAR_NS, start + (1 << number - 1) - 1))
        self._draining = [found]
        self._drain()

    def _drain(self) -> None:
        live, work, draining = self._live, self._work, self._draining
        while draining:
            found = draining[-1]
            while found and not work.over():
                work.left -= 1
                key = found.pop()
                if key & ID_MASK in live:
                    self.push(key)
            if found:
                return
            draining.pop()
