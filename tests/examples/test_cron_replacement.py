"""The crontab in one file, every second in place of every night; and one job under every condition at once."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.cli_support import CAP_S, REPOSITORY, ptss_mp

FOLDER = REPOSITORY / "examples" / "cron_replacement"
JOBS = FOLDER / "jobs.py"


def test_each_night_is_saved_and_reported(tmp_path: Path):
    source, target = tmp_path / "source", tmp_path / "target"
    (source / "below").mkdir(parents=True)
    (source / "a.txt").write_text("a")
    (source / "below" / "b.txt").write_text("b")
    ended = ptss_mp(
        "run", JOBS, "--for", "3s", "--no-progress",
        CRON_SOURCE=str(source), CRON_TARGET=str(target), CRON_EVERY="500ms",
    )  # fmt: skip
    assert ended.status == 0, ended
    nights = ended.out.splitlines()
    assert len(nights) >= 2
    good = r"snapshot succeeded, backup succeeded, archive succeeded; 2 files saved, \d archives kept"
    assert all(re.fullmatch(good, night) for night in nights), ended.out
    assert (target / "mirror" / "below" / "b.txt").read_text() == "b"
    assert 1 <= len(list(target.glob("snapshot-*.tar.gz"))) <= 7
    assert not [path for path in target.glob("snapshot-*") if path.is_dir()], "copies are taken away"


def test_a_night_that_fails_is_reported(tmp_path: Path):
    ended = ptss_mp(
        "run", JOBS, "--for", "2s", "--no-progress",
        CRON_SOURCE=str(tmp_path / "source"), CRON_TARGET="/proc/nowhere", CRON_EVERY="500ms",
    )  # fmt: skip
    assert ended.status == 1, ended
    assert "snapshot failed, backup dependency, archive dependency\n" in ended.out
    assert "snapshot: " in ended.out


def test_it_means_every_night_at_two(tmp_path: Path):
    pytest.importorskip("cronsim", reason="needs cronsim: pip install 'ptss_mp[cron]'")
    ended = ptss_mp("check", JOBS, CRON_TARGET=str(tmp_path))
    assert ended.status == 0, ended
    assert re.search(r"^snapshot\n    next: \d{4}-\d\d-\d\d 0[23]:00:00 CES?T\n          ", ended.out)


def test_one_job_under_every_condition():
    ended = subprocess.run(
        [sys.executable, FOLDER / "one_job.py"], capture_output=True, text=True, timeout=CAP_S, check=False,
        env=os.environ | {"PYTHONPATH": str(REPOSITORY)},
    )  # fmt: skip
    assert (ended.returncode, ended.stderr) == (0, "")
    assert ended.stdout.startswith("restore: restored, for A is ready and B is ready\n")
    assert "waits for tape" in ended.stdout
