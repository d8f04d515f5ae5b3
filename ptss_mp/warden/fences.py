"""Groups around the workers of pools in which trees are limited: what is tried, made and removed, and when.

A worker goes into its group itself, before its first job: to move somebody takes milliseconds, and the kill clock has
none to give.  So workers that were there before the first such option came stay outside; all rules hold for them too,
only with less help of the kernel.
"""

from __future__ import annotations

import contextlib

from . import means
from .cgroup import MEMORY, NO_LIMIT, PIDS, Group, Groups, Place, remove_leftovers
from .protocol import MEMORY_GROUP, PIDS_GROUP

_CONTROLLERS = {MEMORY_GROUP: MEMORY, PIDS_GROUP: PIDS}
SPARE_TASKS = 10_000  # beyond what is allowed: for threads, which do not count; where a bomb ends at the latest


class Fences:
    """The groups of one warden.

    Attributes:
        offered: controller -> where its groups are, or why there are none.
    """

    def __init__(self) -> None:
        self.offered: dict[str, Place | str] = {}
        self._groups: dict[int, Groups] = {}
        self._left: list[Group] = []

    def around(self, number: int, wanted: int) -> Group | None:
        """Return a new group for a worker, None if none is wanted or to be had.

        Args:
            wanted: sum of MEMORY_GROUP, PIDS_GROUP.  The first time each is tried for real, in a fork.
        """
        if not wanted:
            return None
        try:
            if wanted not in self._groups:
                self._groups[wanted] = Groups(self._places(wanted))
            return self._groups[wanted].make(str(number))
        except OSError:  # no room, or somebody has removed them: it will do without
            return None

    def _places(self, wanted: int) -> dict[str, Place]:
        places = {}
        for flag, controller in _CONTROLLERS.items():
            if wanted & flag:
                if controller not in self.offered:
                    self.offered[controller] = means.offer(controller)
                place = self.offered[controller]
                if isinstance(place, Place):
                    remove_leftovers(place)
                    places[controller] = place
        return places

    def leave(self, group: Group | None) -> None:
        """Its worker is reaped: remove the group, now or when the last of its strays is gone."""
        if group:
            hold(group)
            self._left.append(group)

    def tidy(self) -> None:
        """Remove what can be removed."""
        if self._left:
            self._left = [group for group in self._left if not _removed(group)]

    def close(self) -> None:
        """Everything is dead."""
        self.tidy()
        for groups in self._groups.values():
            with contextlib.suppress(OSError):
                groups.remove()


def bound(group: Group | None, processes: int) -> None:
    """Let no bomb outrun the count of a limited attempt; 0: there is none."""
    if group:
        with contextlib.suppress(OSError, KeyError):
            group.limit_tasks(processes + SPARE_TASKS if processes else NO_LIMIT)


def hold(group: Group | None) -> None:
    """Let nobody in it fork any more: what is to be killed becomes no more."""
    if group:
        with contextlib.suppress(OSError, KeyError):
            group.limit_tasks(0)


def surely_within(group: Group | None, processes: int) -> bool:
    """Return True if threads and processes together, the dead included, are no more than the processes allowed."""
    if group:
        with contextlib.suppress(OSError, KeyError):
            return 0 < group.tasks() <= processes  # 0: its worker is not in it
    return False


def _removed(group: Group) -> bool:
    try:
        return group.remove()
    except OSError:
        return True  # nothing more can be done about it here
