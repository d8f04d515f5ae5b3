"""docs/states.md is what the tables in the core say."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

REPOSITORY = Path(__file__).parents[2]
SCRIPT = REPOSITORY / "scripts" / "states.py"


@pytest.fixture
def states() -> ModuleType:
    spec = importlib.util.spec_from_file_location("scripts_states", SCRIPT)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_page_is_what_the_script_generates():
    run = subprocess.run([sys.executable, SCRIPT, "--check"], capture_output=True, text=True, timeout=60, check=False)
    assert (run.returncode, run.stdout, run.stderr) == (0, "", "")


def test_an_old_page_is_refused(states: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    old = tmp_path / "states.md"
    old.write_text(states.page().replace("| ready | sent |", "| ready | lost |"))
    monkeypatch.setattr(states, "PAGE", old)
    with pytest.raises(SystemExit, match=r"run python scripts/states\.py"):
        states.main(["--check"])


def test_a_move_without_its_reason_is_refused(states: ModuleType, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delitem(states.JOB_MOVES, ("ready", "sent"))
    with pytest.raises(SystemExit, match=r"ready.*sent"):
        states.page()


def test_all_kinds_have_their_row(states: ModuleType):
    text = states.page()
    kinds = [*states.job.State, *states.crew.WorkerState]
    kinds += [kind.__name__ for module in (states.events, states.commands) for kind in named_tuples(module)]
    assert [kind for kind in kinds if f"| **{kind}** |" not in text] == []


def named_tuples(module: ModuleType) -> list[type]:
    """Return the events or commands that a module defines; rows of events are none."""
    found = [kind for kind in vars(module).values() if isinstance(kind, type) and hasattr(kind, "_fields")]
    return [kind for kind in found if kind.__module__ == module.__name__ and kind.__name__ != "AnswerRow"]
