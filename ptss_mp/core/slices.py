"""Slices: what a step may do of work that has no bound, before the loop looks at its descriptors again.

A million deadlines may pass in one instant, one end may decide for a million
jobs.  Such work is done piece by piece: what is left stands in the core, the
step says so (`Scheduler.behind`), and the next one goes on.  Each kind of work
has a slice of its own, so that none waits for another's million.
"""

from __future__ import annotations

SLICE = 500  # units of about a microsecond: half a millisecond of each kind, far below what a kill may be late (6 ms)
END = 5  # units: a job's end, with what the shell does about it (a report, a Future, who waits)


class Slice:
    """What is left of the slice that is being used; one for all containers of a core.

    Args:
        size: units.

    Attributes:
        left: units; nobody begins anything at 0 or below.
        cut: somebody had to leave work for the next step.
    """

    __slots__ = ("cut", "left", "size")

    def __init__(self, size: int = SLICE) -> None:
        self.size = self.left = size
        self.cut = False

    def renew(self) -> None:
        """Begin with another kind of work."""
        self.left = self.size

    def over(self) -> bool:
        """Return True if nothing is left, and note that somebody asked."""
        if self.left > 0:
            return False
        self.cut = True
        return True
