"""`run --journal`: the journal of a jobs file, and what its faults are to the command line."""

from __future__ import annotations

import hashlib
import os
from typing import TYPE_CHECKING, Any

from .exits import CommandError, Exit
from .text import say

if TYPE_CHECKING:
    import argparse

    from ..errors import JournalError
    from .pool import RunExecutor

STATUSES = {
    "bad": Exit.BAD_FILE, "busy": Exit.BUSY, "used": Exit.CANNOT_CREATE, "create": Exit.CANNOT_CREATE,
    "permission": Exit.NO_PERMISSION, "io": Exit.IO_ERROR,
}  # fmt: skip


def check(args: argparse.Namespace) -> None:
    """Refuse options that do not go together.

    Raises:
        CommandError: usage.
    """
    if args.journal is None:
        if args.resume or args.resume_failed:
            raise CommandError(Exit.USAGE, "--resume and --resume-failed need --journal F")
    elif not args.journal or "\0" in args.journal:
        raise CommandError(Exit.USAGE, f"--journal must be a file's name, not {args.journal!r}")
    elif args.state is not None:
        raise CommandError(Exit.USAGE, "--state and --journal do not go together: a journal keeps what a run has left")


def given(args: argparse.Namespace) -> dict[str, Any]:
    """Return what an Executor is given of it."""
    return {"journal": args.journal, "resume": "failed" if args.resume_failed else bool(args.resume)}


def begin(pool: RunExecutor, jobs: str) -> None:
    """Start a pool, and with it its journal; say so if the jobs file is not what it was.

    Raises:
        CommandError: the journal cannot be used.
    """
    from ..errors import JournalError

    journal = pool.journal
    if journal is None:
        return
    path = os.path.abspath(jobs)
    with open(path, "rb") as file:
        journal.program = path, hashlib.file_digest(file, "sha256").hexdigest()
    journal.only_after = os.path.basename(path)
    try:
        pool.start()
    except JournalError as error:
        raise cannot(error) from None
    before, digest = journal.before
    if before and digest != journal.program[1]:
        say(f"{jobs} has changed since the run before; what was settled then stands as it is", "WARNING")


def cannot(error: JournalError) -> CommandError:
    """Return what a journal's fault ends the command with."""
    return CommandError(STATUSES[error.reason], str(error))
