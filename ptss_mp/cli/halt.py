"""`--halt now,fail=1`, `--halt soon,fail=3%`: how many failures end a run early."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Any

from .text import count, say

if TYPE_CHECKING:
    from ..outcome import Outcome
    from .pool import RunExecutor

FORM = re.compile(r"(now|soon),fail=(\d{1,9}|\d{1,2}(?:\.\d{1,3})?%)")
# What did not fail itself: it was told to end, or never began for the sake of another.
NO_FAILURES = frozenset(("succeeded", "skipped", "cancelled", "dependency"))


class Halt:
    """Ends a run once enough has failed.

    Args:
        given: "now,fail=1": kill what runs; "soon,fail=3%": start nothing more.  A percentage is of what has settled,
            and is judged once 100 / P have.

    Attributes:
        told: why the run was ended, or "".

    Raises:
        ValueError: another text, or no number above zero.
    """

    def __init__(self, given: str) -> None:
        found = FORM.fullmatch(given)
        number = float(found[2].rstrip("%")) if found else 0.0
        if not found or not number:
            raise ValueError("must look like now,fail=1 or soon,fail=3%")
        self._given, self._now = given, found[1] == "now"
        self._share = number / 100 if found[2].endswith("%") else 0.0
        self._most, self._least = (1, math.ceil(1 / self._share)) if self._share else (int(number), 1)
        self._settled = self._failed = 0
        self.told = ""

    def settled(self, outcome: Outcome[Any], pool: RunExecutor) -> None:
        """Take one settled job into account; end the run if that was the one too many."""
        self._settled += 1
        self._failed += outcome.status.value not in NO_FAILURES
        if self.told or self._settled < self._least or self._failed < max(self._most, self._share * self._settled):
            return
        self.told = f"{count(self._failed, 'job')} of {self._settled} failed (--halt {self._given})"
        if self._now:
            pool.cancel_all()
        else:
            pool.begin_end()
        say(f"halted: {self.told}; {'what ran was killed' if self._now else 'what runs may end'}", "WARNING")
