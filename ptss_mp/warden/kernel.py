"""System calls that the standard library does not offer, by ctypes: prctl, timerfd, fallocate.

Shared by warden and parent; imported before any fork, so that a child finds it ready.
"""

from __future__ import annotations

import ctypes
import os
import signal

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
DUMP_SIGNAL = signal.SIGRTMAX - 1  # far from what programs use; Python itself uses none of them
TFD_ABSTIME = 1
CLOCK_MONOTONIC = 1
PUNCH_HOLE_KEEP_SIZE = 3  # FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, fallocate(2)

_libc = ctypes.CDLL(None, use_errno=True)


def prctl(option: int, value: int) -> None:
    """prctl(2) with one argument.

    Raises:
        OSError: the kernel refused.
    """
    if _libc.prctl(option, ctypes.c_ulong(value), 0, 0, 0):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), f"prctl({option})")


def timerfd() -> int:
    """Return a non-blocking timer of the monotonic clock (os.timerfd_create is there from 3.13 on)."""
    fd: int = _libc.timerfd_create(CLOCK_MONOTONIC, os.O_NONBLOCK | os.O_CLOEXEC)
    if fd < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), "timerfd_create")
    return fd


def set_timer(fd: int, at_ns: int) -> None:
    """Let the timer fire at an instant of the monotonic clock; 0 disarms it."""
    spec = (ctypes.c_int64 * 4)(0, 0, at_ns // 1_000_000_000, at_ns % 1_000_000_000)
    _libc.timerfd_settime(fd, TFD_ABSTIME, spec, None)


def punch(fd: int, start: int, end: int) -> None:
    """Give back the memory of a memfd between two offsets; its size stays."""
    _libc.fallocate(fd, PUNCH_HOLE_KEEP_SIZE, ctypes.c_int64(start), ctypes.c_int64(end - start))
