"""The program's main module in warden and workers, and how a worker tells what keeps it from its work."""

from __future__ import annotations

from typing import Any

from . import wire
from .codec import describe
from .pipes import write_all
from .wire import ANSWERS


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
