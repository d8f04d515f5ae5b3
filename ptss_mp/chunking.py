"""The parent's half of `map` in chunks: runs of short items travel as one job; results and blame stay each item's.

The first items are jobs of their own.  If they show that the function is short, what follows goes in chunks of about
a third of a millisecond (chunk.py); else all items do, and wherever an option has to be looked after for each attempt.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from operator import length_hint
from typing import TYPE_CHECKING, Any, TypeVar

from .chunk import ITEMS_MAX, At, Chunk, Packed, Part, unpack
from .core.job import PENDING_MAX
from .errors import NotLoadable, ProtocolViolated
from .mapping import Intake
from .outcome import brief
from .parcel import Parcel
from .shell.report import Report, ran_ns
from .shell.use import by_reference
from .submission import pickled_by_itself
from .tasks import Task

if TYPE_CHECKING:
    from .future import Future
    from .mapping import Maps

T = TypeVar("T")

FIRST = 4  # items per worker that go alone, to see what the function costs
SEEN_S = 0.02  # `map` waits so long for them at most: who takes longer gains nothing by chunks
SHORT_NS = 100_000  # an item that takes longer gains nothing by a chunk
ALONE_NS = 3_000  # what being a job adds to the run time that is measured
LEAST_NS = 200  # nothing is shorter: a call, and a note of its value
TARGET_NS = 350_000  # of a chunk: two may stand at a worker (core.scheduler.BUDGET_NS), so that it never waits
PLAIN = frozenset((int, float, complex, bool, str, bytes, type(None)))  # hold nothing else, and can always be loaded
CHUNK_BYTES = 512 << 10  # of a chunk's call: larger items go better alone, from memory to memory (wire.MOVED_BYTES)
SHARES = 4  # chunks per worker at least, so that none has much more to do than another at the end


class Run:
    """A chunk on its way; pickled it is its items.

    Attributes:
        kind: what they are pickled as: a list, or Packed.
        items: its items; a tuple of arguments each, or the only argument.
        at: the first that has no value yet.
        parts: what came of those before it.
    """

    __slots__ = ("at", "items", "kind", "parts")

    def __init__(self, kind: type, items: list[Any]) -> None:
        self.kind, self.items, self.at = kind, items, 0
        self.parts: list[Part] = []

    def __len__(self) -> int:
        return len(self.items)

    def __reduce__(self) -> tuple[Any, ...]:
        return self.kind, (self.items,)

    def carry_on(self, answer: Any) -> bool:
        """Take a part; return False if the answer holds none, for the job would come back for ever (loop thread)."""
        part = unpack(answer)
        if part is None or not 0 < part.made < len(self.items) - self.at:
            return False
        self.parts.append(part)
        self.at += part.made
        return True


Entry = tuple["Future[Any]", Run | None]


def worthwhile(view: Maps, fn: Any) -> bool:
    """Return True if items need no attempt of their own: nothing but a timeout or a priority was asked for."""
    rules = view._rules
    return (
        by_reference(fn)
        and not isinstance(fn, Task)
        and not view._special
        and view._pool.journal is None  # there each item is kept, told and resumed by itself
        and not (rules.retries or rules.deadline_ns or rules.fresh or rules.memory_bytes or rules.cpu_ns)
        and not (rules.file_bytes or rules.open_files or rules.processes or rules.resources or rules.env)
        and rules.run_if == "success"
    )


def results(
    view: Maps, fn: Callable[..., T], iterables: tuple[Iterable[Any], ...],
    timeout: float | None, chunksize: int | None, buffersize: int | None,
) -> Iterator[T]:  # fmt: skip
    """Return what `Maps.map` returns; all items, or `buffersize` of them, are on their way."""
    until = None if timeout is None else time.monotonic() + timeout
    return Chunked(view, fn, iterables, chunksize, buffersize).values(until)


class Chunked:
    """The items of one map that are on their way, in the order of the input.

    Attributes:
        held: how many they are.
        size: of the next chunk; 1: a job of its own.
        item_bytes: of the largest item seen alone, or on average in a chunk.
    """

    def __init__(
        self, view: Maps, fn: Callable[..., Any], iterables: tuple[Iterable[Any], ...],
        chunksize: int | None, buffersize: int | None,
    ) -> None:  # fmt: skip
        self.room, self.held, self.size, self.item_bytes = buffersize or PENDING_MAX, 0, 1, 1
        self.intake = Intake(view, fn, iterables)
        self.chunk = Chunk(fn, len(iterables) > 1)
        self.waiting: deque[Entry] = deque()
        self.pool = view._pool
        workers = self.pool.core.max_workers
        share = min((length_hint(iterable) for iterable in iterables), default=0) // (workers * SHARES)
        bounds = (ITEMS_MAX, chunksize or ITEMS_MAX, share or ITEMS_MAX, self.room // (2 * workers))
        try:
            self._top_up(min(self.room, FIRST * workers))
            self.size = self._suggested(max(1, min(*bounds, CHUNK_BYTES // self.item_bytes)))
            self._top_up(self.room)
            if self.intake.refused:
                self.intake.finish()
        except BaseException:  # Ctrl-C too: nobody will ever ask for these
            self._drop()
            raise

    def _suggested(self, most: int) -> int:
        """Return the size of chunks, by what the first items took; 1 if they say nothing yet."""
        until = time.monotonic() + SEEN_S
        for future, _ in self.waiting:
            if not future.done() and not future._wait(max(0.0, until - time.monotonic())):
                return 1
        took = min((ran_ns(future._report) for future, _ in self.waiting), default=SHORT_NS)
        return min(most, TARGET_NS // max(LEAST_NS, took - ALONE_NS)) if took < SHORT_NS else 1

    def _top_up(self, room: int) -> None:
        while self.held < room:
            entry = self._pull(min(self.size, room - self.held))
            if entry is None:
                return
            self.waiting.append(entry)
            count = len(entry[1].items) if entry[1] else 1
            self.held += count
            call = entry[0]._result  # or the result, if that is here: a large one is as good a reason
            if type(call) is bytes or type(call) is Parcel:
                self.item_bytes = max(self.item_bytes, len(call) // count)
                self.size = max(1, min(self.size, CHUNK_BYTES // self.item_bytes))

    def _pull(self, size: int) -> Entry | None:
        if size == 1 and not self.intake.many:
            future = self.intake.pull(self.held > 0)
            return (future, None) if future else None
        return self.intake.pull_many(self.held > 0, size, self._run, self.chunk, At())

    def _run(self, items: list[Any]) -> Run:
        """Return a run of these items: of those before one that must be a job of its own.

        That is what cannot be pickled, and what waits for a Future.
        """
        if PLAIN.issuperset(map(type, chain.from_iterable(items) if self.chunk.key[1] else items)):
            return Run(list, items)
        packed: list[Any] = []
        for item in items:
            pickled = pickled_by_itself(item)
            if pickled is None:
                break
            self.pool.notice_main(pickled[0])
            packed.append(pickled)
        return Run(Packed, packed)

    def values(self, until: float | None) -> Iterator[Any]:
        """Yield the values; raise what the next item raised.

        A bare generator, which one thread at a time may consume: a lock around each value would cost more than it.
        """
        try:
            while self.waiting:
                found, error = self._take(None if until is None else until - time.monotonic())
                yield from found
                if error:
                    try:
                        raise error
                    finally:
                        del error  # no cycle: error, traceback, this frame, error
            self.intake.finish()
        finally:
            self._drop()

    def _take(self, timeout: float | None) -> tuple[list[Any], BaseException | None]:
        future, run = self.waiting[0]
        if run is None:
            found, error = [future.result(timeout)], None
        else:
            future._settled(timeout)
            found, error = came_of(future, run)
        self.waiting.popleft()
        self.held -= len(run.items) if run else 1
        self._top_up(self.room)
        return found, error

    def _drop(self) -> None:
        self.pool.cancel_unsent([future for future, _ in self.waiting])


def came_of(future: Future[Any], run: Run) -> tuple[list[Any], BaseException | None]:
    """Return the values of a settled chunk, and the error of the item behind them if that was the chunk's end."""
    found: list[Any] = []
    error = future.exception()
    if error is None:
        last = unpack(future.result())
    else:
        report = future._report
        assert isinstance(report, Report)
        answered = future.status() in ("failed", "not_picklable")
        last = unpack(future._result) if answered and future._result else report.noted
    for part in (*run.parts, *([last] if last else ())):
        try:
            part.load(found)
        except Exception as wrong:
            outcome = future.outcome()
            text = f"an item of job {outcome.name!r} succeeded, but its result cannot be decoded here: {brief(wrong)}"
            unloadable = NotLoadable(text, outcome=outcome)
            unloadable.__cause__ = wrong
            return found, unloadable
    if error is None and len(found) != len(run.items):
        text = f"a chunk of job {future._use.name!r} gave {len(found)} values for {len(run.items)} items"
        return found[: len(run.items)], ProtocolViolated(text, outcome=future.outcome())
    return found[: len(run.items) - bool(error)], error
