"""The warden from the parent's side: start it, talk to it, sweep up after it."""

from __future__ import annotations

import array
import contextlib
import mmap
import os
import pickle
import resource
import select
import signal
import socket
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Iterator
from multiprocessing import spawn
from typing import TYPE_CHECKING, Any

from ..core.tokens import Environment
from ..outcome import signal_name
from ..warden import proc
from ..warden.protocol import (
    ASLEEP,
    FDS,
    FORK,
    KILL,
    MESSAGE_MAX,
    SLOT_BYTES,
    TICK,
    TICK_MAX_NS,
    TICK_MIN_NS,
    WHYS,
)
from .clock import monotonic_ns

if TYPE_CHECKING:
    from .channel import Channel

TAG = "PTSS_MP_WORKER"  # in the environment of all that stems from a pool: the last line when the warden died
DESCRIPTORS_MIN = 20 + 2 * FDS  # of RLIMIT_NOFILE: with one less a warden cannot fork its first worker (a test looks)
DISMISS_NS = 6_000_000_000  # the warden gives itself 5 s for its last sweep (warden.main.END_NS)
SWEEPS = 50  # rounds of the sweep by environment; one that forks faster than we read /proc is beyond it
# A fork of the program in the midst of Popen would inherit the writing end of Popen's error pipe, and the loop
# would wait for its end of file for as long as that fork lives.  So forks wait for the milliseconds of a start.
_spawning = threading.Lock()
os.register_at_fork(before=_spawning.acquire, after_in_parent=_spawning.release, after_in_child=_spawning.release)
_ONE = (1).to_bytes(8, "little")


def python() -> list[str]:
    """Return the interpreter and flags that multiprocessing would use for a child."""
    executable = spawn.get_executable()
    return [os.fsdecode(executable), *subprocess._args_from_interpreter_flags()]  # type: ignore[attr-defined]


def surroundings() -> dict[str, Any]:
    """Return what workers take over from the program as it is now; a later warden gives them the same."""
    command = python()
    try:
        cwd = os.getcwd()
    except FileNotFoundError:  # deleted under the program: the warden inherits it as it is
        cwd = None
        command.append("-P")  # else CPython 3.13.0 looks for that folder at each missing attribute, and fails
    return {"path": list(sys.path), "python": command, "environ": dict(os.environ), "cwd": cwd}


class Warden:
    """One warden process and what is shared with it.  Made and used on the loop thread.

    Args:
        config: `options`, `preload`, `calls`, `main`, and `surroundings()`.
        tag: value of TAG.
        slots: how many workers can exist at once, dying ones included.
    """

    def __init__(self, config: dict[str, Any], tag: str, slots: int) -> None:
        allowed = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        if 0 <= allowed < DESCRIPTORS_MIN:  # said here in one sentence: there it might not even import what it needs
            raise OSError(f"{allowed} open files are allowed (ulimit -n), {DESCRIPTORS_MIN} are needed at least")
        self.tag = tag
        self.free = list(range(slots, 0, -1))  # slot 0 is the page's head
        self.slots: dict[int, int] = {}
        self.unforked: dict[int, Environment] = {}  # workers that wait for the slot of one that is not reaped yet
        self.unsent: deque[bytes] = deque()
        self.groups = 0  # which ones new workers shall be in (warden.fences)
        self.ready = False
        self.oom_kills = proc.oom_kills()
        size = (slots + 1) * SLOT_BYTES
        with contextlib.ExitStack() as undo, contextlib.ExitStack() as theirs:
            limits = os.memfd_create("ptss_mp-limits", os.MFD_CLOEXEC)
            theirs.callback(os.close, limits)
            os.ftruncate(limits, size)
            self.limits = mmap.mmap(limits, size)
            self.words = memoryview(self.limits).cast("Q")
            self.nudge_fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
            undo.callback(os.close, self.nudge_fd)
            self.sock, control = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            undo.callback(self.sock.close)
            theirs.callback(control.close)
            for end in (self.sock, control):
                end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, MESSAGE_MAX)
            self.sock.setblocking(False)
            me = os.pidfd_open(os.getpid())
            theirs.callback(os.close, me)
            told = os.memfd_create("ptss_mp-config", os.MFD_CLOEXEC)
            theirs.callback(os.close, told)
            with open(told, "wb", closefd=False) as file:  # of any size: initargs may be large
                pickle.dump({k: v for k, v in config.items() if k not in ("environ", "cwd")}, file)
            fds = (control.fileno(), me, self.nudge_fd, limits, told)
            code = f"import sys; sys.path[:] = {config['path']!r}; from ptss_mp.warden.main import main; main{fds}"
            with _spawning:
                self.process = subprocess.Popen(
                    [*config["python"], "-c", code],
                    pass_fds=fds,
                    start_new_session=True,
                    stdin=subprocess.DEVNULL,
                    env=config["environ"] | {TAG: tag},
                    cwd=config["cwd"],
                )
            try:
                self.pidfd = os.pidfd_open(self.process.pid)
            except OSError:
                self.process.kill()
                self.process.wait()
                raise
            undo.pop_all()

    # ---- to the warden

    def fork(self, worker: int, env: Environment) -> None:
        """Ask for a worker; once a slot is free, if those who leave hold all."""
        if not self.free:
            self.unforked[worker] = env
            return
        slot = self.free.pop()
        self.slots[worker] = slot
        self.limits[slot * SLOT_BYTES : (slot + 1) * SLOT_BYTES] = bytes(SLOT_BYTES)
        self._send(FORK.pack(b"F", worker, slot, self.groups) + (pickle.dumps(dict(env)) if env else b""))

    def unfork(self, worker: int) -> bool:
        """Want this worker no more; return True if the warden has not even been asked for it."""
        if worker in self.unforked:
            del self.unforked[worker]
            return True
        if worker in self.slots:
            self.killed(worker, 0, "crashed")
        return False

    def killed(self, worker: int, job: int, why: str) -> None:
        """Tell that SIGKILL was sent from here, or shall be, so that the warden walks the tree."""
        self._send(KILL.pack(b"K", worker, job, WHYS.index(why)))

    def prepare_main(self, data: bytes) -> None:
        """Let later workers find `__main__` imported."""
        self._send(b"M" + data)

    def wake_up(self) -> None:
        """Let it go on, if somebody has stopped it: nothing would start or be measured, no tree be swept."""
        with contextlib.suppress(OSError):
            signal.pidfd_send_signal(self.pidfd, signal.SIGCONT)

    def _send(self, data: bytes) -> None:
        self.wake_up()
        self.unsent.append(data)
        self._flush()

    def _flush(self) -> None:
        """Send what is due.  What does not fit (500 messages do) goes when the next answer has come."""
        while self.unsent:
            try:
                self.sock.send(self.unsent[0])
            except BlockingIOError:
                return
            except OSError:
                pass  # it is dying: its pidfd tells
            self.unsent.popleft()

    @property
    def tick_ns(self) -> int:
        """How often the warden looks at busy workers at the latest; 0: as it likes."""
        return self.words[TICK]

    def watch_for(self, timeout_ns: int) -> None:
        """Let the warden's tick be short enough for this timeout."""
        tick = min(max(timeout_ns // 4, TICK_MIN_NS), TICK_MAX_NS)
        if not self.words[TICK] or tick < self.words[TICK]:
            self.words[TICK] = tick
            self.nudge()

    def nudge(self) -> None:
        """Wake it."""
        os.write(self.nudge_fd, _ONE)

    def nudge_if_asleep(self) -> None:
        """Wake it for a dispatch, which it would not see asleep."""
        if self.words[ASLEEP]:
            self.words[ASLEEP] = 0
            self.nudge()

    # ---- from the warden

    def messages(self) -> Iterator[tuple[bytes, list[int]]]:
        """Yield what stands in the socket, with the descriptors that came along."""
        while True:
            try:
                data, ancillary, _, _ = self.sock.recvmsg(
                    MESSAGE_MAX, socket.CMSG_LEN(FDS * 4), socket.MSG_CMSG_CLOEXEC
                )
            except OSError:
                return self._flush()
            if not data:
                return
            fds = array.array("i")
            for _, _, raw in ancillary:
                fds.frombytes(raw[: len(raw) - len(raw) % fds.itemsize])
            yield data, list(fds)

    def note_exit(self, channel: Channel, status: int, peak_bytes: int, cpu_ns: int) -> None:
        """Note how a worker ended; and if it may have been the kernel that killed it, for lack of memory."""
        channel.status, channel.peak_bytes, channel.cpu_ns = status, peak_bytes, cpu_ns
        if status == signal.SIGKILL and not channel.verdict:
            before, self.oom_kills = self.oom_kills, proc.oom_kills()
            channel.oom_kills = self.oom_kills - before

    def release(self, worker: int) -> None:
        """A worker is reaped: its slot may serve another."""
        slot = self.slots.pop(worker, None)
        if slot is not None:
            self.free.append(slot)
            if self.unforked:
                waiting = next(iter(self.unforked))
                self.fork(waiting, self.unforked.pop(waiting))

    # ---- its end

    def exit_text(self) -> str:
        """Return how it ended, in words; waits for it."""
        code = self.process.wait()
        return f"by {signal_name(-code)}" if code < 0 else f"with status {code}"

    def end(self, swept: bool) -> None:
        """Let it kill and reap everything, then let go of it.  One that still imports does not listen.

        Args:
            swept: look also for what slipped away from it, by the environment.
        """
        self._send(b"Q")
        if not self.ready or not await_deaths([self.pidfd], DISMISS_NS):
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self.pidfd, signal.SIGKILL)
        self.close()
        if swept or not self.ready:
            sweep(self.tag)

    def abandon(self) -> None:
        """Close all descriptors (as such in a fork of the program)."""
        self.sock.close()
        for name in ("pidfd", "nudge_fd"):
            fd = getattr(self, name)
            setattr(self, name, -1)  # forgotten first: a fork in this moment closes no reused number
            if fd >= 0:
                os.close(fd)

    def close(self) -> None:
        """Let go of everything; the process has ended."""
        self.process.wait()
        self.abandon()
        self.words.release()
        self.limits.close()


def sweep(tag: str) -> int:
    """SIGKILL everything whose environment carries the pool's tag; return how many.

    A program without a single descriptor left finds nobody, and goes on.
    """
    entry, total = f"{TAG}={tag}".encode(), 0
    for _ in range(SWEEPS):
        found, pids = 0, list[int]()
        with contextlib.suppress(OSError):
            pids = proc.tagged(entry)
        for pid in pids:
            try:
                fd = os.pidfd_open(pid)
            except OSError:
                continue
            try:
                if proc.is_tagged(pid, entry):  # still the same process, now that it is held
                    signal.pidfd_send_signal(fd, signal.SIGKILL)
                    found += 1
            except OSError:
                pass
            finally:
                os.close(fd)
        total += found
        if not found:
            return total
    return total


def await_deaths(pidfds: list[int], within_ns: int) -> bool:
    """Wait until all these processes are dead, at most so long; return True if they are."""
    poll, until, left = select.poll(), monotonic_ns() + within_ns, set(pidfds)
    for fd in pidfds:
        poll.register(fd, select.POLLIN)
    while left and monotonic_ns() < until:
        for fd, _ in poll.poll(max(1, (until - monotonic_ns()) // 1_000_000)):
            poll.unregister(fd)
            left.discard(fd)
    return not left
