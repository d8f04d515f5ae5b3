"""By what means limits are held on this host: tried for real, each try in a fork and bounded in time.

For processes of one thread (the warden, a child of the doctor): a fork of a threaded one may hang.
"""

from __future__ import annotations

import contextlib
import errno
import mmap
import os
import select
import signal
import time
from collections.abc import Callable
from typing import NamedTuple

from .. import rlimits
from . import proc
from .cgroup import MEMORY, PIDS, Absent, Group, Groups, Place, find

TRIAL_S = 1.0  # a try that takes longer does not work; moving a process takes 18 ms at most here
GONE_S = 0.5  # what a dead process may keep of its group
TOUCHED_BYTES = 8 << 20
ROOM_BYTES = 256 << 20  # nothing that is tried comes near it


class Means(NamedTuple):
    """How a limit is held ("kernel", "polled" or "absent"), and why so."""

    how: str
    why: str


def open_files() -> Means:
    """Try RLIMIT_NOFILE."""
    return _kernel(_refuses_descriptors, "RLIMIT_NOFILE")


def file_size() -> Means:
    """Try RLIMIT_FSIZE."""
    return _kernel(_refuses_bytes, "RLIMIT_FSIZE; prints and logs do not count")


def processes() -> Means:
    """Try whether trees can be counted, and whether a pids group bounds what they do between two counts."""
    why = in_fork(_sees_children)
    if why:
        return Means("absent", why)
    bound = offer(PIDS)
    between = "a pids cgroup stops bombs in between" if isinstance(bound, Place) else f"no pids cgroup: {bound}"
    return Means("polled", f"counted by /proc; {between}")


def offer(controller: str) -> Place | str:
    """Return where groups for a controller can be made and do what they should; else why not, in words."""
    try:
        place = find(controller)
        return trial(controller, place) or place
    except (Absent, OSError) as error:
        return str(error)


def trial(controller: str, place: Place) -> str:
    """Make a group, move a fork in, limit it, see that the limit works, remove it; return "" or why it does not."""
    groups = Groups({controller: place})
    try:
        group = groups.make("trial")
        try:
            return in_fork(lambda: _TRIALS[controller](group))
        finally:
            group.remove(GONE_S)  # if not, its owner's end is another chance (remove_leftovers)
    finally:
        groups.remove()


def in_fork(act: Callable[[], str]) -> str:
    """Return what `act` returns in a fork: "" or why something does not work.  Takes TRIAL_S and GONE_S at most."""
    out, into = os.pipe()
    try:
        pid = os.fork()
    except OSError:
        os.close(out)
        os.close(into)
        raise
    if pid == 0:
        try:
            text = act()
        except BaseException as error:  # the fork must not come back
            text = f"{type(error).__name__}: {error}"
        with contextlib.suppress(OSError):
            os.write(into, b"." + text.encode()[:2_000])
        os._exit(0)
    os.close(into)
    try:
        poll = select.poll()
        poll.register(out, select.POLLIN)
        told = os.read(out, 4_096) if poll.poll(TRIAL_S * 1_000) else b""
    finally:
        os.close(out)
        _end(pid)
    return told[1:].decode() if told else f"the trial gave no answer within {TRIAL_S:g} s"


def _end(pid: int) -> None:
    """Kill and reap a fork; one that the kernel does not let go is left to whoever reaps later."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
    until = time.monotonic() + GONE_S
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(pid, os.WNOHANG)[0] == 0 and time.monotonic() < until:
            time.sleep(0.0005)


def _kernel(act: Callable[[], str], means: str) -> Means:
    why = in_fork(act)
    return Means("absent", why) if why else Means("kernel", means)


def _refuses_descriptors() -> str:
    rlimits.lower(0, 1)
    os.open("/dev/null", os.O_RDONLY)
    return _refused(lambda: os.open("/dev/null", os.O_RDONLY), errno.EMFILE, "a second descriptor was opened")


def _refuses_bytes() -> str:
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    file = os.memfd_create("trial")
    rlimits.lower(10, 0)
    os.write(file, bytes(20))
    return _refused(lambda: os.write(file, b"."), errno.EFBIG, "an eleventh byte was written")


def _sees_children() -> str:
    pid = os.fork()
    if pid == 0:
        time.sleep(TRIAL_S)
        os._exit(0)
    seen = pid in proc.children(os.getpid()) and proc.life(pid)[1] > 0
    _end(pid)
    return "" if seen else "a child is not seen in /proc/<pid>/task/<tid>/children"


def _limits_tasks(group: Group) -> str:
    group.attach()
    if group.tasks() != 1:
        return f"a group with one process counts {group.tasks()}"
    group.limit_tasks(1)
    return _refused(_fork, errno.EAGAIN, "a second process was forked")


def _limits_memory(group: Group) -> str:
    group.attach()
    group.limit_memory(ROOM_BYTES)
    before = group.charged_bytes()
    room = mmap.mmap(-1, TOUCHED_BYTES, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    for at in range(0, TOUCHED_BYTES, mmap.PAGESIZE):
        room[at] = 1
    charged, held = group.charged_bytes() - before, sum(group.held_bytes())
    if min(charged, held) < TOUCHED_BYTES // 2:
        return f"{TOUCHED_BYTES} bytes were touched, {charged} were charged, {held} are told as held"
    return ""


_TRIALS: dict[str, Callable[[Group], str]] = {MEMORY: _limits_memory, PIDS: _limits_tasks}


def _fork() -> None:
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)


def _refused(act: Callable[[], object], number: int, otherwise: str) -> str:
    try:
        act()
    except OSError as error:
        return "" if error.errno == number else str(error)
    return f"{otherwise}, beyond the limit"
