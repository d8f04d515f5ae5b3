"""A min-heap of ints in which entries die without being found; cleaned a few entries at a time.

Who is dead is skipped when it comes up.  To rebuild a heap of a million takes
0.3 s, and nothing else would happen meanwhile.  But its last entry can be
taken off a heap at no cost.  So when many are dead, entries move from the end
of `main` into `kept`, a few whenever another one comes or dies, and only the
living arrive.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush

SIFT = 4  # entries looked at for each that comes or dies: all are, before half as many more have


class Heap:
    """The least of both parts is the least of all.

    Args:
        is_alive: tells whether an entry still counts.

    Attributes:
        main: where entries come to; for who knows that `kept` is empty.
        kept: the survivors of a cleaning that is not finished; else empty.
    """

    __slots__ = ("is_alive", "kept", "main")

    def __init__(self, is_alive: Callable[[int], bool]) -> None:
        self.is_alive = is_alive
        self.main: list[int] = []
        self.kept: list[int] = []

    def __len__(self) -> int:
        """Return the number of entries, dead ones included."""
        return len(self.main) + len(self.kept)

    def push(self, entry: int) -> None:
        """Add an entry, greater than 0."""
        heappush(self.main, entry)

    def least(self) -> int:
        """Return the least entry, dead or not; 0 if there is none."""
        main, kept = self.main, self.kept
        if kept and (not main or kept[0] < main[0]):
            return kept[0]
        return main[0] if main else 0

    def pop(self) -> int:
        """Take what `least` returns."""
        main, kept = self.main, self.kept
        return heappop(kept if kept and (not main or kept[0] < main[0]) else main)

    def sift(self) -> bool:
        """Look at a few entries; return True once all have been looked at."""
        main, kept = self.main, self.kept
        for _ in range(min(SIFT, len(main))):
            entry = main.pop()
            if self.is_alive(entry):
                heappush(kept, entry)
        if main:
            return False
        self.main, self.kept = kept, main
        return True
