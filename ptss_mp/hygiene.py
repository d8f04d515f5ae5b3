"""What a job must not leave to the next one in a reused worker.

Level one: directory, environment, umask, signal mask, timers, threads.
"""

from __future__ import annotations

import _thread
import contextlib
import os
import signal


def _folder() -> str | None:
    """Return the current folder, None if it was deleted under us."""
    try:
        return os.getcwd()
    except OSError:
        return None


class Hygiene:
    """What a job must not leave to the next, as it was when the worker began."""

    def __init__(self) -> None:
        self.cwd = _folder()
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
        if _folder() != self.cwd:
            found = True
            if self.cwd is not None:
                with contextlib.suppress(OSError):  # a job may have deleted it
                    os.chdir(self.cwd)
        if os.environ._data != self.raw_environ:  # type: ignore[attr-defined]
            os.environ.clear()
            os.environ.update(self.environ)
            found = True
        if signal.pthread_sigmask(signal.SIG_BLOCK, ()) != self.mask:
            signal.pthread_sigmask(signal.SIG_SETMASK, self.mask)
            found = True
        for timer in (signal.ITIMER_REAL, signal.ITIMER_PROF):
            if signal.getitimer(timer)[0]:
                signal.setitimer(timer, 0)
                found = True
        return found or _thread._count() != self.threads
