"""What the pages in docs/ show is what happens: places exist, links lead somewhere, programs run."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.cli_support import CAP_S, REPOSITORY, ptss_mp
from tests.unit.test_rooms import PACKAGE, SPINE

DOCS = REPOSITORY / "docs"
PAGES = sorted(DOCS.glob("*.md"))
PLACE = re.compile(r"`([\w/]+\.py)::([\w.]+)`")
FENCE = re.compile(r"^```(\w+)\n(.*?)^```\n", re.M | re.S)


def blocks(page: Path) -> list[tuple[str, str]]:
    """Return (kind, text) of a page's fenced blocks."""
    return FENCE.findall(page.read_text("utf-8"))


def programs() -> list[tuple[str, str, str]]:
    """Return (id, program, what it prints) of all Python blocks; the text block behind one is its output."""
    found = []
    for page in PAGES:
        here = blocks(page)
        for number, (kind, text) in enumerate(here):
            if kind == "python":
                shown = here[number + 1] if number + 1 < len(here) else ("", "")
                found.append((f"{page.stem}-{number}", text, shown[1] if shown[0] == "text" else ""))
    return found


def plain(text: str) -> list[str]:
    """Return lines without pids and durations, which differ from run to run."""
    return [re.sub(r"pid \d+|[\d.]+ (ms|s)\b", "", line).rstrip() for line in text.splitlines()]


PROGRAMS = programs()


@pytest.mark.parametrize(("program", "shown"), [p[1:] for p in PROGRAMS], ids=[p[0] for p in PROGRAMS])
def test_programs_print_what_is_shown(program: str, shown: str, tmp_path: Path):
    (tmp_path / "jobs.py").write_text(program)
    if program.startswith("# jobs.py"):
        ended = ptss_mp("run", "jobs.py", "--no-progress", cwd=tmp_path)
        assert (ended.status, plain(ended.out)) == (0, plain(shown)), ended
        return
    run = subprocess.run(
        [sys.executable, "jobs.py"], cwd=tmp_path, capture_output=True, text=True, timeout=CAP_S, check=False,
        env=os.environ | {"PYTHONPATH": str(REPOSITORY)},
    )  # fmt: skip
    assert (run.returncode, run.stderr) == (0, "")
    assert plain(run.stdout) == plain(shown)


def defined(tree: ast.Module) -> set[str]:
    """Return the names that a module defines at its top and in its classes: "f", "C", "C.f"."""
    names = set()
    for node in tree.body:
        for name in _names(node):
            names.add(name)
        if isinstance(node, ast.ClassDef):
            names |= {f"{node.name}.{name}" for inner in node.body for name in _names(inner)}
    return names


def _names(node: ast.stmt) -> list[str]:
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        return [node.name]
    targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
    return [inner.id for target in targets for inner in ast.walk(target) if isinstance(inner, ast.Name)]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_each_place_that_is_named_exists(page: Path):
    missing = []
    for file, name in PLACE.findall(page.read_text("utf-8")):
        path = PACKAGE / file
        if not path.exists() or name not in defined(ast.parse(path.read_text("utf-8"))):
            missing.append(f"{file}::{name}")
    assert missing == []


def test_a_place_that_does_not_exist_would_be_found():
    tree = ast.parse((PACKAGE / "worker.py").read_text("utf-8"))
    assert {"Loop", "Loop.run", "FLUSH_NS"} <= defined(tree)
    assert "Loop.walk" not in defined(tree)


def test_the_tour_walks_the_spine_in_order():
    text = (DOCS / "tour.md").read_text("utf-8")
    places = [text.index(f"`{name}`\n") for name in SPINE]
    assert places == sorted(places)
    assert {file for file, _ in PLACE.findall(text)} >= set(SPINE)


@pytest.mark.parametrize("page", [REPOSITORY / "README.md", *PAGES], ids=lambda page: page.stem)
def test_links_lead_to_files_that_are_there(page: Path):
    links = re.findall(r"\]\((?!https?:)([^)#]+)", page.read_text("utf-8"))
    assert [link for link in links if not (page.parent / link).exists()] == []


KINDS = frozenset(("Thread", "Lock", "RLock", "Condition", "Event", "SimpleQueue"))


def made() -> set[tuple[str, str]]:
    """Return (file, kind) of all threads, locks and queues that the package makes."""
    found = set()
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in KINDS:
                found.add((str(path.relative_to(PACKAGE)), node.func.attr))
    return found


def test_each_thread_and_lock_is_in_the_tables():
    text = (DOCS / "concurrency.md").read_text("utf-8")
    told = set()
    for line in text.splitlines():
        for file, _ in PLACE.findall(line) if line.startswith("|") else ():
            kinds = re.findall(r"\((\w+)\)", line) or ["Thread"]
            told |= {(file, kind) for kind in kinds if kind in KINDS}
    assert told == made()


def test_the_readme_lists_each_example_and_no_other():
    text = (REPOSITORY / "README.md").read_text("utf-8").partition("## Examples\n")[2]
    listed = re.findall(r"^\| \[`(\w+)`\]\(examples/", text, re.M)
    folders = [path.name for path in (REPOSITORY / "examples").iterdir() if list(path.glob("*.py"))]
    assert sorted(listed) == sorted(folders)


def test_each_page_can_be_reached_from_the_readme():
    text = (REPOSITORY / "README.md").read_text("utf-8")
    assert [page.name for page in PAGES if f"(docs/{page.name}" not in text] == []
