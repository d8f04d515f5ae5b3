"""Which jobs have started: one line of a file beside the journal for each, written before the call leaves.

A write(2) survives the kill -9 of its process without any sync, so after one it is known exactly what had begun.  The
same facts go into the database with its next commit, for the loss of power.  Two files take turns: one is emptied when
all that it tells is in the database.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterable
from typing import NamedTuple

from ..shell import held

HALF_BYTES = 1 << 20  # of one file: about ten thousand jobs, of which a commit takes in a few hundred
NAMES = ("-started", "-started2")
READ_MAX = 64 << 20  # of a file that is found: while the disk takes no commit ours grow by what is queued, and no more


class Line(NamedTuple):
    """A job that had started.  Instants are nanoseconds of the wall clock."""

    job: int
    key: str
    name: str
    accepted: int
    started: int


_text = json.encoder.encode_basestring_ascii


def _written(line: Line) -> str:
    """Return a line of JSON behind its line break, four times as fast as `json.dumps` makes it."""
    return f"\n[{line.job}, {_text(line.key)}, {_text(line.name)}, {line.accepted}, {line.started}]"


class Started:
    """The files of the run that goes on (loop thread).

    Args:
        path: of the journal.
    """

    def __init__(self, path: str) -> None:
        self._paths = [path + name for name in NAMES]
        self._fds: list[int] = []
        self._sizes, self._last, self._now = [0, 0], [0, 0], 0
        try:
            for side in self._paths:
                flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
                self._fds.append(os.open(side, flags, 0o600))
        except BaseException:
            self.close()
            raise

    def write(self, lines: Iterable[Line], number: int, committed: int) -> None:
        """Write lines; what has failed in part is no line, for the next one begins on a line of its own.

        Args:
            number: of all lines so far, these included.
            committed: how many of them the database has.

        Raises:
            OSError: they are not written.
        """
        data = "".join(map(_written, lines)).encode()
        other = 1 - self._now
        if self._sizes[self._now] > HALF_BYTES and self._last[other] <= committed:
            os.ftruncate(self._fds[other], 0)
            self._sizes[other], self._now = 0, other
        written = held.write(self._fds[self._now], data)
        self._sizes[self._now] += written
        if written < len(data):
            raise OSError(28, os.strerror(28))  # ENOSPC: what a short write to a file means (write(2))
        self._last[self._now] = number

    def probe(self) -> None:
        """Write what is no line (the journal's thread).

        Raises:
            OSError: nothing can be written.
        """
        os.write(self._fds[self._now], b"\n")

    def close(self) -> None:
        """Let go of the files, and leave them."""
        while self._fds:
            os.close(self._fds.pop())


def read(path: str) -> list[Line]:
    """Return what the files of an earlier run say; what is no line says nothing."""
    found = []
    for name in NAMES:
        with contextlib.suppress(FileNotFoundError):
            fd = os.open(path + name, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
            with open(fd, "rb") as file:
                found += [line for line in map(_line, file.read(READ_MAX).split(b"\n")) if line]
    return found


def _line(data: bytes) -> Line | None:
    try:
        line = Line(*json.loads(data))
        str.encode(line.key + line.name)
    except (ValueError, TypeError, RecursionError):
        return None
    numbers = line.job, line.accepted, line.started
    return line if all(type(number) is int and 0 < number < 1 << 62 for number in numbers) else None


def remove(path: str) -> None:
    """Remove the files: what they tell is in the database."""
    for name in NAMES:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path + name)
