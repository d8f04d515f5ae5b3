"""Pools that are always ended, and gates for jobs to wait at."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from support import CAP_S, within

from ptss_mp import Executor


@pytest.fixture
def pool() -> Iterator[Callable[..., Executor]]:
    """Make Executors as the test asks; what still runs at its end is killed."""
    made: list[Executor] = []

    def make(*args: Any, **kwargs: Any) -> Executor:
        made.append(Executor(*args, **{"preload": ["deeds"]} | kwargs))
        return made[-1]

    yield make
    while made:  # and forgotten: an Executor's last descriptor goes with it
        within(CAP_S, made.pop().kill_workers)


class Gate:
    """A fifo at which jobs wait (`deeds.gate`); each `open` lets one through."""

    def __init__(self, path: Path) -> None:
        os.mkfifo(path)
        self.path = str(path)
        self._fd = os.open(path, os.O_RDWR)

    def open(self, count: int = 1) -> None:
        os.write(self._fd, b"." * count)

    def close(self) -> None:
        os.close(self._fd)


@pytest.fixture
def gate(tmp_path: Path) -> Iterator[Gate]:
    """A closed gate."""
    gate = Gate(tmp_path / "gate")
    yield gate
    gate.close()
