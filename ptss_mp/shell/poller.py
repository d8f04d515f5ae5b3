"""Waiting: one epoll, one eventfd by which callers wake it, one timer of microsecond resolution."""

from __future__ import annotations

import contextlib
import os
import select
import sys
from collections.abc import Callable
from typing import Any

from ..core.job import NEVER
from ..warden import kernel
from . import held
from .clock import monotonic_ns

# Within a turn: the warden's word, answers, room to write, deaths, the clock.
WARDEN_RANK, ANSWERS_RANK, WRITE_RANK, DEATH_RANK, CLOCK_RANK = range(5)
AHEAD_NS = 80_000  # a timer is 50 µs late; the rest is waited out awake, less than the slice (kernel.SLICE_NS) allows
Handler = tuple[int, Callable[[Any], None], Any]
_ONE = (1).to_bytes(8, sys.byteorder)


class Poller:
    """Tells who has something to do.  `wake` may be called from any thread, all else from the loop's.

    Attributes:
        asleep: True while the loop waits without looking at its queues: then a caller must wake it.
    """

    def __init__(self, clock: Callable[[Any], None]) -> None:
        self._epoll = select.epoll()
        self._wake_fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._timer_fd = kernel.timerfd()
        self._armed_at = NEVER
        self._handlers: dict[int, Handler] = {}
        self.asleep = False
        self._epoll.register(self._wake_fd, select.EPOLLIN)
        self._clock: Handler = (CLOCK_RANK, clock, None)
        self.watch(self._timer_fd, *self._clock)

    def watch(
        self, fd: int, rank: int, handle: Callable[[Any], None], what: Any, mask: int = select.EPOLLIN
    ) -> None:
        """Call `handle(what)` whenever the descriptor is ready."""
        if fd not in self._handlers:
            self._handlers[fd] = (rank, handle, what)
            self._epoll.register(fd, mask)

    def unwatch(self, fd: int) -> None:
        """Forget a descriptor; harmless if it is not watched."""
        if self._handlers.pop(fd, None):
            self._epoll.unregister(fd)

    def wake(self) -> None:
        """End the loop's sleep."""
        held.write_held(self._wake_fd, _ONE)  # the caller would wait for the lock behind a thread that computes

    def ready(self, at: int, busy: Callable[[], bool], exact: int = NEVER) -> list[Handler]:
        """Wait for a descriptor, a wake or the instant `at`; return the handlers in the order of their ranks.

        Args:
            exact: an instant not before `at` that is to be met to the microsecond: a job starts then.
            busy: tells whether a queue holds something, so that there is no waiting;
                asked once more after `asleep` is set, for a caller may have come between.
        """
        reached = exact != NEVER and exact - AHEAD_NS <= monotonic_ns()
        if not reached:
            at = min(at, exact - AHEAD_NS)
        if at < self._armed_at:  # also for a loop that finds no sleep: the clock must be heard all the same
            self._armed_at = at
            kernel.set_timer(self._timer_fd, at)
        if reached or busy():
            found = self._epoll.poll(0)
            while reached and not found and monotonic_ns() < exact:
                pass  # a sleep would not be over in time
        else:
            self.asleep = True
            found = self._epoll.poll(0 if busy() else None)
            self.asleep = False
        handlers: list[Handler] = []
        for fd, _ in found:
            handler = self._handlers.get(fd)
            if handler:
                handlers.append(handler)
            else:
                with contextlib.suppress(BlockingIOError):
                    os.read(fd, 8)
        if reached and self._clock not in handlers:
            handlers.append(self._clock)
        if len(handlers) > 1:
            handlers.sort(key=_rank)
        return handlers

    def timer_fired(self) -> None:
        """Take the timer's word, so that it can be set again."""
        with contextlib.suppress(BlockingIOError):
            os.read(self._timer_fd, 8)
        self._armed_at = NEVER

    def close(self) -> None:
        """Let go of all but the eventfd, which a late caller may still write to."""
        self._handlers.clear()
        self._epoll.close()
        timer_fd, self._timer_fd = self._timer_fd, -1  # forgotten first: a fork in this moment closes nothing else
        if timer_fd >= 0:
            os.close(timer_fd)

    abandon = close  # in a fork of the program

    def __del__(self) -> None:
        with contextlib.suppress(OSError, AttributeError):
            os.close(self._wake_fd)


def _rank(handler: Handler) -> int:
    return handler[0]
