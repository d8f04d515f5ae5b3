"""Free memory as a gate (`--memfree`): no job is started while less than so much is available.

As GNU parallel's option of that name, but that nothing is killed for it: only limits, deadlines and their owners kill
jobs here.  What counts is what the kernel calls available, and what the limit of the cgroup at /sys/fs/cgroup leaves,
whichever is less: in a container the machine's memory is not what its jobs may have.
"""

from __future__ import annotations

import contextlib

from ..core import events as on
from ..core.job import NEVER

# A look costs 60 to 100 µs, so a thousandth of a core; a job that takes memory at 1 GiB/s has taken 100 MiB
# before the next one is started.  More jobs than are idle workers never start between two looks.
LOOK_NS = 100_000_000
GROUP = "/sys/fs/cgroup"
_BOUNDS = (  # of a cgroup, versions 2 and 1: limit, in use, and the part of that which files cache
    ("memory.max", "memory.current", "memory.stat", "inactive_file"),
    ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes", "memory/memory.stat", "total_inactive_file"),
)


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

    return min(int(psutil.virtual_memory().available), _left_in_group())


def most_bytes() -> int:
    """Return how much could ever be available."""
    import psutil

    limits = [_number(limit) for limit, _, _, _ in _BOUNDS]
    return min([int(psutil.virtual_memory().total), *(limit for limit in limits if limit is not None)])


def _left_in_group() -> int:
    for limit_name, used_name, stat_name, cached_name in _BOUNDS:
        limit, used = _number(limit_name), _number(used_name)
        if limit is not None and used is not None:
            return max(0, limit - used + _cached(stat_name, cached_name))
    return NEVER


def _number(name: str) -> int | None:
    with contextlib.suppress(OSError, ValueError), open(f"{GROUP}/{name}") as file:
        return int(file.read())  # "max" is no number
    return None


def _cached(name: str, field: str) -> int:
    """Return what the kernel would give up before it refuses anybody memory: files that were not used lately."""
    with contextlib.suppress(OSError, ValueError), open(f"{GROUP}/{name}") as file:
        for line in file:
            word, _, number = line.partition(" ")
            if word == field:
                return int(number)
    return 0
