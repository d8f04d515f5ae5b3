"""Arguments and dispatch.  Imports little, so that `--help` is quick."""

from __future__ import annotations

import argparse
import contextlib
import errno
import os
import sys
from collections.abc import Sequence

from . import text
from .exits import CommandError, Exit
from .parsers import parse

SHORTAGES = frozenset((errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EAGAIN))
# Without a class or number of its own: no process for a thread, no memory for an extension module or its start.
SHORTAGE_WORDS = (
    "RuntimeError: can't start new thread",
    "failed to map segment from shared object",
    "raised unreported exception",
    "error return without exception set",
)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the program; return its exit status."""
    _open_streams()
    text.speak_json(False)
    try:
        args = parse(argv)
        status = int(_dispatch(args))
    except CommandError as error:
        status = text.failed(error)
    except SystemExit as end:  # argparse, after --help
        status = int(end.code or 0)
    except KeyboardInterrupt:
        status = Exit.SIGNALLED + 2
    except Exception as error:
        if os.environ.get("PTSS_MP_DEBUG"):
            raise
        status = _unexpected(error)
    try:
        text.emit("")  # what is still buffered fails here, not in the interpreter's last breath
    except OSError as error:
        if status != Exit.IO_ERROR:  # else that was said
            text.say(f"ptss-mp: cannot write to stdout: {error.strerror or error}", "ERROR")
        status = status or Exit.IO_ERROR
    _drop_unwritten()
    return status


def _drop_unwritten() -> None:
    """Let the interpreter's last flush succeed: what cannot be written stays unwritten, or the status would be 120."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError):
            with contextlib.suppress(OSError, ValueError):
                nothing = os.open(os.devnull, os.O_WRONLY)
                os.dup2(nothing, stream.fileno())
                os.close(nothing)


def _unexpected(error: Exception) -> int:
    """Say what nobody reckoned with: the machine is full, or we are to blame; return the exit status."""
    what = f"{type(error).__name__}: {error}"
    full = isinstance(error, MemoryError) or (isinstance(error, OSError) and error.errno in SHORTAGES)
    full = full or (isinstance(error, SyntaxError) and not _is_written_wrong(error))
    if full or any(words in what for words in SHORTAGE_WORDS):
        text.say(f"ptss-mp: this machine has no room for it: {what}{_few_descriptors(error)}", "ERROR")
        return Exit.CANNOT_CREATE
    how = "please report it, with what PTSS_MP_DEBUG=1 in the environment shows"
    text.say(f"ptss-mp: our own fault: {what}; {how}", "CRITICAL")
    return Exit.OUR_FAULT


def _few_descriptors(error: Exception) -> str:
    """Return what else there is to say if it was descriptors that were short."""
    if not isinstance(error, OSError) or error.errno != errno.EMFILE:
        return ""
    import resource

    from ..shell.hire import DESCRIPTORS_MIN

    allowed = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return f"; {allowed} open files are allowed (ulimit -n), {DESCRIPTORS_MIN} are needed at least"


def _is_written_wrong(error: SyntaxError) -> bool:
    """Return False if the file is as it should be: it was compiled where memory ended, which is told so too (3.11)."""
    try:
        with open(error.filename or "", "rb") as file:
            compile(file.read(), error.filename or "", "exec")
    except SyntaxError as again:
        return (again.msg, again.lineno) == (error.msg, error.lineno)  # else memory is still short
    except OSError:  # it is none: a text that we have made
        return True
    except MemoryError:
        pass
    return False


def _dispatch(args: argparse.Namespace) -> int:
    if args.command == "check":
        from .check import check

        return check(args)
    if args.command == "doctor":
        from .doctor import doctor

        return doctor(args)
    if args.command == "map":
        from .map_items import map_items

        return map_items(args)
    if args.command == "exec":
        from .execute import execute

        return execute(args)
    if args.command in ("status", "pause", "resume", "cancel", "stop"):
        from .remote import ask

        return ask(args)
    if args.command in ("failures", "history", "explain"):
        from . import history

        return int(getattr(history, args.command)(args))
    if args.command == "rerun":
        from .rerun import rerun

        return rerun(args)
    from .run import run

    return run(args)


def _open_streams() -> None:
    """Make the three standard descriptors stand, so that no file of ours gets their numbers."""
    while (fd := os.open(os.devnull, os.O_RDWR)) <= 2:
        os.set_inheritable(fd, True)
    os.close(fd)
    for name, number in (("stdout", 1), ("stderr", 2)):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, open(number, "w", closefd=False))  # noqa: SIM115 - for good
        elif hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
