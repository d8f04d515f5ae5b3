"""Level two of hygiene: settings of the process that a job may take from the next one.

What a job changed for the worse is set back: handlers, lowered limits, the locale, what it took out of `sys.path`.
What it has added or raised stays: a module that it imported may have done so, and will not be imported again.
"""

from __future__ import annotations

import _locale
import _signal  # type: ignore[import-not-found]
import faulthandler
import gc
import os
import pickle
import resource
import signal
import sys
from typing import Any

from .pipes import FAULT_FD

_SIGNALS = [n for n in range(1, signal.NSIG) if n not in (signal.SIGKILL, signal.SIGSTOP, 32, 33)]  # glibc's own two
_LIMITS = [getattr(resource, name) for name in dir(resource) if name.startswith("RLIMIT_")]
_INFINITE = resource.RLIM_INFINITY


class Settings:
    """The settings as they were when the worker began.

    Attributes:
        lost: something cannot be set back; the worker is of no more use.
    """

    def __init__(self) -> None:
        self.lost = False
        self._handlers = list(map(_signal.getsignal, _SIGNALS))  # `signal`'s own is fifty times slower: enum members
        self._limits = list(map(resource.getrlimit, _LIMITS))
        self._locale = _locale.setlocale(_locale.LC_ALL, None)
        self._path = list(sys.path)
        self._recursion, self._switching = sys.getrecursionlimit(), sys.getswitchinterval()
        self._cpus, self._nice = os.sched_getaffinity(0), os.getpriority(os.PRIO_PROCESS, 0)
        self._timeout = _socket_timeout()
        self._pickle = pickle.loads, pickle.dumps  # what a worker itself cannot do without

    def restore(self) -> bool:
        """Set back what is worse than it was; return True if anything was."""
        try:
            found = self._set_back_handlers() | self._set_back_limits()
            return found | self._set_back_python() | self._set_back_share()
        except (OSError, ValueError, TypeError):  # no right to, or no way
            self.lost = True
            return True

    def _set_back_handlers(self) -> bool:
        now = list(map(_signal.getsignal, _SIGNALS))
        if now == self._handlers and faulthandler.is_enabled():
            return False
        for number, before, after in zip(_SIGNALS, self._handlers, now, strict=True):
            if before != after:
                signal.signal(number, before)  # None, of one that was not set by Python: TypeError
        if not faulthandler.is_enabled():
            faulthandler.enable(file=FAULT_FD, all_threads=True)
        return True

    def _set_back_limits(self) -> bool:
        now = list(map(resource.getrlimit, _LIMITS))
        if now == self._limits:
            return False
        found = False
        for limit, before, after in zip(_LIMITS, self._limits, now, strict=True):
            if _less(after[0], before[0]) or _less(after[1], before[1]):
                resource.setrlimit(limit, before)
                found = True
        return found

    def _set_back_python(self) -> bool:
        found = False
        if _locale.setlocale(_locale.LC_ALL, None) != self._locale:
            _locale.setlocale(_locale.LC_ALL, self._locale)
            found = True
        if sys.path[: len(self._path)] != self._path and not set(self._path) <= set(map(str, sys.path)):
            sys.path[:] = self._path
            found = True
        if sys.getrecursionlimit() < self._recursion or sys.getswitchinterval() != self._switching:
            sys.setrecursionlimit(max(self._recursion, sys.getrecursionlimit()))
            sys.setswitchinterval(self._switching)
            found = True
        if (pickle.loads, pickle.dumps) != self._pickle:
            pickle.loads, pickle.dumps = self._pickle
            found = True
        if sys.gettrace() or sys.getprofile():
            sys.settrace(None)
            sys.setprofile(None)
            found = True
        if not gc.isenabled():
            gc.enable()
            found = True
        return found | self._set_back_sockets()

    def _set_back_sockets(self) -> bool:
        if _socket_timeout() == self._timeout:
            return False
        sys.modules["_socket"].setdefaulttimeout(self._timeout)
        return True

    def _set_back_share(self) -> bool:
        found = False
        if not self._cpus <= os.sched_getaffinity(0):
            os.sched_setaffinity(0, self._cpus)
            found = True
        if os.getpriority(os.PRIO_PROCESS, 0) > self._nice:
            os.setpriority(os.PRIO_PROCESS, 0, self._nice)
            found = True
        return found


def _socket_timeout() -> float | None:
    """Return the default timeout of sockets; no worker imports them by itself."""
    socket: Any = sys.modules.get("_socket")
    return socket.getdefaulttimeout() if socket else None


def _less(after: int, before: int) -> bool:
    return after not in (before, _INFINITE) and (before == _INFINITE or after < before)
