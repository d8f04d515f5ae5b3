"""What a job must not leave to the next one in a reused worker.

Level one: directory, environment, umask, signal mask, timers, standard streams, logging, threads, garbage.
"""

from __future__ import annotations

import _thread
import contextlib
import gc
import os
import resource
import select
import signal
import sys
import time

from . import logs
from .settings import Settings

SETTLE_NS = 50_000_000  # the second level (settings.py) costs 9 µs
ENDING_S = 0.001  # a thread that was joined may be counted for a moment still; so long, twenty times
REDIRECTED_NS = 1_000_000  # after a run of so long, whether the standard descriptors are what they were (10 µs)
PEAK_BYTES = 1 << 20  # a peak is told to about so much; to forget one costs 3 µs
COLLECT_SHARE = 10  # a collection of more than the youngest objects may take so small a part of its job's time


class Hygiene:
    """What a job must not leave to the next, as it was when the worker began.

    Attributes:
        spoiled: a thread that a job started still runs: nobody can end it, and it would act under the next job;
            or the standard streams are gone; or a setting cannot be set back.
    """

    def __init__(self) -> None:
        self.cwd = _cwd()
        self.os_environ = os.environ
        self.environ = dict(os.environ)
        self.raw_environ = dict(os.environ._data)  # type: ignore[attr-defined]
        self.umask = os.umask(0o22)
        os.umask(self.umask)
        self.mask = signal.pthread_sigmask(signal.SIG_BLOCK, ())
        self.streams = (sys.stdin, sys.stdout, sys.stderr)
        self.files = _standard_files()
        self._poll = select.poll()
        for fd in (0, 1, 2):
            self._poll.register(fd, 0)  # tells of those that are closed: one system call for all
        self.threads = _thread._count()
        self.settings, self._settled_at = Settings(), time.monotonic_ns()
        self.spoiled = False
        self._tracked, self._collections = gc.get_count()[0], _collections()
        self._rest_bytes = 0  # the peak, when it was last forgotten
        self._took_ns = [0, 0, 0]  # the last collection of each generation

    def collect(self, duration_ns: int) -> bool:
        """Let go of cyclic garbage while its job is still answerable for it; return True if there was any.

        Left to the collector, a finaliser that crashes would crash under a later job, and be blamed on that.
        What a job leaves is among the youngest objects, unless collections in its time have moved it on:
        then these are looked through too, if that is no more than a tenth of the time that the job took.
        """
        if not gc.isenabled():
            return False
        collections, found = _collections(), False
        generation = 0
        while generation < 2 and collections[generation] != self._collections[generation]:
            generation += 1
        if generation or gc.get_count()[0] > self._tracked:
            if self._took_ns[generation] * COLLECT_SHARE > duration_ns:
                generation = 0
            began = time.monotonic_ns()
            found = gc.collect(generation) > 0
            self._took_ns[generation] = time.monotonic_ns() - began if generation else 0
            collections[generation] += 1
        self._tracked, self._collections = gc.get_count()[0], collections
        return found

    def peak_bytes(self) -> int:
        """Return the peak of resident memory since the last look; forget it, if it lies well above what is held now."""
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10
        if peak > self._rest_bytes + PEAK_BYTES:
            with contextlib.suppress(OSError), open("/proc/self/clear_refs", "wb", buffering=0) as file:
                file.write(b"5")  # proc(5): the peak becomes what is resident now
            self._rest_bytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10
        return peak

    def tidy(self, duration_ns: int = 0, new: bool = False) -> bool:
        """Set back what differs; return True if anything did.

        Args:
            duration_ns: of the job; what costs more is looked at after a long one.
            new: its function has not proven itself yet: the second level too, else every SETTLE_NS at most.
        """
        found, now = False, time.monotonic_ns()
        if new or now - self._settled_at > SETTLE_NS:
            self._settled_at = now
            found = self.settings.restore()
            self.spoiled |= self.settings.lost
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
        if (sys.stdin, sys.stdout, sys.stderr) != self.streams:
            sys.stdin, sys.stdout, sys.stderr = self.streams
            found = True
        found |= logs.set_back()
        if self._streams_are_gone(duration_ns):
            found = self.spoiled = True
        elif _thread._count() > self.threads:
            found = True
            self.spoiled |= self._outlived()
        return found

    def _streams_are_gone(self, duration_ns: int) -> bool:
        if any(how & select.POLLNVAL for _, how in self._poll.poll(0)):
            return True
        if any(stream is not None and stream.closed for stream in self.streams):
            return True
        return duration_ns > REDIRECTED_NS and _standard_files() != self.files

    def _outlived(self) -> bool:
        for _ in range(20):
            time.sleep(ENDING_S)
            if _thread._count() <= self.threads:
                return False
        return True


def _collections() -> list[int]:
    """Return how often each generation was collected so far."""
    return [stats["collections"] for stats in gc.get_stats()]


def _standard_files() -> list[tuple[int, int]]:
    """Return what the descriptors 0, 1 and 2 are; a closed one is nothing."""
    found = []
    for fd in (0, 1, 2):
        try:
            file = os.fstat(fd)
            found.append((file.st_dev, file.st_ino))
        except OSError:
            found.append((0, 0))
    return found


def _cwd() -> str:
    """Return the current directory; "" if it was deleted."""
    try:
        return os.getcwd()
    except OSError:
        return ""
