"""`--execution-log F`: one line of JSON for each attempt, also for those that another one followed."""

from __future__ import annotations

import contextlib
import json
import os
import stat
from typing import TYPE_CHECKING, Any

from . import files
from .exits import CommandError, Exit

if TYPE_CHECKING:
    from ..outcome import Outcome

SCHEMA = 1
WHAT = "the execution log"
FACTS = (
    "status", "started", "finished", "wall_time", "cpu_time", "max_rss", "worker_pid", "signal", "signal_name",
    "exit_code", "limit", "observed", "error", "stack",
)  # fmt: skip  # of an Outcome, in this order


def check(path: str) -> None:
    """Refuse a log that cannot be opened, without making it: the jobs file may still be refused.

    Raises:
        CommandError: cannot create.
    """
    if os.path.isdir(path):
        raise CommandError(Exit.CANNOT_CREATE, f"cannot create {WHAT} {path!r}: it is a directory")
    if not os.path.exists(path):
        files.check(path, WHAT)
        return
    os.close(_open(path))


def _open(path: str) -> int:
    try:  # not blocking: a FIFO that nobody reads would
        return os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NONBLOCK, 0o666)
    except (OSError, ValueError) as error:
        raise files.cannot(path, WHAT, error) from None


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


class ExecutionLog:
    """An open log; lines are added to what is there.

    Args:
        path: the file, or a pipe that somebody reads.

    Attributes:
        lost: why lines could not be written, or "".
    """

    def __init__(self, path: str) -> None:
        self.lost = ""
        self._fd = _open(path)
        os.set_blocking(self._fd, True)
        self._torn = _ends_in_a_part(path, self._fd)

    def failed(self, outcome: Outcome[Any]) -> None:
        """An attempt that another one follows."""
        self._add(outcome, final=False)

    def ended(self, outcome: Outcome[Any]) -> None:
        """A job's end; its last attempt, if one was begun."""
        if outcome.started is not None and outcome.attempts:
            self._add(outcome, final=True)

    def close(self) -> None:
        os.close(self._fd)

    def _add(self, outcome: Outcome[Any], final: bool) -> None:
        facts = outcome.as_dict()
        head = {"schema": SCHEMA, "job": outcome.name, "attempt": outcome.attempts, "final": final}
        line = json.dumps(head | {name: facts[name] for name in FACTS}) + "\n"
        if self._torn:
            line, self._torn = "\n" + line, False
        if not self.lost:
            try:
                self._write(line.encode())
            except OSError as error:
                self.lost = error.strerror or str(error)

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
