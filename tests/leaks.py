"""A census of what a test could leave behind: processes, threads, descriptors, shared memory, files."""

from __future__ import annotations

import contextlib
import gc
import os
import tempfile
import threading
import time
from dataclasses import dataclass
from pathlib import Path

import psutil

MARK = "PTSS_MP_TEST_RUN"  # in the environment of all that a test starts, also of what has lost its parent
SETTLE_S = 5.0  # what is about to end may take so long


@dataclass(frozen=True)
class Census:
    """What there is at one instant; each item with words to find it by."""

    processes: frozenset[str]
    threads: frozenset[str]
    descriptors: frozenset[str]
    shared: frozenset[str]
    files: frozenset[str]

    def since(self, before: Census) -> list[str]:
        """Return what is here and was not before, in words."""
        return [
            f"{kind}: {item}"
            for kind in ("processes", "threads", "descriptors", "shared", "files")
            for item in sorted(getattr(self, kind) - getattr(before, kind))
        ]


def take() -> Census:
    """Count everything now."""
    return Census(
        frozenset(_processes()),
        frozenset(f"{t.name} ({t.ident})" for t in threading.enumerate()),
        frozenset(_descriptors()),
        frozenset(_names("/dev/shm")),
        frozenset(_names(tempfile.gettempdir())),
    )


def left_since(before: Census, settle_s: float = SETTLE_S) -> list[str]:
    """Return what was left since `before`, once nothing more goes away; [] if nothing was.

    Garbage is collected only if something is left, as it may be held by that: a full collection takes as long as a
    test of a unit.  And each time: a thread that was still ending held what is garbage now (a broken pool's eventfd).
    """
    end = time.monotonic() + settle_s
    while left := take().since(before):
        if time.monotonic() > end:
            return left
        gc.collect()
        time.sleep(0.02)
    return []


def _processes() -> list[str]:
    """Descendants of this process, and all that carry the mark of this run."""
    found = {}
    for process in psutil.Process().children(recursive=True):
        found[process.pid] = process
    mark = f"{MARK}={os.environ.get(MARK, '')}".encode()
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit() and int(folder.name) != os.getpid():
            with contextlib.suppress(OSError, psutil.Error):
                if mark in (folder / "environ").read_bytes().split(b"\0"):
                    found[int(folder.name)] = psutil.Process(int(folder.name))
    told = []
    for pid, process in found.items():
        with contextlib.suppress(psutil.Error):
            command = " ".join(process.cmdline())[:200] or process.status()  # a zombie has no command
            if "multiprocessing.resource_tracker" not in command:  # the stdlib's own lives on
                told.append(f"{pid} {command}")
    return told


def _descriptors() -> list[str]:
    from multiprocessing import resource_tracker

    told = []
    for fd in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            if int(fd) != resource_tracker._resource_tracker._fd:
                target = os.readlink(f"/proc/self/fd/{fd}")
                told.append(f"{fd} -> {target}")
    return [line for line in told if not line.endswith(f"/proc/{os.getpid()}/fd")]


def _names(folder: str) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:
        return []
