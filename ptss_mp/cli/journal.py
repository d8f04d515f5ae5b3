"""`--journal` of `run` and `map`, and what the faults of a journal are to the command line."""

from __future__ import annotations

import hashlib
import os
from typing import TYPE_CHECKING, Any

from .exits import CommandError, Exit
from .text import say

if TYPE_CHECKING:
    import argparse

    from ..errors import JournalError
    from ..journal.writer import Journal
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
    elif getattr(args, "state", None) is not None:
        raise CommandError(Exit.USAGE, "--state and --journal do not go together: a journal keeps what a run has left")


def given(args: argparse.Namespace) -> dict[str, Any]:
    """Return what an Executor is given of it."""
    return {"journal": args.journal, "resume": "failed" if args.resume_failed else bool(args.resume)}


def begin(pool: RunExecutor, jobs: str) -> None:
    """Start a pool, and with it its journal, if it has one; say so if the jobs file is not what it was.

    Raises:
        CommandError: the journal cannot be used.
    """
    if pool.journal is None:
        return
    path = os.path.abspath(jobs)
    with open(path, "rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    before, digest_before = _start(pool, pool.journal, path, digest)
    if before and digest_before != digest:
        say(f"{jobs} has changed since the run before; what was settled then stands as it is", "WARNING")


def begin_map(pool: RunExecutor, function: str) -> None:
    """Start the pool of a `map`, and with it its journal, if it has one.

    Raises:
        CommandError: the journal cannot be used.
    """
    if pool.journal is not None:
        _start(pool, pool.journal, function, None)


def _start(pool: RunExecutor, journal: Journal, program: str, digest: str | None) -> tuple[str | None, str | None]:
    """Start a pool with its journal; return what ran before, and its digest."""
    from ..errors import JournalError

    journal.program, journal.only_after = (program, digest), os.path.basename(program)
    try:
        pool.start()
    except JournalError as error:
        raise cannot(error) from None
    return journal.before


def fault(pool: RunExecutor) -> str:
    """Return why the journal does not hold all that was done, or ""."""
    journal = pool.journal
    return (journal.lost or journal.failing) if journal else ""


def cannot(error: JournalError) -> CommandError:
    """Return what a journal's fault ends the command with."""
    return CommandError(STATUSES[error.reason], str(error))
