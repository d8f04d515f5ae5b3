"""What an attempt holds and uses: resident memory and CPU time of a worker and of all that it started.

The warden asks from outside, from the start that the worker has marked: only a
job that overwrites that mark escapes (docs/containment.md).  How soon it asks
again follows from how much is left: memory cannot be filled, nor CPU time be
used, faster than the machine allows.  So a job far from its limits is asked now
and then, and one near them each millisecond.
"""

from __future__ import annotations

import contextlib
import os
import time

from . import proc
from .cgroup import Group

FILL_BYTES_PER_S = 6 << 30  # no faster does a job fill memory (0.5 GiB/s were seen here, with huge pages up to 5)
MIN_NS = 1_000_000  # between two samples
MEMORY_MAX_NS = 200_000_000  # longer, and a machine faster than thought would pass the limit by far
CPU_MAX_NS = 60_000_000_000  # nothing is faster than all processors: it only bounds what a suspended machine does
STRAYED_NS = 250_000_000  # between two looks whether all of a tree is in its group: 15 µs and more, for each worker
GRID_NS = 25_000_000  # samples that are not urgent come together: a wake for each of 64 workers would cost 10 %
EXACT_SHARE = 4  # of the time between two exact looks, one part may be spent with looking
CPUS = os.cpu_count() or 1  # as many seconds of CPU time can pass in one


class Meter:
    """Of one worker.

    Args:
        pid: the worker's.
        base_bytes: resident memory of the warden at the fork: what was preloaded is nobody's.
        group: its control group, if it has one: that knows memory best, as long as nobody has left it.

    Attributes:
        memory_at, cpu_at: when to sample again.
    """

    def __init__(self, pid: int, base_bytes: int, group: Group | None) -> None:
        self.pid, self.base_bytes = pid, base_bytes
        self._group = group if group and group.counts_memory else None
        self._files_from = self._strayed_at = 0
        self._whole = False  # then the whole tree was in the group
        self.memory_at = self.cpu_at = 0
        self._task = f"/proc/{pid}/task"
        self._shared_bytes = self._exact_until = 0  # counted more than once in the rough sum, and how long that is good
        self._cpu_from = 0
        self._stack = proc.stack_start(pid)  # as that of its forks; an exec takes a new one
        with contextlib.ExitStack() as undo:
            self._statm = os.open(f"/proc/{pid}/statm", os.O_RDONLY | os.O_CLOEXEC)
            undo.callback(os.close, self._statm)
            self._children = os.open(f"{self._task}/{pid}/children", os.O_RDONLY | os.O_CLOEXEC)
            undo.pop_all()

    def close(self) -> None:
        """Let go of the process."""
        os.close(self._statm)
        os.close(self._children)

    def begin(self, cpu_mark: int) -> None:
        """A new attempt runs.

        Args:
            cpu_mark: CPU time of the worker at its start, by its own word, which may be a lie: it counts up to now.
        """
        self.memory_at = self.cpu_at = self._exact_until = self._strayed_at = 0
        with contextlib.suppress(OSError):
            self._files_from = self._group.held_bytes()[1] if self._group else 0
        self._cpu_from = self._cpu() - max(0, proc.clock_ns(self.pid) - cpu_mark)

    # ---- memory

    def memory(self, limit: int, others: int, now: int) -> int:
        """Return the bytes held beyond the warden's; set `memory_at`.

        By its control group, where it has one: nothing is counted twice there, and files in memory (memfd, tmpfs)
        count if they were written since the attempt's beginning.  Else the sum of what its processes hold, as long as
        that is within the limit, or no child shares memory with the worker; else the proportional shares, in which
        what is shared counts once.  These cost 80 µs per MiB, so they are asked for a fifth of the time at most, and
        in between the sum less what it counted twice must do.

        Args:
            others: processes outside this tree that share the warden's memory, itself included.
        """
        if self._group:
            with contextlib.suppress(OSError):  # it is gone, or no descriptor is left
                if self._is_whole(self._group, now):
                    held = self._charged(self._group, limit)
                    self.memory_at = _later(now, (limit - held) * 1_000_000_000 // FILL_BYTES_PER_S, MEMORY_MAX_NS)
                    return held
        below = self._below()
        held = self._resident() + sum(map(proc.resident_bytes, below)) - self.base_bytes
        forks = [pid for pid in below if proc.stack_start(pid) == self._stack] if held > limit else []
        if forks:
            if now >= self._exact_until or held - self._shared_bytes > limit:
                exact = self._exact(below, len(forks), others)
                took = time.monotonic_ns() - now
                self._shared_bytes, self._exact_until = held - exact, now + max(MEMORY_MAX_NS, EXACT_SHARE * took)
            held -= self._shared_bytes
        self.memory_at = _later(now, (limit - held) * 1_000_000_000 // FILL_BYTES_PER_S, MEMORY_MAX_NS)
        return max(0, held)

    def _is_whole(self, group: Group, now: int) -> bool:
        """Return True if the worker and all below it are in its group; programs that make groups move themselves."""
        if now >= self._strayed_at:
            self._strayed_at = now + STRAYED_NS
            self._whole = {self.pid, *self._below()}.issubset(group.members())
        return self._whole

    def _charged(self, group: Group, limit: int) -> int:
        most = group.charged_bytes() - self._files_from  # the cache of its files too, which can be given up
        if most <= limit:
            return max(0, most)
        anonymous, files = group.held_bytes()
        return anonymous + max(0, files - self._files_from)

    def _resident(self) -> int:
        try:
            return int(os.pread(self._statm, 64, 0).split()[1]) * proc.PAGE_BYTES
        except (OSError, IndexError):
            return 0  # it is gone

    def _exact(self, below: list[int], forks: int, others: int) -> int:
        preloaded = self.base_bytes * (1 + forks) // (1 + forks + others)
        return sum(map(proc.proportional_bytes, (self.pid, *below))) - preloaded

    def _below(self) -> list[int]:
        """Return the descendants; two cheap looks tell that there are none (proc_pid_task(5): links, children)."""
        try:
            if os.stat(self._task).st_nlink == 3 and not os.pread(self._children, 16, 0):
                return []
            return proc.descendants(self.pid)
        except OSError:  # it is gone; or no descriptor is left here, and its children are seen another time
            return []

    # ---- CPU time

    def cpu(self, limit: int, now: int) -> int:
        """Return the CPU time of the attempt in ns, rather too little than too much; set `cpu_at`."""
        used = self._cpu() - self._cpu_from
        self.cpu_at = _later(now, (limit - used) // CPUS, CPU_MAX_NS)
        return max(0, used)

    def _cpu(self) -> int:
        """Return the CPU time of the worker, of its children that it has waited for, and of those that are there.

        A child that nobody waits for (SIGCHLD ignored) takes its time with it.
        """
        waited_for = max(0, proc.cpu_ns(self.pid)[1] - 2 * proc.TICK_NS)  # cut at this attempt's beginning
        return proc.clock_ns(self.pid) + waited_for + sum(sum(proc.cpu_ns(pid)) for pid in self._below())


def _later(now: int, pause: int, most: int) -> int:
    at = now + min(max(pause, MIN_NS), most)
    return at - at % GRID_NS if at - now > 2 * GRID_NS else at
