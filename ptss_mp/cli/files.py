"""Files that a run writes (atomic.py), in the words of the command line."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Any

from .. import atomic
from .exits import CommandError, Exit


def check_distinct(given: Mapping[str, str | None]) -> None:
    """Refuse to write one file over another.

    Args:
        given: the paths by what they are, "the jobs file" or "--report"; None: not asked for.

    Raises:
        CommandError: usage.
    """
    seen: dict[str, str] = {}
    for what, path in given.items():
        other = what if path is None else seen.setdefault(os.path.realpath(path), what)
        if other != what:
            raise CommandError(Exit.USAGE, f"{what} {path!r} is {other} as well; each needs a file of its own")


def check(path: str, what: str) -> None:
    """Refuse a file that could not be written at the end.

    Args:
        what: "the report", for the error.

    Raises:
        CommandError: cannot create.
    """
    try:
        atomic.check(path)
    except (OSError, ValueError) as error:
        raise cannot(path, what, error) from None


def write(path: str, what: str, data: Any) -> None:
    """Write JSON; a reader sees the whole of it or what was there before.

    Raises:
        CommandError: cannot create.
    """
    _write(path, what, json.dumps(data), to_disk=True)


def write_line(path: str, what: str, line: str) -> None:
    """Write a line in the same way, but for a power loss: one of a million files is not worth a wait for the disk.

    Raises:
        CommandError: cannot create.
    """
    _write(path, what, line, to_disk=False)


def _write(path: str, what: str, line: str, to_disk: bool) -> None:
    try:
        atomic.write(path, [line, "\n"], to_disk)
    except OSError as error:
        raise cannot(path, what, error) from None


def cannot(path: str, what: str, error: Exception) -> CommandError:
    """Return the error for a file that cannot be made."""
    reason = getattr(error, "strerror", None) or error
    return CommandError(Exit.CANNOT_CREATE, f"cannot create {what} {path!r}: {reason}")
