"""What the jobs of test_retries.py do: each attempt notes itself in a file, and knows by it which one it is."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import deeds
import hogs

from ptss_mp import current


class Busy(ConnectionError):
    pass


class Picky(type):
    def __instancecheck__(cls, instance: Any) -> bool:
        raise RuntimeError("ask somebody else")


class Unasked(Exception, metaclass=Picky):
    pass


def _raise(name: str) -> None:
    raise {"busy": Busy, "value": ValueError, "exit": SystemExit, "unasked": Unasked}[name](name)


DEEDS = {
    "crash": os.abort,
    "leave": lambda: os._exit(0),
    "hang": lambda: time.sleep(deeds.HANG),
    "glutton": lambda: hogs.HOGS["blocks"](),
    "burner": lambda: hogs.burn(deeds.HANG),
}


def by_plan(log: str, *plan: str) -> int:
    """Do in each attempt what the plan says; behind its end return how many were made."""
    deeds.note(log, f"{time.monotonic_ns()} {os.getpid()} {current().attempt}")  # type: ignore[union-attr]
    made = len(Path(log).read_text().splitlines())
    if made > len(plan):
        return made
    deed = plan[made - 1]
    DEEDS[deed]() if deed in DEEDS else _raise(deed)
    return 0


def item(log: str, *plan: str) -> int:
    """As `by_plan`, for an item of a map."""
    return by_plan(log, *plan)
