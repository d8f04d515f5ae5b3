"""Unix sockets of the command line: who is at the other end, and where those of live runs are found.

A live run has a socket `PID-TOKEN.sock` in a folder that nobody but its user can enter.  It is reached by the folder's
descriptor, so neither a long path nor one that is exchanged under us matters.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import socket
import stat
import struct
from collections.abc import Iterator

from .exits import CommandError, Exit

CREDENTIALS = struct.Struct("iII")  # pid, uid, gid
SUFFIX = ".sock"
WAITING_MAX = 16  # connections that wait to be served
CONNECT_S = 10  # as long as it takes to be rid of twice as many who say nothing (`control.CONNECTION_S`)
REQUEST_BYTES_MAX, REPLY_BYTES_MAX = 4096, 4 << 20  # of a line; a thousand workers with long names have 1.5 MiB


def credentials(peer: socket.socket) -> tuple[int, int, int]:
    """Return pid, uid, gid of who has connected (unix(7), SO_PEERCRED)."""
    pid, uid, gid = CREDENTIALS.unpack(peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, CREDENTIALS.size))
    return pid, uid, gid


def folders() -> list[str]:
    """Return where sockets may be; who asks looks everywhere: his environment may be another than that of the run."""
    given = os.environ.get("XDG_RUNTIME_DIR", "")
    places = [os.path.join(given, "ptss_mp")] if os.path.isabs(given) else []
    return [*places, f"/tmp/ptss_mp-{os.getuid()}"]


def open_folder(path: str, make: bool = False) -> int:
    """Return a descriptor of a folder of sockets.

    Raises:
        OSError: it is not there, or somebody else could have put something there.
    """
    if make:
        with contextlib.suppress(FileExistsError):
            os.mkdir(path, 0o700)
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    found = os.fstat(fd)
    if found.st_uid != os.getuid() or stat.S_IMODE(found.st_mode) & 0o077:
        os.close(fd)
        raise PermissionError(0, f"{path} is not ours alone")
    return fd


def unanswered(pid: int) -> CommandError:
    """Return the error of a run that is there and does not answer."""
    return CommandError(Exit.BUSY, f"the run with pid {pid} does not answer; is it stopped?")


class Listening:
    """A socket that listens, under its name in the first folder that will do.

    Raises:
        OSError: there is none.
    """

    def __init__(self) -> None:
        self.folder = _first_folder()
        self.name = f"{os.getpid()}-{secrets.token_hex(4)}{SUFFIX}"
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK)
        try:
            # Under its name it listens from the first: who finds one that refuses takes it for a dead run's.
            self.sock.bind(f"/proc/self/fd/{self.folder}/{self.name}.new")
            self.sock.listen(WAITING_MAX)
            os.rename(f"{self.name}.new", self.name, src_dir_fd=self.folder, dst_dir_fd=self.folder)
        except OSError:
            self.close()
            raise

    def close(self) -> None:
        """Be found no more."""
        for name in (self.name, f"{self.name}.new"):
            with contextlib.suppress(OSError):
                os.unlink(name, dir_fd=self.folder)
        self.sock.close()
        os.close(self.folder)


def _first_folder() -> int:
    failed: OSError | None = None
    for place in folders():
        try:
            return open_folder(place, make=True)
        except OSError as error:
            failed = error
    assert failed
    raise failed


def live(pid: int | None) -> Iterator[tuple[int, socket.socket]]:
    """Yield (pid, connected socket) of the live runs of this user; what dead ones have left is taken away.

    Args:
        pid: of the one that is asked for; None: all.

    Raises:
        CommandError: busy: one does not let us in.
    """
    for place in folders():
        try:
            folder = open_folder(place)
        except OSError:
            continue
        try:
            for name in sorted(os.listdir(folder)):
                number = name.removesuffix(SUFFIX).partition("-")[0]
                if name.endswith(SUFFIX) and number.isdecimal() and pid in (None, int(number)):
                    try:
                        sock = _connected(folder, name)
                    except TimeoutError:
                        raise unanswered(int(number)) from None
                    if sock:
                        yield int(number), sock
        finally:
            os.close(folder)


def _connected(folder: int, name: str) -> socket.socket | None:
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", CONNECT_S, 0))  # where many wait
        sock.connect(f"/proc/self/fd/{folder}/{name}")
        if credentials(sock)[1] == os.getuid():
            return sock
    except ConnectionRefusedError:  # nobody listens any more: its run was killed
        with contextlib.suppress(OSError):
            os.unlink(name, dir_fd=folder)
    except BlockingIOError:
        sock.close()
        raise TimeoutError from None
    except OSError:
        pass  # it has ended in this moment, or is no socket
    sock.close()
    return None
