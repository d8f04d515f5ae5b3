"""The parent's half of large values: what one worker asked for or offers is moved from memory to memory.

The worker waits meanwhile (ptss_mp/freight.py).  A thread moves, never the loop's: it takes milliseconds, and where a
job's memory is a file on a disk or a network, as long as that takes.

Nothing that a worker says can reach beyond its own memory.  Written is through /proc/PID/mem, which is that process's
memory and no other's, also when it has ended (proc(5)).  Reading is twice as fast by process_vm_readv(2), which goes by
the pid: so what was read counts only if the worker lives afterwards.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import signal
import struct
import threading
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any

from .. import marker, memory, wire
from ..parcel import PARTS_MAX, payload_of, sizes_of
from ..wire import COSTS, FACT, VALUE
from .clock import monotonic_ns
from .memfree import shortage

SLICE_BYTES = 2 << 20  # moved at once, in 0.3 to 10 ms: so often it is seen that a transfer goes on
SHARED_SLICES = 4  # more are shared by two threads

_libc = ctypes.CDLL(None, use_errno=True)
_coming: set[Move] = set()  # of all pools of this program: moves to here, as long as they go on


class Violation(Exception):
    """A worker sent what no worker of ours sends."""


class Span(ctypes.Structure):
    """struct iovec."""

    _fields_ = (("base", ctypes.c_void_p), ("size", ctypes.c_size_t))


class Memory:
    """A process's memory, open to be written to, as long as somebody holds this; a descriptor.

    Raises:
        OSError: it may not be (ptrace(2), "access mode checking"), the process is gone, or no descriptor is left.
    """

    def __init__(self, pid: int) -> None:
        self.fd = -1
        self.fd = os.open(f"/proc/{pid}/mem", os.O_WRONLY | os.O_CLOEXEC)

    def close(self) -> None:
        """Close it for all holders: in a fork of the program."""
        fd, self.fd = self.fd, -1
        if fd >= 0:
            os.close(fd)

    __del__ = close


def reaches(pid: int) -> bool:
    """Return True if large values can be moved to and from a process (tried)."""
    try:
        Memory(pid)
        with open(f"/proc/{pid}/maps") as maps:
            begin = int(maps.readline().partition("-")[0], 16)
    except (OSError, ValueError):
        return False
    move = Move(pid, None, 0, [(begin, -1)], [], bool)
    move.run()
    return not move.failed


class Move(threading.Thread):
    """Moves parts to a worker, or from it.

    Args:
        pid: the worker's.
        there: its memory, if that is to be written; None: it is read.
        ticket, table: as of `wire.read_table`.
        parts: what is to be there; of a move to here: what came, once all of it has.
        land: called with the move when it has ended, in this thread.

    Attributes:
        rest: bytes still to be moved, about.
        failed: not all of it was moved.
        gone: for the process has no memory any more: it is dying.
        grew_at: when something was moved last.
    """

    def __init__(
        self, pid: int, there: Memory | None, ticket: int, table: list[tuple[int, int]], parts: list[Any],
        land: Callable[[Move], object],
    ) -> None:  # fmt: skip
        super().__init__(name="ptss-mp-freight", daemon=True)
        self.pid, self.there, self.ticket, self.table = pid, there, ticket, table
        self.parts, self.land = parts, land
        self.slices: deque[tuple[int, int, memoryview]] = deque()
        self.rest = sum(abs(size) for _, size in table)
        self.failed = self.gone = False
        self.grew_at = monotonic_ns()

    def run(self) -> None:
        """Move all; what is very large by two threads: with two processors free a trip of 64 MiB takes two thirds."""
        try:
            parts = self.parts if self.there else [memory.blank(size) for _, size in self.table]
        except MemoryError:
            self.failed = True
        else:
            self.parts = parts
            for (address, _), part in zip(self.table, parts, strict=True):
                here, view = memory.address(part), memoryview(part)
                for at in range(0, len(view), SLICE_BYTES):
                    self.slices.append((address + at, here + at, view[at : at + SLICE_BYTES]))
            helper = threading.Thread(target=self._work, name=self.name, daemon=True)
            with contextlib.suppress(RuntimeError):  # no thread can be had (RLIMIT_NPROC): alone, then
                if len(self.slices) > SHARED_SLICES:
                    helper.start()
            self._work()
            if helper.ident:
                helper.join()
        self.there = None
        _coming.discard(self)
        self.land(self)

    def _work(self) -> None:
        """Move slices as long as there are some."""
        with contextlib.suppress(IndexError):  # the other thread has the last one
            while not self.failed:
                self._move(*self.slices.popleft())
                self.rest = len(self.slices) * SLICE_BYTES

    def _move(self, address: int, here: int, view: memoryview) -> None:
        at = 0
        while at < len(view):
            if self.there:
                try:
                    moved = os.pwrite(self.there.fd, view[at:], address + at)
                    self.gone = self.gone or not moved
                except OSError:
                    moved = -1
            else:
                ours, its = Span(here + at, len(view) - at), Span(address + at, len(view) - at)
                moved = _libc.process_vm_readv(self.pid, ctypes.byref(ours), 1, ctypes.byref(its), 1, 0)
            if moved <= 0:  # the worker is gone, has nothing there, or may not be looked at
                self.failed = True
                return
            at += moved
            self.grew_at = monotonic_ns()


class Freight:
    """The large values of one worker.

    Attributes:
        pid, pidfd, words: the worker's; its marker page.
        given: the jobs it was sent and has not answered.
        stowed: by job: parts of calls that it will ask for.
        memory: its own, once something was stowed.
        move: what is being moved now: it waits for that.
        offer: the frame whose parts are being fetched; empty: they are brought.
        fetched: its parts, while it is read.
        refused: something could not be fetched: all comes by pipe.
        forbidden: of all workers: something could not be brought: all goes by pipe.
        land: told, in another thread, of a move that has ended: to call `landed` is the loop thread's.
    """

    __slots__ = ("fetched", "land", "memory", "move", "offer", "refused", "stowed")

    forbidden = False
    pid: int
    pidfd: int
    words: memoryview
    given: Iterable[int]

    def __init__(self) -> None:
        self.stowed: dict[int, list[Any]] = {}
        self.memory: Memory | None = None
        self.move: Move | None = None
        self.offer, self.refused = b"", False
        self.fetched: list[Any] | None = None
        self.land: Callable[[Move], object] = bool

    def stow(self, job: int, parts: list[Any], blobs: list[Any]) -> list[int]:
        """Keep a payload until the worker asks for it, or add it to what goes by pipe.

        Returns:
            What stands in its place in the row: whether it is to be asked for, and the sizes of its parts.
        """
        fits = len(self.stowed.get(job, ())) + len(parts) <= wire.TABLE_PARTS
        large = fits and sum(map(len, parts)) >= wire.MOVED_BYTES
        asked = large and not Freight.forbidden and self._reaches()
        if asked:
            self.stowed.setdefault(job, []).extend(parts)
        else:
            blobs += parts
        return [int(asked), *sizes_of(parts)]

    def _reaches(self) -> bool:
        if self.memory is None:
            with contextlib.suppress(OSError):
                there = Memory(self.pid)
                if self.lives():  # so it was this process, not a later one of that number
                    self.memory = there
        return self.memory is not None

    def lives(self) -> bool:
        """Return True if the worker has not ended."""
        poll = select.poll()
        poll.register(self.pidfd, select.POLLIN)
        return not poll.poll(0)

    def asked(self, body: bytes) -> None:
        """Begin to bring what the worker asks for.

        Raises:
            Violation: it is not there for it.
        """
        ticket, table = _table(body[8:])
        parts = self.stowed.pop(int.from_bytes(body[:8], "little"), None)
        if self.move or self.memory is None or parts is None or sizes_of(parts) != [size for _, size in table]:
            raise Violation("a question for what it was not sent")
        self._begin(self.memory, ticket, table, parts)

    def offered(self, frame: bytes) -> None:
        """Begin to fetch what the worker offers.

        Raises:
            Violation: by one that may not, or it makes no sense.
        """
        job = FACT.unpack_from(frame)[0]
        kind, _ = VALUE.unpack_from(frame, FACT.size)
        at = FACT.size + VALUE.size + (COSTS.size + VALUE.size if kind & wire.WITH_COSTS else 0)
        ticket, table = _table(frame[at:])
        if self.move or job not in self.given:
            raise Violation(f"an offer for job {job}")
        times = 2 if self.refused else 1  # what comes by pipe is collected, then copied
        room = shortage(times * sum(abs(size) for _, size in table), coming())
        self.words[marker.ROOM] = -(-room // times)
        if room or self.refused:  # by the job before, perhaps
            self.words[marker.TICKET] = ticket | 1
            return
        self.offer = frame
        self._begin(None, ticket, table, [])

    def _begin(self, there: Memory | None, ticket: int, table: list[tuple[int, int]], parts: list[Any]) -> None:
        self.move = Move(self.pid, there, ticket, table, parts, self.land)
        if there is None:
            _coming.add(self.move)
        try:
            self.move.start()
        except RuntimeError:  # no thread can be had: the loop waits for once
            self.move.run()

    def settled(self) -> tuple[bool, bytes]:
        """A move has ended: let the worker go on; return whether it could be made, and the frame that it completes."""
        move, self.move = self.move, None
        frame, self.offer = self.offer, b""
        assert move
        if not self.lives():
            return False, b""  # what was read may be another process's
        if not move.failed:
            self.fetched = move.parts if frame else None
            self.words[marker.TICKET] = move.ticket
        elif frame:
            self.refused = True
            self.words[marker.TICKET] = move.ticket | 1
        elif not move.gone:  # it lied, or its memory may be opened but not written; no job is to blame
            Freight.forbidden = True
            signal.pidfd_send_signal(self.pidfd, signal.SIGKILL)
        return not move.failed, frame

    def taken(self, kind: int, flags: int, blob: memoryview) -> Any:
        """Return the payload of a large answer.

        Raises:
            Violation: it makes no sense.
        """
        if flags & wire.LENT:
            parts, self.fetched = self.fetched, None
            if parts is None:
                raise Violation("parts that were not offered")
        elif flags & wire.PARCEL:
            parts = _apart(blob)
        else:
            return bytes(blob)
        if (len(parts) > 1 and kind != wire.PICKLE) or type(parts[0]) is not bytes:
            raise Violation(f"{len(parts)} parts of kind {kind}")
        return payload_of(parts)


def coming() -> int:
    """Return how many bytes are on their way to here, and have room that nobody else may have."""
    return sum(move.rest for move in tuple(_coming))


def _table(data: bytes) -> tuple[int, list[tuple[int, int]]]:
    try:
        return wire.read_table(data)
    except ValueError as error:
        raise Violation(str(error)) from None


def _apart(blob: memoryview) -> list[Any]:
    """Return the parts that came by pipe, behind their number and sizes."""
    count = int.from_bytes(blob[:8], "little")
    if not 1 < count <= PARTS_MAX + 1 or len(blob) < 8 + 8 * count:
        raise Violation(f"a parcel of {count} parts")
    sizes, at, parts = struct.unpack_from(f"<{count}q", blob, 8), 8 + 8 * count, []
    if sum(map(abs, sizes)) != len(blob) - at:
        raise Violation("parts of another length than they claim")
    for size in sizes:
        view = blob[at : at + abs(size)]
        parts.append(bytes(view) if size < 0 else bytearray(view))
        at += abs(size)
    return parts
