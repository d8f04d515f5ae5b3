"""What the items of a `map` come to: counts, the exit status, lines for whoever watches."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from . import text
from .exits import Exit, together, weight

if TYPE_CHECKING:
    from ..outcome import Outcome
    from .pool import RunExecutor

PROGRESS_S = 1.0  # a line of progress at most so often
FAILURES_TOLD = 20  # on stderr; of the others stdout tells


class Tally:
    """Counts what settles.

    Attributes:
        counts: items by status.
    """

    def __init__(self, pool: RunExecutor, quiet: bool) -> None:
        self._pool, self._quiet = pool, quiet
        self.counts: dict[str, int] = {}
        self._weights: set[int] = set()
        self._done = self._failed = 0
        self._shown = (0, time.monotonic())

    def settled(self, item: str, outcome: Outcome[Any], cut_off: bool) -> None:
        """Take one item into account; say how it failed, if it did.

        Args:
            cut_off: it did not run because nobody wants to know any more, or no worker can be had.
        """
        status = outcome.status.value
        self._done += 1
        self.counts[status] = self.counts.get(status, 0) + 1
        if cut_off:
            return
        self._weights.add(weight(outcome, {}))
        if outcome.ok or status in ("skipped", "cancelled"):
            return
        self._failed += 1
        if self._failed <= FAILURES_TOLD:
            text.say(f"{item}: {text.failure(outcome)}", "ERROR", item=item, status=status)
        if self._failed == FAILURES_TOLD:
            text.say("further failures stand in the output only", "WARNING")

    def show_progress(self) -> None:
        """Show a line if the last one is a second old and something has settled."""
        now, (before, at) = time.monotonic(), self._shown
        if self._quiet or now - at < PROGRESS_S or self._done == before:
            return
        self._shown = self._done, now
        rate, running = (self._done - before) / (now - at), self._pool.status().running
        told = f"{self._done} done, {self._failed} failed, {running} running, {rate:.0f} jobs/s"
        text.say(told, done=self._done, failed=self._failed, running=running)

    def exit_status(self) -> int:
        """Return what the outcomes come to; if no worker could be had, and none failed before, CANNOT_CREATE."""
        found = together(self._weights)
        return Exit.CANNOT_CREATE if self._pool.why_broken and found != Exit.FAILED else found
