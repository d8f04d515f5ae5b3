"""`doctor`: what this machine can do, looked at and tried."""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import resource
import subprocess
import sys
from collections.abc import Callable
from typing import Any, NamedTuple

from ..host import means_of_limits
from ..shell import container
from ..units import shown_size
from . import text
from .exits import CommandError, Exit
from .signals import Interrupts
from .trials import nothing_left, try_all

SCHEMA = 1
KERNEL_MIN = (5, 4)
PYTHON_MIN = (3, 11)
EXTRAS = {  # those of pyproject.toml that change something here (a test compares)
    "closures": ("cloudpickle",),
    "cron": ("cronsim", "tzdata"),
    "joblib": ("joblib",),
    "examples": ("pillow", "pypdfium2"),
}


class Finding(NamedTuple):
    """One fact: `good` is None where nothing is right or wrong.  `facts` are for machines."""

    name: str
    good: bool | None
    told: str
    facts: dict[str, Any]


def doctor(args: argparse.Namespace) -> int:
    """Look, try, tell; return 1 if something that is needed is not to be had here."""
    machine = [_looked(name, look) for name, look in LOOKS]
    with Interrupts(grace=0) as interrupts:
        promises = _promises(interrupts)
    if interrupts.number is not None:
        raise CommandError(Exit.SIGNALLED + interrupts.number, "")
    limits = _limits()
    extras = [_extra(name, packages) for name, packages in EXTRAS.items()]
    bad = sum(finding.good is False for finding in (*machine, *promises, *limits))
    if args.json:
        parts = {"machine": machine, "promises": promises, "limits": limits, "extras": extras}
        data = {part: [_as_dict(finding) for finding in found] for part, found in parts.items()}
        text.emit_all(json.dumps({"schema": SCHEMA, "ok": not bad, **data}, indent=2) + "\n")
    else:
        _tell("this machine", machine)
        _tell("promises, tried just now", promises)
        _tell("how limits are held here, tried just now", limits)
        _tell("extras", extras)
        text.say(f"{bad} of these will not do" if bad else "all that is needed is here, and all promises hold")
    return Exit.FAILED if bad else Exit.OK


def _tell(title: str, findings: list[Finding]) -> None:
    width = max((len(finding.name) for finding in findings), default=0)
    text.say(f"{title}:")
    for finding in findings:
        mark = {True: "ok", False: "NO", None: "--"}[finding.good]
        text.say(f"  {mark}  {finding.name:<{width}}  {finding.told}")


def _as_dict(finding: Finding) -> dict[str, Any]:
    return {"name": finding.name, "ok": finding.good, "told": finding.told, **finding.facts}


# ---- The machine.


def _looked(name: str, look: Callable[[], tuple[bool | None, str, dict[str, Any]]]) -> Finding:
    try:
        return Finding(name, *look())
    except Exception as error:  # what cannot even be looked at is a finding
        return Finding(name, False, f"cannot be looked at: {type(error).__name__}: {error}", {})


def _python() -> tuple[bool, str, dict[str, Any]]:
    good = sys.version_info >= PYTHON_MIN and sys.implementation.name == "cpython"
    version = platform.python_version()
    told = f"{platform.python_implementation()} {version} ({sys.executable})"
    return good, _needed(good, told, "CPython 3.11 or newer"), {"version": version, "executable": sys.executable}


def _kernel() -> tuple[bool, str, dict[str, Any]]:
    release = platform.release()
    found = re.match(r"(\d+)\.(\d+)", release)
    good = bool(found) and tuple(map(int, found.groups() if found else ())) >= KERNEL_MIN and sys.platform == "linux"
    return good, _needed(good, f"{platform.system()} {release}", "Linux 5.4 or newer"), {"release": release}


def _pidfd() -> tuple[bool, str, dict[str, Any]]:
    import signal

    fd = os.pidfd_open(os.getpid())
    try:
        signal.pidfd_send_signal(fd, 0)
    finally:
        os.close(fd)
    return True, "opens, and takes signals", {}


def _proc() -> tuple[bool, str, dict[str, Any]]:
    good = os.path.exists("/proc/self/task") and os.path.exists(f"/proc/self/task/{os.getpid()}/children")
    return good, _needed(good, "lists children" if good else "lists no children", "CONFIG_PROC_CHILDREN"), {}


def _cpus() -> tuple[None, str, dict[str, Any]]:
    from ..pool import cpus

    usable, allowed, there = cpus(), len(os.sched_getaffinity(0)), os.cpu_count() or 1
    told = f"{usable} usable ({allowed} by affinity, {there} in the machine)"
    return None, told, {"usable": usable, "affinity": allowed, "machine": there}


def _files() -> tuple[bool, str, dict[str, Any]]:
    from ..shell.hire import DESCRIPTORS_MIN
    from ..warden.protocol import FDS

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    facts = {"soft": _or_none(soft), "hard": _or_none(hard), "needed": DESCRIPTORS_MIN}
    if soft == resource.RLIM_INFINITY:
        return True, "no limit (ulimit -n)", facts
    if soft < DESCRIPTORS_MIN:
        return False, f"{soft} (ulimit -n); needed: {DESCRIPTORS_MIN} at least", facts
    workers = 1 + (soft - DESCRIPTORS_MIN) // FDS  # what the program holds of each
    return True, f"{soft} (ulimit -n): enough for about {text.count(workers, 'worker')}", facts


def _processes() -> tuple[None, str, dict[str, Any]]:
    soft = _or_none(resource.getrlimit(resource.RLIMIT_NPROC)[0])
    group = container.processes()
    told = f"{_bound(soft)} (ulimit -u), by the cgroup {_bound(group)}"
    return None, told, {"user": soft, "cgroup": group}


def _memory() -> tuple[None, str, dict[str, Any]]:
    import psutil

    found = psutil.virtual_memory()
    group = container.memory_bytes()
    group = None if group is None or group >= found.total else group
    told = f"{shown_size(found.available)} available of {shown_size(found.total)}"
    told += f", at most {shown_size(group)} by the cgroup" if group else ""
    return None, told, {"available": found.available, "total": found.total, "cgroup": group}


def _user() -> tuple[None, str, dict[str, Any]]:
    uid = os.geteuid()
    told = "root: neither file modes nor ulimit -u hold jobs back" if uid == 0 else f"uid {uid}"
    return None, told, {"uid": uid}


def _payloads() -> tuple[None, str, dict[str, Any]]:
    from ..shell.freight import reaches

    try:
        child = subprocess.Popen([sys.executable, "-S", "-c", "import sys; sys.stdin.read()"], stdin=subprocess.PIPE)
    except OSError as error:
        return None, f"cannot be tried: {error}", {"direct": None}
    try:
        direct = reaches(child.pid)
    finally:
        child.communicate(b"\n")
    why = "no process may look into its children"
    told = "large ones go from memory to memory" if direct else f"large ones go by pipe, several times slower: {why}"
    return None, told, {"direct": direct}


LOOKS: tuple[tuple[str, Callable[[], tuple[bool | None, str, dict[str, Any]]]], ...] = (
    ("python", _python), ("kernel", _kernel), ("pidfd", _pidfd), ("/proc", _proc), ("cpus", _cpus),
    ("open files", _files), ("processes", _processes), ("memory", _memory), ("user", _user),
    ("payloads", _payloads),
)  # fmt: skip


def _needed(good: bool, told: str, what: str) -> str:
    return told if good else f"{told}; needed: {what}"


def _or_none(limit: int) -> int | None:
    return None if limit == resource.RLIM_INFINITY else limit


def _bound(number: int | None) -> str:
    return "no limit" if number is None else str(number)


# ---- The promises.


def _promises(interrupts: Interrupts) -> list[Finding]:
    from .pool import RunExecutor

    pool = RunExecutor(max_workers=2, capture=True)
    interrupts.turn_to(pool, importing=True)
    try:
        trials = try_all(pool)
    finally:
        pool.kill_workers()
        pool.shutdown()
    return [Finding(trial.promise, trial.held, trial.seen, {}) for trial in (*trials, nothing_left())]


# ---- Limits.


def _limits() -> list[Finding]:
    """Return how each limit of options is held here; one that is not will do for nobody who asks for it."""
    try:
        found = means_of_limits()
    except (OSError, subprocess.SubprocessError) as error:
        return [Finding("limits", False, str(error), {})]
    return [
        Finding(limit, means.how != "absent", f"{means.how}: {means.why}", {"how": means.how})
        for limit, means in found.items()
    ]


# ---- Extras.


def _extra(name: str, packages: tuple[str, ...]) -> Finding:
    """Return whether the packages of an extra are there, and the command that installs what is missing."""
    from importlib.metadata import PackageNotFoundError, version

    found: dict[str, str | None] = {}
    for package in packages:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = None
    install = f"pip install 'ptss_mp[{name}]'"
    missing = [package for package in packages if found[package] is None]
    here = [f"{package} {number}" for package, number in found.items() if number]
    told = f"{', '.join(missing)} not installed: {install}" if missing else ", ".join(here)
    return Finding(name, None if missing else True, told, {"packages": found, "install": install})
