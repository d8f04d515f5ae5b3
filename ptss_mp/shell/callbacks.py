"""The callback thread: done-callbacks in order of settling, output written through, observers.

It is apart from the loop, because a slow callback must not delay a kill.
"""

from __future__ import annotations

import contextlib
import logging
import queue
import sys
import threading
from collections.abc import Callable
from typing import Any

from .report import KEPT_BYTES, Report

log = logging.getLogger("ptss_mp")
log.addHandler(logging.NullHandler())


class Callbacks:
    """A thread and the queue of what it has to do; bounded by the jobs that were submitted."""

    def __init__(self, name: str) -> None:
        self._queue: queue.SimpleQueue[Callable[[], Any] | None] = queue.SimpleQueue()
        self._name = f"{name}-callbacks"
        self.thread = threading.Thread()  # until `start`

    def start(self) -> None:
        """Start the thread; it is made here, for a fork in between spoils one that was only made (3.13)."""
        self.thread = threading.Thread(target=self._run, name=self._name, daemon=True)
        self.thread.start()

    @property
    def here(self) -> bool:
        """True in the callback thread itself."""
        return threading.current_thread() is self.thread

    def put(self, what: Callable[[], Any]) -> None:
        """Call `what` after everything put before."""
        self._queue.put(what)

    def settled(self, future: Any) -> None:
        """Run the done-callbacks of a Future."""
        self._queue.put(lambda: run_callbacks(future))

    def tee(self, report: Report) -> None:
        """Write an attempt's output through the program's streams, each in one piece."""
        self._queue.put(lambda: write_through(report))

    def log(self, level: int, text: str, *facts: Any, error: BaseException | None = None) -> None:
        """Log on this thread: a handler or filter of the program's may be slow, or raise, and the loop must go on."""
        self._queue.put(lambda: log.log(level, text, *facts, exc_info=error))

    def finish(self) -> None:
        """Let the thread end after everything put before."""
        self._queue.put(None)

    def _run(self) -> None:
        while True:
            what = self._queue.get()
            if what is None:
                return
            try:
                what()
            except BaseException:  # SystemExit too: the next callback has a right to run
                _complain("an observer, a callback or a handler of logs raised")
            del what  # nobody keeps the last result alive


def run_callbacks(future: Any) -> None:
    """Call each callback with the Future; what one raises is logged, as in the standard library."""
    for callback in future._done_callbacks:
        try:
            callback(future)
        except BaseException:  # SystemExit and asyncio's CancelledError too: nobody above could use them
            _complain("exception calling callback for %r", future)


def _complain(text: str, *facts: Any) -> None:
    """Log the exception that is being handled; the program's own filters and handlers may raise as well."""
    with contextlib.suppress(BaseException):
        log.exception(text, *facts)


def write_through(report: Report) -> None:
    """Write captured output to sys.stdout and sys.stderr, then keep only its tail."""
    for stream, data in ((sys.stdout, report.out), (sys.stderr, report.err)):
        if data and stream is not None:
            try:
                stream.write(data.decode("utf-8", "replace"))
                stream.flush()
            except (OSError, ValueError):
                pass  # a closed or full stream of the program's is not the job's fault
    if report.out is not None:
        report.out = report.out[-KEPT_BYTES:]
    if report.err is not None:
        report.err = report.err[-KEPT_BYTES:]
