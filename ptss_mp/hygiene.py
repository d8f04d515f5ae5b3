"""What a job must not leave to the next one in a reused worker.

Level one: directory, environment, umask, signal mask, timers, threads.
"""

from __future__ import annotations

import _thread
import contextlib
import os
import signal


class Hygiene:
    """What a job must not leave to the next, as it was when the worker began."""

    def __init__(self) -> None:
        self.cwd = _cwd()
        self.environ = dict(os.environ)
        self.raw_environ = dict(os.environ._data)  # type: ignore[attr-defined]
        self.umask = os.umask(0o22)
        os.umask(self.umask)
        self.mask = signal.pthread_sigmask(signal.SIG_BLOCK, ())
        self.threads = _thread._count()

    def tidy(self) -> bool:
        """Set back what differs; return True if anything did."""
        found = False
        if os.umask(self.umask) != self.umask:
            found = True
        if _cwd() != self.cwd:
            with contextlib.suppress(OSError):  # nobody can go back to a directory that was deleted
                os.chdir(self.cwd or ".")
            found = True
        if os.environ._data != self.raw_environ:  # type: ignore[attr-defined]
            os.environ.clear()
            os.environ.update(self.environ)
            found = True
        if signal.pthread_sigmask(signal.SIG_BLOCK, ()) != self.mask:
            signal.pthread_sigmask(signal.SIG_SETMASK, self.mask)
            found = True
        for timer in (signal.ITIMER_REAL, signal.ITIMER_VIRTUAL, signal.ITIMER_PROF):
            if signal.getitimer(timer)[0]:
                signal.setitimer(timer, 0)
                found = True
        return found or _thread._count() != self.threads


def _cwd() -> str | None:
    """Return the working directory, None if it was deleted."""
    try:
        return os.getcwd()
    except OSError:
        return None
