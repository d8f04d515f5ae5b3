"""What a job changes in its process for the worse is not there for the next job of that worker."""

from __future__ import annotations

import faulthandler
import gc
import locale
import os
import pickle
import resource
import signal
import socket
import sys
from typing import Any

import pytest
from support import CAP_S

CONTEXTS = pytest.mark.parametrize("context", [None, "spawn"])


def raised(*_: Any) -> Any:
    raise RuntimeError("left by the last job")


def lower(limit: int, soft: int) -> None:
    resource.setrlimit(limit, (soft, resource.getrlimit(limit)[1]))


LIMITS = (resource.RLIMIT_FSIZE, resource.RLIMIT_NOFILE, resource.RLIMIT_NPROC)
CHANGES = {
    "handler": lambda: signal.signal(signal.SIGTERM, raised),
    "ignored": lambda: signal.signal(signal.SIGINT, signal.SIG_IGN),
    "file size": lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (10, resource.RLIM_INFINITY)),
    "open files": lambda: lower(resource.RLIMIT_NOFILE, 50),
    "processes": lambda: lower(resource.RLIMIT_NPROC, 0),
    "path": lambda: sys.path.clear(),
    "path replaced": lambda: setattr(sys, "path", ["/nowhere"]),
    "recursion": lambda: sys.setrecursionlimit(120),
    "switching": lambda: sys.setswitchinterval(1.5),
    "pickle": lambda: setattr(pickle, "loads", raised) or setattr(pickle, "dumps", raised),
    "tracing": lambda: sys.settrace(raised_at),
    "profiling": lambda: sys.setprofile(raised_at),
    "collector": gc.disable,
    "faults": faulthandler.disable,
    "sockets": lambda: socket.setdefaulttimeout(0.5),
    "processors": lambda: os.sched_setaffinity(0, {min(os.sched_getaffinity(0))}),
    "priority": lambda: os.setpriority(os.PRIO_PROCESS, 0, 5),
    "stdout": lambda: setattr(sys, "stdout", None),
}


def raised_at(*_: Any) -> None:
    return None


def change(what: str) -> int:
    CHANGES[what]()
    return os.getpid()


def settings() -> dict[str, Any]:
    return {
        "pid": os.getpid(),
        "handlers": [repr(signal.getsignal(n)) for n in (signal.SIGTERM, signal.SIGINT)],
        "limits": [resource.getrlimit(n) for n in LIMITS],
        "path": list(sys.path),
        "limit": (sys.getrecursionlimit(), sys.getswitchinterval()),
        "pickle": pickle.loads(pickle.dumps(1)),
        "traced": (sys.gettrace() is None, sys.getprofile() is None),
        "collector": gc.isenabled(),
        "faults": faulthandler.is_enabled(),
        "sockets": socket.getdefaulttimeout(),
        "processors": os.sched_getaffinity(0),
        "priority": os.getpriority(os.PRIO_PROCESS, 0),
        "stdout": sys.stdout is not None,
        "locale": locale.setlocale(locale.LC_ALL),
    }


@CONTEXTS
@pytest.mark.parametrize("what", CHANGES)
def test_it_is_set_back(pool, context, what):
    ex = pool(1, context, spares=0)
    before = ex.submit(settings).result(CAP_S)
    assert ex.submit(change, what).result(CAP_S) == before["pid"]
    assert ex.submit(settings).result(CAP_S) == before


def test_also_after_a_function_that_had_proven_itself(pool):
    """It is looked at every 50 ms then: the next job but one at the latest, if that comes later."""
    ex = pool(1, spares=0)
    before = ex.submit(settings).result(CAP_S)
    for _ in ex.map(change_if, [False] * 300):
        pass
    ex.submit(change_if, True).result(CAP_S)
    ex.submit(nap, 0.1).result(CAP_S)
    assert ex.submit(settings).result(CAP_S) == before


def change_if(yes: bool) -> None:
    if yes:
        signal.signal(signal.SIGTERM, raised)


def nap(seconds: float) -> None:
    import time

    time.sleep(seconds)


def add() -> int:
    sys.path.append("/somewhere")
    sys.setrecursionlimit(5_000)
    _soft, hard = resource.getrlimit(resource.RLIMIT_CORE)
    resource.setrlimit(resource.RLIMIT_CORE, (hard, hard))
    return os.getpid()


def test_what_was_added_or_raised_stays(pool):
    """A module that a job imports may need it, and will not be imported again."""
    ex = pool(1, spares=0)
    pid = ex.submit(add).result(CAP_S)
    after = ex.submit(settings).result(CAP_S)
    assert after["pid"] == pid
    assert after["path"][-1] == "/somewhere"
    assert after["limit"][0] == 5_000


def hold(size: int) -> int:
    held = bytearray(size)
    held[::4096] = b"x" * len(held[::4096])
    return os.getpid()


@CONTEXTS
def test_a_peak_is_that_of_the_attempt(pool, context):
    """Regression: a job of a millisecond was told the peak of the largest one before it."""
    ex = pool(1, context, spares=0)
    large, small, larger = (ex.submit(hold, size << 20) for size in (200, 20, 300))
    outcomes = [future.outcome(CAP_S) for future in (large, small, larger)]
    assert len({outcome.worker_pid for outcome in outcomes}) == 1
    mebibytes = [outcome.max_rss >> 20 for outcome in outcomes]
    assert 195 <= mebibytes[0] <= 260
    assert 15 <= mebibytes[1] <= 80
    assert 295 <= mebibytes[2] <= 360


def lose() -> int:
    """Install a handler that Python does not know how to set back."""
    resource.setrlimit(resource.RLIMIT_NOFILE, (60, 60))
    os.setgroups([])
    os.setresgid(65534, 65534, 65534)
    os.setresuid(65534, 65534, 65534)
    return os.getpid()


@pytest.mark.skipif(os.getuid() != 0, reason=f"needs root, whose rights it gives up; this is {os.getuid()}")
def test_a_worker_whose_settings_cannot_be_set_back_is_replaced(pool):
    ex = pool(1, spares=0)
    before = ex.submit(settings).result(CAP_S)
    assert ex.submit(lose).result(CAP_S) == before["pid"]
    after = ex.submit(settings).result(CAP_S)
    assert after["pid"] != before["pid"]
    assert after["limits"] == before["limits"]
