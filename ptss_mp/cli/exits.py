"""Exit statuses (README, "A jobs file"), and what a run's outcomes come to."""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ..outcome import Outcome


class Exit(IntEnum):
    """What the program ends with; 128 + n after signal n."""

    OK = 0
    FAILED = 1
    USAGE = 2
    LATE = 3
    BAD_FILE = 65
    MISSING = 66
    OUR_FAULT = 70
    CANNOT_CREATE = 73
    IO_ERROR = 74
    BUSY = 75
    NO_PERMISSION = 77
    SIGNALLED = 128


class CommandError(Exception):
    """The command ends here, with a status and one line of text ("" : it was said already)."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


def weight(outcome: Outcome[Any], failed: Mapping[str, Outcome[Any]]) -> int:
    """Return what one outcome counts: 0, 1 or 3.

    Args:
        outcome: of a job.
        failed: all outcomes that are neither succeeded nor skipped, by name: a
            dependency's failure counts as its root.
    """
    from ..outcome import EXIT_STATUS, Status

    if outcome.status is Status.SUCCEEDED:
        return Exit.LATE if outcome.tardiness > 0 else Exit.OK
    if outcome.status is Status.DEPENDENCY:
        root = failed.get(outcome.root or "")
        return Exit.FAILED if root is None or root is outcome else EXIT_STATUS[root.status]
    return EXIT_STATUS[outcome.status]


def together(weights: set[int]) -> int:
    """Return the exit status of several: 1 beats 3."""
    from ..outcome import exit_status

    return exit_status(weights)
