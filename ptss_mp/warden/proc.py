"""What /proc tells of processes (proc(5)).  A process that is gone reads as empty, never as an error.

`children` and `parent` raise OSError if it cannot be told, for want of a descriptor or of memory.
"""

from __future__ import annotations

import contextlib
import os
from typing import NamedTuple

from .kernel import DUMP_SIGNAL

PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
TICKS = os.sysconf("SC_CLK_TCK")
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
        with open(f"/proc/{pid}/stat", "rb") as f:
            return int(f.read().rsplit(b")", 1)[1].split()[1])
    except (*GONE, IndexError):
        return -1


def state(pid: int) -> str:
    """Return the one-letter state, "X" if the process is gone."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as f:
            return f.read().rsplit(b")", 1)[1].split()[0].decode()
    except (OSError, IndexError):
        return "X"


def resident_bytes() -> int:
    """Return the resident memory of this process."""
    with open("/proc/self/statm", "rb") as f:
        return int(f.read().split()[1]) * PAGE_BYTES


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
        seconds = (int(fields[11]) + int(fields[12])) / TICKS
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
