"""`status`, `pause`, `resume`, `cancel`, `stop`: asking a live run over its socket."""

from __future__ import annotations

import argparse
import json
import os
import socket
import time
from typing import Any, NamedTuple

from . import text
from .exits import CommandError, Exit
from .sockets import REPLY_BYTES_MAX, live, unanswered

ANSWER_S = 10.0  # a run that has not answered by then is stopped, or its machine is
JOBS_SHOWN = 20  # running jobs in words; `--json` has all


class Run(NamedTuple):
    """A live run: where it listens, and what it said of itself."""

    pid: int
    status: dict[str, Any]


def ask(args: argparse.Namespace) -> int:
    """Do what the command says; return the exit status."""
    if args.command == "status":
        return _show(args)
    request: dict[str, Any] = {"verb": args.command}
    if args.command == "cancel":
        request["name"] = args.name
    if args.command == "stop" and args.grace is not None:
        request["grace"] = args.grace
    run = _the_one(args)
    reply = _asked_again(run.pid, request)
    if not reply.get("ok"):
        missing = args.command == "cancel" and "no job named" in str(reply.get("error"))
        raise CommandError(Exit.MISSING if missing else Exit.FAILED, f"pid {run.pid}: {reply.get('error')}")
    text.say(f"pid {run.pid}: {reply.get('told')}")
    return Exit.OK


def _found(args: argparse.Namespace) -> list[Run]:
    """Return the live runs that are meant.

    Raises:
        CommandError: there is none, or one does not answer.
    """
    wanted = args.run
    runs = [Run(pid, _asked(sock, pid, {"verb": "status"})) for pid, sock in live(args.pid)]
    if wanted is not None:
        runs = [run for run in runs if run.status.get("what") in (wanted, os.path.abspath(wanted))]
    if not runs:
        which = f" of {wanted}" if wanted is not None else f" with pid {args.pid}" if args.pid is not None else ""
        raise CommandError(Exit.MISSING, f"there is no live run{which}")
    return runs


def _the_one(args: argparse.Namespace) -> Run:
    runs = _found(args)
    if len(runs) > 1:
        told = ", ".join(f"{run.pid} ({run.status.get('what')})" for run in runs)
        raise CommandError(Exit.USAGE, f"several runs are live: {told}; say which with --pid")
    return runs[0]


def _asked_again(pid: int, request: dict[str, Any]) -> dict[str, Any]:
    for _, sock in live(pid):
        return _asked(sock, pid, request)
    raise CommandError(Exit.MISSING, f"there is no live run with pid {pid} any more")


def _asked(sock: socket.socket, pid: int, request: dict[str, Any]) -> dict[str, Any]:
    """Send a request, return the reply; closes the socket.

    Raises:
        CommandError: it does not answer.
    """
    until, data = time.monotonic() + ANSWER_S, b""
    with sock:
        try:
            sock.settimeout(ANSWER_S)
            sock.sendall(json.dumps(request).encode() + b"\n")
            while not data.endswith(b"\n") and len(data) <= REPLY_BYTES_MAX:
                sock.settimeout(max(0.001, until - time.monotonic()))
                part = sock.recv(1 << 16)
                if not part:
                    break
                data += part
            reply = json.loads(data)
        except TimeoutError:
            raise unanswered(pid) from None
        except (OSError, ValueError) as error:
            raise CommandError(Exit.BUSY, f"the run with pid {pid} gave no answer: {error}") from None
    if not isinstance(reply, dict):
        raise CommandError(Exit.BUSY, f"the run with pid {pid} gave no answer")
    return reply


# ---- status, in words.


def _show(args: argparse.Namespace) -> int:
    runs = _found(args)
    if args.json:
        text.emit_all("".join(json.dumps(run.status) + "\n" for run in runs))
        return Exit.OK
    text.emit_all("".join(line + "\n" for run in runs for line in _told(run.status)))
    return Exit.OK


def _told(status: dict[str, Any]) -> list[str]:
    """Return what a run said of itself, as lines; it is of our own making, so it is as it should be."""
    total, done = status["total"], status["done"]
    ends = ", ".join(f"{number} {name}" for name, number in status["counts"].items())
    lines = [
        f"{status['what']}: pid {status['pid']}, {status['state']} for {text.seconds(status['seconds'])}",
        f"  settled: {done}" + (f" of {total}" if total is not None else "") + (f" ({ends})" if ends else "")
        + f", {status['rate']:.1f} jobs/s",
        "  others: " + ", ".join(f"{status[name]} {name}" for name in ("running", "ready", "waiting", "delayed")),
        "  workers: " + (", ".join(f"{number} {name}" for name, number in status["workers"].items()) or "none"),
    ]  # fmt: skip
    if status["until"]:
        lines.append(f"  until: {status['until']}")
    for task in status["recurring"]:
        over = f"{text.count(task['runs'], 'run')} over"
        lines.append(f"  {task['name']}: {over}, the next at {task['next'] or '(not known)'}")
    jobs = sorted(status["jobs"], key=lambda job: -job["seconds"])
    for job in jobs[:JOBS_SHOWN]:
        told = f" | {job['progress']}" if job["progress"] else ""
        lines.append(f"  {job['name']}: pid {job['pid']}, {text.seconds(job['seconds'])}{told}")
    if len(jobs) > JOBS_SHOWN:
        lines.append(f"  and {len(jobs) - JOBS_SHOWN} more run")
    return [text.visible(line) for line in lines]
