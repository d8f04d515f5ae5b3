"""Unix sockets of the command line: who is at the other end, and where those of live runs are found."""

from __future__ import annotations

import socket
import struct

CREDENTIALS = struct.Struct("iII")  # pid, uid, gid


def credentials(peer: socket.socket) -> tuple[int, int, int]:
    """Return pid, uid, gid of who has connected (unix(7), SO_PEERCRED)."""
    pid, uid, gid = CREDENTIALS.unpack(peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, CREDENTIALS.size))
    return pid, uid, gid
