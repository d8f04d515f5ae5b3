"""Free memory as a gate (`--memfree`): no job is started while less than so much is available.

As GNU parallel's option of that name, but that nothing is killed for it: only limits, deadlines and their owners kill
jobs here.  What counts is what the kernel calls available, or what the container leaves, whichever is less.
"""

from __future__ import annotations

from ..core import events as on
from ..core.job import NEVER
from . import container

# A look costs 60 to 100 µs, so a thousandth of a core; a job that takes memory at 1 GiB/s has taken 100 MiB
# before the next one is started.  More jobs than are idle workers never start between two looks.
LOOK_NS = 100_000_000
LOOKED_BYTES = 64 << 20  # for less than this nobody looks whether there is room: it takes 10 ms, a look 0.1


class MemoryGate:
    """Decides when to look, and what that means.

    Attributes:
        least_bytes: so much must be available.
        short: it was not, at the last look.
        told: that jobs wait for memory has been said.
    """

    def __init__(self, least_bytes: int) -> None:
        self.least_bytes = least_bytes
        self.short = self.told = False
        self.available_bytes = 0
        self._looked_at = -LOOK_NS

    def look(self, now: int) -> on.MemoryLooked | None:
        """Look, unless that was done a moment ago; return what has changed.

        A program without a descriptor left cannot look: then what was seen last still counts.
        """
        if now - self._looked_at < LOOK_NS:
            return None
        self._looked_at = now
        try:
            self.available_bytes = available_bytes()
        except OSError:
            return None
        short = self.available_bytes < self.least_bytes
        if short == self.short:
            return None
        self.short = short
        return on.MemoryLooked(now, short)

    def why(self) -> str:
        """Say what was seen and what is asked for."""
        there, least = (f"{size / (1 << 20):,.0f} MiB" for size in (self.available_bytes, self.least_bytes))
        return f"{there} of memory are available, {least} must be (--memfree); what runs goes on"

    @property
    def again_at(self) -> int:
        """When to look again though nothing happens: only while jobs wait for memory."""
        return self._looked_at + LOOK_NS if self.short else NEVER


def available_bytes() -> int:
    """Return how much memory a new job could have."""
    import psutil

    return _less(int(psutil.virtual_memory().available), container.memory_left_bytes())


def shortage(size: int, coming: int) -> int:
    """Return how much memory is left if that is less than a value needs that is about to come, else 0.

    So the program does not die of it (the kernel's OOM killer): a result may be large and cost its job nothing, for
    pages that nobody has written to are none.

    Args:
        size: of the value.
        coming: of others that were let in, and are not here yet.
    """
    if size < LOOKED_BYTES:
        return 0
    try:
        left = available_bytes() - coming
    except OSError:  # no descriptor is left to look
        return 0
    return max(left, 1) if left < size else 0


def most_bytes() -> int:
    """Return how much could ever be available."""
    import psutil

    return _less(int(psutil.virtual_memory().total), container.memory_bytes())


def _less(machine: int, bound: int | None) -> int:
    return machine if bound is None else min(machine, bound)
