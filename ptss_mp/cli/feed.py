"""Items become jobs as there is room for them, and come back as they settle, or in order.

What `map_outcomes` is for programs; but a program waits for its input, and here whoever types a line wants to see what
came of the last one.  So this waits for three things at once: input, a settled job, a signal.
"""

from __future__ import annotations

import os
import queue
import select
from collections import deque
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from ..mapping import PER_WORKER
from . import journal
from .exits import Exit

if TYPE_CHECKING:
    from ..future import Future
    from ..view import ExecutorView
    from .items import Items

LOOK_MS = 200  # between two looks whether to stop


class Job(NamedTuple):
    """A job of an item; `number` counts items from 1."""

    number: int
    item: str
    future: Future[Any]


class Feed:
    """Takes items up and gives them back; memory does not grow with their number.

    Args:
        view: where the jobs run.
        fn: the function, called with an item.
        items: what is to be taken.
        ordered: give back in the order of the items.
        stop: asked whether no more shall be taken.

    Attributes:
        taken: items that were submitted.
        held: their jobs that were not given back yet, by number.
        refusal: why the pool took no more, or "".
        refused: what that ends the command with, if nothing else does.
    """

    def __init__(
        self, view: ExecutorView, fn: Callable[..., Any], items: Items, ordered: bool, stop: Callable[[], object]
    ) -> None:
        self.taken, self.refusal, self.refused = 0, "", int(Exit.OK)
        self.held: dict[int, Job] = {}
        self._view, self._fn, self._items, self._stop = view, fn, items, stop
        self._room = PER_WORKER * view._max_workers
        self._settled: queue.SimpleQueue[Job] = queue.SimpleQueue()
        self._line: deque[Job] | None = deque() if ordered else None
        self._rang = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)

    def close(self) -> None:
        """When all that was taken is settled and its callbacks have run."""
        self._items.close()
        os.close(self._rang)

    def named(self, item: str) -> list[Future[Any]]:
        """Return the jobs of an item that were taken up and not given back (any thread)."""
        return [job.future for job in list(self.held.values()) if job.item == item]

    def title(self, future: Future[Any]) -> str:
        """Return the item of a job (any thread)."""
        return next((job.item for job in list(self.held.values()) if job.future is future), "")

    def __iter__(self) -> Iterator[Job | None]:
        """Yield settled jobs; None, now and then, while there is none."""
        while True:
            if self._stop():
                self._items.close()
            self._fill()
            if job := self._next():
                del self.held[job.number]
                yield job
            elif not self.held and self._items.over:
                return
            else:
                yield None
                self._wait()

    def _fill(self) -> None:
        """Take up what is there, as far as there is room."""
        from ..errors import ExecutorClosed, JournalError, PoolBroken

        while len(self.held) < self._room and (item := self._items.take()) is not None:
            try:
                future = self._view.submit(self._fn, item)
            except (ExecutorClosed, PoolBroken, JournalError) as error:
                self.refusal = str(error)
                self.refused = journal.cannot(error).status if isinstance(error, JournalError) else Exit.OK
                self._items.close()
                return
            self.taken += 1
            job = self.held[self.taken] = Job(self.taken, item, future)
            if self._line is not None:
                self._line.append(job)
            future.add_done_callback(partial(self._came, job))

    def _came(self, job: Job, _future: Any) -> None:
        """A job has settled (callback thread)."""
        if self._line is None:
            self._settled.put(job)
        os.eventfd_write(self._rang, 1)

    def _next(self) -> Job | None:
        if self._line is not None:
            return self._line.popleft() if self._line and self._line[0].future.done() else None
        try:
            return self._settled.get_nowait()
        except queue.Empty:
            return None

    def _wait(self) -> None:
        poll = select.poll()
        poll.register(self._rang, select.POLLIN)
        if self._items.fd is not None and len(self.held) < self._room:
            poll.register(self._items.fd, select.POLLIN)
        if any(fd == self._rang for fd, _ in poll.poll(LOOK_MS)):
            os.eventfd_read(self._rang)
