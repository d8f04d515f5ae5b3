"""Two programs that were promised as they stand here: a night's work that can be interrupted, a crontab in one file.

What they call and import are stand-ins: a library that crashes, and scripts that note that they ran.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.cli.cli_support import CAP_S, REPOSITORY, ptss_mp

NIGHT = '''\
"""Convert every PDF below inbox/. Ctrl-C and start again: only the rest is done."""
from pathlib import Path

from ptss_mp import Executor, Retry
from mylib import convert                      # C++ underneath; returns the path of the text it wrote

paths = Path("inbox").rglob("*.pdf")           # lazy: never a list of 200,000
with Executor(preload=["mylib"], max_tasks_per_child=500, journal="night.db", resume=True) as ex:
    careful = ex.options(timeout="60s", memory="2GiB", retries=Retry(crash=1), key=str)
    for path, out in careful.map_outcomes(convert, paths, progress=True):
        if not out.ok:                         # one bad file costs one file
            print(f"{path}: {out.status} after {out.wall_time or 0:.1f} s: {out.error}")
            print(out.stack or out.stderr or "")
'''
LIBRARY = """\
import os, time

def convert(path):
    with open("ran", "a") as log:
        log.write(f"{path.stem}\\n")
    if path.stem == "13":
        os.abort()
    time.sleep(0.01)
    return str(path.with_suffix(".txt"))
"""
CRONTAB = """\
import subprocess

from ptss_mp import task

@task(cron="0 2 * * *", tz="Europe/Prague", timeout="1h", retries=1)
def snapshot():
    subprocess.run(["./snapshot.sh", "/var/snap"], check=True)
    return "/var/snap"

@task(deadline="3h", on_miss="finish")         # should be done by five; late is better than never, and is reported
def backup(snapshot):                          # runs after each night's snapshot, with its result
    subprocess.run(["./backup.sh", snapshot], check=True)

@task(after=[snapshot, backup], run_if="failure")
def alarm(backup):                             # with run_if="failure" the argument is the Outcome
    subprocess.run(["./notify.sh", f"backup {backup.status}: {backup.error}"], check=True)

@task(interval="15m", overlap="skip", timeout="10m")
def sync():
    subprocess.run(["./sync.sh"], check=True)  # whatever it starts is killed with it
"""
AT_TWO = 'cron="0 2 * * *", tz="Europe/Prague"'
FILES = 60


def program(folder: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "night.py"], cwd=folder, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        env=os.environ | {"PYTHONPATH": str(REPOSITORY)},
    )  # fmt: skip


def ran(folder: Path) -> list[str]:
    return (folder / "ran").read_text().split() if (folder / "ran").exists() else []


def test_a_night_that_is_killed_and_begun_again(tmp_path: Path):
    (tmp_path / "night.py").write_text(NIGHT)
    (tmp_path / "mylib.py").write_text(LIBRARY)
    for number in range(FILES):
        path = tmp_path / "inbox" / str(number % 3) / f"{number}.pdf"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    first = program(tmp_path)
    try:
        until = time.monotonic() + CAP_S
        while len(ran(tmp_path)) < FILES // 3:
            assert time.monotonic() < until
            assert first.poll() is None
            time.sleep(0.005)
    finally:
        first.send_signal(signal.SIGKILL)
        first.communicate(timeout=CAP_S)
    before = ran(tmp_path)
    second = program(tmp_path)
    out, err = second.communicate(timeout=CAP_S)
    assert (second.returncode, err) == (0, "")
    assert set(ran(tmp_path)) == {str(number) for number in range(FILES)}, "none is forgotten"
    assert "inbox/1/13.pdf: crashed after 0.0 s: its worker (pid " in out or "inbox/1/13.pdf: interrupted" in out
    again = [name for name in before if ran(tmp_path).count(name) > before.count(name)]
    assert set(again) <= {"13"}, "what had ended, or was cut off, is not run again; a crash may have its retry left"
    everything = ran(tmp_path)
    third = program(tmp_path)
    out, err = third.communicate(timeout=CAP_S)
    assert (third.returncode, err) == (0, "")
    assert ran(tmp_path) == everything, "nothing is left to be run"
    assert "inbox/1/13.pdf: " in out, "and it is told all the same"


def scripts(folder: Path, backup: str = "") -> None:
    for name in ("snapshot", "backup", "notify", "sync"):
        path = folder / f"{name}.sh"
        path.write_text(f'#!/bin/sh\necho {name} "$@" >> log\n' + (backup if name == "backup" else ""))
        path.chmod(0o755)


def test_a_crontab_in_one_file(tmp_path: Path):
    pytest.importorskip("cronsim", reason="needs cronsim: pip install 'ptss_mp[cron]'")
    (tmp_path / "jobs.py").write_text(CRONTAB)
    scripts(tmp_path)
    told = ptss_mp("check", "jobs.py", cwd=tmp_path)
    assert told.status == 0, told
    assert "backup <- snapshot\nalarm <- backup, snapshot (run_if=failure)\nsync\n    next: " in told.out
    ended = ptss_mp("run", "jobs.py", "--workers", "4", "--journal", "jobs.db", "--for", "3s", cwd=tmp_path)
    assert ended.status == 0, ended
    assert (tmp_path / "log").read_text() == "sync\n", "at once, and no more within a quarter of an hour"


@pytest.mark.parametrize("fails", [False, True])
def test_its_nights(tmp_path: Path, fails: bool):
    (tmp_path / "jobs.py").write_text(CRONTAB.replace(AT_TWO, 'interval="1h"'))
    scripts(tmp_path, backup="exit 3\n" if fails else "")
    ended = ptss_mp("run", "jobs.py", "--workers", "4", "--journal", "jobs.db", "--for", "4s", cwd=tmp_path)
    assert ended.status == int(fails), ended
    words = set((tmp_path / "log").read_text().splitlines())
    assert {"snapshot /var/snap", "backup /var/snap", "sync"} <= words
    alarmed = [line for line in words if line.startswith("notify backup failed: ")]
    assert len(alarmed) == fails
    asked = ptss_mp("failures", "jobs.db", cwd=tmp_path)
    assert asked.status == int(fails)
    assert ("backup@" in asked.out) == fails
