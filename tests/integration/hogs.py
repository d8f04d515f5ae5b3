"""Jobs that take memory and processor time.  Each is bounded by itself: a limit that does not hold costs no machine."""

from __future__ import annotations

import contextlib
import mmap
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

MIB = 1 << 20
MOST_BYTES = 1 << 30  # a hog that nobody stops ends there


def _tell(log: str) -> None:
    with open(log, "a") as file:
        file.write(f"{os.getpid()}\n")


def hog(kind: str, log: str) -> str:
    """Fill memory at full speed."""
    _tell(log)
    HOGS[kind]()
    return "unnoticed"


def hold_then_hog(gate: str, log: str) -> None:
    """Begin, wait at the gate, then fill memory."""
    _tell(log)
    hold(1, gate)
    _blocks()


def _blocks() -> None:
    held = [bytearray(os.urandom(1) * MIB) for _ in range(MOST_BYTES // MIB)]
    del held


def _one_bytearray() -> None:
    held = bytearray()
    while len(held) < MOST_BYTES:
        held += b"x" * MIB


def _numpy() -> None:
    import numpy

    held = [numpy.ones(2 * MIB) for _ in range(MOST_BYTES // (16 * MIB))]
    del held


def _small_objects() -> None:
    held = [(i, str(i)) for i in range(MOST_BYTES // 160)]
    del held


def _threads() -> None:
    threads = [threading.Thread(target=_part) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def _part() -> None:
    held = []
    for _ in range(MOST_BYTES // 8 // MIB):
        block = mmap.mmap(-1, MIB, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        block.write(bytes(MIB))
        held.append(block)


def _fill(flags: int) -> None:
    whole = mmap.mmap(-1, MOST_BYTES, flags | mmap.MAP_ANONYMOUS)
    for at in range(0, MOST_BYTES, MIB):
        whole[at : at + MIB] = b"x" * MIB


def _memfd() -> None:
    fd = os.memfd_create("hog")
    try:
        for _ in range(MOST_BYTES // MIB):
            os.write(fd, b"x" * MIB)
    finally:
        os.close(fd)


def write_memfd(mib: int) -> int:
    """Leave so much in a file in memory that stays open in this worker; return its pid."""
    fd = os.memfd_create("kept")
    for _ in range(mib):
        os.write(fd, b"x" * MIB)
    return os.getpid()


def _forked() -> None:
    child = os.fork()
    if not child:
        with contextlib.suppress(BaseException):
            _blocks()
        os._exit(0)
    os.waitpid(child, 0)


def _program() -> None:
    code = f"import sys; sys.path[:0] = [{str(Path(__file__).parent)!r}]; import hogs; hogs._blocks()"
    subprocess.run([sys.executable, "-c", code], check=False)


def _swallowed() -> None:
    with contextlib.suppress(MemoryError):
        _blocks()


def leave_group() -> int:
    """Move this worker where the warden is, as programs do that make groups; return its pid."""
    from ptss_mp.warden.cgroup import MEMORY, find

    group = Path(find(MEMORY).folder)
    (group.parent.parent / "cgroup.procs").write_text(str(os.getpid()))
    return os.getpid()


HOGS: dict[str, Callable[[], None]] = {
    "blocks": _blocks,
    "one bytearray": _one_bytearray,
    "numpy": _numpy,
    "small objects": _small_objects,
    "8 threads": _threads,
    "private mmap": lambda: _fill(mmap.MAP_PRIVATE),
    "shared mmap": lambda: _fill(mmap.MAP_SHARED),
    "memfd": _memfd,
    "forked child": _forked,
    "program": _program,
    "swallowed": _swallowed,
}


def touched(mib: int) -> bytearray:
    """Return so much memory, every page of it in use, and no more on the way there."""
    held = bytearray(mib * MIB)
    for at in range(0, len(held), mmap.PAGESIZE):
        held[at] = 1
    return held


def hold(mib: int, gate: str | None = None) -> int:
    """Hold so much until the gate opens, then let go."""
    held = touched(mib)
    if gate:
        with open(gate, "rb", buffering=0) as file:
            file.read(1)
    return len(held) // MIB


KEPT: list[bytearray] = []


def keep(mib: int) -> int:
    """Keep so much in the worker for ever; return the worker's pid."""
    KEPT.append(touched(mib))
    return os.getpid()


def reserve(gib: int) -> int:
    """Reserve much address space and touch a page of it."""
    whole = mmap.mmap(-1, gib << 30, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    whole[12345] = 1
    return whole[12345]


def share_with_children(mib: int, children: int) -> str:
    """Hold so much, and fork children that share it for half a second."""
    held = touched(mib)
    pids = []
    for _ in range(children):
        pid = os.fork()
        if not pid:
            end = time.monotonic() + 0.5
            while time.monotonic() < end:
                sum(held[i] for i in range(0, len(held), 1 << 16))
            os._exit(0)
        pids.append(pid)
    for pid in pids:
        os.waitpid(pid, 0)
    return "passed"


def burn(cpu_s: float, log: str | None = None) -> float:
    """Use so much processor time in this thread; return what the process used."""
    if log:
        _tell(log)
    begin, start = time.thread_time(), time.process_time()
    while time.thread_time() - begin < cpu_s:
        for _ in range(1000):
            pass
    return time.process_time() - start


def burn_in(where: str, cpu_s: float, log: str) -> str:
    """Burn in children or in C threads, alive or already ended."""
    _tell(log)
    if where == "child":
        pid = os.fork()
        if not pid:
            burn(cpu_s)
            os._exit(0)
        os.waitpid(pid, 0)
    elif where == "many children":
        end = time.monotonic() + cpu_s
        while time.monotonic() < end:
            pid = os.fork()
            if not pid:
                burn(0.05)
                os._exit(0)
            os.waitpid(pid, 0)
    elif where == "daemon":
        pid = os.fork()
        if not pid:
            os.setsid()
            if os.fork():
                os._exit(0)
            burn(cpu_s)
            os._exit(0)
        os.waitpid(pid, 0)
        time.sleep(cpu_s)
    else:
        import hashlib

        data = bytes(MIB)
        threads = [threading.Thread(target=lambda: [hashlib.sha256(data) for _ in range(20_000)]) for _ in range(2)]
        for thread in threads:
            thread.daemon = True
            thread.start()
        for thread in threads:
            thread.join()
    return "unnoticed"


def leave_burning(cpu_s: float) -> int:
    """Leave a child behind that burns, and end well; return its pid."""
    pid = os.fork()
    if not pid:
        burn(cpu_s)
        os._exit(0)
    return pid
