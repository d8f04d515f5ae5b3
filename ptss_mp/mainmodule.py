"""What runs in warden and workers before any job: the main module, preloads, the initializer; and what it raised."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from . import wire
from .codec import describe
from .pipes import FELL_THROUGH, write_all
from .wire import ANSWERS


def tried(call: Callable[[], object]) -> BaseException | None:
    """Call what is the program's own; return what it raised, None if nothing.

    It may fork, and the child come back here: that is no second warden or worker, and ends.
    """
    pid, error = os.getpid(), None
    try:
        call()
    except BaseException as raised:
        error = raised
    if os.getpid() != pid:
        os._exit(FELL_THROUGH)
    return error


def import_main(data: dict[str, Any]) -> None:
    """Import the program's `__main__` as `__mp_main__`, as multiprocessing's spawn does.

    Args:
        data: of `multiprocessing.spawn.get_preparation_data`.
    """
    from multiprocessing import spawn

    wire.importing_main = True
    try:
        spawn.prepare(data)
    finally:
        wire.importing_main = False


def tell(error: BaseException) -> None:
    """Send the frame of a worker that cannot work, and why; the parent always reads."""
    blob = describe(error, keep=False)
    write_all(ANSWERS.pack(0, len(blob)) + blob)
