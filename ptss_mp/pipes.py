"""A worker's descriptors, and what passes through its two pipes."""

from __future__ import annotations

import contextlib
import io
import os
import sys
from collections.abc import Callable
from typing import Any

from . import rlimits

FELL_THROUGH = 77  # status of a forked child that came back to where a job or an import was begun; nobody reads it
# Where a worker's own descriptors stand; 0 is /dev/null, 1 and 2 are the job's streams.
CALLS_FD, ANSWERS_FD, FAULT_FD, PAGE_FD, OUT_FD, ERR_FD, LOG_FD, BOOT_FD = range(3, 11)


class _Kept(io.FileIO):
    """What a job prints is kept beside its files, not among them: `file_size` does not count it."""

    def write(self, data: Any) -> int:
        """Write; see the class."""
        try:
            return super().write(data)
        except OSError as error:
            return int(rlimits.lifted(error, super().write, data))


class Stream(io.TextIOWrapper):
    """A job's standard stream: line-buffered, and says when something is written, so that its job is examined."""

    mode = "w"  # as `open` sets it

    def __init__(self, fd: int) -> None:
        self.told: Callable[[], object] = bool
        super().__init__(
            io.BufferedWriter(_Kept(fd, "w", closefd=False)), errors="backslashreplace", line_buffering=True
        )

    def write(self, text: str) -> int:
        """Write; see the class."""
        self.told()
        return super().write(text)


def write_all(data: bytes | memoryview) -> None:
    """Write all of it; the parent always reads."""
    view = memoryview(data)
    while view:
        view = view[os.write(ANSWERS_FD, view) :]


def read_rest(buffer: bytes, size: int) -> bytes:
    """Return the frame that begins with `buffer`, read to its `size`."""
    whole = bytearray(size)
    whole[: len(buffer)] = buffer
    view = memoryview(whole)[len(buffer) :]
    while view:
        got = os.readv(CALLS_FD, (view,))
        if not got:
            leave()
        view = view[got:]
    return whole  # type: ignore[return-value]  # a bytearray serves: it is only sliced


def leave() -> None:
    """The parent is done, or dead: run what multiprocessing owes its children, and end."""
    if "multiprocessing.util" in sys.modules:
        with contextlib.suppress(BaseException):
            sys.modules["multiprocessing.util"]._exit_function()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(BaseException):
            stream.flush()
    os._exit(0)
