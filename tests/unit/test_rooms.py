"""Who may import whom.  The table is the picture of the architecture (README, "The parts")."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[2] / "ptss_mp"

WORDS = {"errors", "units", "resources", "retrying", "declare", "tasks", "rules"}
BYTES = {"wire", "marker", "parcel"}
BELOW = {"*"}  # everything but cli and __main__

# room -> what of ours it may import.  A folder stands for all its modules, unless one has a row of its own.
ROOMS: dict[str, set[str]] = {
    "errors": set(),
    "units": {"errors"},
    "resources": {"errors", "units"},
    "retrying": {"errors", "pickling", "units"},
    "declare": {"errors", "resources", "retrying", "units"},
    "tasks": {"declare", "errors"},
    "rules": {"core.recurrence", "declare", "errors", "resources", "retrying", "rlimits", "timetable", "units"},
    "rlimits": set(),
    "memory": set(),
    "parcel": {"memory"},
    "wire": {"parcel"},
    "marker": {"wire"},
    "outcome": {"errors", "parcel", "wire"},
    "core.events": {"core.job"},
    "core.commands": {"core.tokens"},
    "core": {"errors", "core"},
    "pickling": set(),
    "codec": {"wire", "parcel", "pickling"},
    "freight": BYTES | {"codec", "memory", "pipes", "worker"},
    "settings": {"pipes"},
    "hygiene": {"logs", "settings"},
    "pipes": {"rlimits"},
    "logs": {"pipes", "rlimits"},
    "attempt": {"errors", "marker", "units"},
    "mainmodule": {"wire", "codec", "pipes"},
    "chunk": BYTES | {"attempt", "codec", "pickling"},
    "worker": BYTES | {"attempt", "chunk", "codec", "freight", "hygiene", "mainmodule", "pipes", "rlimits"},
    "warden": BYTES | {"attempt", "chunk", "codec", "logs", "mainmodule", "pipes", "rlimits", "worker", "warden"},
    "shell": BYTES
    | WORDS
    | {"chunk", "keys", "memory", "outcome", "core", "shell", "logs"}
    | {"warden.protocol", "warden.kernel", "warden.proc"},
    "observe": {"errors", "outcome", "core.commands", "core.events", "core.story", "shell.clock", "observe"},
    "keys": {"errors", "units"},
    "keyed": {"future", "shell.report"},
    "journal": {"core.events", "errors", "future", "keyed", "keys", "outcome", "parcel", "shell", "wire", "journal"},
    "journaling": {"keys", "outcome", "pool", "wire"},
    "future": {"wire", "outcome", "shell.report"},
    "submission": {"declare", "errors", "units", "outcome", "future", "core.job", "parcel", "pickling", "shell"},
    "timetable": {"core.job", "errors", "units"},
    "recurring": {"core.job", "core.recurrence", "declare", "errors", "future", "outcome", "pool", "shell"}
    | {"keyed", "keys", "remembered", "submission", "timetable", "units", "wire"},
    "remembered": {"core.recurrence", "errors", "future", "journaling", "keyed", "keys", "outcome", "pool"}
    | {"timetable"},
    "adding": {"core.recurrence", "declare", "errors", "future", "keys", "outcome", "parcel", "recurring", "shell"}
    | {"submission", "tasks", "units"},
    "handlers": set(),
    "life": {"handlers", "outcome", "pool", "units"},
    "atomic": set(),
    "calls": {"pool"},
    "feasibility": {"core.job", "jobsfile", "rules", "submission", "units"},
    "depict": set(),
    "saving": {"atomic", "core.job", "depict", "errors", "future", "outcome", "parcel", "retrying", "shell.clock"},
    "pool": {"declare", "errors", "rules", "wire", "future", "core", "handlers", "pickling", "shell"},
    "making": WORDS | {"core", "journal.writer", "pool", "submission"},
    "mapping": {"chunking", "errors", "units", "future", "outcome", "core.job", "observe.progress"},
    "chunking": {"chunk", "core.job", "errors", "future", "mapping", "outcome", "parcel", "shell"}
    | {"submission", "tasks"},
    "host": {"shell.hire", "warden"},
    "view": WORDS
    | {"adding", "chunk", "core.job", "future", "host", "journaling", "keyed", "life", "making", "mapping", "observe"}
    | {"parcel", "pool", "recurring", "shell", "submission", "wire"},
    "executor": {"declare", "making", "pool", "rules", "saving", "units", "view"},
    "joblib": {"declare", "errors", "executor", "future", "pool", "view"},
    "jobsimport": {"errors", "keys", "pickling", "retrying", "tasks"},
    "jobsfile": WORDS | {"core.graph", "jobsimport", "keys"},
    "cli": BELOW | {"cli"},
    "__main__": {"cli.main"},
    "__init__": BELOW,
}

# The core is a function of its events: nothing here may tell it anything else.
IMPURE = frozenset((
    "asyncio", "datetime", "io", "logging", "multiprocessing", "os", "pathlib", "queue", "random", "secrets",
    "select", "selectors", "signal", "socket", "subprocess", "sys", "threading", "time", "uuid",
))  # fmt: skip

SPINE = (
    "declare.py",
    "core/events.py",
    "core/commands.py",
    "core/scheduler.py",
    "shell/supervisor.py",
    "worker.py",
)
SPINE_LINES_MAX = 1_800


def imports(source: str, module: str, is_package: bool) -> Iterator[tuple[int, str]]:
    """Yield (line, dotted name) of all imports, also those within functions; ours begin with a dot.

    What stands under `if TYPE_CHECKING:` never runs and does not count.
    """
    tree = ast.parse(source)
    skipped = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING")
        for part in node.body
        for inner in ast.walk(part)
    }
    folder = module.split(".") if is_package else module.split(".")[:-1]
    for node in ast.walk(tree):
        if id(node) in skipped:
            continue
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, _absolute(alias.name)
        elif isinstance(node, ast.ImportFrom):
            if not node.level:
                base = _absolute(node.module or "")
            else:
                kept = folder[: len(folder) - node.level + 1]
                base = "." + ".".join([*kept, *([node.module] if node.module else [])])
            for alias in node.names:
                inner = f"{base}.{alias.name}" if base != "." else f".{alias.name}"
                yield node.lineno, inner if base.startswith(".") and _is_module(inner[1:]) else base


def _absolute(name: str) -> str:
    return name.replace("ptss_mp", "", 1) or "." if name.split(".", maxsplit=1)[0] == "ptss_mp" else name


def _is_module(dotted: str) -> bool:
    path = PACKAGE / dotted.replace(".", "/")
    return path.with_suffix(".py").exists() or (path / "__init__.py").exists()


def room_of(module: str) -> str | None:
    """Return the row of a module: its own, else its folder's."""
    folder = module.partition(".")[0]
    return module if module in ROOMS else folder if folder in ROOMS else None


def violations(module: str, source: str, is_package: bool = False) -> list[str]:
    """Return what a module imports and may not, in words."""
    room = room_of(module)
    if room is None:
        return [f"{module}: has no row in the table of rooms"]
    allowed, found = ROOMS[room], []
    for line, name in imports(source, module, is_package):
        top = name.split(".")[0]
        if not name.startswith("."):
            if module.split(".", maxsplit=1)[0] == "core" and top in IMPURE:
                found.append(f"{module}:{line}: the core may not import {top}")
            continue
        target = name[1:]
        if not target or target == module:
            continue
        below = "*" in allowed and target.split(".")[0] not in ("cli", "__main__")
        if not below and target not in allowed and target.split(".")[0] not in allowed:
            found.append(f"{module}:{line}: {room} may not import {target}")
    return found


def modules() -> list[Path]:
    return sorted(PACKAGE.rglob("*.py"))


def dotted(path: Path) -> str:
    parts = list(path.relative_to(PACKAGE).with_suffix("").parts)
    return ".".join(parts[:-1] if parts[-1] == "__init__" and len(parts) > 1 else parts)


@pytest.mark.parametrize("path", modules(), ids=dotted)
def test_imports_are_in_the_table(path):
    assert violations(dotted(path), path.read_text("utf-8"), path.name == "__init__.py") == []


def test_every_row_has_a_room():
    assert {room_of(dotted(path)) for path in modules()} == set(ROOMS)


@pytest.mark.parametrize(
    ("module", "line", "told"),
    [
        ("core.scheduler", "import time", "core.scheduler:1: the core may not import time"),
        ("core.scheduler", "from random import random", "core.scheduler:1: the core may not import random"),
        ("core.job", "def f():\n    import os.path", "core.job:2: the core may not import os"),
        ("core.job", "from .. import wire", "core.job:1: core may not import wire"),
        ("wire", "from .core import scheduler", "wire:1: wire may not import core.scheduler"),
        ("worker", "from ptss_mp.declare import Options", "worker:1: worker may not import declare"),
        ("shell.clock", "from ..executor import Executor", "shell.clock:1: shell may not import executor"),
        ("shell.clock", "from ..warden import main", "shell.clock:1: shell may not import warden.main"),
        ("executor", "import ptss_mp.cli.main", "executor:1: executor may not import cli.main"),
        ("new_room", "", "new_room: has no row in the table of rooms"),
    ],
)
def test_a_planted_violation_is_named(module, line, told):
    assert violations(module, line) == [told]


def test_what_is_allowed_is_not_named():
    source = "from ..errors import PtssError\nfrom .ready import Ready\nimport heapq"
    assert violations("core.job", source) == []
    assert violations("wire", "if TYPE_CHECKING:\n    from .executor import Executor") == []


def test_the_spine_can_be_read_in_an_afternoon():
    lines = {name: len((PACKAGE / name).read_text("utf-8").splitlines()) for name in SPINE}
    assert sum(lines.values()) <= SPINE_LINES_MAX, lines


def test_the_readme_gives_the_spine_in_order():
    text = (PACKAGE.parent / "README.md").read_text("utf-8")
    places = [text.find(f"ptss_mp/{name}") for name in SPINE]
    assert -1 not in places
    assert places == sorted(places)
