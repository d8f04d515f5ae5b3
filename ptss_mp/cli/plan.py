"""From the path of a jobs file to its plan: look at it, import it in a worker, compile."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from .exits import CommandError, Exit
from .signals import Interrupts
from .text import say, visible, where

if TYPE_CHECKING:
    from ..jobsfile import Plan
    from ..outcome import Outcome
    from .pool import RunExecutor

IMPORT_S_MAX = 60  # a file that takes longer to import loops


def check_path(path: str) -> None:
    """Refuse what cannot be a jobs file; only a regular one is opened, for a FIFO would block.

    Raises:
        CommandError: bad file, missing, or no permission.
    """
    try:
        os.path.abspath(path)  # needs the current folder if the path is relative
        found = os.stat(path)
    except PermissionError:
        raise CommandError(Exit.NO_PERMISSION, f"{path}: no permission to look at it") from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise CommandError(Exit.MISSING, f"{path}: {reason}") from None
    if not stat.S_ISREG(found.st_mode):
        kind = "a directory" if stat.S_ISDIR(found.st_mode) else "no regular file"
        raise CommandError(Exit.BAD_FILE, f"{path}: a jobs file is a Python file, this is {kind}")
    if found.st_size == 0:
        raise CommandError(Exit.BAD_FILE, f"{path}: the file is empty")
    try:
        os.close(os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK))  # access(2) would answer for another user
    except PermissionError:
        raise CommandError(Exit.NO_PERMISSION, f"{path}: no permission to read it") from None
    except OSError as error:
        raise CommandError(Exit.MISSING, f"{path}: {error.strerror or error}") from None


def read(path: str, interrupts: Interrupts) -> Plan:
    """Return the plan of a jobs file, imported in a worker of a pool of its own.

    Raises:
        CommandError: bad file, or a signal came.
    """
    from ..errors import InvalidOption
    from ..jobsfile import compile_jobs, describe

    absolute = os.path.abspath(path)
    try:
        outcome = imported(interrupts, os.path.basename(path), absolute, describe, absolute)
        plan = compile_jobs(outcome.result())
    except (InvalidOption, CommandError) as error:
        status = error.status if isinstance(error, CommandError) else Exit.BAD_FILE
        raise CommandError(status, str(error).replace(absolute, path)) from None
    if interrupts.number is not None:
        raise CommandError(Exit.SIGNALLED + interrupts.number, "")
    tell_import(outcome)
    return plan


def tell_import(outcome: Outcome[Any]) -> None:
    """Say what an import printed; stdout is for jobs."""
    if outcome.stderr:
        for line in outcome.stderr.removesuffix("\n").split("\n"):
            say(line)


def imported(
    interrupts: Interrupts, name: str, where: str, describe: Callable[..., Any], *args: str
) -> Outcome[dict[str, Any]]:
    """Let `describe` import code and say what it found, in a worker of a pool of its own; it has succeeded.

    Args:
        name: of what is imported.
        where: its place, if no better one is known.

    Raises:
        CommandError: the import ended its worker, no worker can be had, or a signal came.
    """
    from .pool import RunExecutor

    pool = RunExecutor(max_workers=1, spares=0, capture=True)
    interrupts.turn_to(pool, importing=True)
    try:
        return _imported(pool, interrupts, name, where, describe, args)
    finally:
        pool.kill_workers()  # a file may have left threads; nobody waits for them
        pool.shutdown()


def _imported(
    pool: RunExecutor, interrupts: Interrupts, name: str, where: str, describe: Callable[..., Any], args: Any
) -> Outcome[Any]:
    from ..errors import ExecutorClosed, PoolBroken

    try:
        view = pool.options(name=visible(f"import of {name}")[:1000], timeout=IMPORT_S_MAX)
        outcome = view.submit(describe, *args).outcome()
        if interrupts.number is None and not outcome.ok:
            if pool.why_broken:
                raise CommandError(Exit.CANNOT_CREATE, f"no worker can be started: {pool.why_broken}")
            raise _refused(outcome, where)
        if interrupts.number is None:
            return outcome
    except PoolBroken as error:
        raise CommandError(Exit.CANNOT_CREATE, f"no worker can be started: {error}") from None
    except ExecutorClosed:
        if interrupts.number is None:
            raise
    raise CommandError(Exit.SIGNALLED + (interrupts.number or 0), "")


def _refused(outcome: Outcome[Any], path: str) -> CommandError:
    """Return the error for an import that ended its worker: crash, exit, hang."""
    from ..outcome import Status, signal_name

    at = where(outcome.stack, path).partition(" in ")[0] or path
    if outcome.status is Status.TIMEOUT:
        what = f"its import has not ended after {IMPORT_S_MAX} s"
    elif outcome.signal is not None:
        what = f"its import ended the process by {signal_name(outcome.signal)}"
    elif outcome.exit_code is not None:
        what = f"its import ended the process with exit status {outcome.exit_code}"
    else:
        what = f"it cannot be described: {outcome.error}"
    return CommandError(Exit.BAD_FILE, f"{at}: {what}")
