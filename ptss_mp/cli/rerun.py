"""`rerun --failed F`: the jobs file of a journal once more, but for what succeeded."""

from __future__ import annotations

import argparse
import os
from collections import deque

from . import journal
from .exits import CommandError, Exit
from .ledger import Ledger
from .run import run


def rerun(args: argparse.Namespace) -> int:
    """Run it; return the exit status."""
    args.jobs = _jobs_file(args.journal)
    return run(args)


def _jobs_file(path: str) -> str:
    """Return what ran last with a journal, absolute; what it says is believed if only this user can have written it.

    Raises:
        CommandError: no journal, of no jobs file, of one that is not there; another has it open.
    """
    from ..errors import JournalError
    from ..journal.place import Place

    with Ledger(path) as ledger:
        last = deque(ledger.runs(), maxlen=1)
    try:
        Place(os.path.abspath(path)).close()
    except JournalError as error:
        raise journal.cannot(error) from None
    program = last[0].program if last else ""
    if not last or not last[0].digest:
        again = f"{program!r}: run that once more (map: with --resume-failed)" if program else "nobody knows what"
        raise CommandError(Exit.BAD_FILE, f"{path}: the journal is of no jobs file, but of {again}")
    if not os.path.exists(program):
        raise CommandError(Exit.MISSING, f"{path}: its jobs file {program!r} is not there (any more)")
    return program
