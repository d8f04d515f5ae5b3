"""How far a `map` is, for whoever waits: a line on the terminal, the user's own bar, a callable; and of a job."""

from __future__ import annotations

import contextlib
import logging
import sys
import time
from typing import TYPE_CHECKING, Any

from ..errors import InvalidType

if TYPE_CHECKING:
    from ..marker import Progress

log = logging.getLogger("ptss_mp")

LINE_S = 0.2  # the line is drawn again at most so often


class Meter:
    """Counts what is given back and shows it; called in the consumer's thread.

    Args:
        progress: None or False: nothing; True: a line on stderr if that is a terminal; an object with
            `update`: `update(1)`; a callable: (done, total, Outcome).
        iterables: the input; asked for its length only if somebody is told.

    Raises:
        InvalidType: none of these.
    """

    def __init__(self, progress: Any, iterables: tuple[Any, ...]) -> None:
        self.done = 0
        self._total: int | None = None
        self._line: Line | None = None
        self._update = self._call = None
        if progress is None or progress is False:
            return
        self._total = total_of(iterables)
        if progress is True:
            self._line = Line(self._total) if sys.stderr is not None and sys.stderr.isatty() else None
        elif isinstance(progress, type):
            name = progress.__name__
            raise InvalidType(f"progress is the class {name}; pass an object, such as {name}(total=100)")
        elif callable(getattr(progress, "update", None)):
            self._update = progress.update
        elif callable(progress):
            self._call = progress
        else:
            raise InvalidType(
                f"progress must be True, a callable or an object with update(n), not {type(progress).__name__}"
            )

    def __call__(self, future: Any) -> None:
        """Count one settled job."""
        self.done += 1
        try:
            if self._line:
                self._line.count(future.status() in ("succeeded", "skipped"))
            elif self._update:
                self._update(1)
            elif self._call:
                self._call(self.done, self._total, future.outcome())
        except Exception:  # a bar that breaks is no reason to lose the job's end, nor the rest of the night's work
            log.exception("the progress of a map raised; it is not called again")
            self._line = self._update = self._call = None

    def end(self) -> None:
        """Leave the terminal's line."""
        line, self._line = self._line, None
        if line:
            with contextlib.suppress(Exception):  # the terminal may have gone; the results are there
                line.end()


def total_of(iterables: tuple[Any, ...]) -> int | None:
    """Return how many items there will be, None if that cannot be told before.

    To have `__len__` is not to know it: a bar around a generator raises, and a range may be longer than `len` counts.
    """
    try:
        return min(map(len, iterables), default=None)
    except Exception:
        return None


class Line:
    """One line of a terminal, drawn again and again."""

    def __init__(self, total: int | None) -> None:
        self._total = total
        self._done = self._failed = self._width = 0
        self._began = time.monotonic()
        self._drawn = 0.0

    def count(self, good: bool) -> None:
        """Count one; draw, if the last drawing is old enough."""
        self._done += 1
        self._failed += not good
        now = time.monotonic()
        if now - self._drawn >= LINE_S:
            self._drawn = now
            self._draw(self.text(now - self._began))

    def text(self, seconds: float) -> str:
        """Return the line as it stands after so many seconds."""
        rate = self._done / max(seconds, 1e-6)
        parts = [f"{self._done}/{self._total} done" if self._total is not None else f"{self._done} done"]
        if self._failed:
            parts.append(f"{self._failed} failed")
        parts.append(f"{rate:.1f}/s" if rate < 100 else f"{rate:.0f}/s")
        if self._total is not None and self._total > self._done:
            parts.append(f"{clock((self._total - self._done) / rate)} left")
        return ", ".join(parts)

    def end(self) -> None:
        """Draw the last state, and leave the line."""
        if self._done:
            self._draw(self.text(time.monotonic() - self._began))
            sys.stderr.write("\n")
            sys.stderr.flush()

    def _draw(self, text: str) -> None:
        sys.stderr.write("\r" + text.ljust(self._width))  # a longer one is painted over
        sys.stderr.flush()
        self._width = len(text)


def clock(seconds: float) -> str:
    """Return a duration as a clock shows it: 0:07, 12:30, 3:00:00."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def report_text(report: Progress) -> str:
    """Return what a job told of itself: "3 of 10, page 3"."""
    told = f"{report.done:g}" if report.total is None else f"{report.done:g} of {report.total:g}"
    return f"{told}, {report.text}" if report.text else told
