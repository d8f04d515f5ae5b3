"""The hostile example, with forty files of the library: what scripts/demo runs."""

from __future__ import annotations

import ast
import json
from pathlib import Path

import pytest

from tests.cli.cli_support import ptss_mp

JOBS = Path(__file__).parents[2] / "examples" / "hostile" / "jobs.py"
FILES = 40


def _expected() -> dict[str, tuple[str, str | int | None]]:
    """EXPECTED of the example, read without running it."""
    for node in ast.parse(JOBS.read_text("utf-8")).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "EXPECTED":
            return ast.literal_eval(node.value)
    raise AssertionError(f"{JOBS} has no EXPECTED")


EXPECTED = _expected()


@pytest.mark.slow
def test_each_of_the_zoo_fails_with_its_own_cause_and_nobody_else_does(tmp_path):
    report = tmp_path / "report.json"
    ended = ptss_mp("run", JOBS, "--workers", "2", "--report", report, HOSTILE_LIMIT=str(FILES))
    assert ended.status == 1, ended
    assert "Traceback" not in ended.err
    jobs = {job["name"]: job for job in json.loads(report.read_text())["jobs"]}
    found = {}
    for name in EXPECTED:
        cause = jobs[name]["signal_name"] or jobs[name]["exit_code"]
        found[name] = (jobs[name]["status"], cause if jobs[name]["status"] == "crashed" else None)
    assert found == EXPECTED
    honest = {name: job for name, job in jobs.items() if name not in EXPECTED and not name.startswith("crasher_")}
    assert len(honest) == FILES + 1
    assert [name for name, job in honest.items() if not job["ok"]] == []
    assert f"{FILES} files, " in ended.out
    assert jobs["totals"]["stdout"] in ended.out
    for name in ("null_read", "division", "short_file", "abort", "backtracking"):
        assert f" in {name}\n" in jobs[name]["stack"], "the Python stack at the crash"
    summary = {line.split(": ")[0]: line for line in ended.lines}
    assert f"{JOBS.name}:" in summary["null_read"]
    assert set(EXPECTED) <= set(summary)
    assert "unpickled" in jobs["booby_trap"]["error"]
    assert "Monday" in jobs["two_arguments"]["error"]


def test_check_shows_it():
    ended = ptss_mp("check", JOBS, HOSTILE_LIMIT=str(FILES))
    assert ended.status == 0, ended
    assert f"library ({FILES} jobs)" in ended.out
    assert "totals <- library" in ended.out.splitlines()


def test_every_kind_is_in_the_table():
    """Each task of the zoo stands in EXPECTED, and says in its docstring what becomes of it."""
    for node in ast.parse(JOBS.read_text("utf-8")).body:
        if isinstance(node, ast.FunctionDef) and node.decorator_list and node.name != "totals":
            status = EXPECTED[node.name][0].replace("_", " ")
            assert status in (ast.get_docstring(node) or "").lower(), node.name
