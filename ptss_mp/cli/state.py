"""`--state F`: what a stopped run has left, for the next run to take up.

The file is there only while something is left; so a run that ends takes it
away, and the next one begins afresh.
"""

from __future__ import annotations

import contextlib
import json
import os
import stat
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from . import files
from .exits import CommandError, Exit

SCHEMA = 1
WHAT = "the state"
BYTES_MAX = 1 << 30  # ten million jobs with long names; a larger file is no state


@dataclass(frozen=True, slots=True)
class Left:
    """What an earlier run has left.

    Attributes:
        names: of the jobs that did not run, in order.
        ended: how the others ended, by name.
    """

    names: tuple[str, ...]
    ended: Mapping[str, str] = field(default_factory=dict)


def read(path: str, jobs: str) -> Left | None:
    """Return what a state file says, None if there is none.

    Args:
        jobs: the jobs file, absolute: a state belongs to one.

    Raises:
        CommandError: bad file, no permission.
    """
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)  # a FIFO would block
    except FileNotFoundError:
        return None
    except PermissionError:
        raise CommandError(Exit.NO_PERMISSION, f"no permission to read {WHAT} {path!r}") from None
    except (OSError, ValueError) as error:
        raise files.cannot(path, WHAT, error) from None
    try:
        found = os.fstat(fd)
        if not stat.S_ISREG(found.st_mode):
            raise CommandError(Exit.CANNOT_CREATE, f"cannot create {WHAT} {path!r}: something else is there")
        if found.st_size > BYTES_MAX:
            raise _bad(path, f"it has {found.st_size} bytes, the most is {BYTES_MAX}")
        with open(fd, "rb", closefd=False) as file:
            return _understood(path, file.read(BYTES_MAX), jobs)
    except OSError as error:
        raise _bad(path, f"it cannot be read: {error.strerror or error}") from None
    finally:
        os.close(fd)


def _understood(path: str, data: bytes, jobs: str) -> Left:
    try:
        state: Any = json.loads(data)
    except (ValueError, RecursionError):
        raise _bad(path, "it is not JSON") from None
    if not isinstance(state, dict) or state.get("schema") != SCHEMA:
        raise _bad(path, f'it has no "schema": {SCHEMA}')
    names, ended = state.get("left"), state.get("ended")
    if not (isinstance(names, list) and isinstance(ended, dict) and _all_text(names) and _all_text(ended.values())):
        raise _bad(path, '"left" must be a list of names, "ended" must hold a status for each name')
    if state.get("file") != jobs:
        raise _bad(path, f"it is of {state.get('file')!r}, not of {jobs!r}")
    return Left(tuple(names), ended)


def _all_text(values: Iterable[Any]) -> bool:
    return all(isinstance(value, str) for value in values)


def _bad(path: str, why: str) -> CommandError:
    return CommandError(Exit.BAD_FILE, f"{path!r} is no state of this run: {why}; without it all begins afresh")


def check_names(path: str, left: Left, there: Collection[str]) -> None:
    """Refuse a state that speaks of jobs which the file does not have.

    Raises:
        CommandError: bad file.
    """
    for name in left.names:
        if name not in there:
            raise _bad(path, f"it has left {name!r}, which the file does not declare (any more)")


def write(path: str, jobs: str, names: tuple[str, ...], ended: Mapping[str, str], number: int | None) -> None:
    """Write what is left, or take the file away if that is nothing.

    Args:
        jobs: the jobs file, absolute.
        names: of the jobs that did not run.
        ended: how the others ended.
        number: the signal that stopped the run.

    Raises:
        CommandError: cannot create.
    """
    if not names:
        try:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(os.path.realpath(path))  # as it is written; a link to it stays for the next time
        except OSError as error:
            raise CommandError(Exit.CANNOT_CREATE, f"cannot take away {WHAT} {path!r}: {error.strerror}") from None
        return
    from ..outcome import instant_text

    head = {"schema": SCHEMA, "file": jobs, "stopped": instant_text(datetime.now(UTC)), "signal": number}
    files.write(path, WHAT, head | {"left": names, "ended": ended})
