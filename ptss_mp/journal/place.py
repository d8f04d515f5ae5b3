"""Where a journal lies: is it safe to open, and is it ours alone?

SQLite opens by path and follows links (sqlite3_open_v2: only SQLITE_OPEN_NOFOLLOW, which the standard library does not
give, refuses them).  So the folder must be one in which nobody else can put files in the way, the file is opened here
first, without following a link, and SQLite's is compared with it.  The lock is one of flock(2) on that descriptor: it
ends with the process, however that ends, and does not meet SQLite's own locks, which are fcntl(2)'s.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import stat
from pathlib import Path
from typing import Any

from ..errors import JournalError

SIDECARS = ("-wal", "-shm", "-journal", "-started", "-started2")  # of SQLite, and of started.py
# WAL needs memory that all its users share, and locks that hold: over a network neither is sure.
REMOTE = frozenset((
    "9p", "afs", "beegfs", "ceph", "cifs", "coda", "davfs", "fuse.ceph", "fuse.glusterfs", "fuse.gvfsd-fuse",
    "fuse.rclone", "fuse.s3fs", "fuse.sshfs", "gfs", "gfs2", "glusterfs", "gpfs", "lustre", "ncpfs", "nfs", "nfs4",
    "ocfs2", "orangefs", "pvfs2", "smb3", "smbfs",
))  # fmt: skip

_taken: set[tuple[int, int]] = set()  # by this process: (device, inode); to open and close one more would drop locks


def refused(path: str, reason: str, why: str, **facts: Any) -> JournalError:
    """Return the error for a journal that cannot be used."""
    return JournalError(f"journal {path!r}: {why}", reason=reason, path=path, **facts)


class Place:
    """The journal's file, open and locked by this process.

    Args:
        path: absolute.

    Attributes:
        fd: the file, which holds the lock.

    Raises:
        JournalError: it cannot be used safely, or has an owner (reason "busy").
    """

    def __init__(self, path: str) -> None:
        self.path, self.fd, self.made = path, -1, False
        self._id = (0, 0)
        folder = _open_folder(path)
        try:
            _check_folder(path, folder)
            _check_file_system(path, os.fstat(folder).st_dev, Path("/proc/self/mountinfo"))
            for sidecar in SIDECARS:
                with contextlib.suppress(FileNotFoundError):
                    name = os.path.basename(path) + sidecar
                    check_file(path, os.stat(name, dir_fd=folder, follow_symlinks=False), f"its file {name!r}")
            self._take(os.path.basename(path), folder)
        except BaseException:
            self.close()
            raise
        finally:
            os.close(folder)

    def _take(self, name: str, folder: int) -> None:
        flags = os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK  # a FIFO would block
        try:
            try:
                there = os.stat(name, dir_fd=folder, follow_symlinks=False)
                if (there.st_dev, there.st_ino) in _taken:
                    raise refused(self.path, "busy", "this program has it open already")
                self.fd = os.open(name, flags, dir_fd=folder)
            except FileNotFoundError:
                self.fd = os.open(name, flags | os.O_CREAT | os.O_EXCL, 0o600, dir_fd=folder)
                self.made = True
                os.fsync(folder)  # or a power loss forgets the file, whatever it holds
        except JournalError:
            raise
        except OSError as error:
            raise _cannot_open(self.path, error) from None
        found = os.fstat(self.fd)
        check_file(self.path, found, "it")
        try:
            fcntl.flock(self.fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise refused(self.path, "busy", "another process has it open; end that one, or wait for its end") from None
        self._id = found.st_dev, found.st_ino
        _taken.add(self._id)

    def is_still(self) -> None:
        """Refuse if the path leads to another file by now, or somebody has put one beside it.

        Raises:
            JournalError: it does.
        """
        try:
            same = os.path.samestat(os.fstat(self.fd), os.stat(self.path, follow_symlinks=False))
            for sidecar in SIDECARS:
                with contextlib.suppress(FileNotFoundError):
                    found = os.stat(self.path + sidecar, follow_symlinks=False)
                    check_file(self.path, found, f"its file {os.path.basename(self.path) + sidecar!r}")
        except FileNotFoundError:
            same = False
        if not same:
            raise refused(self.path, "permission", "somebody has put another file in its place")

    def take_back(self) -> None:
        """Remove the file, if it was made just now and nothing has come of it."""
        if self.made:
            for name in (self.path, *(self.path + sidecar for sidecar in SIDECARS)):
                with contextlib.suppress(OSError):
                    os.unlink(name)
        self.close()

    def close(self) -> None:
        """Let the lock go; SQLite's connections must be closed before (fcntl(2): their locks would go with it)."""
        _taken.discard(self._id)
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1


def _open_folder(path: str) -> int:
    folder = os.path.dirname(path)
    try:
        return os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except PermissionError:
        raise refused(path, "permission", f"no permission to look into {folder!r}") from None
    except OSError as error:
        raise refused(path, "create", f"its folder {folder!r}: {error.strerror}") from None


def _check_folder(path: str, folder: int) -> None:
    """Refuse a folder in which others could swap the journal for something else."""
    found, here = os.fstat(folder), repr(os.path.dirname(path))
    if found.st_uid not in (0, os.geteuid()):
        raise refused(path, "permission", f"its folder {here} belongs to another user, who could swap it")
    # Where each user has a group of his own (gid = uid), it is no company; root's has members.
    others = stat.S_IWOTH | (0 if found.st_gid == os.geteuid() != 0 else stat.S_IWGRP)
    if found.st_mode & others and not found.st_mode & stat.S_ISVTX:
        raise refused(path, "permission", f"others may write into its folder {here}, and could swap it (chmod go-w)")


def check_file(path: str, found: os.stat_result, what: str) -> None:
    """Refuse what is no ordinary file of ours alone.

    Raises:
        JournalError: it is not.
    """
    if stat.S_ISDIR(found.st_mode):
        raise refused(path, "create", f"{what} is a directory")
    if stat.S_ISLNK(found.st_mode):
        raise refused(path, "permission", f"{what} is a symbolic link, which is not followed")
    if not stat.S_ISREG(found.st_mode):
        raise refused(path, "bad", f"{what} is no regular file")
    if found.st_uid != os.geteuid():
        raise refused(path, "permission", f"{what} belongs to another user")
    if found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise refused(path, "permission", f"others may write to {what} (chmod go-w)")
    if found.st_nlink > 1:
        raise refused(path, "permission", f"{what} has {found.st_nlink} names (hard links)")


def _cannot_open(path: str, error: OSError) -> JournalError:
    if error.errno == errno.ELOOP:
        return refused(path, "permission", "it is a symbolic link, which is not followed")
    if error.errno == errno.EISDIR:
        return refused(path, "create", "it is a directory")
    if error.errno in (errno.EACCES, errno.EPERM) and os.path.lexists(path):
        return refused(path, "permission", "no permission to read and write it")
    return refused(path, "create", f"it cannot be made: {error.strerror or error}")


def _check_file_system(path: str, device: int, table: Path) -> None:
    """Refuse file systems of other machines."""
    kind = file_system(device, path, table)
    if kind in REMOTE:
        text = f"it lies on a network file system ({kind}), where locks and shared memory do not hold; use a local disk"
        raise refused(path, "create", text)


def file_system(device: int, path: str, table: Path) -> str:
    """Return the type of the file system that holds a path, "" if the kernel does not tell (proc(5), mountinfo)."""
    number, best = f"{os.major(device)}:{os.minor(device)}", (-1, "")
    try:
        lines = table.read_text("utf-8", "surrogateescape").splitlines()
    except OSError:
        return ""
    for line in lines:
        fields, _, rest = line.partition(" - ")
        parts = fields.split()
        if len(parts) < 5 or not rest:
            continue
        if parts[2] == number:
            return rest.split()[0]
        point = parts[4].encode("latin-1", "surrogateescape").decode("unicode_escape", "replace")
        if os.path.commonpath([path, point]) == point:  # a subvolume has a device number of its own
            best = max(best, (len(point), rest.split()[0]))
    return best[1]


def boot() -> str:
    """Return what tells one start of this machine from the next."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()
    except OSError:
        return ""
