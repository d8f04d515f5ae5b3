"""How long the turns of a pool's loop are, seen from outside the core: from one wait for descriptors to the next."""

import time
from contextlib import contextmanager

from ptss_mp.shell.poller import Poller


class Turns:
    """Processor time of the loop's thread, and wall time, of each turn while it is watched; install it once."""

    def __init__(self):
        self.taken, self._began, self._ready = [], None, Poller.ready

        def ready(poller, at, busy, exact):
            return self._around(poller, at, busy, exact)

        Poller.ready = ready

    def _around(self, poller, at, busy, exact):
        if self._began:
            cpu, wall = self._began
            self.taken.append((time.thread_time_ns() - cpu, time.monotonic_ns() - wall))
        found = self._ready(poller, at, busy, exact)
        self._began = time.thread_time_ns(), time.monotonic_ns()
        return found

    @contextmanager
    def told(self, what):
        """Print the turns that are taken meanwhile."""
        self.taken = []
        began = time.monotonic()
        yield
        took, taken = time.monotonic() - began, sorted(self.taken)
        if not taken:
            print(f"  {what:44} no turn")
            return
        cpu = [taken[min(len(taken) - 1, int(len(taken) * share))][0] / 1e6 for share in (0.5, 0.99, 1)]
        wall = max(wall for _, wall in taken) / 1e6
        print(
            f"  {what:44} {took:6.1f} s {len(taken):7} turns, ms of CPU p50 {cpu[0]:.2f} p99 {cpu[1]:.2f} "
            f"max {cpu[2]:.1f}; wall max {wall:.1f}",
            flush=True,
        )
