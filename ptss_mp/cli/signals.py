"""What a signal does to a command: the first stops, the second kills, the third leaves."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING

from ..handlers import Handlers
from .exits import Exit
from .text import say

if TYPE_CHECKING:
    from .pool import RunExecutor


class Interrupts(Handlers):
    """Handles the signals of a command while it lasts (a context manager).

    Args:
        grace: seconds that running jobs have after the first signal.
    """

    def __init__(self, grace: float) -> None:
        super().__init__(self._act)
        self._pool: RunExecutor | None = None
        self._importing = True
        self._begun = False
        self._grace = grace

    def turn_to(self, pool: RunExecutor | None, importing: bool = False) -> None:
        """Stop this pool from now on; while a file is imported there is nothing to be graceful to.

        Args:
            pool: None when all jobs have ended: what is to be written still is.
        """
        self._pool, self._importing, self._begun = pool, importing, True
        if self.number is not None and pool:
            pool.kill_workers()  # the signal came before there was a pool to stop

    def _act(self, number: int, seen: int) -> None:
        name = signal.Signals(number).name
        if seen > 2:
            os._exit(Exit.SIGNALLED + (self.number or number))  # the warden ends all that still runs
        pool = self._pool
        if pool is None:
            say(f"{name}: {'all jobs have ended' if self._begun else 'before anything was started'}")
        elif self._importing or seen == 2:
            say(f"{name}: killing what runs")
            pool.kill_workers()
        else:
            pool.begin_stop(self._grace)  # before the line that tells it
            say(f"{name}: nothing new starts, running jobs have {self._grace:g} s; once more kills them now")
