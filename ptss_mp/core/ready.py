"""The ready queue: earliest effective deadline first, with lazy deletion.

Three containers, the least head wins.  Keys that come in order (first in,
first out, and equal relative deadlines) are appended to a deque: 0.1 µs
instead of the heap's 2 to 3 µs at a million entries.  Keys out of order go to
`heap`.  Both hold only keys whose due instant is the job's own killing
deadline (or NEVER), so that the head tells which jobs have expired.  Keys due
for another reason (inherited, or a deadline that only orders) stand in `soft`.

When half of all are dead, each further death pays for a look at a few entries
(heap.py); of the deque the last ones move into another one that follows it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from heapq import heappush

from .heap import SIFT, Heap
from .job import DUE_SHIFT, ID_MASK, NEVER
from .slices import Slice

STALE_MIN = 1024  # below it a cleaning is not worth its trouble; above it about half of the entries are dead at most


class ReadyQueue:
    """Min-queue of keys (`job.key_of`).

    Args:
        live: the job table; a key whose id is not in it is dead and skipped.
        work: bounds how many dead ones are skipped in one go.
        current: of all queues of one table (lines.py).
    """

    __slots__ = (
        "_last", "_later", "_live", "_rare", "_run", "_sifting", "_tail", "_work", "current", "heap", "soft", "stale",
    )  # fmt: skip

    def __init__(self, live: Mapping[int, object], work: Slice, current: dict[int, int] | None = None) -> None:
        self._live, self._work = live, work
        self._run: deque[int] = deque()
        self._later: deque[int] = deque()  # while it is cleaned: what stands behind `_run` and is alive
        self._last = self._run  # of the two the one that further keys come to
        self._tail = 0
        self.heap = Heap(self._valid)
        self.soft = Heap(self._valid)
        self._rare = False  # there may be something in `soft`, or in the `kept` of the two
        self.current = {} if current is None else current  # job -> its one valid key (0: none), if ever in `soft`
        self.stale = 0
        self._sifting: list[Heap] = []  # what is still to be cleaned, `_run` last

    def __len__(self) -> int:
        """Return the number of entries, dead ones included."""
        heap, soft = self.heap, self.soft  # their own `__len__` would double what a job made at once costs here
        return len(self._run) + len(self._later) + len(heap.main) + len(heap.kept) + len(soft.main) + len(soft.kept)

    def __bool__(self) -> bool:
        heap, soft = self.heap, self.soft
        return bool(self._run or heap.main or self._later or heap.kept or soft.main or soft.kept)

    # ---- in

    def push(self, key: int) -> None:
        """Add a job whose due instant, if it has one, is its killing deadline."""
        if self.current and key & ID_MASK in self.current:
            self.current[key & ID_MASK] = key
        if key > self._tail:
            self._last.append(key)
            self._tail = key
        else:
            heappush(self.heap.main, key)

    def push_soft(self, key: int) -> None:
        """Add a job whose due instant only orders."""
        self.current[key & ID_MASK] = key
        self.soft.push(key)
        self._rare = True

    def rekey(self, key: int) -> None:
        """Give a ready job another key; the old entry is dead from now on."""
        self.push_soft(key)
        self.drop_later()

    # ---- who dies

    def drop_later(self, _job: int = 0) -> None:
        """Note that one entry has died (cancelled, expired, re-keyed); clean a little once half are dead."""
        self.stale += 1
        if self._last is self._later or self._sifting:
            self._sift()
        elif self.stale > STALE_MIN and self.stale * 2 > len(self):
            self._sifting = [self.heap, self.soft]
            self._last, self._rare = self._later, True
            self._sift()

    def _sift(self) -> None:
        if self._sifting:
            if self._sifting[-1].sift():
                self._sifting.pop()
            return
        run, later = self._run, self._later
        for _ in range(min(SIFT, len(run))):
            key = run.pop()
            if self._valid(key):
                later.appendleft(key)
        if not run:
            self._run_out()

    def _run_out(self) -> None:
        """All of `_run` was taken, or looked at: what follows it takes its place."""
        self._run, self._later = self._later, self._run
        self._last = self._run
        self.stale = 0

    def forget(self, job: int) -> None:
        """Drop what is noted of a settled job."""
        self.current.pop(job, None)

    def _valid(self, key: int) -> bool:
        job = key & ID_MASK
        return job in self._live and (not self.current or self.current.get(job, key) == key)

    # ---- out

    def head(self) -> int:
        """Return the least valid key without taking it; 0 if there is none, or not before the next step."""
        while True:
            run, heap = self._run, self.heap.main
            if run:
                key = run[0]
            elif self._later:
                self._run_out()
                continue
            else:
                key = 0
            if heap and (not key or heap[0] < key):
                key = heap[0]
            if self._rare:
                key = self._least(key)
            if not key:
                self._tail = self.stale = 0
                return 0
            job = key & ID_MASK
            if job in self._live and (not self.current or self.current.get(job, key) == key):
                return key
            if self._work.over():
                return 0
            self._work.left -= 1
            self._remove(key)
            self.stale -= self.stale > 0

    def _least(self, key: int) -> int:
        """Return the least of `key` and the heads of what is mostly empty."""
        kept, soft = self.heap.kept, self.soft.least()
        if kept and (not key or kept[0] < key):
            key = kept[0]
        if soft and (not key or soft < key):
            key = soft
        self._rare = bool(soft or kept or self._sifting)
        return key

    def pop(self, key: int) -> None:
        """Take `key`, which `head` has just returned."""
        run = self._run
        if run and run[0] == key:
            run.popleft()
        else:
            self._remove(key)
        if self.current and key & ID_MASK in self.current:
            self.current[key & ID_MASK] = 0

    def _remove(self, key: int) -> None:
        if self._run and self._run[0] == key:
            self._run.popleft()
        elif self.heap.least() == key:
            self.heap.pop()
        else:
            self.soft.pop()

    # ---- who is late

    def _first_to_expire(self) -> int:
        """Return the least key whose due instant is a killing deadline, dead or not; 0 if there is none."""
        if not self._run and self._later:
            self._run_out()
        key, other = self._run[0] if self._run else 0, self.heap.least()
        return other if other and (not key or other < key) else key

    @property
    def expires_at(self) -> int:
        """The earliest killing deadline of a ready job (a dead entry may make it early, never late)."""
        if not (self._run or self.heap.main or self._later or self.heap.kept):
            return NEVER  # so it is four of the five times that a job made at once asks
        key = self._first_to_expire()
        return key >> DUE_SHIFT if key else NEVER

    def expired(self, now: int) -> Iterator[int]:
        """Take and yield the jobs whose killing deadline is not after `now`; a slice of them."""
        limit, work = (now + 1) << DUE_SHIFT, self._work
        while 0 < (key := self._first_to_expire()) < limit and not work.over():
            work.left -= 1
            self._remove(key)
            if self._valid(key):
                yield key & ID_MASK

    def valid_keys(self) -> list[int]:
        """Return all valid keys, unordered (for `invariants` and tests)."""
        parts = (self._run, self._later, self.heap.main, self.heap.kept, self.soft.main, self.soft.kept)
        return [k for part in parts for k in part if self._valid(k)]
