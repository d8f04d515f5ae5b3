"""The loss of power, simulated: of a recorded run only what was synced is sure to be on the disk.

For each file all writes before its last sync (fsync, fdatasync) stand; of the later ones a random part, some of them
torn.  A directory entry is taken as durable once the file was synced.
"""

from __future__ import annotations

import random
import re
import sqlite3
import time
from collections import defaultdict
from contextlib import closing
from pathlib import Path
from typing import Any

from ptss_mp.journal.opening import Opened
from tests.journal import graph
from tests.journal.strace import FILES, Call, calls, traced

_PATH = re.compile(r"\d+<(.*?)>")
_DATA = re.compile(r'"((?:\\x[0-9a-f]{2})*)"')


def record(folder: Path, jobs: int) -> list[Call]:
    """Run a graph under strace; return what it did to the journal, and the outcomes that it told."""
    options = ["-xx", "-s", "1000000", "-e", "trace=pwrite64,write,fdatasync,fsync,ftruncate,unlink"]
    trace = traced(folder, [graph.__file__, str(folder), str(jobs), "fail"], options, (*FILES, "log"))
    return calls(trace)


def path_of(call: Call) -> str:
    """Return the name of the file that a call is about; strace shows it as it shows data (-xx)."""
    found = _PATH.search(call.args) if call.name != "unlink" else _DATA.search(call.args)
    return Path(bytes.fromhex(found[1].replace("\\x", "")).decode() if "\\x" in found[1] else found[1]).name


def data_of(call: Call) -> bytes:
    return bytes.fromhex(_DATA.search(call.args)[1].replace("\\x", ""))


class Recording:
    """A run's writes by file, and what it told."""

    def __init__(self, made: list[Call], jobs: int) -> None:
        self.values = graph.expected(jobs)
        self.end = max(call.ended for call in made) + 1
        self.writes: dict[str, list[tuple[int, str, int, bytes]]] = defaultdict(list)  # line, kind, offset, data
        self.told: list[tuple[int, int, str, str]] = []  # line, job, status, value
        for call in made:
            name = path_of(call)
            if call.value < 0:
                continue
            if name == "log":
                line = data_of(call).decode().split()
                if line[0] == "t":
                    self.told.append((call.began, int(line[1]), line[2], line[4]))
            elif call.name == "pwrite64":
                offset = int(call.args.rsplit(", ", 1)[1])
                self.writes[name].append((call.ended, "w", offset, data_of(call)))
            elif call.name == "write":
                self.writes[name].append((call.ended, "a", 0, data_of(call)))
            elif call.name == "ftruncate":
                self.writes[name].append((call.ended, "t", int(call.args.rsplit(", ", 1)[1]), b""))
            elif call.name == "unlink":
                self.writes[name].append((call.ended, "u", 0, b""))
            else:
                self.writes[name].append((call.ended, "s", 0, b""))
        assert sum(kind == "s" for kind, *_ in ((w[1],) for w in self.writes["journal.db-wal"])) > 3, "no syncs seen"

    def image(self, name: str, at: int, chance: random.Random) -> bytes | None:
        """Return what may be on the disk of a file when the power goes before line `at`; None: nothing."""
        done = [write for write in self.writes[name] if write[0] < at]
        synced = max((i for i, write in enumerate(done) if write[1] in "su"), default=-1)
        data, there = bytearray(), False
        for i, (_, kind, offset, more) in enumerate(done):
            if kind == "u":
                data, there = bytearray(), False
            elif kind == "t" and (i <= synced or chance.random() < 0.5):
                del data[offset:]
                data.extend(b"\0" * (offset - len(data)))
            elif kind in "wa" and (i <= synced or chance.random() < 0.5):
                there = True
                offset = len(data) if kind == "a" else offset
                if i > synced and chance.random() < 0.2:
                    more = more[: chance.randrange(len(more))]
                data.extend(b"\0" * (offset - len(data)))
                data[offset : offset + len(more)] = more
        return bytes(data) if there or synced >= 0 else None

    def lose_power(self, folder: Path, at: int, chance: random.Random) -> int:
        """Let the power go before line `at`, open what is left, look for what was told; return how many that were."""
        for old in folder.iterdir():
            old.unlink()
        for name in FILES:
            data = self.image(name, at, chance)
            if data is not None:
                (folder / name).write_bytes(data)
                (folder / name).chmod(0o600)
        told = {job: (status, value) for line, job, status, value in self.told if line < at}
        if not (folder / "journal.db").exists():
            assert not told
            return 0
        opened = Opened(str(folder / "journal.db"), True, ("", None), exact=True, only_after="")
        for owner in (opened.lookup, opened.started, opened.db, opened.place):
            owner.close()
        self._check(folder, told)
        return len(told)

    def _check(self, folder: Path, told: dict[int, tuple[str, str]]) -> None:
        rows: dict[int, tuple[str, Any]] = {}
        with closing(sqlite3.connect(folder / "journal.db")) as db:
            assert db.execute("PRAGMA integrity_check").fetchone() == ("ok",)
            for job, status, value in db.execute("SELECT job, status, result FROM jobs ORDER BY job"):
                rows[job - 1] = status, value  # one run: jobs are numbered as they were submitted
        for job, (status, value) in told.items():
            assert rows.get(job, ("nothing",))[0] == status, f"job {job} was told {status}, and is {rows.get(job)}"
            if status == "succeeded":
                assert int.from_bytes(rows[job][1], "little") == int(value)
        for job, (status, value) in rows.items():
            if status == "succeeded":
                assert int.from_bytes(value, "little") == self.values[job], "an outcome was invented"


def main(losses: int, jobs: int, runs: int = 4) -> None:
    """Record some runs, and let the power go so many times."""
    import tempfile

    began, told = time.monotonic(), 0
    for number in range(runs):
        with tempfile.TemporaryDirectory() as here, tempfile.TemporaryDirectory() as there:
            recording = Recording(record(Path(here), jobs), jobs)
            chance = random.Random(number)
            for _ in range(losses // runs):
                told += recording.lose_power(Path(there), chance.randrange(1, recording.end + 1), chance)
            print(f"run {number}: {losses // runs} losses, {len(recording.told)} outcomes told", flush=True)
    took = time.monotonic() - began
    print(f"{losses // runs * runs} losses of power in {took:.0f} s: of {told} told outcomes 0 lost")
