"""The socket of a live run: what it answers, one line of JSON for one line of JSON.

A thread of the command line serves it.  Who connects is this user, for the folder lets nobody else in, and is looked
at all the same; he may be stopped, slow or mad: a request has a bound, a connection an end, and so have their number.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import resource
import select
import socket
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Self

from . import text
from .sockets import REPLY_BYTES_MAX, REQUEST_BYTES_MAX, Listening, credentials

if TYPE_CHECKING:
    from ..future import Future
    from .pool import RunExecutor

SCHEMA = 1
CONNECTIONS_MAX = 16  # served at once; further ones wait
CONNECTION_S = 5.0  # from its begin to its end; a status of a million jobs takes a second at most
READ_BYTES = 4096
OWN_DESCRIPTORS = 4  # its socket, a lock, a bell, one connection


class Live:
    """A live run, as it is seen and steered from outside; called on the thread of the socket.

    Args:
        pool: where its jobs run.
        what: the jobs file, absolute, or module:function.
        grace: of `stop`, if none is given: seconds.
        counts: returns how many jobs have settled, by status.
        named: returns the unsettled jobs of a name.
        title: returns what a job is called.
        total: how many jobs there will be, None: nobody knows.
        until: when it will end by itself (`--until`, `--for`), if that was said.

    Attributes:
        stopped: `stop` was asked for.
    """

    def __init__(
        self,
        pool: RunExecutor,
        what: str,
        grace: float,
        counts: Callable[[], Mapping[str, int]],
        named: Callable[[str], Iterable[Future[Any]]],
        title: Callable[[Future[Any]], str],
        total: int | None,
        until: datetime | None = None,
    ) -> None:
        self.stopped = False
        self._pool, self._what, self._grace, self._total, self._until = pool, what, grace, total, until
        self._counts, self._named, self._title = counts, named, title
        self._began, self._started = time.monotonic(), datetime.now(UTC)

    def answer(self, request: Any, peer: int) -> dict[str, Any]:
        """Do what is asked for; return the reply.

        Args:
            request: what a line of JSON held.
            peer: the pid of who asks.
        """
        from ..errors import PtssError

        verb = request.get("verb") if isinstance(request, dict) else None
        done = {"status": self._status, "pause": self._pause, "resume": self._resume, "cancel": self._cancel,
                "stop": self._stop}.get(verb if isinstance(verb, str) else "")  # fmt: skip
        if done is None:
            return refused("it knows status, pause, resume, cancel and stop")
        try:
            reply = done(request)
        except PtssError as error:
            return refused(str(error))
        if verb != "status" and "told" in reply:
            text.say(f"{reply['told']} (asked for by pid {peer})")
        return {"ok": "error" not in reply, **reply}

    def _status(self, _request: Any) -> dict[str, Any]:
        from ..outcome import instant_text

        now, counts = self._pool.status(), dict(self._counts())
        seconds, done = time.monotonic() - self._began, sum(counts.values())
        return {
            "schema": SCHEMA, "pid": os.getpid(), "what": self._what, "state": now.state.value,
            "started": instant_text(self._started), "until": self._until and instant_text(self._until),
            "seconds": seconds, "total": self._total, "done": done,
            "counts": counts, "rate": done / max(seconds, 1e-3), "waiting": now.waiting, "delayed": now.delayed,
            "ready": now.ready, "running": now.running, "workers": self._pool.worker_states(),
            "jobs": [
                {"name": self._title(future), "pid": pid, "seconds": ran, "progress": told}
                for future, pid, ran, told in self._pool.running_jobs()
            ],
            "recurring": [
                {"name": task.name, "next": (at := task.next_run) and instant_text(at), "runs": task.runs}
                for task in self._pool.recurring()
            ],
        }  # fmt: skip

    def _pause(self, _request: Any) -> dict[str, Any]:
        self._pool.pause()
        return {"told": "paused: nothing new starts, what runs goes on"}

    def _resume(self, _request: Any) -> dict[str, Any]:
        self._pool.resume()
        return {"told": "resumed"}

    def _cancel(self, request: dict[str, Any]) -> dict[str, Any]:
        name = request.get("name")
        if not isinstance(name, str):
            return refused("cancel needs a name")
        futures = list(self._named(name))
        ended = self._pool.end_recurrence(name)  # first: else a further run could be released meanwhile
        cancelled = sum(future.cancel() or future.cancelled() for future in futures)
        if not (cancelled or ended):
            return refused(f"no job named {name!r} is waiting or running")
        told = f"cancelled {name}: {text.count(cancelled, 'job')}" + (", and no further run" if ended else "")
        return {"told": told, "cancelled": cancelled}

    def _stop(self, request: dict[str, Any]) -> dict[str, Any]:
        grace = request.get("grace", self._grace)
        if isinstance(grace, bool) or not isinstance(grace, int | float) or not 0 <= grace <= 1e9:  # NaN too
            return refused("grace must be seconds")
        self.stopped = True
        self._pool.begin_stop(grace)
        return {"told": f"stopping: nothing new starts, running jobs have {grace:g} s"}


def refused(why: str) -> dict[str, Any]:
    """Return the reply to what cannot be done."""
    return {"ok": False, "error": why}


class Connection:
    """A line that comes, and one that goes."""

    def __init__(self, sock: socket.socket, peer: int) -> None:
        self.sock, self.peer = sock, peer
        self.until = time.monotonic() + CONNECTION_S
        self.request, self.reply = b"", b""

    @property
    def waits_for(self) -> int:
        return select.POLLOUT if self.reply else select.POLLIN

    def go_on(self, answer: Callable[[Any, int], dict[str, Any]]) -> bool:
        """Read or write what can be; return True when it is over."""
        try:
            if not self.reply and not self._hear(answer):
                return True
            if self.reply:  # at once: what was asked for may be the end of the run
                self.reply = self.reply[self.sock.send(self.reply) :]
                return not self.reply
        except BlockingIOError:
            pass
        except OSError:
            return True  # it has gone
        return False

    def _hear(self, answer: Callable[[Any, int], dict[str, Any]]) -> bool:
        """Read; answer a whole line; return False if none will come."""
        data = self.sock.recv(READ_BYTES)
        self.request += data
        line, end, _ = self.request.partition(b"\n")
        if end:
            self.reply = _reply(line, self.peer, answer)
        elif len(self.request) > REQUEST_BYTES_MAX:
            self.reply = _line(refused(f"a request has {REQUEST_BYTES_MAX} bytes at most"))
        return bool(data)


def _reply(line: bytes, peer: int, answer: Callable[[Any, int], dict[str, Any]]) -> bytes:
    try:
        request = json.loads(line)
    except (ValueError, RecursionError):
        return _line(refused("a request is a line of JSON"))
    try:
        return _line(answer(request, peer))
    except Exception as error:  # the run goes on, whatever was wrong with the answer
        return _line(refused(f"our own fault: {type(error).__name__}: {error}"))


def _line(reply: dict[str, Any]) -> bytes:
    line = json.dumps(reply).encode() + b"\n"
    return line if len(line) <= REPLY_BYTES_MAX else _line(refused("the reply would be too long"))


def _check_room() -> None:
    """Leave the descriptors to the jobs where they are just enough for these."""
    from ..shell.hire import DESCRIPTORS_MIN

    allowed, needed = resource.getrlimit(resource.RLIMIT_NOFILE)[0], DESCRIPTORS_MIN + OWN_DESCRIPTORS
    if 0 <= allowed < needed:
        raise OSError(errno.EMFILE, f"{allowed} open files are allowed (ulimit -n), with a socket {needed} are needed")


class Control:
    """Serves the socket of a run while it lasts (a context manager); a run without one goes on all the same."""

    def __init__(self, live: Live) -> None:
        self._live = live
        self._listening: Listening | None = None
        self._connections: dict[int, Connection] = {}
        self._thread: threading.Thread | None = None

    def __enter__(self) -> Self:
        try:
            _check_room()
            self._listening = Listening()
        except OSError as error:
            text.say(f"ptss-mp status and stop will not find this run: {error.strerror or error}", "WARNING")
            return self
        self._ends = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._thread = threading.Thread(target=self._run, name="ptss-mp-control", daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._thread and self._listening:
            os.eventfd_write(self._ends, 1)
            self._thread.join()
            self._listening.close()
            os.close(self._ends)

    def _run(self) -> None:
        while self._turn():
            pass
        for connection in self._connections.values():
            connection.sock.close()

    def _turn(self) -> bool:
        """Wait, serve what is ready; return False at the end."""
        assert self._listening
        poll, listener = select.poll(), self._listening.sock.fileno()
        poll.register(self._ends, select.POLLIN)
        if len(self._connections) < CONNECTIONS_MAX:
            poll.register(listener, select.POLLIN)
        for fd, connection in self._connections.items():
            poll.register(fd, connection.waits_for)
        soonest = min((c.until for c in self._connections.values()), default=None)
        wait = None if soonest is None else max(0.0, soonest - time.monotonic()) * 1000
        ready = [fd for fd, _ in poll.poll(wait)]
        if self._ends in ready:
            return False
        for fd in ready:
            if fd == listener:
                self._accept(self._listening.sock)
            elif self._connections[fd].go_on(self._live.answer):
                self._connections.pop(fd).sock.close()
        now = time.monotonic()
        for fd in [fd for fd, connection in self._connections.items() if connection.until <= now]:
            self._connections.pop(fd).sock.close()
        return True

    def _accept(self, listener: socket.socket) -> None:
        try:
            sock, _ = listener.accept()
        except BlockingIOError:
            return
        except OSError:  # no descriptor is left: not at once again
            time.sleep(0.1)
            return
        with contextlib.suppress(OSError):
            pid, uid, _ = credentials(sock)
            if uid in (os.getuid(), 0):
                sock.setblocking(False)
                self._connections[sock.fileno()] = Connection(sock, pid)
                return
        sock.close()
