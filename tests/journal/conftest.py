"""Pools with a journal, always ended."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from ptss_mp import Executor


@pytest.fixture
def journal(tmp_path: Path) -> Path:
    return tmp_path / "journal.db"


@pytest.fixture
def pool(journal: Path) -> Iterator[Callable[..., Executor]]:
    """Make Executors over one journal; what still runs at the end is killed."""
    made: list[Executor] = []

    def make(**kwargs: Any) -> Executor:
        made.append(Executor(**{"max_workers": 2, "spares": 0, "journal": journal, "resume": True} | kwargs))
        return made[-1]

    yield make
    while made:
        made.pop().kill_workers()


sys.path.insert(0, str(Path(__file__).parent))  # jobs are imported by their modules' names
