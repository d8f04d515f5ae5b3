"""Waiting for a pool's work to be done, and serving it until a signal comes."""

from __future__ import annotations

import logging
import signal
import threading
import time

from .handlers import Handlers
from .outcome import exit_status
from .pool import Pool
from .units import duration_ns

SIGNALLED = 128  # + n: the exit status after signal n
LOOK_S = 0.2  # a pool that ends meanwhile may never have heard of who waits

log = logging.getLogger("ptss_mp")


def wait_for_work(pool: Pool, timeout: float | None, everything: bool, verb: str) -> bool:
    """Wait until no job is unsettled and no done-callback is running or due.

    Args:
        timeout: seconds, or None.
        everything: also jobs that are not released yet.
        verb: what the caller calls it.

    Returns:
        False if it took longer.

    Raises:
        RuntimeError: called from a done-callback, which would wait for itself; or in a fork of the program; or to
            wait for added tasks before the pool was started.
    """
    if pool.callbacks.here:
        raise RuntimeError(f"{verb}() inside a done-callback would wait for that callback")
    pool.refuse_forks()
    if not pool.pid:
        if everything and pool.releases:
            raise RuntimeError(f"{verb}() would wait for ever: tasks were added, and nothing has started the pool yet")
        return True
    over = threading.Event()
    pool.control(lambda _now: pool.drainers.append((over, everything)))
    until = None if timeout is None else time.monotonic() + timeout
    while not over.wait(LOOK_S if until is None else max(0.0, min(LOOK_S, until - time.monotonic()))):
        if not pool.callbacks.thread.is_alive():
            return True  # it ended meanwhile, and with it every callback
        if until is not None and time.monotonic() >= until:
            return False
    return True


def serve(pool: Pool, grace: float) -> int:
    """Start, wait for all work; see `Executor.serve`."""
    grace_ns = 0 if grace == 0 else duration_ns(grace, "grace")
    if threading.current_thread() is not threading.main_thread():
        raise RuntimeError("serve() handles signals, which only the main thread can; elsewhere use start() and join()")

    def act(number: int, seen: int) -> None:
        log.info("%s: %s", signal.Signals(number).name, "stopping" if seen == 1 else "killing what runs")
        pool.stop(grace_ns if seen == 1 else 0)

    pool.open()
    with Handlers(act) as handlers:
        wait_for_work(pool, None, True, "serve")
        if handlers.number is not None:
            pool.join()
    if handlers.number is None:
        return exit_status(pool.weights)
    pool.join()  # it may have come in the last moment
    return SIGNALLED + handlers.number
