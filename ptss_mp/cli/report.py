"""The report of a run as data: checked before anything runs, written whole or not at all."""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
from typing import Any

from .exits import CommandError, Exit

SCHEMA = 1


def check(path: str) -> None:
    """Refuse a report that could not be written at the end.

    Raises:
        CommandError: usage, or cannot create.
    """
    if not path.endswith(".json"):
        raise CommandError(Exit.USAGE, f"--report writes JSON: its name must end in .json, {path!r} does not")
    if os.path.exists(path) and not os.path.isfile(path):  # a link to nothing yet is fine
        raise CommandError(Exit.CANNOT_CREATE, f"cannot create the report {path!r}: something else is there")
    try:
        os.unlink(_temporary(path))
    except OSError as error:
        raise _cannot(path, error) from None


def write(path: str, summary: dict[str, Any], jobs: list[dict[str, Any]]) -> None:
    """Write the report; a reader sees the whole of it or what was there before.

    Raises:
        CommandError: cannot create.
    """
    temporary = None
    try:
        temporary = _temporary(path)
        with open(temporary, "w", encoding="utf-8") as file:
            json.dump({"schema": SCHEMA, "summary": summary, "jobs": jobs}, file)
            file.write("\n")
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, os.path.realpath(path))
        temporary = None
    except OSError as error:
        raise _cannot(path, error) from None
    finally:
        if temporary:
            with contextlib.suppress(OSError):
                os.unlink(temporary)


def _temporary(path: str) -> str:
    """Create an empty file beside the report, with the rights that an ordinary new file has."""
    folder, name = os.path.split(os.path.realpath(path))
    fd, temporary = tempfile.mkstemp(prefix=f".{name}.", suffix=".tmp", dir=folder)
    umask = os.umask(0o22)
    os.umask(umask)
    os.fchmod(fd, 0o666 & ~umask)
    os.close(fd)
    return temporary


def _cannot(path: str, error: OSError) -> CommandError:
    return CommandError(Exit.CANNOT_CREATE, f"cannot create the report {path!r}: {error.strerror or error}")
