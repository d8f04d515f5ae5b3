"""`doctor`: what this machine can do, and that it is not told what does not hold."""

from __future__ import annotations

import json
import os
import re
import signal
import tomllib

import pytest

from ptss_mp.cli import doctor, trials
from ptss_mp.cli.pool import RunExecutor
from ptss_mp.shell.hire import DESCRIPTORS_MIN
from ptss_mp.warden import proc
from tests.cli.cli_support import REPOSITORY, assert_one_line, finish, ptss_mp, send, start

PROMISES = [
    "a job runs in a process of its own", "a crash costs one job", "a hang is killed at its timeout",
    "what a job started dies with it", "nothing is left at the end",
]  # fmt: skip
MACHINE = [
    *("python", "kernel", "pidfd", "/proc", "cpus", "open files", "processes", "memory", "user", "payloads"),
]

LIMITS = ["timeout", "deadline", "memory", "cpu_time", "processes", "open_files", "file_size"]


def test_people_read_it_on_stderr():
    ended = ptss_mp("doctor")
    assert (ended.status, ended.out) == (0, ""), ended
    assert ended.lines[-1] == "all that is needed is here, and all promises hold"
    for name in (*MACHINE, *PROMISES, *LIMITS):
        assert any(re.match(rf"  (ok|--)  {re.escape(name)}  ", line) for line in ended.lines), (name, ended)
    assert not any(line.startswith("  NO") for line in ended.lines)


def test_programs_read_it_on_stdout():
    ended = ptss_mp("doctor", "--json")
    assert (ended.status, ended.err) == (0, ""), ended
    data = json.loads(ended.out)
    assert (data["schema"], data["ok"]) == (1, True)
    assert [entry["name"] for entry in data["machine"]] == MACHINE
    assert [(entry["name"], entry["ok"]) for entry in data["promises"]] == [(name, True) for name in PROMISES]
    assert [entry["name"] for entry in data["limits"]] == LIMITS
    assert {entry["how"] for entry in data["limits"]} == {"kernel", "polled"}
    machine = {entry["name"]: entry for entry in data["machine"]}
    assert machine["cpus"]["usable"] >= 1
    assert machine["python"]["version"].startswith("3.")
    assert machine["user"]["uid"] == os.geteuid()
    assert machine["memory"]["total"] > machine["memory"]["available"] > 0


def test_extras_are_those_of_which_something_is_used():
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
    declared = {
        extra: tuple(re.match(r"[\w.-]+", package)[0] for package in packages)
        for extra, packages in project["optional-dependencies"].items()
        if extra not in ("all", "test", "neighbours", "bench")  # the last three are for tests and measurements
    }
    sources = [path.read_text() for folder in ("ptss_mp", "examples") for path in (REPOSITORY / folder).rglob("*.py")]

    def is_used(package):
        module = {"pillow": "PIL"}.get(package, package.replace("-", "_"))
        return any(re.search(rf"^\s*(import|from) {module}\b", source, re.MULTILINE) for source in sources)

    assert {extra: found for extra, found in declared.items() if any(map(is_used, found))} == doctor.EXTRAS


def test_an_extra_that_is_missing_is_named_with_the_command_that_installs_it():
    missing = doctor._extra("cron", ("psutil", "no-such-package-of-ours"))
    assert missing.good is None, "it is no fault"
    assert missing.told == "no-such-package-of-ours not installed: pip install 'ptss_mp[cron]'"
    assert missing.facts["packages"]["psutil"]
    there = doctor._extra("x", ("psutil",))
    assert there.good is True
    assert there.told.startswith("psutil ")


def test_too_few_descriptors():
    with start("doctor", by=["prlimit", "--nofile=20"]) as program:
        ended = finish(program)
    assert (ended.status, ended.out) == (1, ""), ended
    assert "Traceback" not in ended.err
    assert f"  NO  open files  20 (ulimit -n); needed: {DESCRIPTORS_MIN} at least" in ended.lines
    assert "20 open files are allowed" in next(line for line in ended.lines if PROMISES[0] in line)
    assert "not tried: no worker can be had" in next(line for line in ended.lines if PROMISES[1] in line)
    assert ended.lines[-1] == "5 of these will not do"
    with start("doctor", "--json", by=["prlimit", "--nofile=20"]) as program:
        ended = finish(program)
    assert (ended.status, json.loads(ended.out)["ok"]) == (1, False)


def test_an_interpreter_that_cannot_be_looked_at(monkeypatch):
    def broken():
        raise OSError("planted\x1b")

    found = doctor._looked("kernel", broken)
    assert (found.good, found.told) == (False, "cannot be looked at: OSError: planted\x1b")


@pytest.mark.parametrize("release", ["5.3.99", "4.19.0-generic", "unreadable"])
def test_an_old_kernel(monkeypatch, release):
    monkeypatch.setattr(doctor.platform, "release", lambda: release)
    good, told, _ = doctor._kernel()
    assert good is False
    assert "needed: Linux 5.4" in told


@pytest.mark.parametrize("release", ["5.4.0", "5.10.0-8-amd64", "6.18.44-fc", "10.0"])
def test_a_new_kernel(monkeypatch, release):
    monkeypatch.setattr(doctor.platform, "release", lambda: release)
    assert doctor._kernel()[0] is True


# ---- A canary: a pool that breaks its promises is found out.


class TestBrokenPromises:
    def pool(self):
        pool = RunExecutor(max_workers=2, capture=True)
        return pool

    def tried(self, monkeypatch, name, replacement, trial):
        monkeypatch.setattr(trials, name, replacement)
        pool = self.pool()
        try:
            return trials._tried("p", trial, pool)
        finally:
            pool.shutdown()

    def test_what_does_not_crash(self, monkeypatch):
        assert not self.tried(monkeypatch, "crash", os.getpid, trials._crash).held

    def test_what_does_not_hang(self, monkeypatch):
        assert not self.tried(monkeypatch, "hang", os.getpid, trials._hang).held

    def test_what_is_killed_late(self, monkeypatch):
        monkeypatch.setattr(trials, "LATE_S", -1.0)
        assert not self.tried(monkeypatch, "LIMIT_S", 0.1, trials._hang).held

    def test_what_leaves_a_process(self, monkeypatch):
        monkeypatch.setattr(proc, "state", lambda pid: "S")
        told = self.tried(monkeypatch, "GONE_S", 0.05, trials._tree)
        assert not told.held
        assert "lives 0.05 s after it" in told.seen

    def test_what_is_lost(self, monkeypatch):
        assert "its output was lost" in self.tried(monkeypatch, "leave_a_daemon", os.getpid, trials._tree).seen

    def test_what_never_ends(self, monkeypatch):
        monkeypatch.setattr(trials, "LIMIT_S", 30.0)
        told = self.tried_with_kill(monkeypatch)
        assert told.seen == "nothing came of it within 0.05 s"

    def tried_with_kill(self, monkeypatch):
        monkeypatch.setattr(trials, "TRY_S", 0.05)
        pool = self.pool()
        try:
            return trials._tried("p", trials._hang, pool)
        finally:
            pool.kill_workers()
            pool.shutdown()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_while_it_tries(number):
    """By then its two threads beside the main one and the one for signals are there."""
    with start("doctor") as program:
        while program.poll() is None and len(os.listdir(f"/proc/{program.pid}/task")) < 4:
            pass
        send(program, number)
        ended = finish(program)
    assert_one_line(ended, 128 + number, number.name, "killing what runs")
