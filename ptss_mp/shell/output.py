"""What one worker prints and logs, and the stack that it leaves: four files in memory, and how far they were read."""

from __future__ import annotations

import os
from collections.abc import Sequence

from .. import wire
from ..warden import kernel
from .report import KEPT_BYTES, Report

TEE_BYTES = 1 << 20  # of one attempt's output are written through; the warden keeps as much
PUNCH_BYTES = 1 << 20  # consumed output is given back in such pieces
STACK_BYTES = 64 << 10
STREAMS = ("out", "err", "log")  # attributes of a Report, in the order of the files
FAULT = len(STREAMS)  # the file behind them


class Output:
    """The files of one worker.

    Args:
        fault: where a stack is written.
        out, err, log: standard output, standard error, records of loggers.
    """

    __slots__ = ("_at", "_punched", "fds")

    def __init__(self, fault: int, out: int, err: int, log: int) -> None:
        self.fds = [out, err, log, fault]
        self._at = [0, 0, 0]
        self._punched = [0, 0, 0]

    def note(self, report: Report, starts: Sequence[int], ends: Sequence[int], news: bool) -> None:
        """Add to a report what its attempt has printed and logged, by a worker's word.

        Args:
            news: this is not told once more later.
        """
        for which, name in enumerate(STREAMS):
            if ends[which] > starts[which]:
                setattr(report, name, self._read(which, starts[which], ends[which]))
        if news:
            self._at = list(ends)

    def note_rest(self, report: Report) -> None:
        """Add to a report what nobody has told of: its attempt's worker is dead."""
        for which, name in enumerate(STREAMS):
            start, end = self._at[which], os.fstat(self.fds[which]).st_size
            setattr(report, name, self._read(which, start, end) if end > start else b"")

    def stack(self) -> str:
        """Return the stack that was written as the worker's last act, without the frames below the job's."""
        return _own_part(os.pread(self.fds[FAULT], STACK_BYTES, 0).decode("utf-8", "replace"))

    def rewind(self) -> None:
        """Empty what is captured, before a job with `file_size`: the kernel counts from a file's beginning.

        Nothing runs there now, and all that was told of is read; what a leftover process has printed since is lost.
        """
        for fd in self.fds[:FAULT]:
            os.ftruncate(fd, 0)
            os.lseek(fd, 0, os.SEEK_SET)  # the worker's own place too: one open file
        self._at, self._punched = [0, 0, 0], [0, 0, 0]

    def close(self) -> None:
        """Close all files; forgotten first, so that a fork in this moment closes no reused number (pool.py)."""
        while self.fds:
            os.close(self.fds.pop())

    def _read(self, which: int, start: int, end: int) -> bytes:
        """Return the last part of what stands between two offsets, and give back what is behind.

        The offsets are a worker's word: what does not stand in the file is not read.
        """
        fd = self.fds[which]
        end = min(end, os.fstat(fd).st_size)
        if start >= end:
            return b""
        data = os.pread(fd, min(end - start, TEE_BYTES), max(start, end - TEE_BYTES))
        if end - self._punched[which] > PUNCH_BYTES:
            kernel.punch(fd, self._punched[which], end & ~4095)
            self._punched[which] = end & ~4095
        if end - start > TEE_BYTES:
            return b"[%d bytes left out]\n" % (end - start - TEE_BYTES) + data
        return data


def _own_part(stack: str) -> str:
    """Return a stack as faulthandler wrote it, without the frames below the job's."""
    kept, ours = [], False
    for line in stack.splitlines(keepends=True):
        ours = (ours or any(file in line for file in _OURS)) and line.startswith("  File ")
        if not ours:
            kept.append(line)
    return "".join(kept)


_OURS = tuple(
    f'"{os.path.join(os.path.dirname(wire.__file__), name)}"' for name in ("chunk.py", "worker.py", "warden/child.py")
)
assert KEPT_BYTES <= TEE_BYTES
