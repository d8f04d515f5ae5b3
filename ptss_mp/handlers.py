"""SIGINT, SIGTERM and SIGHUP of the program, while something lasts that is to end by them.

The kernel gives a signal of the process to any of its threads, and Python calls the handler in the main thread once
that moves; in a wait without end it does not, unless it was the one that was interrupted.  So what C writes at once,
in whatever thread (signal.set_wakeup_fd), is read by a thread of our own, and that acts: the main thread may hold
any lock, or wait for what the signal is to end.
"""

from __future__ import annotations

import contextlib
import inspect
import os
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
        self._before: dict[int, Any] = {}
        self._thread = threading.Thread(target=self._watch, args=(act,), name="ptss-mp-signals", daemon=True)

    def __enter__(self) -> Self:
        self._heard, self._told = os.pipe2(os.O_CLOEXEC)
        os.set_blocking(self._told, False)  # 65,536 signals that nobody has read yet are enough
        self._thread.start()
        self._other = signal.set_wakeup_fd(self._told, warn_on_full_buffer=False)
        for number in HANDLED:
            # nohup asks for SIGHUP to be ignored.  An ignored SIGINT is only what a shell without
            # job control gives to all that it starts with "&"; whoever sends one still means us.
            if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN:
                self._before[number] = signal.signal(number, _nothing)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)
        signal.set_wakeup_fd(self._other)
        os.write(self._told, bytes([_END]))
        self._thread.join()
        os.close(self._told)
        os.close(self._heard)

    def _watch(self, act: Callable[[int, int], object]) -> None:
        seen = 0
        while True:
            for number in os.read(self._heard, 4096):
                if number == _END:
                    return
                if number not in self._before:  # of a handler of the program's
                    self._pass_on(number)
                    continue
                seen += 1
                self.number = self.number or number
                act(number, seen)

    def _pass_on(self, number: int) -> None:
        """Tell who was told of signals before."""
        if self._other >= 0:
            with contextlib.suppress(OSError):
                os.write(self._other, bytes([number]))


_END = 0  # no signal has this number


def _nothing(_number: int, _frame: FrameType | None) -> None:
    """Handle a signal of which the thread has heard already."""
