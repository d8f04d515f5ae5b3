"""SIGINT, SIGTERM and SIGHUP of the program, while something lasts that is to end by them.

A handler runs between any two instructions of the main thread, which may hold
any lock.  So it only puts the number into a queue that is made for that; a
thread of its own does the rest.
"""

from __future__ import annotations

import inspect
import queue
import signal
import sys
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any, Self

FRAMES_MAX = 1_000  # looked through for a handler: as deep as Python recurses by default
HANDLED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def interrupting() -> bool:
    """Return True within a signal handler of the program's.

    Python gives a handler the frame that it interrupts, which is the one below its own: no other function is called
    so.  (What has bound another name to that argument, or was written in C, is not seen.)
    """
    if threading.current_thread() is not threading.main_thread():
        return False
    frame: FrameType | None = sys._getframe(1)
    for _ in range(FRAMES_MAX):
        if frame is None or frame.f_back is None:
            return False
        code, below = frame.f_code, frame.f_back
        count = code.co_argcount + code.co_kwonlyargcount + bool(code.co_flags & inspect.CO_VARARGS)
        for name in code.co_varnames[:count]:
            value = frame.f_locals.get(name)
            if value is below or (type(value) is tuple and any(part is below for part in value)):
                return True
        frame = below
    return False


class Handlers:
    """Handles the three signals while it lasts (a context manager, for the main thread).

    Args:
        act: called with each signal's number and how many there have been, on a thread of its own.

    Attributes:
        number: the first signal that came, or None.
    """

    def __init__(self, act: Callable[[int, int], object]) -> None:
        self.number: int | None = None
        self._queue: queue.SimpleQueue[int | None] = queue.SimpleQueue()
        self._before: dict[int, Any] = {}
        self._thread = threading.Thread(target=self._watch, args=(act,), name="ptss-mp-signals", daemon=True)

    def __enter__(self) -> Self:
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

    def _arrived(self, number: int, _frame: FrameType | None) -> None:
        if self.number is None:
            self.number = number
        self._queue.put(number)

    def _watch(self, act: Callable[[int, int], object]) -> None:
        for seen, number in enumerate(iter(self._queue.get, None), 1):
            act(number, seen)
