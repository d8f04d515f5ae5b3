"""Reads and writes that never wait, made without giving up the interpreter lock where others keep it.

`os.read` and `os.write` release the lock.  A thread of the program that computes takes it then, and gives it back
after 5 ms (sys.getswitchinterval): with one such thread each call costs the loop that long, and a job made at once
takes twice as long.  Where nobody computes, releasing pays: callers submit while the kernel copies (a tenth of the
throughput).  So the lock is kept for a while after a call that had to wait for it.  Only for descriptors that do not
block.
"""

from __future__ import annotations

import ctypes
import os
import threading
from time import monotonic_ns

READ_BYTES = 64 << 10  # what a pipe holds
WAITED_NS = 1_000_000  # no call here takes so long by itself
CROWDED_NS = 100_000_000  # after that one more call finds out whether somebody still computes

_libc = ctypes.PyDLL(None, use_errno=True)
_write, _read = _libc.write, _libc.read
_write.argtypes = (ctypes.c_int, ctypes.c_char_p, ctypes.c_size_t)
_read.argtypes = (ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t)
_write.restype = _read.restype = ctypes.c_ssize_t
_crowded_until = 0


class _Buffer(threading.local):
    """One for each loop thread: another may come between a read and the copy of what was read."""

    def __init__(self) -> None:
        self.data = bytearray(READ_BYTES)
        self.at = ctypes.addressof(ctypes.c_char.from_buffer(self.data))
        self.view = memoryview(self.data)


_buffer = _Buffer()


def write(fd: int, data: bytes) -> int:
    """As os.write."""
    before = monotonic_ns()
    if before < _crowded_until:
        return write_held(fd, data)
    try:
        return os.write(fd, data)
    finally:
        _note(before)


def read(fd: int) -> bytes:
    """As os.read of READ_BYTES."""
    before = monotonic_ns()
    if before < _crowded_until:
        count = _checked(_read(fd, _buffer.at, READ_BYTES))
        return bytes(_buffer.view[:count])
    try:
        return os.read(fd, READ_BYTES)
    finally:
        _note(before)


def write_held(fd: int, data: bytes) -> int:
    """As os.write, and keep the interpreter lock."""
    return _checked(_write(fd, data, len(data)))


def _note(before: int) -> None:
    global _crowded_until  # noqa: PLW0603 - a fact of the process: it has one lock
    if monotonic_ns() - before > WAITED_NS:
        _crowded_until = before + CROWDED_NS


def _checked(count: int) -> int:
    if count < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return count
