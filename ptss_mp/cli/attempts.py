"""`--execution-log F`: one line of JSON for each attempt, also for those that another one followed."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from . import appended

if TYPE_CHECKING:
    from ..outcome import Outcome

SCHEMA = 1
WHAT = "the execution log"
FACTS = (
    "status", "started", "finished", "wall_time", "cpu_time", "max_rss", "worker_pid", "signal", "signal_name",
    "exit_code", "limit", "observed", "error", "stack",
)  # fmt: skip  # of an Outcome, in this order


def check(path: str) -> None:
    """Refuse a log that cannot be opened, without making it.

    Raises:
        CommandError: cannot create.
    """
    appended.check(path, WHAT)


class ExecutionLog:
    """An open log; lines are added to what is there.

    Args:
        path: the file, or a pipe that somebody reads.
    """

    def __init__(self, path: str) -> None:
        self._file = appended.Appended(path, WHAT)
        self.close = self._file.close

    @property
    def lost(self) -> str:
        """Why lines could not be written, or ""."""
        return self._file.lost

    def failed(self, outcome: Outcome[Any]) -> None:
        """An attempt that another one follows."""
        self._add(outcome, final=False)

    def ended(self, outcome: Outcome[Any]) -> None:
        """A job's end; its last attempt, if one was begun."""
        if outcome.started is not None and outcome.attempts:
            self._add(outcome, final=True)

    def _add(self, outcome: Outcome[Any], final: bool) -> None:
        facts = outcome.as_dict()
        head = {"schema": SCHEMA, "job": outcome.name, "attempt": outcome.attempts, "final": final}
        self._file.add(json.dumps(head | {name: facts[name] for name in FACTS}))
