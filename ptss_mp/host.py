"""How each limit is held on this machine, tried for real: `capabilities()`.

The tries fork, which no program with threads should do; so they are made by an
interpreter of their own (0.2 s).
"""

from __future__ import annotations

import json
import mmap
import os
import subprocess
import sys
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from .warden.means import Means

TRY_S = 30.0  # all tries together take a fifth of a second; each is bounded by itself
TOUCHED_BYTES, BURNT_NS = 8 << 20, 20_000_000
LIMITS = ("timeout", "deadline", "memory", "cpu_time", "processes", "open_files", "file_size")


def capabilities() -> Mapping[str, str]:
    """Return how each limit is held here: limit -> "kernel", "polled" or "absent".

    "kernel": the kernel acts by itself, or wakes the warden at the very instant.  "polled": the warden looks, the
    sooner the less is left, and kills.  "absent": the limit is not held here.  `ptss-mp doctor` says why so.

    Raises:
        OSError: no interpreter can be started to try it.
    """
    return {limit: means.how for limit, means in means_of_limits().items()}


def means_of_limits() -> dict[str, Means]:
    """Return how and why so, for each of LIMITS, as tried by an interpreter of its own."""
    from .shell.hire import surroundings
    from .warden.means import Means

    here = surroundings()
    code = f"import sys; sys.path[:] = {here['path']!r}; from ptss_mp.host import tell; tell()"
    ended = subprocess.run(
        [*here["python"], "-c", code], stdin=subprocess.DEVNULL, capture_output=True, timeout=TRY_S, check=False
    )
    if ended.returncode:
        raise OSError(f"the limits of this machine cannot be tried: {ended.stderr.decode(errors='replace')[-500:]}")
    told = json.loads(ended.stdout)
    return {limit: Means(*told[limit]) for limit in LIMITS}


# ---- in an interpreter of its own


def tell() -> None:
    """Try each limit, and print the findings as JSON."""
    from .warden import means

    tries: dict[str, Callable[[], Means]] = {
        "timeout": _instant, "deadline": _instant, "memory": _memory, "cpu_time": _cpu_time,
        "processes": means.processes, "open_files": means.open_files, "file_size": means.file_size,
    }  # fmt: skip
    sys.stdout.write(json.dumps({limit: tries[limit]() for limit in LIMITS}))


def _instant() -> Means:
    from .warden.kernel import timerfd
    from .warden.means import Means

    try:
        os.close(timerfd())
        os.close(os.pidfd_open(os.getpid()))
    except OSError as error:
        return Means("absent", str(error))
    return Means("kernel", "a timer of the warden; SIGKILL by a pidfd")


def _memory() -> Means:
    from .warden import cgroup, means

    why = means.in_fork(_sees_memory)
    if why:
        return means.Means("absent", why)
    group = means.offer(cgroup.MEMORY)
    if isinstance(group, cgroup.Place):
        return means.Means("polled", f"by a memory cgroup (v{group.version}), files in memory too")
    return means.Means("polled", f"by /proc, blind to memfd and tmpfs; no memory cgroup: {group}")


def _sees_memory() -> str:
    from .warden.meter import Meter

    meter = Meter(os.getpid(), 0, None)
    before = meter.memory(1 << 50, 1, 0)
    room = mmap.mmap(-1, TOUCHED_BYTES, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    for at in range(0, TOUCHED_BYTES, mmap.PAGESIZE):
        room[at] = 1
    grown = meter.memory(1 << 50, 1, 0) - before
    return "" if grown >= TOUCHED_BYTES // 2 else f"{TOUCHED_BYTES} bytes were touched, /proc tells of {grown}"


def _cpu_time() -> Means:
    from .warden import means

    why = means.in_fork(_sees_cpu_time)
    if why:
        return means.Means("absent", why)
    return means.Means("polled", "by the CPU clock, children included")


def _sees_cpu_time() -> str:
    from .warden.meter import Meter

    meter = Meter(os.getpid(), 0, None)
    meter.begin(time.process_time_ns())
    until = time.process_time_ns() + BURNT_NS
    while time.process_time_ns() < until:
        pass
    used = meter.cpu(1 << 60, 0)
    return "" if used >= BURNT_NS else f"{BURNT_NS} ns were used, the CPU clock tells of {used}"
