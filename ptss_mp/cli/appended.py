"""Files to which a run adds lines: each stands there whole as soon as it is written, so a kill loses none."""

from __future__ import annotations

import contextlib
import os
import stat

from . import files
from .exits import CommandError, Exit


def check(path: str, what: str) -> None:
    """Refuse a file that cannot be opened, without making it: what is to run may still be refused.

    Raises:
        CommandError: cannot create.
    """
    if os.path.isdir(path):
        raise CommandError(Exit.CANNOT_CREATE, f"cannot create {what} {path!r}: it is a directory")
    if not os.path.exists(path):
        files.check(path, what)
        return
    os.close(_open(path, what))


def _open(path: str, what: str) -> int:
    try:  # not blocking: a FIFO that nobody reads would
        return os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NONBLOCK, 0o666)
    except (OSError, ValueError) as error:
        raise files.cannot(path, what, error) from None


def _ends_in_a_part(path: str, fd: int) -> bool:
    """Return True for a file that ends in a part of a line, as a run leaves it whose machine went down."""
    found = os.fstat(fd)
    if not stat.S_ISREG(found.st_mode) or not found.st_size:
        return False
    try:
        with open(path, "rb") as file:
            file.seek(-1, os.SEEK_END)
            return file.read(1) != b"\n"
    except OSError:
        return False  # it may be written only


class Appended:
    """An open file; lines are added to what is there.

    Args:
        path: the file, or a pipe that somebody reads.
        what: "the execution log", for errors.
        head: the first line of a new file, or "".

    Attributes:
        lost: why lines could not be written, or "".

    Raises:
        CommandError: cannot create.
    """

    def __init__(self, path: str, what: str, head: str = "") -> None:
        self.lost = ""
        self._fd = _open(path, what)
        os.set_blocking(self._fd, True)
        self._torn = _ends_in_a_part(path, self._fd)
        found = os.fstat(self._fd)
        if head and not (stat.S_ISREG(found.st_mode) and found.st_size):
            self.add(head)

    def add(self, line: str) -> None:
        """Write a line; once one could not be written, no more: a log that lacks lines in its middle would lie."""
        line += "\n"
        if self._torn:
            line, self._torn = "\n" + line, False
        if not self.lost:
            try:
                self._write(line.encode("utf-8", "surrogateescape"))
            except OSError as error:
                self.lost = error.strerror or str(error)

    def close(self) -> None:
        os.close(self._fd)

    def _write(self, line: bytes) -> None:
        """Write a line whole, or, on a full disk, not at all."""
        written = 0
        try:
            while written < len(line):
                written += os.write(self._fd, line[written:])
        except OSError:
            found = os.fstat(self._fd)
            if written and stat.S_ISREG(found.st_mode):
                with contextlib.suppress(OSError):
                    os.ftruncate(self._fd, found.st_size - written)
            raise
