"""System calls that the standard library does not offer, by ctypes: prctl, timerfd, fallocate.

Shared by warden and parent; imported before any fork, so that a child finds it ready.
"""

from __future__ import annotations

import ctypes
import os
import signal
import struct

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
DUMP_SIGNAL = signal.SIGRTMAX - 1  # far from what programs use; Python itself uses none of them
TFD_ABSTIME = 1
SCHED_FLAG_RESET_ON_FORK, SLICE_NS = 1, 100_000  # the shortest slice that the kernel grants
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


def prefer_latency() -> None:
    """Ask for short slices of the processor, not for more of it: sched_setattr(2), since Linux 6.12.

    A process that sleeps most of the time is then sooner at its turn on a busy machine (timers p99 7 to 18 ms
    late became 5 to 7, four spinning processes on two cores).  Children do not inherit it.  Elsewhere: nothing.
    """
    number = {"x86_64": 314, "aarch64": 274}.get(os.uname().machine)
    if number is None:
        return
    nice = os.getpriority(os.PRIO_PROCESS, 0)
    attr = struct.pack("<IIQiIQQQ", 48, 0, SCHED_FLAG_RESET_ON_FORK, nice, 0, SLICE_NS, 0, 0)
    _libc.syscall(number, 0, ctypes.create_string_buffer(attr, len(attr)), 0)


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
