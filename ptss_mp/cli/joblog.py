"""`map --joblog F`: a line for each item, in the columns of GNU parallel."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .appended import Appended
from .text import visible

if TYPE_CHECKING:
    from ..outcome import Outcome

WHAT = "the job log"
COLUMNS = ("Seq", "Host", "Starttime", "JobRuntime", "Send", "Receive", "Exitval", "Signal", "Command")
KILLED = -1  # as GNU parallel tells a timeout


class JobLog(Appended):
    """An open log; lines are added to what is there."""

    def __init__(self, path: str) -> None:
        super().__init__(path, WHAT, head="\t".join(COLUMNS))

    def ended(self, number: int, command: str, outcome: Outcome[Any]) -> None:
        """Add the line of one item.

        Args:
            number: of the item, from 1.
            command: what was done; a tab or newline in it is told, for here they end columns and lines.
        """
        started = (outcome.started or outcome.finished).timestamp()
        took = outcome.wall_time or 0.0
        line = (number, ":", f"{started:.3f}", f"{took:10.3f}", 0, 0, *_ends(outcome), visible(command))
        self.add("\t".join(map(str, line)))


def _ends(outcome: Outcome[Any]) -> tuple[int, int]:
    """Return exit value and signal: (0, 0) of what succeeded, and of nothing else."""
    if outcome.ok:
        return 0, 0
    if outcome.status.value == "timeout":
        return KILLED, int(outcome.signal or 0)
    if outcome.signal is not None:
        return 0, int(outcome.signal)
    return outcome.exit_code or 1, 0
