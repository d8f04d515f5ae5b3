"""The callback thread: done-callbacks in order of settling, output written through, observers.

It is apart from the loop, because a slow callback must not delay a kill.
"""

from __future__ import annotations

import contextlib
import logging
import os
import queue
import sys
import threading
from collections import deque
from collections.abc import Callable
from typing import Any, NoReturn

from .report import KEPT_BYTES, Report

log = logging.getLogger("ptss_mp")
log.addHandler(logging.NullHandler())


class Callbacks:
    """A thread and the queue of what it has to do; bounded by the jobs that were submitted.

    Attributes:
        due: one entry for each thing that was put and is not done; empty means idle.
    """

    def __init__(self, name: str) -> None:
        self.due: deque[None] = deque()
        self._queue: queue.SimpleQueue[Callable[[], Any] | None] = queue.SimpleQueue()
        self._name = f"{name}-callbacks"
        self.thread = threading.Thread()  # until `start`

    def start(self, rested: Callable[[], object]) -> None:
        """Start the thread; `rested` is called there when nothing is left to do.

        It is made here, for a fork in between spoils one that was only made (3.13).
        """
        self.thread = threading.Thread(target=self._run, args=(rested,), name=self._name, daemon=True)
        self.thread.start()

    @property
    def here(self) -> bool:
        """True in the callback thread itself."""
        return threading.current_thread() is self.thread

    def put(self, what: Callable[[], Any]) -> None:
        """Call `what` after everything put before."""
        self.due.append(None)
        self._queue.put(what)

    def settled(self, future: Any) -> None:
        """Run the done-callbacks of a Future."""
        self.put(lambda: run_callbacks(future))

    def tee(self, report: Report) -> None:
        """Write an attempt's output through the program's streams, each in one piece."""
        self.put(lambda: write_through(report))

    def log(self, level: int, text: str, *facts: Any, error: BaseException | None = None) -> None:
        """Log on this thread: a handler or filter of the program's may be slow, or raise, and the loop must go on."""
        self.put(lambda: log.log(level, text, *facts, exc_info=error))

    def finish(self) -> None:
        """Let the thread end after everything put before."""
        self._queue.put(None)

    def _run(self, rested: Callable[[], object]) -> None:
        pid = os.getpid()
        while True:
            what = self._queue.get()
            if what is None:
                return
            try:
                what()
            except BaseException:  # SystemExit too: the next callback has a right to run
                _complain("an observer, a callback or a handler of logs raised")
            if os.getpid() != pid:
                leave_fork(None)
            del what  # nobody keeps the last result alive
            self.due.popleft()
            if not self.due:
                rested()


def run_callbacks(future: Any) -> None:
    """Call each callback with the Future; what one raises is logged, as in the standard library."""
    for callback in future._done_callbacks:
        pid = os.getpid()
        try:
            callback(future)
        except BaseException as error:  # SystemExit and asyncio's CancelledError too: nobody above could use them
            if os.getpid() != pid:
                leave_fork(error)
            _complain("exception calling callback for %r", future)


def leave_fork(error: BaseException | None) -> NoReturn:
    """End a fork of the program that a callback made and did not end: this thread is its only one, and has no caller.

    Args:
        error: what left the callback; SystemExit gives the status, as anywhere.
    """
    code: Any = error.code if isinstance(error, SystemExit) else int(error is not None)
    if code is not None and not isinstance(code, int):
        print(code, file=sys.stderr)  # noqa: T201 - as the interpreter does
        code = 1
    elif error is not None and not isinstance(error, SystemExit):
        sys.excepthook(type(error), error, error.__traceback__)
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):
            stream.flush()
    os._exit((code or 0) & 0xFF)


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
