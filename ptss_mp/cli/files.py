"""Files that a run writes: looked at before anything runs, written whole or not at all."""

from __future__ import annotations

import contextlib
import json
import os
import stat
import tempfile
from collections.abc import Callable
from typing import IO, Any

from .exits import CommandError, Exit


def check(path: str, what: str) -> None:
    """Refuse a file that could not be written at the end.

    Args:
        what: "the report", for the error.

    Raises:
        CommandError: cannot create.
    """
    try:
        with contextlib.suppress(FileNotFoundError):  # a link to nothing yet is fine
            if not stat.S_ISREG(os.stat(path).st_mode):
                raise CommandError(Exit.CANNOT_CREATE, f"cannot create {what} {path!r}: something else is there")
        os.unlink(_temporary(path))
    except (OSError, ValueError) as error:
        raise cannot(path, what, error) from None


def write(path: str, what: str, data: Any) -> None:
    """Write JSON; a reader sees the whole of it or what was there before.

    Raises:
        CommandError: cannot create.
    """
    _write(path, what, lambda file: json.dump(data, file), to_disk=True)


def write_line(path: str, what: str, line: str) -> None:
    """Write a line in the same way, but for a power loss: one of a million files is not worth a wait for the disk.

    Raises:
        CommandError: cannot create.
    """
    _write(path, what, lambda file: file.write(line), to_disk=False)


def _write(path: str, what: str, put: Callable[[IO[str]], object], to_disk: bool) -> None:
    temporary = None
    try:
        temporary = _temporary(path)
        with open(temporary, "w", encoding="utf-8") as file:
            put(file)
            file.write("\n")
            file.flush()
            if to_disk:
                os.fsync(file.fileno())
        os.replace(temporary, os.path.realpath(path))
        temporary = None
    except OSError as error:
        raise cannot(path, what, error) from None
    finally:
        if temporary:
            with contextlib.suppress(OSError):
                os.unlink(temporary)


def _temporary(path: str) -> str:
    """Create an empty file beside the one to be, with the rights that an ordinary new file has."""
    folder, name = os.path.split(os.path.realpath(path))
    fd, temporary = tempfile.mkstemp(prefix=f".{name[:100]}.", suffix=".tmp", dir=folder)
    umask = os.umask(0o22)
    os.umask(umask)
    os.fchmod(fd, 0o666 & ~umask)
    os.close(fd)
    return temporary


def cannot(path: str, what: str, error: Exception) -> CommandError:
    """Return the error for a file that cannot be made."""
    reason = getattr(error, "strerror", None) or error
    return CommandError(Exit.CANNOT_CREATE, f"cannot create {what} {path!r}: {reason}")
