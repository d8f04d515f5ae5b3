"""The report of a run as data: all outcomes, and what they come to."""

from __future__ import annotations

from typing import Any

from . import files
from .exits import CommandError, Exit

SCHEMA = 1
WHAT = "the report"


def check(path: str) -> None:
    """Refuse a report that could not be written at the end.

    Raises:
        CommandError: usage, or cannot create.
    """
    if not path.endswith(".json"):
        raise CommandError(Exit.USAGE, f"--report writes JSON: its name must end in .json, {path!r} does not")
    files.check(path, WHAT)


def write(path: str, summary: dict[str, Any], jobs: list[dict[str, Any]]) -> None:
    """Write the report.

    Raises:
        CommandError: cannot create.
    """
    files.write(path, WHAT, {"schema": SCHEMA, "summary": summary, "jobs": jobs})
