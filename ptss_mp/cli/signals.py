"""SIGINT, SIGTERM, SIGHUP: the first stops, the second kills, the third leaves.

A handler runs between any two instructions of the main thread, which may hold
any lock.  So it only puts the number into a queue that is made for that; a
thread of its own does the rest.
"""

from __future__ import annotations

import os
import queue
import signal
import threading
from types import FrameType
from typing import TYPE_CHECKING, Any

from .exits import Exit
from .text import say

if TYPE_CHECKING:
    from .pool import RunExecutor

HANDLED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Interrupts:
    """Handles the signals of a command while it lasts (a context manager).

    Args:
        grace: seconds that running jobs have after the first signal.

    Attributes:
        number: the first signal that came, or None.
    """

    def __init__(self, grace: float) -> None:
        self.number: int | None = None
        self._pool: RunExecutor | None = None
        self._importing = True
        self._begun = False
        self._grace = grace
        self._seen = 0
        self._queue: queue.SimpleQueue[int | None] = queue.SimpleQueue()
        self._before: dict[int, Any] = {}
        self._thread = threading.Thread(target=self._watch, name="ptss-mp-signals", daemon=True)

    def __enter__(self) -> Interrupts:
        self._thread.start()
        for number in HANDLED:
            # nohup asks for SIGHUP to be ignored.  An ignored SIGINT is only what a shell without
            # job control gives to all that it starts with "&"; whoever sends one still means us.
            if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN:
                self._before[number] = signal.signal(number, self._arrived)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)
        self._queue.put(None)
        self._thread.join()

    def turn_to(self, pool: RunExecutor | None, importing: bool = False) -> None:
        """Stop this pool from now on; while a file is imported there is nothing to be graceful to.

        Args:
            pool: None when all jobs have ended: what is to be written still is.
        """
        self._pool, self._importing, self._begun = pool, importing, True
        if self.number is not None and pool:
            pool.kill_workers()  # the signal came before there was a pool to stop

    def _arrived(self, number: int, _frame: FrameType | None) -> None:
        if self.number is None:
            self.number = number
        self._queue.put(number)

    def _watch(self) -> None:
        for number in iter(self._queue.get, None):
            self._seen += 1
            self._act(number)

    def _act(self, number: int) -> None:
        name = signal.Signals(number).name
        if self._seen > 2:
            os._exit(Exit.SIGNALLED + (self.number or number))  # the warden ends all that still runs
        pool = self._pool
        if pool is None:
            say(f"{name}: {'all jobs have ended' if self._begun else 'before anything was started'}")
        elif self._importing or self._seen == 2:
            say(f"{name}: killing what runs")
            pool.kill_workers()
        else:
            pool.begin_stop(self._grace)  # before the line that tells it
            say(f"{name}: nothing new starts, running jobs have {self._grace:g} s; once more kills them now")
