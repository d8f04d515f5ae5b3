"""A pile of cron jobs in one file: snapshot, backup, archive; a sync that must not overlap; a report whatever happens.

    pip install 'ptss_mp[cron]'
    ptss-mp check examples/cron_replacement/jobs.py      # in which order, and the next five times
    ptss-mp run examples/cron_replacement/jobs.py --journal jobs.db --resume

To see it at work within seconds:

    CRON_EVERY=2s ptss-mp run examples/cron_replacement/jobs.py --for 7s

What five lines of crontab, a lock file, a mail wrapper and a wiki page did is
here: `backup` gets what `snapshot` returned and never runs without it, a night
that was missed (the machine was off) is made up for once, and `report` gets the
outcomes of all three, failed or not.

In the environment: CRON_SOURCE, what is saved (this folder); CRON_TARGET, where
it goes; CRON_EVERY, how often, in place of every night at two.
"""

import fcntl
import hashlib
import os
import shutil
import tarfile
import tempfile
from pathlib import Path

from ptss_mp import current, task

SOURCE = Path(os.environ.get("CRON_SOURCE") or Path(__file__).parent)
TARGET = Path(os.environ.get("CRON_TARGET") or Path(__file__).parent / ".cache")
EVERY = os.environ.get("CRON_EVERY")
NIGHTLY = {"interval": EVERY} if EVERY else {"cron": "0 2 * * *", "tz": "Europe/Prague"}
OFTEN = EVERY or "15m"
KEPT = 7  # archives


# ---- Each night: one after the other, and each only if the one before it succeeded.


@task(**NIGHTLY, timeout="1h", retries=1)
def snapshot():
    """Copy what shall be saved, so that it stands still; return the copy."""
    TARGET.mkdir(parents=True, exist_ok=True)
    copy = Path(tempfile.mkdtemp(prefix="snapshot-", dir=TARGET))
    for path in source():
        there = copy / path.relative_to(SOURCE)
        there.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(path, there)
    return str(copy)


@task(deadline="3h", on_miss="finish")  # by five; late is better than never, and is reported
def backup(snapshot):
    """Pack the copy; return (archive, its SHA-256, number of files)."""
    packed = Path(snapshot).with_suffix(".tar.gz")
    with tarfile.open(packed, "w:gz") as tar:
        tar.add(snapshot, arcname="saved")
    number = len(files(Path(snapshot)))
    shutil.rmtree(snapshot)
    return str(packed), digest(packed), number


@task(timeout="30m")
def archive(backup):
    """Read the archive back, keep the last few; return how many there are."""
    path, expected, number = backup
    assert digest(Path(path)) == expected, f"{path} is not what was written"
    with tarfile.open(path) as tar:
        found = sum(member.isfile() for member in tar)
    assert found == number, f"{path} has {found} files, saved were {number}"
    there = sorted(TARGET.glob("snapshot-*.tar.gz"), key=lambda archive: archive.stat().st_mtime)
    for old in there[:-KEPT]:
        old.unlink()
    return min(len(there), KEPT)


@task(run_if="done")
def report(snapshot, backup, archive):
    """Say how the night went, whatever happened: the arguments are the outcomes."""
    night = ", ".join(f"{outcome.name} {outcome.status}" for outcome in (snapshot, backup, archive))
    late = f", late by {backup.tardiness:.0f} s" if backup.tardiness else ""
    saved = f"; {backup.result()[2]} files saved, {archive.result()} archives kept" if archive.ok else ""
    print(f"{night}{late}{saved}")
    for outcome in (snapshot, backup, archive):
        if not outcome.ok:
            print(f"{outcome.name}: {outcome.error}")


# ---- All day.


@task(interval=OFTEN, overlap="skip", timeout="10m")  # whatever it starts is killed with it
def sync():
    """Mirror what is new; must never run twice at once."""
    mirror = TARGET / "mirror"
    mirror.mkdir(parents=True, exist_ok=True)
    with open(TARGET / "sync.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)  # fails if another one is at work: none ever is
        for path in source():
            there = mirror / path.relative_to(SOURCE)
            if not there.exists() or there.stat().st_mtime < path.stat().st_mtime:
                there.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(path, there)
    return current().name


def files(folder):
    """Return all files below a folder."""
    return [path for path in sorted(folder.rglob("*")) if path.is_file()]


def source():
    """Return all files that shall be saved: those that these jobs have written are not among them."""
    return [path for path in files(SOURCE) if TARGET not in path.parents]


def digest(path):
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
