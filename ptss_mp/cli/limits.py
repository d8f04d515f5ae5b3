"""What the command line says about how a job shall run, as options of the executor; checked before anything starts."""

from __future__ import annotations

import argparse
from typing import Any

from ..errors import InvalidOption, InvalidType
from ..units import shown_size
from .exits import CommandError, Exit

LIMITS = ("timeout", "cpu_time", "memory", "file_size", "open_files", "processes")
OTHERS = ("retries", "deadline", "fresh")


def task_options(args: argparse.Namespace) -> dict[str, Any]:
    """Return the options that were given.

    Raises:
        CommandError: usage: one that can never be right, or that this process may not allow.
    """
    from ..declare import Options
    from ..rules import rules

    asked = {name: getattr(args, name, None) for name in (*LIMITS, *OTHERS)}
    given = {name: value for name, value in asked.items() if value is not None}
    try:
        rules(Options(**given))
    except (InvalidOption, InvalidType) as error:
        raise CommandError(Exit.USAGE, str(error)) from None
    return given


def check_memfree(least_bytes: int | None) -> None:
    """Refuse to wait for more memory than there is.

    Raises:
        CommandError: usage.
    """
    if least_bytes is None:
        return
    from ..shell.memfree import most_bytes

    most = most_bytes()
    if least_bytes > most:
        told = f"this machine (or the container) has {shown_size(most)}: no job could ever start"
        raise CommandError(Exit.USAGE, f"--memfree {shown_size(least_bytes)}: {told}")
