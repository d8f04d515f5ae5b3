"""What a job must not leave to the next one in a reused worker.

Level one: directory, environment, umask, signal mask, timers, threads.
"""

from __future__ import annotations

import _thread
import os
import signal
import time

ENDING_S = 0.001  # a thread that was joined may be counted for a moment still; so long, twenty times


class Hygiene:
    """What a job must not leave to the next, as it was when the worker began.

    Attributes:
        spoiled: a thread that a job started still runs: nobody can end it, and it would act under the next job.
    """

    def __init__(self) -> None:
        self.cwd = _cwd()
        self.os_environ = os.environ
        self.environ = dict(os.environ)
        self.raw_environ = dict(os.environ._data)  # type: ignore[attr-defined]
        self.umask = os.umask(0o22)
        os.umask(self.umask)
        self.mask = signal.pthread_sigmask(signal.SIG_BLOCK, ())
        self.threads = _thread._count()
        self.spoiled = False

    def tidy(self) -> bool:
        """Set back what differs; return True if anything did."""
        found = False
        if os.umask(self.umask) != self.umask:
            found = True
        if _cwd() != self.cwd:
            found = True
            try:
                os.chdir(self.cwd)
            except OSError:  # a job has deleted it: a new worker would be no better off
                self.cwd = _cwd()
        if os.environ is not self.os_environ:
            os.environ = self.os_environ  # noqa: B003 - the very object that a job has replaced
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
        if _thread._count() > self.threads:
            found = True
            self.spoiled = self._outlived()
        return found

    def _outlived(self) -> bool:
        for _ in range(20):
            time.sleep(ENDING_S)
            if _thread._count() <= self.threads:
                return False
        return True


def _cwd() -> str:
    """Return the current directory; "" if it was deleted."""
    try:
        return os.getcwd()
    except OSError:
        return ""
