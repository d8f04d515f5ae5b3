"""What /proc tells of processes (proc(5)).  A process that is gone reads as empty, never as an error.

`children` and `parent` raise OSError if it cannot be told, for want of a descriptor or of memory.
"""

from __future__ import annotations

import contextlib
import os
import time
from typing import NamedTuple

from .kernel import DUMP_SIGNAL

PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
TICK_NS = 1_000_000_000 // os.sysconf("SC_CLK_TCK")
DESCENDANTS_MAX = 10_000  # of a fork bomb enough have been counted by then
THREADS_MAX = 32  # 0.3 ms, by which the kill is later
DOING = {"R": "running", "D": "waiting for a disk", "T": "stopped", "t": "traced", "Z": "dead", "X": "dead"}
GONE = (FileNotFoundError, ProcessLookupError)  # from open and listdir; from a read
_DUMP_BIT = 1 << DUMP_SIGNAL - 1


def children(pid: int | str) -> list[int]:
    """Return the children of all threads of a process."""
    found: list[int] = []
    for thread in threads(pid):
        with contextlib.suppress(*GONE), open(f"/proc/{pid}/task/{thread}/children", "rb") as f:
            found += map(int, f.read().split())
    return found


def threads(pid: int | str) -> list[str]:
    """Return the numbers of a process's threads."""
    try:
        return os.listdir(f"/proc/{pid}/task")
    except GONE:
        return []


def parent(pid: int) -> int:
    """Return the parent's pid, -1 if the process is gone."""
    try:
        return int(_stat(pid)[1])
    except (*GONE, IndexError):
        return -1


def state(pid: int) -> str:
    """Return the one-letter state, "X" if the process is gone."""
    try:
        return _stat(pid)[0].decode()
    except (OSError, IndexError):
        return "X"


def oom_score() -> int:
    """Return how this process is marked for the kernel's out-of-memory killer, -1000..1000."""
    try:
        with open("/proc/self/oom_score_adj", "rb") as f:
            return int(f.read())
    except (OSError, ValueError):
        return 0


def oom_kills() -> int:
    """Return how many processes of this machine the kernel has killed for lack of memory since its start."""
    try:
        with open("/proc/vmstat", "rb") as f:
            return next((int(line.split()[1]) for line in f if line.startswith(b"oom_kill ")), 0)
    except OSError:
        return 0


def descendants(pid: int) -> list[int]:
    """Return all below a process, as far as they hang together in this moment."""
    found: list[int] = []
    todo = children(pid)
    while todo and len(found) < DESCENDANTS_MAX:
        found.append(todo.pop())
        todo += children(found[-1])
    return found


def resident_bytes(pid: int | str = "self") -> int:
    """Return the resident memory of a process."""
    try:
        with open(f"/proc/{pid}/statm", "rb") as f:
            return int(f.read().split()[1]) * PAGE_BYTES
    except (OSError, IndexError):
        return 0


def proportional_bytes(pid: int) -> int:
    """Return the resident memory of a process, in which a page that n processes share counts an n-th."""
    try:
        with open(f"/proc/{pid}/smaps_rollup", "rb") as f:
            return next((int(line.split()[1]) << 10 for line in f if line.startswith(b"Pss:")), 0)
    except OSError:
        return 0


def _stat(pid: int) -> list[bytes]:
    """Return the fields of /proc/pid/stat behind the name, which may hold anything."""
    with open(f"/proc/{pid}/stat", "rb") as f:
        return f.read().rpartition(b") ")[2].split()


def cpu_ns(pid: int) -> tuple[int, int]:
    """Return the CPU time of a process, and of its children that were waited for; cut to ticks."""
    try:
        user, system, children_user, children_system = map(int, _stat(pid)[11:15])
    except (OSError, ValueError):
        return 0, 0
    return (user + system) * TICK_NS, (children_user + children_system) * TICK_NS


def clock_ns(pid: int) -> int:
    """Return the CPU time of a process's own threads, not cut to ticks (clock_getcpuclockid(3)); 0 if it is gone."""
    try:
        return time.clock_gettime_ns((~pid << 3) | 2)
    except OSError:
        return 0


def stack_start(pid: int) -> int:
    """Return where a process's stack begins: forks have it in common, an exec draws a new one; 0 if it is gone."""
    try:
        return int(_stat(pid)[25])
    except (OSError, IndexError, ValueError):
        return 0


def life(pid: int) -> tuple[str, int]:
    """Return the one-letter state ("X" if the process is gone), and ns since boot at its birth, by whole ticks."""
    try:
        fields = _stat(pid)
        return fields[0].decode(), int(fields[19]) * TICK_NS
    except (OSError, IndexError):
        return "X", 0


def newest() -> bytes:
    """Return the number that was given to a process or thread last; empty if that cannot be told."""
    try:
        with open("/proc/loadavg", "rb") as f:
            return f.read().split()[-1]
    except (OSError, IndexError):
        return b""


class Status(NamedTuple):
    """What a sentence needs to know of a process."""

    can_dump: bool  # it runs, catches the dump signal and does not block it
    peak_bytes: int
    threads: int


def status(pid: int) -> Status:
    """Read /proc/pid/status."""
    try:
        with open(f"/proc/{pid}/status", "rb") as f:
            fields = dict(line.split(b":\t", 1) for line in f.read().splitlines() if b":\t" in line)
        runs = fields[b"State"][:1] not in b"TtXZ"
        blocked, caught = int(fields[b"SigBlk"], 16), int(fields[b"SigCgt"], 16)
        can_dump = runs and not blocked & _DUMP_BIT and bool(caught & _DUMP_BIT)
        peak = int(fields.get(b"VmHWM", b"0 kB").split()[0]) << 10
        return Status(can_dump, peak, int(fields[b"Threads"]))
    except (OSError, KeyError, ValueError):
        return Status(False, 0, 0)


def cpu_by_thread(pid: int) -> str:
    """Return a line per thread, the busiest first: number, name, what it does, CPU time so far; "" if it is gone."""
    read, found = [], []
    with contextlib.suppress(OSError):  # no descriptor is left: then the kill says less
        for thread in threads(pid)[:THREADS_MAX]:
            with contextlib.suppress(*GONE), open(f"/proc/{pid}/task/{thread}/stat", "rb") as f:
                read.append((thread, f.read()))
    for thread, line in read:
        head, _, tail = line.rpartition(b")")
        name = "".join(c if c.isprintable() else "?" for c in head.partition(b"(")[2].decode("utf-8", "replace"))
        fields = tail.split()
        seconds = (int(fields[11]) + int(fields[12])) * TICK_NS / 1e9
        doing = DOING.get(fields[0].decode(), "sleeping")
        found.append((-seconds, f"  {thread:>7} {name:15} {doing:8} {seconds:8.2f} s\n"))
    return "".join(line for _, line in sorted(found))


def is_tagged(pid: int, tag: bytes) -> bool:
    """Return True if a live process has the entry `tag` in its environment."""
    try:
        with open(f"/proc/{pid}/environ", "rb") as f:
            return tag in f.read().split(b"\0") and state(pid) not in "XZ"
    except OSError:
        return False


def tagged(tag: bytes) -> list[int]:
    """Return the live processes, but this one, whose environment holds the entry `tag`."""
    pids = (int(name) for name in os.listdir("/proc") if name.isdigit())
    return [pid for pid in pids if pid != os.getpid() and is_tagged(pid, tag)]
