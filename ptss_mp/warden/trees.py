"""Trees: what dead and dying workers have left behind is found and killed.

An unknown child of the warden belongs to a dead or dying worker: each worker is
a sub-reaper while it lives, the warden is one behind it.
"""

from __future__ import annotations

import os
import signal

from . import proc
from .clock import Watched

SWEEP_NS = 500_000  # while somebody dies, look again so often
SWEEP_AGAIN_NS = (10_000_000, 100_000_000)  # and so long after a death: a chain of forks may just have been passing


class Trees:
    """The sweeper.

    Args:
        workers: those alive, by pid; the warden keeps it.

    Attributes:
        dying: workers that are condemned or dead, and not reaped yet, by pid.
        shot: strays that were sent SIGKILL and are not reaped yet.
        kept: what a preload started is nobody's stray.
        sweep_at: when to look again, though nobody is dying.
        dirty: the last look found somebody new, or somebody was reaped since.
    """

    def __init__(self, workers: dict[int, Watched]) -> None:
        self.workers = workers
        self.pid = os.getpid()
        self.dying: dict[int, Watched] = {}
        self.shot: set[int] = set()
        self.kept: set[int] = set()
        self.sweep_at: list[int] = []
        self.dirty = False

    @property
    def busy(self) -> bool:
        """True while there may be something to sweep."""
        return bool(self.dirty or self.dying or self.sweep_at)

    def doom(self, worker: Watched) -> None:
        """It was sent its last signal: it forks nothing more, and while it is dying its children are listed."""
        worker.doomed = True
        self.dying[worker.pid] = worker
        self.sweep()

    def reaped(self, pid: int) -> None:
        """A child of the warden is no more."""
        self.dirty = True
        self.shot.discard(pid)

    def bury(self, worker: Watched, now: int) -> None:
        """That was a worker: who it left behind comes up now, or soon."""
        self.sweep_at = [now + pause for pause in SWEEP_AGAIN_NS]
        self.dying.pop(worker.pid, None)

    def next_look(self, now: int, at: int) -> int:
        """Return when to sweep next, or `at` if that is earlier."""
        if self.dying or self.dirty:
            at = min(at, now + SWEEP_NS)
        self.sweep_at = [again for again in self.sweep_at if again > now]
        return min([at, *self.sweep_at])

    def sweep(self) -> None:
        """Kill what dead and dying workers have left."""
        fresh = 0
        for pid in proc.children("self"):
            if pid not in self.workers and pid not in self.kept:
                fresh += self.fell(pid, 0)
        for pid in self.dying:
            for below in proc.children(pid):
                fresh += self.fell(below, pid)
        self.dirty = bool(fresh)

    def fell(self, pid: int, parent: int) -> int:
        """Kill a stray and all below it; return how many were new.  Iterative: a chain may be deep."""
        fresh, todo = 0, [(pid, parent)]
        while todo:
            pid, parent = todo.pop()
            if pid not in self.shot:
                fresh += self._shoot(pid, parent)
            todo += [(below, pid) for below in proc.children(pid)]
        return fresh

    def _shoot(self, pid: int, parent: int) -> bool:
        """SIGKILL by pidfd, after a look that it still is what was listed; never by a remembered number."""
        try:
            fd = os.pidfd_open(pid)
        except OSError:
            return False
        try:
            if proc.parent(pid) not in (parent, self.pid) or pid in self.workers:
                return False
            signal.pidfd_send_signal(fd, signal.SIGKILL)
            self.shot.add(pid)
            return True
        except OSError:
            return False
        finally:
            os.close(fd)
