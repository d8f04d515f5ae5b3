"""Journals that are refused, each with its reason; and what is read of one that is hostile."""

from __future__ import annotations

import json
import os
import random
import sqlite3
import stat
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import pytest

from ptss_mp import Executor, JournalError
from ptss_mp.journal import place, started, store
from ptss_mp.journal.entry import SETTLED, Damaged, outcome_of, row_of, stored, value_of
from ptss_mp.journal.opening import Opened
from ptss_mp.journal.place import file_system
from ptss_mp.parcel import Parcel

FIXTURE = Path(__file__).parents[1] / "fixtures" / "journal-1.db"  # made by the product when schema 1 was new
HERE = os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])}


@pytest.fixture
def path(tmp_path):
    """Where a copy of a journal lies that holds outcomes."""
    copy = tmp_path / "journal.db"
    copy.write_bytes(FIXTURE.read_bytes())
    copy.chmod(0o600)
    return copy


def opened(path, resume=True):
    """Open a journal, and let it go."""
    found = Opened(str(path), resume, ("", None), exact=True, only_after="")
    for owner in (found.lookup, found.started, found.db, found.place):
        owner.close()
    started.remove(str(path))
    return found


def refusal(path, **kwargs):
    with pytest.raises(JournalError) as caught:
        opened(path, **kwargs)
    assert str(path) in str(caught.value)
    assert caught.value.args == (str(caught.value),)
    return caught.value.reason, str(caught.value)


def test_schema_1_is_read_for_ever(path):
    with Executor(max_workers=1, journal=path, resume=True) as ex:
        future = ex.submit(abs, -5)
        assert (future.outcome().resumed, future.result()) == (True, 5)
        assert ex.options(key="text").submit(str, 1).result() == "1"
        assert ex.options(key="list").submit(list, (1, 2)).result() == [1, 2]
        failed = ex.submit(int, "x").outcome(10)
        assert (failed.status, failed.resumed) == ("failed", True)
        assert isinstance(failed.exception(), ValueError)
        assert ex.options(key="killed").submit(abs, 1).outcome().status == "interrupted"
        assert not ex.options(key="waiting").submit(abs, 1).outcome(10).resumed


def test_an_empty_file_is_a_new_journal(tmp_path):
    path = tmp_path / "j.db"
    path.touch(0o600)
    assert opened(path, resume=False).base == 0
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_new_one_is_for_its_owner_alone(tmp_path):
    opened(tmp_path / "j.db")
    assert stat.S_IMODE((tmp_path / "j.db").stat().st_mode) == 0o600


@pytest.mark.parametrize("size", [1, 15, 100, 5_000])
def test_random_bytes(tmp_path, size):
    path = tmp_path / "j.db"
    path.write_bytes(random.Random(size).randbytes(size))
    path.chmod(0o600)
    before = path.read_bytes()
    assert refusal(path)[0] == "bad"
    assert path.read_bytes() == before
    assert os.listdir(tmp_path) == ["j.db"]


def test_an_old_sqlite(tmp_path, monkeypatch):
    monkeypatch.setattr(store, "SQLITE_LEAST", (9, 99))
    reason, text = refusal(tmp_path / "j.db")
    assert reason == "create"
    assert "needs SQLite 9.99, this Python has 3." in text
    assert os.listdir(tmp_path) == []


def test_another_programs_database(tmp_path):
    path = tmp_path / "j.db"
    with closing(sqlite3.connect(path)) as db:
        db.execute("CREATE TABLE bookmarks(url TEXT)")
    path.chmod(0o600)
    reason, text = refusal(path)
    assert reason == "bad"
    assert "another program's SQLite database" in text


def test_a_newer_schema(path):
    with closing(sqlite3.connect(path)) as db:
        db.execute("PRAGMA user_version = 2")
    reason, text = refusal(path)
    assert reason == "bad"
    assert "schema is number 2, made by a newer ptss_mp; this one knows up to 1" in text


@pytest.mark.parametrize(
    "planted",
    [
        "CREATE TRIGGER t AFTER INSERT ON jobs BEGIN DELETE FROM jobs; END",
        "CREATE VIEW v AS SELECT * FROM jobs",
        "CREATE INDEX i ON jobs(lower(key))",
        "CREATE TABLE more(x)",
        "ALTER TABLE jobs ADD COLUMN evil INTEGER GENERATED ALWAYS AS (abs(-9223372036854775808))",
        "DROP TABLE tasks",
    ],
)
def test_a_schema_that_is_not_ours(path, planted):
    with closing(sqlite3.connect(path)) as db:
        db.execute(planted)
    reason, text = refusal(path)
    assert reason == "bad"
    assert "changed by something else" in text


def test_statistics_of_a_tool_do_no_harm(path):
    with closing(sqlite3.connect(path)) as db:
        db.execute("ANALYZE")
    opened(path)


def test_a_truncated_one(path):
    os.truncate(path, path.stat().st_size // 2)
    assert refusal(path)[0] == "bad"


def test_fuzzed_ones_are_refused_or_read_and_never_more(path):
    """Any error but ours, or a hang, would be a fault."""
    whole, chance = path.read_bytes(), random.Random(5)
    for _ in range(150):
        data = bytearray(whole)
        for _ in range(chance.randint(1, 12)):
            data[chance.randrange(len(data))] = chance.randrange(256)
        for left in path.parent.iterdir():
            left.unlink()
        path.write_bytes(data)
        path.chmod(0o600)
        try:
            found = Opened(str(path), True, ("", None), exact=False, only_after="")
        except JournalError:
            continue
        try:
            for key in ("text", "list", "killed"):
                row = found.lookup.find(key)
                if row and row.status:
                    outcome_of(row, "n", key)
        except (Damaged, sqlite3.Error, UnicodeDecodeError):  # as `Journal.settled` takes them
            pass
        finally:
            for owner in (found.lookup, found.db, found.place):
                owner.close()


FACTS_OF_NO_NUMBER = json.dumps(
    {"submitted": "2026-01-01T00:00:00Z", "finished": "2026-01-01T00:00:00Z", "tardiness": 10**400}
)


@pytest.mark.parametrize(
    ("change", "value"),
    [
        ("facts", "[" * 100_000), ("facts", "{}"), ("facts", "no JSON"), ("facts", '{"submitted": 5}'),
        ("facts", None), ("status", "splendid"), ("kind", 99), ("kind", 4 | 32), ("result", b"short"),
        ("facts", FACTS_OF_NO_NUMBER),
    ],
)  # fmt: skip
def test_a_row_that_makes_no_sense(path, change, value):
    with closing(sqlite3.connect(path)) as db, db:
        db.execute(f"UPDATE jobs SET {change} = ? WHERE key LIKE 'builtins.abs:%'", (value,))
    with Executor(max_workers=1, journal=path, resume=True) as ex:
        with pytest.raises(JournalError, match="damaged") as caught:
            ex.submit(abs, -5)
        assert caught.value.reason == "bad"
        assert ex.submit(abs, -7).result(10) == 7


def test_a_job_behind_whose_number_none_has_room(path):
    with closing(sqlite3.connect(path)) as db, db:
        db.execute("UPDATE jobs SET job = ? WHERE job = (SELECT max(job) FROM jobs)", (2**63 - 1,))
    with pytest.raises(JournalError, match="damaged") as caught:
        Executor(max_workers=1, journal=path, resume=True).start()
    assert caught.value.reason == "bad"


def test_a_pickle_in_a_journal_is_not_loaded_before_somebody_asks(path, tmp_path):
    canary = tmp_path / "canary"
    bomb = b"cos\nsystem\n(S'touch " + str(canary).encode() + b"'\ntR."
    with closing(sqlite3.connect(path)) as db, db:
        db.execute("UPDATE jobs SET kind = 6, result = ? WHERE key = 'list'", (bomb,))
    with Executor(max_workers=1, journal=path, resume=True) as ex:
        future = ex.options(key="list").submit(list)
        assert future.outcome().ok
        assert ex.options(after=future).submit(abs, 3).result(10) == 3
    assert not canary.exists()


# ---- where it lies


def test_links_are_not_followed(path):
    link = path.parent / "link.db"
    link.symlink_to(path)
    assert refusal(link)[0] == "permission"
    link.unlink()
    link.symlink_to(path.parent / "nothing yet")
    assert refusal(link)[0] == "permission"
    assert not (path.parent / "nothing yet").exists()
    link.unlink()
    link.hardlink_to(path)
    assert refusal(link)[0] == "permission"


@pytest.mark.parametrize("sidecar", place.SIDECARS)
def test_nor_those_of_files_beside_it(path, sidecar):
    target = path.parent / "target"
    target.write_bytes(b"precious")
    Path(f"{path}{sidecar}").symlink_to(target)
    assert refusal(path)[0] == "permission"
    assert target.read_bytes() == b"precious"


@pytest.mark.parametrize(
    ("mode", "reason"), [(0o777, "permission"), (0o1777, None), (0o775, "permission"), (0o755, None)]
)
def test_who_may_write_into_its_folder(path, mode, reason):
    path.parent.chmod(mode)
    if reason and not (mode == 0o775 and path.parent.stat().st_gid == os.geteuid() != 0):
        assert refusal(path)[0] == reason
    else:
        opened(path)
    path.parent.chmod(0o700)


def test_who_may_write_to_it(path):
    path.chmod(0o666)
    assert refusal(path)[0] == "permission"


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, who alone may give files away")
def test_of_another_user(path):
    os.chown(path, 12345, -1)
    assert refusal(path)[0] == "permission"
    os.chown(path, 0, -1)
    os.chown(path.parent, 12345, -1)
    assert refusal(path)[0] == "permission"


def test_what_is_no_file(tmp_path):
    assert refusal(tmp_path / "no" / "folder.db")[0] == "create"
    (tmp_path / "folder").mkdir()
    assert refusal(tmp_path / "folder")[0] == "create"
    os.mkfifo(tmp_path / "fifo")
    assert refusal(tmp_path / "fifo")[0] == "bad"


MOUNTS = """\
24 1 254:1 / / rw,relatime - ext4 /dev/vda rw
30 24 0:44 / /mnt/share rw,relatime shared:3 - nfs4 server:/export rw
31 24 0:45 / /mnt/with\\040space rw - fuse.sshfs host: rw
32 24 0:46 /@sub /data rw - btrfs /dev/sdb rw
"""


@pytest.mark.parametrize(
    ("device", "path", "kind"),
    [
        (os.makedev(254, 1), "/home/me/j.db", "ext4"), (os.makedev(0, 44), "/mnt/share/j.db", "nfs4"),
        (os.makedev(0, 45), "/mnt/with space/j.db", "fuse.sshfs"), (os.makedev(0, 99), "/data/sub/j.db", "btrfs"),
        (os.makedev(0, 99), "/mnt/with space/j.db", "fuse.sshfs"), (os.makedev(0, 99), "/mnt/sharer/j.db", "ext4"),
    ],
)  # fmt: skip
def test_the_type_of_a_file_system(tmp_path, device, path, kind):
    table = tmp_path / "mountinfo"
    table.write_text(MOUNTS)
    assert file_system(device, path, table) == kind


@pytest.mark.parametrize("kind", sorted(place.REMOTE))
def test_network_file_systems_are_refused(path, monkeypatch, kind):
    monkeypatch.setattr(place, "file_system", lambda *_: kind)
    reason, text = refusal(path)
    assert reason == "create"
    assert f"network file system ({kind})" in text


def test_no_table_of_mounts(tmp_path):
    assert file_system(5, "/x", tmp_path / "none") == ""


# ---- what had started


def test_lines_that_are_none_say_nothing(tmp_path):
    path = str(tmp_path / "j.db")
    noted = started.Started(path)
    lines = [started.Line(n, f"key {n}\n\udcff", "name", 5, 6) for n in range(1, 4)]
    noted.write([lines[0]._replace(key="k")], 1, 0)
    noted.close()
    with open(path + "-started", "ab") as file:
        file.write(b'\n[2, "torn')
    with open(path + "-started2", "ab") as file:
        for bad in ("[]", "5", "{}", '["a", "k", "n", 1, 2]', "[1, 2, 3, 4, 5]", '[-1, "k", "n", 1, 2]', "[" * 9_000):
            file.write(f"\n{bad}".encode())
        file.write(b"\0" * 4096 + b"\n" + json.dumps(lines[2]._replace(key="k3")).encode())
    assert started.read(path) == [(1, "k", "name", 5, 6), (3, "k3", "name", 5, 6)]


def test_the_two_files_take_turns(tmp_path, monkeypatch):
    monkeypatch.setattr(started, "HALF_BYTES", 300)
    path = str(tmp_path / "j.db")
    noted = started.Started(path)
    for number in range(1, 200):
        noted.write([started.Line(number, "key", "name", 5, 6)], number, number - 3)
        there = {line.job for line in started.read(path)}
        assert {number, number - 1, number - 2} & set(range(1, number + 1)) <= there, "what is not committed is there"
    assert sum(os.path.getsize(path + name) for name in started.NAMES) < 1_000
    for number in range(200, 300):  # no commit any more
        noted.write([started.Line(number, "key", "name", 5, 6)], number, 199)
    assert set(range(200, 300)) <= {line.job for line in started.read(path)}
    noted.close()


def test_recovery_twice_is_recovery_once(path):
    for _ in range(2):
        (path.parent / "journal.db-started").write_text(
            '\n[900, "early", "early", 1764000000000000000, 1764000000000000001]'
        )
        (path.parent / "journal.db-started").chmod(0o600)
        opened(path)
    with closing(sqlite3.connect(path)) as db:
        assert db.execute("SELECT job, status, name FROM jobs WHERE key = 'early'").fetchall() == [
            (900, "interrupted", "early")
        ]


# ---- values


@pytest.mark.parametrize(
    ("kind", "payload"),
    [(0, None), (1, 5), (0, 2.5), (0, True), (4, b"text"), (5, b""), (6, b"pickle"), (7, b"error")],
)
def test_values_come_back(kind, payload):
    again = value_of(*stored(kind, payload))
    assert again == (kind, payload)
    assert type(again[1]) is type(payload)


def test_a_parcel_comes_back():
    parcel = Parcel([b"pickle", b"constant", bytearray(b"variable")])
    kind, again = value_of(*stored(6, parcel))
    assert (kind, again.parts) == (6, parcel.parts)
    assert [type(part) for part in again.parts] == [bytes, bytes, bytearray]


@pytest.mark.parametrize("data", [b"", b"\xff" * 8, b"\x02" + b"\0" * 15, (1 << 60).to_bytes(8, "little") * 3])
def test_a_parcel_that_is_none(data):
    with pytest.raises(Damaged):
        value_of(6 | 32, data)


def test_one_that_is_too_large_is_not_kept(monkeypatch):
    monkeypatch.setattr("ptss_mp.journal.entry.BLOB_BYTES_MAX", 1 << 17)
    assert stored(5, b"x" * (1 << 17)) == (None, None)


def test_many_rows_of_one_statement(tmp_path):
    opened(tmp_path / "j.db")
    with closing(store.writer(str(tmp_path / "j.db"))) as db:
        rows = [(n, 1, f"k{n}", "n", "t", None, None, None, None, None, None) for n in range(1, 700)]
        began = time.monotonic()
        store.put_jobs(db, rows)
        store.put_jobs(db, [(*row[:6], "succeeded", "t", "{}", 0, None) for row in rows])
        assert db.execute("SELECT count(*), min(status) FROM jobs").fetchone() == (699, "succeeded")
        assert time.monotonic() - began < 60


@pytest.mark.parametrize("capture", [True, False])
def test_the_quick_way_to_tell_of_a_success_tells_the_same(tmp_path, capture):
    with Executor(max_workers=1, journal=tmp_path / "j.db", capture=capture) as ex:
        view = ex.options(name='a "name"', key=lambda n: f"k\\ey \x07 {n}")
        runs = [view.submit(int, n) for n in range(400)]  # the first hundred are looked at more closely
        assert ex.drain(60)
        cheap = [(n, future) for n, future in enumerate(runs) if type(future._report) is tuple]
        assert cheap, "none is a cheap success: nothing is shown"
        (number, future) = cheap[-1]
        outcome = future.outcome()
        row = row_of(future, SETTLED, 1, 1, future._began_ns)
        facts = outcome.as_dict()
        assert json.loads(row[8]) == facts | {"root_key": ""}
        assert row == (
            1, 1, outcome.key, outcome.name, facts["submitted"], facts["started"], "succeeded", facts["finished"],
            row[8], 1, number.to_bytes(8, "little"),
        )  # fmt: skip


OWNERS = """\
import os, sys, time
from ptss_mp import JournalError
from ptss_mp.journal.opening import Opened
folder, end, owned, busy = sys.argv[1], time.monotonic() + 1.5, 0, 0
while time.monotonic() < end or not owned:
    try:
        found = Opened(folder + "/j.db", True, ("", None), exact=True, only_after="")
    except JournalError as error:
        assert error.reason == "busy", error
        busy += 1
        continue
    os.close(os.open(folder + "/owner", os.O_CREAT | os.O_EXCL))  # fails if there are two
    os.unlink(folder + "/owner")
    owned += 1
    for part in (found.lookup, found.started, found.db, found.place):
        part.close()
print(owned, busy)
"""


def test_a_journal_has_one_owner_at_a_time(tmp_path):
    others = [
        subprocess.Popen([sys.executable, "-c", OWNERS, tmp_path], stdout=subprocess.PIPE, text=True, env=HERE)
        for _ in range(3)
    ]
    told = [(other.communicate(timeout=60)[0].split(), other.returncode) for other in others]
    assert [status for _, status in told] == [0, 0, 0]
    assert sum(int(busy) for (_, busy), _ in told) > 0
