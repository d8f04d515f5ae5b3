"""`map` and `map_outcomes`: a job for each item of an iterable, and their ends given back one by one.

The input is pulled in the consumer's thread.  An item is a job of its own:
options, blame and retries hold for it alone, and short jobs travel to the
workers in batches anyway.  `map` with a chunk size other than 1 may send runs
of items as one job (chunking.py), of which the same is true.

What ends the input early (an exception of its own, a refusal of `submit`) is
raised when all that was accepted before has been given back: nothing is lost.
"""

from __future__ import annotations

import concurrent.futures as cf
import itertools
import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sized
from typing import TYPE_CHECKING, Any, Generic, Protocol, Self, TypeVar

from .core.job import PENDING_MAX
from .errors import QueueFull
from .future import Future
from .observe.progress import Meter
from .outcome import Outcome
from .units import whole

if TYPE_CHECKING:
    from .pool import Pool
    from .rules import Rules

T = TypeVar("T")
R = TypeVar("R", bound=Sized)

PER_WORKER = 64  # items of map_outcomes per worker: as many as one may have out, so that none waits for the consumer


class Maps(cf.Executor):
    """The two verbs, for whatever can `submit`."""

    if TYPE_CHECKING:  # what it has beside them
        _pool: Pool
        _rules: Rules
        _special: bool

        def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]: ...
        def _open(self) -> None: ...
        def _use(self, fn: Any) -> Any: ...

    def map(
        self,
        fn: Callable[..., T],
        *iterables: Iterable[Any],
        timeout: float | None = None,
        chunksize: int | None = 1,
        buffersize: int | None = None,
        progress: Any = None,
    ) -> Iterator[T]:
        """Return an iterator over `fn` of the items, in input order, as the standard library's `map`.

        Every option holds per item.  Leaving the iterator early cancels only what has not started; one that was never
        asked for an item cancels nothing (as there: `ex.map(f, xs)` alone makes all).
        An exception of the input is raised at its place, behind the results of what came before it.

        Args:
            timeout: seconds from now within which each result must be had.
            chunksize: 1: an item is a job.  None, or a greater number as a bound: short items travel in chunks that
                count as one job (in `status`, `metrics`, `max_pending`): of functions that take microseconds, twenty
                to thirty times as many in a second.  Blame, timeout, order and results are each item's all the same.
                What options have to look after for each attempt, and what shows `progress`, goes item by item; so
                does an item that waits for a Future.  One thread at a time may ask for the next (else ValueError).
            buffersize: at most so many jobs submitted and not yet yielded; None: all at once.
            progress: as in `map_outcomes`.

        Raises:
            InvalidOption: chunksize or buffersize below 1.
            TimeoutError: while iterating.
            QueueFull: as `submit`, if no job of this map can make room.
        """
        check(chunksize, buffersize)
        from . import chunking  # which is built upon this room

        if chunksize != 1 and not progress and chunking.worthwhile(self, fn):
            return chunking.results(self, fn, iterables, timeout, chunksize, buffersize)
        return results(self, fn, iterables, timeout, buffersize, progress)

    def map_outcomes(
        self,
        fn: Callable[..., T],
        *iterables: Iterable[Any],
        ordered: bool = False,
        chunksize: int | None = 1,
        buffersize: int | None = None,
        progress: Any = None,
    ) -> Iterator[tuple[Any, Outcome[T]]]:
        """Return an iterator of (item, Outcome) for each input; no job's failure raises.

        The input is pulled by whoever asks for the next one, in his thread; memory does not grow with it.
        Every option holds per item.  Leaving the iterator early cancels only what has not started.
        What ends the input early (its own exception, the executor's shutdown) is raised at the end,
        when all that was accepted before has been yielded.

        Args:
            iterables: one: an item is what it gives; several: a tuple; the shortest ends them.
            ordered: yield in input order, else as they settle.
            chunksize: checked as in `map`, without effect: each item is a job, for it has an Outcome of its own.
            buffersize: at most so many items accepted and not yet yielded; None: 64 per worker.
            progress: True: a line on stderr, if that is a terminal.  Or a callable, called with
                (done, total or None, Outcome) as each is yielded; or an object with `update`, such as a
                tqdm bar, whose `update(1)` is called.  What it raises is logged, and it is not called again.

        Raises:
            InvalidOption, InvalidType: an argument that can never be right.
            ExecutorClosed, PoolBroken: as `submit`.
            QueueFull: as `submit`, if no job of this map can make room.
        """
        check(chunksize, buffersize)
        return outcomes(self, fn, iterables, ordered, buffersize, progress)


def check(chunksize: Any, buffersize: Any) -> None:
    """Refuse numbers that can never be right.

    Raises:
        InvalidOption, InvalidType: below 1, or no whole numbers.
    """
    for name, value in (("chunksize", chunksize), ("buffersize", buffersize)):
        if value is not None:
            whole(value, name, 1, PENDING_MAX)


def results(
    view: Maps, fn: Callable[..., T], iterables: tuple[Iterable[Any], ...],
    timeout: float | None, buffersize: int | None, progress: Any,
) -> Iterator[T]:  # fmt: skip
    """Return what `Maps.map` returns; all jobs, or `buffersize` of them, are submitted here and now."""
    until = None if timeout is None else time.monotonic() + timeout
    meter = Meter(progress, iterables)
    intake = Intake(view, fn, iterables)
    waiting: deque[Future[T]] = deque()
    room = buffersize or PENDING_MAX
    try:
        _top_up(intake, waiting, room)
        if intake.refused:
            intake.finish()
    except BaseException:  # Ctrl-C too: nobody will ever ask for these
        view._pool.cancel_unsent(waiting)
        raise
    return Shared(_results(intake, waiting, room, until, meter))


def _top_up(intake: Intake, waiting: deque[Future[T]], room: int) -> None:
    while len(waiting) < room:
        future = intake.pull(bool(waiting))
        if future is None:
            return
        waiting.append(future)


def _results(
    intake: Intake, waiting: deque[Future[T]], room: int, until: float | None, meter: Meter
) -> Iterator[T]:
    try:
        while waiting:
            yield _next_result(intake, waiting, room, until, meter)  # no name here: it is not kept once given out
        intake.finish()
    finally:
        intake.view._pool.cancel_unsent(waiting)
        meter.end()


def _next_result(intake: Intake, waiting: deque[Future[T]], room: int, until: float | None, meter: Meter) -> T:
    value = waiting[0].result(None if until is None else until - time.monotonic())
    meter(waiting.popleft())
    _top_up(intake, waiting, room)
    return value


def outcomes(
    view: Maps, fn: Callable[..., T], iterables: tuple[Iterable[Any], ...],
    ordered: bool, buffersize: int | None, progress: Any,
) -> Iterator[tuple[Any, Outcome[T]]]:  # fmt: skip
    """Return what `Maps.map_outcomes` returns; nothing is pulled before the first `next`."""
    meter = Meter(progress, iterables)
    view._open()
    view._use(fn)  # no callable, or a batch: refused at the call
    room = buffersize or PER_WORKER * view._pool.core.max_workers
    line: Line[T] = InOrder() if ordered else AsSettled()
    return Shared(_outcomes(Intake(view, fn, iterables), line, room, meter))


def _outcomes(intake: Intake, line: Line[T], room: int, meter: Meter) -> Iterator[tuple[Any, Outcome[T]]]:
    try:
        while _fill(intake, line, room):
            yield _next_outcome(line, meter)
        intake.finish()
    finally:
        intake.view._pool.cancel_unsent(line.futures())
        meter.end()


def _fill(intake: Intake, line: Line[T], room: int) -> int:
    """Pull one item if there is room, and on until somebody has settled; return how many are accepted and not yielded.

    So an input that is slow to give holds back what is ready by one item at most.
    """
    held = len(line)
    while held < room:
        future = intake.pull(held > 0)
        if future is None:
            break
        line.put(intake.item, future)
        held += 1
        if line.ready():
            break
    return held


def _next_outcome(line: Line[T], meter: Meter) -> tuple[Any, Outcome[T]]:
    item, future = line.take()
    meter(future)
    return item, future.outcome()


class Intake:
    """The input: pulled when asked, each item submitted at once.

    Attributes:
        item: the last one that was accepted: an object for one iterable, else a tuple.
        refused: it ended because `submit` refused an item.
    """

    def __init__(self, view: Maps, fn: Callable[..., Any], iterables: tuple[Iterable[Any], ...]) -> None:
        self.view, self.item = view, None
        self._fn, self._single = fn, len(iterables) == 1
        sources = [*map(iter, iterables)]
        self._rows: Iterator[tuple[Any, ...]] | None = zip(*sources, strict=False)
        self._items = sources[0] if self._single else self._rows
        self.many: list[Any] = []  # pulled together, and not yet accepted
        self._held: tuple[Any, ...] | None = None  # pulled, and not yet accepted
        self._error: Exception | None = None  # what ended the input, if it was no end
        self.refused = False

    def pull(self, outstanding: bool) -> Future[Any] | None:
        """Submit the next item.

        Args:
            outstanding: jobs of this map are unsettled, or settled and not yet given back.

        Returns:
            None: the input has ended; or the queue is full where blocking would freeze the caller, and
            one of the outstanding will make room.
        """
        if self._held is None and not self._advance():
            return None
        assert self._held is not None
        future = self._submit(outstanding, self._fn, *self._held)
        if future is not None:
            self.item = self._held[0] if self._single else self._held  # type: ignore[assignment]
            self._held = None
        return future

    def pull_many(
        self, outstanding: bool, size: int, make: Callable[[list[Any]], R], fn: Any, *more: Any
    ) -> tuple[Future[Any], R | None] | None:
        """Submit the next `size` items, or those that are left, as one job: `fn(make(items), *more)`; as `pull`.

        Args:
            make: makes a run of the first items; an empty one: the first is a job of its own.
        """
        items = self.many = self.many or self._many(size)
        if not items:
            return None
        run = make(items[:size])
        first = (items[0],) if self._single else items[0]
        future = self._submit(outstanding, fn, run, *more) if run else self._submit(outstanding, self._fn, *first)
        if future is None:
            return None
        self.many = items[len(run) or 1 :]
        return future, run or None

    def _submit(self, outstanding: bool, *call: Any) -> Future[Any] | None:
        try:
            return self.view.submit(*call)
        except Exception as error:
            if not (outstanding and isinstance(error, QueueFull)):
                self._rows, self._held, self.many, self._error, self.refused = None, None, [], error, True
            return None

    def _many(self, size: int) -> list[Any]:
        items = [] if self._held is None else [self._held[0] if self._single else self._held]
        if self._rows is None:
            return items
        self._held, wanted = None, size - len(items)
        try:
            items.extend(itertools.islice(self._items, wanted))  # those before an exception are in it
        except Exception as error:
            self._rows, self._error = None, error
        if len(items) < size:
            self._rows = None
        return items

    def _advance(self) -> bool:
        if self._rows is None:
            return False  # not asked again: a zip at its end would pull from its first iterable once more
        try:
            self._held = next(self._rows)
        except StopIteration:
            self._rows = None
        except Exception as error:
            self._rows, self._error = None, error
        return self._held is not None

    def finish(self) -> None:
        """Raise what ended the input, if that was no end."""
        error, self._error = self._error, None
        if error is not None:
            try:
                raise error
            finally:
                del error  # no cycle: error, traceback, this frame, error


class Line(Protocol[T]):
    """Accepted jobs that were not given back yet, with their items."""

    def __len__(self) -> int: ...
    def put(self, item: Any, future: Future[T]) -> None:
        """Stand in line."""

    def ready(self) -> bool:
        """Return True if `take` would not wait."""

    def take(self) -> tuple[Any, Future[T]]:
        """Wait for the next that is settled, and take it out."""

    def futures(self) -> list[Future[T]]:
        """Return those that stand in line."""


class InOrder(Line[T]):
    """Given back as the input came."""

    def __init__(self) -> None:
        self._line: deque[tuple[Any, Future[T]]] = deque()

    def __len__(self) -> int:
        return len(self._line)

    def put(self, item: Any, future: Future[T]) -> None:
        self._line.append((item, future))

    def ready(self) -> bool:
        return self._line[0][1].done()

    def take(self) -> tuple[Any, Future[T]]:
        self._line[0][1]._wait(None)
        return self._line.popleft()

    def futures(self) -> list[Future[T]]:
        return [future for _, future in self._line]


class AsSettled(Line[T]):
    """Given back as they settle.

    It is a waiter in the sense of `concurrent.futures.wait`, told within the settling itself: a done-callback
    would come too late for a consumer that is one.
    """

    def __init__(self) -> None:
        self._items: dict[Future[T], Any] = {}
        self._settled: queue.SimpleQueue[Future[T]] = queue.SimpleQueue()
        self.add_result = self.add_exception = self.add_cancelled = self._settled.put

    def __len__(self) -> int:
        return len(self._items)

    def put(self, item: Any, future: Future[T]) -> None:
        self._items[future] = item
        with future._condition:
            if not future.done():
                future._waiters.append(self)
                return
        self._settled.put(future)

    def ready(self) -> bool:
        return not self._settled.empty()

    def take(self) -> tuple[Any, Future[T]]:
        if self._settled.empty():
            next(iter(self._items))._check_process()
        future = self._settled.get()
        return self._items.pop(future), future

    def futures(self) -> list[Future[T]]:
        return list(self._items)


class Shared(Iterator[T], Generic[T]):
    """A generator that several threads may consume, one at a time; each item goes to one of them."""

    def __init__(self, generator: Iterator[T]) -> None:
        self._generator = generator
        self._lock = threading.RLock()  # an input that consumes its own output is told so, not deadlocked

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> T:
        with self._lock:
            return next(self._generator)

    def close(self) -> None:
        """Cancel what has not started, and end; waits for a `next` that is under way in another thread."""
        with self._lock:
            self._generator.close()  # type: ignore[attr-defined]
