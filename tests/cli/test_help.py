"""What `--help` says fits a terminal, and every command says it."""

from __future__ import annotations

import pytest

from tests.cli.cli_support import ptss_mp

COMMANDS = (
    "run", "rerun", "map", "exec", "check", "status", "pause", "resume", "cancel", "stop", "failures", "history",
    "explain", "doctor",
)  # fmt: skip


@pytest.mark.parametrize("command", COMMANDS)
def test_help_fits_a_terminal(command: str):
    ended = ptss_mp(command, "--help", COLUMNS="80")
    assert (ended.status, ended.err) == (0, "")
    assert ended.out.startswith(f"usage: ptss-mp {command} ")
    assert [line for line in ended.out.splitlines() if len(line) > 80] == []


def test_the_program_names_all_its_commands():
    ended = ptss_mp("--help", COLUMNS="80")
    listed = [line.split()[0] for line in ended.out.splitlines() if line.startswith("    ")]
    assert sorted(listed) == sorted(COMMANDS)
    assert [line for line in ended.out.splitlines() if len(line) > 80] == []
