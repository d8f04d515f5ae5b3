"""Files that are written whole or not at all, and looked at before there is anything to write."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import tempfile
from collections.abc import Iterable


def check(path: str) -> None:
    """Refuse a file that could not be written later.

    Raises:
        OSError, ValueError: why not.
    """
    with contextlib.suppress(FileNotFoundError):  # a link to nothing yet is fine
        if not stat.S_ISREG(os.stat(path).st_mode):
            raise OSError(errno.EEXIST, "something else is there")
    os.unlink(_temporary(path))


def write(path: str, pieces: Iterable[str], to_disk: bool = True) -> None:
    """Write text; a reader sees the whole of it or what was there before; `to_disk`: also after a loss of power.

    Raises:
        OSError: it cannot be written; nothing of it is left.
    """
    temporary = _temporary(path)
    try:
        with open(temporary, "w", encoding="utf-8") as file:
            file.writelines(pieces)
            file.flush()
            if to_disk:
                os.fsync(file.fileno())
        os.replace(temporary, os.path.realpath(path))
        temporary = ""
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
