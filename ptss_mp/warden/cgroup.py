"""Control groups: what this host offers to this process, and groups for its workers.  Mechanism, no policy.

A hierarchy of version 1 carries some controllers, the one of version 2 the rest; a host may have both.  Groups are
made below this process's own group only, so that they stay within what limits the whole program.  Under version 2 a
group with processes has no children under limits: there the program must stand in a leaf, and its parent must be
delegated to it (systemd says so by an attribute; a container's outermost group is).  Whether all this really works is
not read from version numbers but tried (`trial`).

What could be seen on a kernel of ours is version 1; the files of version 2 are as its documentation says
(Documentation/admin-guide/cgroup-v2.rst), and tried on a copy of such a tree.
"""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import time
from typing import NamedTuple

from . import proc

MEMORY, PIDS = "memory", "pids"
PREFIX = "ptss_mp-"
EXIT_S = 0.0005  # between two tries to remove a group whose last process is dying
NO_LIMIT = 1 << 62  # of pids and bytes alike


class Absent(Exception):
    """A controller cannot be had here, and why."""


class Place(NamedTuple):
    """Where groups can be made for one controller."""

    version: int
    folder: str


class Owner(NamedTuple):
    """The process that made a group: what stands in the group's name, so that leftovers are recognised."""

    space: int  # inode of its pid namespace: elsewhere its pid means nothing
    pid: int
    born: int  # ns since boot: a pid comes again

    @classmethod
    def me(cls) -> Owner:
        """Return this process."""
        pid = os.getpid()
        return cls(os.stat("/proc/self/ns/pid").st_ino, pid, proc.life(pid)[1])

    @property
    def name(self) -> str:
        """The name of its group."""
        return f"{PREFIX}{self.space}-{self.pid}-{self.born}"

    @property
    def is_gone(self) -> bool:
        """True if it is certain that this process has ended."""
        state, born = proc.life(self.pid)
        return self.space == os.stat("/proc/self/ns/pid").st_ino and (state in "ZX" or born != self.born)


def owner_of(name: str) -> Owner | None:
    """Return who made the group of that name, None if it is not of ours."""
    parts = name.removeprefix(PREFIX).split("-")
    if not name.startswith(PREFIX) or len(parts) != len(Owner._fields) or not all(map(str.isdecimal, parts)):
        return None
    return Owner(*map(int, parts))


# ---- what there is


def find(controller: str, root: str = "/proc") -> Place:
    """Return where this process may make groups for a controller.

    Args:
        root: of the files of proc(5).

    Raises:
        Absent: nowhere; the text says why.
    """
    try:
        return _find(controller, root)
    except OSError as error:
        raise Absent(f"{error.strerror}: {error.filename}") from error


def _find(controller: str, root: str) -> Place:
    path, version = _own_path(controller, root)
    point, above, writable = _mount(controller, version, root)
    inner = os.path.relpath(path, above)
    if inner.startswith(".."):
        raise Absent(f"its own group {path} lies outside of what is mounted at {point}")
    own = os.path.normpath(os.path.join(point, inner))
    if not writable:
        raise Absent(f"{point} is mounted read-only")
    if version == 2:
        own = _with_room(controller, own, point)
    if not os.access(own, os.W_OK | os.X_OK):
        raise Absent(f"{own} is not writable for this user")
    return Place(version, own)


def _own_path(controller: str, root: str) -> tuple[str, int]:
    """Return the path of the own group in the controller's hierarchy, and that hierarchy's version."""
    unified = ""
    for line in _read(f"{root}/self/cgroup").splitlines():
        number, names, path = line.split(":", 2)
        if controller in names.split(","):
            return path, 1
        if number == "0" and not names:
            unified = path
    if not unified:
        raise Absent(f"this kernel has no cgroup controller {controller!r}")
    return unified, 2


def _mount(controller: str, version: int, root: str) -> tuple[str, str, bool]:
    """Return (mount point, which group is mounted there, whether it can be written) of a hierarchy."""
    for line in _read(f"{root}/self/mountinfo").splitlines():
        left, _, right = line.partition(" - ")
        _, _, _, above, point, options, *_ = left.split()
        kind, _, superior = right.split(" ", 2)
        if kind == ("cgroup2" if version == 2 else "cgroup") and (version == 2 or controller in superior.split(",")):
            writable = "ro" not in options.split(",") and "ro" not in superior.split(",")
            return _plain(point), _plain(above), writable
    raise Absent(f"the hierarchy of cgroup controller {controller!r} is not mounted")


def _with_room(controller: str, own: str, point: str) -> str:
    """Return the group of version 2 below which groups may be limited: the own one, or the delegated one above it."""
    if controller not in _read(f"{own}/cgroup.controllers").split():
        raise Absent(f"the controller {controller!r} is not delegated to {own} (cgroup.controllers)")
    above = os.path.dirname(own)
    if controller in _read(f"{own}/cgroup.subtree_control").split():
        return own
    if own == point or not _is_delegated(above, point):
        raise Absent(f"{own} holds this program, so nothing below it can be limited, and above it nothing is delegated")
    if controller not in _read(f"{above}/cgroup.subtree_control").split():
        raise Absent(f"the controller {controller!r} is not passed on in {above} (cgroup.subtree_control)")
    return above


def _is_delegated(group: str, point: str) -> bool:
    """Return True if a group of version 2 was given to this program: a container's outermost, or marked by systemd."""
    if group == point:
        return os.path.exists(f"{group}/cgroup.type")  # only the machine's own root has none
    for name in ("user.delegate", "trusted.delegate"):
        with contextlib.suppress(OSError):
            if os.getxattr(group, name) == b"1":
                return True
    return False


# ---- groups


class Groups:
    """Groups for the workers of one process: a parent of them all in each hierarchy, named by its owner.

    Args:
        places: controller -> where its groups are made (`find`).

    Raises:
        OSError: the kernel refused.
    """

    def __init__(self, places: dict[str, Place]) -> None:
        owner = Owner.me()
        self._tops: dict[str, Place] = {}
        for controller, place in places.items():
            top = f"{place.folder}/{owner.name}"
            with contextlib.suppress(FileExistsError):
                os.mkdir(top)
            self._tops[controller] = Place(place.version, top)
            if place.version == 2:
                _write(f"{top}/cgroup.subtree_control", f"+{controller}")

    def make(self, name: str) -> Group:
        """Return a new, empty group.

        Raises:
            OSError: the kernel refused; FileNotFoundError: there is no place for any.
        """
        if not self._tops:
            raise FileNotFoundError(errno.ENOENT, "no control groups here")
        folders = {c: Place(top.version, f"{top.folder}/{name}") for c, top in self._tops.items()}
        for folder in sorted({place.folder for place in folders.values()}):
            with contextlib.suppress(FileExistsError):
                os.mkdir(folder)
        return Group(folders)

    def remove(self) -> bool:
        """Remove the parents, and all below that is empty; return True if nothing is left."""
        return not [top for top in self._tops.values() if not _remove_tree(top.folder)]


class Group:
    """The groups of one worker and of all that stems from it.

    Files that are read often stay open; each method raises OSError if the kernel refuses, or the group is gone.
    """

    def __init__(self, places: dict[str, Place]) -> None:
        self._places = places
        self._open: dict[str, int] = {}

    @property
    def _folders(self) -> list[str]:
        return sorted({place.folder for place in self._places.values()})

    def attach(self, pid: int = 0) -> None:
        """Move a process here, 0: this one.  Takes 7 to 18 ms, unless somebody else has just done such a thing.

        What it forks from then on is born here; its threads come along.
        """
        for folder in self._folders:
            _write(f"{folder}/cgroup.procs", str(pid))

    def members(self) -> list[int]:
        """Return the processes that are here; under version 1 those too that are dead and not reaped."""
        return [int(pid) for pid in _read(f"{self._folders[0]}/cgroup.procs").split()]

    def kill(self) -> int:
        """SIGKILL all members; return how many were there.  Again, until it is 0: they may fork meanwhile."""
        members = self.members()
        for place in self._places.values():
            if place.version == 2:
                with contextlib.suppress(FileNotFoundError):  # before Linux 5.14
                    _write(f"{place.folder}/cgroup.kill", "1")
                    return len(members)
        held = {pid: os.pidfd_open(pid) for pid in members if proc.life(pid)[0] not in "ZX"}
        try:
            for pid in set(self.members()) & set(held):  # still here, now that it is held: no other has its number
                with contextlib.suppress(ProcessLookupError):
                    signal.pidfd_send_signal(held[pid], signal.SIGKILL)
        finally:
            for fd in held.values():
                os.close(fd)
        return len(held)

    def close(self) -> None:
        """Let go of the open files."""
        while self._open:
            os.close(self._open.popitem()[1])

    def remove(self, within_s: float = 0.0) -> bool:
        """Remove the group; return False if somebody is in it still, after so many seconds."""
        self.close()
        until = time.monotonic() + within_s
        while [folder for folder in self._folders if not _remove(folder)]:
            if time.monotonic() >= until:
                return False
            time.sleep(EXIT_S)
        return True

    # ---- processes and threads

    def limit_tasks(self, most: int) -> None:
        """Let there be so many processes and threads together: beyond it fork fails with EAGAIN; 0: no more at all."""
        _write(self._file(PIDS, "pids.max"), str(most) if most < NO_LIMIT else "max")

    def tasks(self) -> int:
        """Return how many processes and threads there are."""
        return int(self._again(PIDS, "pids.current"))

    # ---- memory

    def limit_memory(self, most_bytes: int) -> None:
        """Let there be so much memory, swap included: beyond it the kernel's OOM killer comes.

        What it needs of this for files that can be read again counts too, and is given up before.
        """
        text = str(most_bytes) if most_bytes < NO_LIMIT else ""
        if self._places[MEMORY].version == 2:
            _write(self._file(MEMORY, "memory.max"), text or "max")
            with contextlib.suppress(FileNotFoundError):  # a kernel without swap
                _write(self._file(MEMORY, "memory.swap.max"), "0" if text else "max")
            _write(self._file(MEMORY, "memory.oom.group"), "1" if text else "0")
            return
        plain, swap = "memory.limit_in_bytes", "memory.memsw.limit_in_bytes"
        most = int(text or -1)
        before = int(_read(self._file(MEMORY, plain)))
        order = (plain, swap) if text and most_bytes < before else (swap, plain)  # never one above the other
        for name in order:
            with contextlib.suppress(FileNotFoundError):  # not accounted: no swap
                _write(self._file(MEMORY, name), str(most))

    def charged_bytes(self) -> int:
        """Return what is charged, file cache included: 1 µs."""
        one = self._places[MEMORY].version == 1
        return int(self._again(MEMORY, "memory.usage_in_bytes" if one else "memory.current"))

    def held_bytes(self) -> tuple[int, int]:
        """Return the memory that cannot be given up, of all members together: anonymous, and shared (tmpfs, memfd)."""
        one = self._places[MEMORY].version == 1
        table = dict(self._table("memory.stat"))
        anonymous, shared = ("total_rss", "total_shmem") if one else ("anon", "shmem")
        return int(table.get(anonymous, 0)), int(table.get(shared, 0))

    @property
    def counts_memory(self) -> bool:
        """True if it is under the memory controller."""
        return MEMORY in self._places

    def oom_kills(self) -> int:
        """Return how many members the kernel's OOM killer has killed for this group's limit."""
        name = "memory.oom_control" if self._places[MEMORY].version == 1 else "memory.events"
        return next((int(value) for field, value in self._table(name) if field == "oom_kill"), 0)

    def _table(self, name: str) -> list[list[str]]:
        return [line.split(" ", 1) for line in self._again(MEMORY, name).splitlines()]

    def _file(self, controller: str, name: str) -> str:
        return f"{self._places[controller].folder}/{name}"

    def _again(self, controller: str, name: str) -> str:
        """Read a file from its beginning; it stays open, for it will be read again."""
        path = self._file(controller, name)
        fd = self._open.get(path)
        if fd is None:
            fd = self._open[path] = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        return os.pread(fd, 1 << 16, 0).decode()


def remove_leftovers(place: Place) -> int:
    """Remove the groups of owners that have ended and could not do it themselves; return how many.

    The kernel removes no group in which somebody lives.
    """
    owners = [owner for name in os.listdir(place.folder) if (owner := owner_of(name)) and owner.is_gone]
    return sum(_remove_tree(f"{place.folder}/{owner.name}") for owner in owners)


def _remove_tree(top: str) -> bool:
    with contextlib.suppress(FileNotFoundError):
        for entry in os.scandir(top):
            if entry.is_dir(follow_symlinks=False):
                _remove(entry.path)
    return _remove(top)


def _remove(folder: str) -> bool:
    try:
        os.rmdir(folder)
    except FileNotFoundError:
        return True
    except OSError as error:
        if error.errno not in (errno.EBUSY, errno.ENOTEMPTY):
            raise
        return False
    return True


def _read(path: str) -> str:
    with open(path, encoding="utf-8", errors="surrogateescape") as file:
        return file.read()


def _write(path: str, text: str) -> None:
    """One write: what the kernel refuses it refuses as a whole."""
    fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(fd, text.encode())
    finally:
        os.close(fd)


def _plain(path: str) -> str:
    """Return a path of mountinfo without its escapes."""
    for escape, letter in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
        path = path.replace(escape, letter)
    return path
