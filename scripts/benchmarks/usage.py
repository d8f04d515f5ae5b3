"""Processor time of this process and all below it, workers included."""

import time

import psutil


class Usage:
    """What is used between `with` and its end, in seconds.

    Attributes:
        parent: this process.
        children: its children; of ptss_mp this is the warden, of most others the workers.
        below: whatever those have started.
    """

    parent = children = below = 0.0

    def __enter__(self):
        self._children, self._below = _families()
        self._parent = time.process_time()  # last: looking at the others takes time
        return self

    def __exit__(self, *_):
        self.parent = time.process_time() - self._parent
        children, below = _families()
        self.children, self.below = children - self._children, below - self._below

    @property
    def everything(self):
        return self.parent + self.children + self.below


def _families():
    me = psutil.Process()
    children = me.children()
    below = [process for process in me.children(recursive=True) if process not in children]
    return sum(map(_used, children)), sum(map(_used, below))


def _used(process):
    """Return what a process, and the dead for which it has waited, have used until now."""
    try:
        times = process.cpu_times()
        # The clock of a process (clock_getcpuclockid(3)) is exact; /proc cuts to hundredths of a second, and that
        # is what a thousand no-op jobs use.
        return time.clock_gettime(~process.pid << 3 | 2) + times.children_user + times.children_system
    except (OSError, psutil.Error):
        return 0.0
