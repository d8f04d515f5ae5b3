"""`exec [limits] -- COMMAND...`: a command as one job, ending with the command's own status."""

from __future__ import annotations

import argparse
import contextlib
import errno
import json
import os
import secrets
import select
import signal
import socket
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from .. import wire
from ..handlers import Handlers
from . import command, files, text
from .exits import CommandError, Exit
from .limits import task_options
from .sockets import credentials

if TYPE_CHECKING:
    from ..future import Future
    from ..outcome import Outcome
    from .pool import RunExecutor

WHAT = "the outcome"
TIMED_OUT, OUR_FAULT, NOT_EXECUTABLE, NOT_FOUND, LIMITED = 124, 125, 126, 127, 137  # as `timeout` and `env` have them
LOOK_S = 0.2


class Forwarding(Handlers):
    """The first signal goes to the command, the second kills it with all that it started, the third leaves.

    The command runs in a session of its own: what a terminal sends to its foreground does not reach it otherwise.
    """

    def __init__(self, pool: RunExecutor) -> None:
        super().__init__(self._act)
        self._pool = pool
        self.future: Future[Any] | None = None
        self.killed = False

    def _act(self, number: int, seen: int) -> None:
        if seen > 2:
            os._exit(Exit.SIGNALLED + (self.number or number))  # the warden ends all that still runs
        name = signal.Signals(number).name
        if seen == 1 and self.future and self._pool.send_signal(self.future, number):
            text.say(f"{name}: sent to the command; once more kills it")
            return
        self.killed = True
        text.say(f"{name}: killing what runs")
        self._pool.kill_workers()


def execute(args: argparse.Namespace) -> int:
    """Run the command; return its status."""
    from ..errors import ExecutorClosed, PoolBroken
    from .pool import RunExecutor

    if not args.behind:
        raise CommandError(Exit.USAGE, "exec takes a command behind -- (see ptss-mp exec --help)")
    options = task_options(args)
    if args.json:
        files.check(args.json, WHAT)
    pool = RunExecutor(max_workers=1, spares=0, capture=True)
    with Forwarding(pool) as signals:
        try:
            with _Streams() as streams:
                view = pool.options(name=text.visible(args.behind[0])[:1000] or "''", **options)
                future = signals.future = view.submit(command.run, args.behind, streams.address)
                future.add_done_callback(streams.not_wanted)
                streams.hand_over()
                outcome = future.outcome()  # it has settled
        except (ExecutorClosed, PoolBroken) as error:  # a signal came, or no worker can be had
            status = Exit.SIGNALLED + signals.number if signals.number else OUR_FAULT
            raise CommandError(status, "" if signals.number else str(error)) from None
        finally:
            pool.kill_workers()  # what the command has left behind
            pool.shutdown()
    killed_by = signals.number if signals.killed else None
    return _told(args, *_understood(outcome, killed_by))


class _Streams:
    """A socket that gives the program's three streams to the worker of the command.

    A worker's own stdin is empty, and what it prints is kept; so the very descriptors are handed on, once, and what
    the command reads and writes is between it and whoever is at their other ends.  The socket has a random name
    without a file, and nobody but this user is served.
    """

    def __init__(self) -> None:
        self._sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
        self.address = b"\0ptss_mp-" + secrets.token_hex(16).encode()
        self._sock.bind(self.address)
        self._sock.listen(1)
        self._settled = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)

    def __enter__(self) -> _Streams:
        return self

    def __exit__(self, *_: object) -> None:
        self._sock.close()
        os.close(self._settled)

    def not_wanted(self, _future: object) -> None:
        """The job has settled: nobody will ask any more."""
        with contextlib.suppress(OSError):  # closed: they were handed over long ago
            os.eventfd_write(self._settled, 1)

    def hand_over(self) -> None:
        """Give the streams to the worker once it asks; return when the job has settled.

        With a look now and then: a signal that comes while the handler of the last one ends is handled by Python when
        the main thread does the next thing, and it waits here (seen with a second Ctrl-C: every other one was lost).
        """
        wanted = [self._sock.fileno(), self._settled]
        while self._settled not in (ready := select.select(wanted, [], [], LOOK_S)[0]):
            if ready and self._give():
                wanted = [self._settled]

    def _give(self) -> bool:
        """Serve who has connected; return True if that was the worker."""
        peer, _ = self._sock.accept()
        with peer:
            _, uid, _ = credentials(peer)
            if uid != os.getuid():
                return False
            with contextlib.suppress(OSError):  # it died in this moment: the job tells
                socket.send_fds(peer, [b"3"], [0, 1, 2])
        return True


def _understood(outcome: Outcome[Any], killed_by: int | None) -> tuple[int, str, Outcome[Any]]:
    """Return the exit status, what is to be said of it, and the outcome as the command's, not as that of our job."""
    from ..outcome import Status, signal_name

    status = outcome.status
    if killed_by is not None:
        return Exit.SIGNALLED + killed_by, "", outcome
    if status is Status.TIMEOUT:
        return TIMED_OUT, f"{outcome.error}", outcome
    if status in (Status.MEMORY, Status.CPU) or (status is Status.CRASHED and outcome.limit is not None):
        return LIMITED, f"{status.value}: {outcome.error}", outcome
    if status is Status.CRASHED and outcome.signal is not None:
        return Exit.SIGNALLED + outcome.signal, f"{outcome.error}", outcome
    kind, ended = outcome._value
    if not outcome.ok or kind > wire.BOOL or type(ended) is not int:  # a pickle is none of ours, and is not decoded
        return OUR_FAULT, f"{status.value}: {outcome.error}", outcome
    if ended == 0:
        return 0, "", outcome
    if ended >= command.NOT_STARTED:
        why = os.strerror(ended - command.NOT_STARTED)
        missing = ended - command.NOT_STARTED == errno.ENOENT
        failed = replace(outcome, status=Status.FAILED, error=f"it could not be started: {why}")
        return NOT_FOUND if missing else NOT_EXECUTABLE, f"{outcome.name}: {why}", failed
    if ended < 0:
        error = f"it was killed by {signal_name(-ended)}"
        number = signal.Signals(-ended) if -ended in {*signal.Signals} else None
        return Exit.SIGNALLED - ended, "", replace(outcome, status=Status.CRASHED, signal=number, error=error)
    return ended, "", replace(outcome, status=Status.FAILED, exit_code=ended, error=f"its exit status was {ended}")


def _told(args: argparse.Namespace, status: int, why: str, outcome: Outcome[Any]) -> int:
    """Say why a command was ended or could not begin; write the outcome, if that was asked for."""
    if why:
        text.say(f"ptss-mp: {why}", "ERROR")
    if args.json is not None:
        ours = dict.fromkeys(("key", "stack", "stdout", "stderr"))  # of the job, which is not what was asked for
        facts = outcome.as_dict() | ours | {"command": args.behind, "exit_status": status}
        if args.json:
            files.write(args.json, WHAT, facts)
        else:
            text.say(json.dumps(facts), whole=True)
    return status
