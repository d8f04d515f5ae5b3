"""One import line: what the standard library's pool loses by one crash, and what is lost here."""

from __future__ import annotations

import difflib
import os
import subprocess
import sys

from tests.cli.cli_support import CAP_S, REPOSITORY

FOLDER = REPOSITORY / "examples" / "drop_in"


def test_the_programs_differ_in_one_import_line():
    before, after = ((FOLDER / name).read_text().splitlines() for name in ("before.py", "after.py"))
    changes = [line for line in difflib.ndiff(before, after) if line[0] in "+-"]
    assert changes == [
        "- from concurrent.futures import ProcessPoolExecutor",
        "+ from ptss_mp import Executor as ProcessPoolExecutor",
    ]


def test_what_it_prints_side_by_side():
    run = subprocess.run(
        [sys.executable, FOLDER / "compare.py"], capture_output=True, text=True, timeout=CAP_S, check=False,
        env=os.environ | {"PYTHONPATH": str(REPOSITORY)},
    )  # fmt: skip
    assert (run.returncode, run.stderr) == (0, ""), run
    table = run.stdout.split("\n\n")[0].splitlines()
    rows = {line[:16].strip(): (line[16:36].strip(), line[36:].strip()) for line in table}
    assert rows[""] == ("before.py", "after.py")
    assert rows["articles priced"][1] == "1999", run.stdout
    assert rows["articles lost"][1] == "1"
    assert rows["told to be lost"][1] == "article 1000"
    assert rows["exit status"][1] == "0"
    # how many the standard library loses depends on the moment; a crash while it submits ends the program
    assert int(rows["articles lost"][0]) > 10, run.stdout
    assert float(rows["seconds"][0]) > 0 < float(rows["seconds"][1])
    assert "after.py said: job 'price': its worker (pid " in run.stdout
    assert "killed by SIGSEGV" in run.stdout
