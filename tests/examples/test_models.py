"""The models: what breaks one costs one answer, and each GPU is named to one worker at a time."""

from __future__ import annotations

import os
import re
import subprocess
import sys

from tests.cli.cli_support import CAP_S, REPOSITORY

PROGRAM = REPOSITORY / "examples" / "models" / "models.py"
ANSWERS = (
    r"What is a fork\? -> one that was two \(GPU [01]\)",
    r"How does a driver end\? -> its worker \(pid \d+\) was killed by SIGSEGV after [\d.]+ s of the job",
    r"Who waits for zombies\? -> their parent \(GPU [01]\)",
    r"How much is infinity\? -> held 5\d\d\.\d MiB, allowed are 512\.0 MiB \(memory\); it was killed",
    r"What is after SIGKILL\? -> nothing \(GPU [01]\)",
    r"Who knows\? -> KeyError: 'Who knows\?'",
    r"Who comes first\? -> the earliest deadline \(GPU [01]\)",
)


def test_each_question_is_answered_or_told_why_not():
    ended = subprocess.run(
        [sys.executable, PROGRAM], capture_output=True, text=True, timeout=CAP_S, check=False,
        env=os.environ | {"PYTHONPATH": str(REPOSITORY)},
    )  # fmt: skip
    assert (ended.returncode, ended.stderr) == (0, "")
    lines = ended.stdout.splitlines()
    assert len(lines) == len(ANSWERS)
    for expected, line in zip(ANSWERS, lines, strict=True):
        assert re.fullmatch(expected, line)
