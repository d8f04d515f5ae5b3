"""Trees: what dead and dying workers have left behind is found and killed, and nothing is left when the search ends.

An unknown child of the warden belongs to a dead or dying worker: each worker is
a sub-reaper while it lives, the warden is one behind it.

Why nothing is left.  The list of the warden's own children is complete: new
ones are appended, and only the warden, which reads it, takes one off.  Other
lists may skip somebody while they change (proc(5)); they only make it quick.
Once a sweep finds nobody new, each unknown child was sent SIGKILL, and nobody
forks behind that.  Whoever a list has missed stands below one of these, or
below a dying worker; once that one is reaped, its children are the warden's,
and each reap is followed by a sweep.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterable

from . import fences, proc
from .clock import Watched

SWEEP_NS = 500_000  # while somebody dies, look again so often
SLICE_NS = 5_000_000  # a sweep walks no longer at a time: limits of other workers wait for it


class Trees:
    """The sweeper.

    Args:
        workers: those alive, by pid; the warden keeps it.

    Attributes:
        dying: workers that are condemned or dead, and not reaped yet, by pid.
        shot: strays that were sent SIGKILL and were still listed at the last look.
        kept: what a preload started is nobody's stray.
        mourned: reaped worker -> what it has left, once that was seen as a whole; until then None.
        dirty: the last look found somebody new or was cut short, or somebody was reaped since.
    """

    def __init__(self, workers: dict[int, Watched]) -> None:
        self.workers = workers
        self.pid = os.getpid()
        self.dying: dict[int, Watched] = {}
        self.shot: set[int] = set()
        self.kept: set[int] = set()
        self.mourned: dict[int, set[int] | None] = {}
        self.dirty = False

    @property
    def busy(self) -> bool:
        """True while there may be something to sweep that no reap will tell of."""
        return bool(self.dirty or self.dying)

    def doom(self, worker: Watched) -> None:
        """It was sent its last signal, and is dead soon; until then its children are listed below it."""
        worker.doomed = True
        fences.hold(worker.group)
        self.dying[worker.pid] = worker
        self.sweep()

    def reaped(self, pid: int) -> None:
        """A child of the warden is no more, and its number may come back: whom it left behind has come up."""
        self.dirty = True
        self.dying.pop(pid, None)
        self.kept.discard(pid)
        self.shot.discard(pid)

    def sweep(self) -> None:
        """Kill what dead and dying workers have left; what was not looked at leaves `dirty` behind."""
        self.dirty = True
        with contextlib.suppress(OSError):  # no descriptor is left: unseen does not mean that nobody is there
            self.dirty = self._sweep(time.monotonic_ns() + SLICE_NS)
        if self.mourned and not self.dirty:
            shot = set(self.shot)
            self.mourned = {number: shot if left is None else left for number, left in self.mourned.items()}

    def gone(self) -> list[int]:
        """Return the reaped workers of which nothing is left that could still act; each once."""
        found = [n for n, left in self.mourned.items() if left is not None and all(map(self._has_ended, left))]
        for number in found:
            del self.mourned[number]
        return found

    def _has_ended(self, pid: int) -> bool:
        """A stray that was shot is reaped, here or by its parent; or dead, and its parent's to reap."""
        if pid not in self.shot or pid in self.workers:
            return True
        try:
            above = proc.parent(pid)
        except OSError:  # no descriptor is left: unseen does not mean that nobody is there
            return False
        state = proc.state(pid)
        return above < 0 or state == "X" or (state == "Z" and above != self.pid)

    def left(self) -> bool:
        """Return True if the warden has children, be it only zombies."""
        return self.have_children(("self",))

    def have_children(self, pids: Iterable[int | str]) -> bool:
        """Return True if one of these has children, or it cannot be told."""
        try:
            return any(proc.children(pid) for pid in pids)
        except OSError:
            return True

    def _sweep(self, until: int) -> bool:
        """Return True if somebody new was found, or the time was over."""
        mine = [pid for pid in proc.children("self") if pid not in self.workers and pid not in self.kept]
        fresh = 0
        for pid in mine:  # first, for a bomb's orphans come up here: nothing is quicker
            if pid not in self.shot:
                fresh += self._kill_own(pid)
        seen, todo = set(mine), [*mine, *self.dying]
        while todo:  # not recursive: a chain may be deep
            if time.monotonic_ns() >= until:
                return True
            above = todo.pop()
            for pid in proc.children(above):
                seen.add(pid)
                todo.append(pid)
                if pid not in self.shot:
                    fresh += self._shoot(pid, above)
        self.shot &= seen  # whoever reaped the others: their numbers may come back
        return bool(fresh)

    def _kill_own(self, pid: int) -> bool:
        """SIGKILL a child of ours, whose number is its own until it is reaped here."""
        try:
            os.kill(pid, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):  # it runs a program of another user (setuid): out of reach
            return False
        self.shot.add(pid)
        return True

    def _shoot(self, pid: int, above: int) -> bool:
        """SIGKILL by pidfd, after a look that it still is one of the tree; never by a remembered number.

        Its parent may have died since it was listed: then it stands below a dying worker, another stray, or us.
        """
        try:
            fd = os.pidfd_open(pid)
        except ProcessLookupError:
            return False
        try:
            parent = proc.parent(pid)
            ours = parent in (above, self.pid) or parent in self.dying or parent in self.shot
            if not ours or pid in self.workers:
                return False
            signal.pidfd_send_signal(fd, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):
            return False
        finally:
            os.close(fd)
        self.shot.add(pid)
        return True
