"""The job of `exec`: a command as a child of the worker, on the streams of the program.

A worker imports this module, so it imports little.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
from typing import Any

NOT_STARTED = 1000  # + errno: it could not be started; a status is at most 255
FORWARDED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def run(command: list[str], address: bytes) -> int:
    """Run a command to its end; return its status, -n after signal n, or `NOT_STARTED` + errno.

    The limits of a job hold for the worker and all that it starts, so for the command and all that that starts.

    Args:
        address: of the socket that hands over the program's three streams.
    """
    streams = _streams(address)
    child: subprocess.Popen[bytes] | None = None
    early: list[int] = []

    def forward(number: int, _frame: Any) -> None:
        if child is None:
            early.append(number)
        else:
            child.send_signal(number)

    for number in FORWARDED:
        signal.signal(number, forward)
    try:
        child = subprocess.Popen(command, stdin=streams[0], stdout=streams[1], stderr=streams[2])
    except (OSError, ValueError) as error:  # ValueError: a NUL in it
        return NOT_STARTED + (getattr(error, "errno", None) or 22)
    finally:
        for fd in streams:  # so that the readers of what the command closes see its end
            os.close(fd)
    for came in early:
        child.send_signal(came)
    return child.wait()


def _streams(address: bytes) -> list[int]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC) as sock:
        sock.connect(address)
        return socket.recv_fds(sock, 1, 3)[1]
