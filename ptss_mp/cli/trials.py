"""What `doctor` tries: jobs that misbehave, and what must come of them.

Workers import this module for its jobs, so it imports almost nothing.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from ..outcome import Outcome
    from .pool import RunExecutor

TRY_S = 30.0  # a trial takes milliseconds; a machine on which one takes so long cannot be used
LIMIT_S = 0.2
LATE_S = 1.0  # of a kill; the promise is milliseconds, but a busy machine is not a broken one
GONE_S = 2.0


class Trial(NamedTuple):
    """A promise, whether it held, and what was seen."""

    promise: str
    held: bool
    seen: str


# ---- Jobs.


def whoami() -> int:
    """Return the pid of the worker."""
    return os.getpid()


def crash() -> None:
    """Die of a segmentation fault."""
    signal.signal(signal.SIGSEGV, signal.SIG_DFL)
    os.kill(os.getpid(), signal.SIGSEGV)


def hang() -> None:
    """Never end, and hold the interpreter lock as far as Python code can."""
    while True:
        pass


def hang_deaf() -> None:
    """Never end, and listen to no signal that can be blocked."""
    signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    hang()


def leave_a_daemon() -> None:
    """Start a process in a session of its own, say its pid, die."""
    said, say = os.pipe()
    if not os.fork():
        os.setsid()
        daemon = os.fork()
        if daemon:
            os._exit(0)
        os.write(say, str(os.getpid()).encode())
        while True:
            time.sleep(60)
    print(os.read(said, 20).decode(), flush=True)
    os.kill(os.getpid(), signal.SIGKILL)


# ---- Trials.


def try_all(pool: RunExecutor) -> list[Trial]:
    """Try each promise on a pool of two workers; never raises for what is found."""
    return [_tried(promise, trial, pool) for promise, trial in TRIALS]


def _tried(promise: str, trial: Callable[[RunExecutor], tuple[bool, str]], pool: RunExecutor) -> Trial:
    from ..outcome import brief

    if pool.why_broken:  # the trial before has told why
        return Trial(promise, False, "not tried: no worker can be had")
    try:
        return Trial(promise, *trial(pool))
    except TimeoutError:
        return Trial(promise, False, f"nothing came of it within {TRY_S:g} s")
    except Exception as error:  # whatever this machine cannot do is what is asked for
        return Trial(promise, False, brief(error))


def _runs(pool: RunExecutor) -> tuple[bool, str]:
    began = time.monotonic()
    out = pool.submit(whoami).outcome(TRY_S)
    took = time.monotonic() - began
    if not out.ok:
        return False, _told(out)
    return out.result() != os.getpid(), f"the first result came after {took:.2f} s"


def _crash(pool: RunExecutor) -> tuple[bool, str]:
    before, guilty, after = pool.submit(whoami), pool.submit(crash), pool.submit(whoami)
    crashed = guilty.outcome(TRY_S)
    for innocent in (before.outcome(TRY_S), after.outcome(TRY_S)):
        if not innocent.ok:
            return False, f"the one beside it: {_told(innocent)}"
    if crashed.signal != signal.SIGSEGV:
        return False, _told(crashed)
    return True, "SIGSEGV; those beside it succeeded"


def _hang(pool: RunExecutor) -> tuple[bool, str]:
    view = pool.options(timeout=LIMIT_S)
    killed, deaf = view.submit(hang).outcome(TRY_S), view.submit(hang_deaf).outcome(TRY_S)
    for out in (killed, deaf):
        if out.status.value != "timeout" or out.observed is None or out.observed - LIMIT_S > LATE_S:
            return False, _told(out)
    if "in hang" not in (killed.stack or ""):
        return False, "it was killed, but its stack could not be told"
    assert deaf.observed is not None
    return True, f"{(deaf.observed - LIMIT_S) * 1000:.1f} ms late; its stack is told"


def _tree(pool: RunExecutor) -> tuple[bool, str]:
    out = pool.submit(leave_a_daemon).outcome(TRY_S)
    said = (out.stdout or "").strip()
    if not said.isdigit():
        return False, f"its output was lost: {_told(out)}"
    from ..warden import proc

    until = time.monotonic() + GONE_S
    while proc.state(int(said)) not in "ZX":  # one that waits to be reaped can do no more
        if time.monotonic() > until:
            return False, f"its daemon (pid {said}) lives {GONE_S:g} s after it"
        time.sleep(0.001)
    return True, "so did its daemon"


def _told(out: Outcome[Any]) -> str:
    return f"{out.status.value}: {out.error}" if out.error else out.status.value


TRIALS: tuple[tuple[str, Callable[[RunExecutor], tuple[bool, str]]], ...] = (
    ("a job runs in a process of its own", _runs),
    ("a crash costs one job", _crash),
    ("a hang is killed at its timeout", _hang),
    ("what a job started dies with it", _tree),
)


def nothing_left() -> Trial:
    """After the pool's end: no process of it lives."""
    import psutil

    promise, until = "nothing is left at the end", time.monotonic() + GONE_S
    while left := [child.pid for child in psutil.Process().children(recursive=True)]:
        if time.monotonic() > until:
            return Trial(promise, False, f"these processes live: {left}")
        time.sleep(0.001)
    return Trial(promise, True, "no process lives")
