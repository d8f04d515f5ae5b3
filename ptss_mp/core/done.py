"""The slots of a timetable, and which of them had their run.

A clock that is set back comes to the same slots again.  How far the slots had come is not enough to know: a clock that
was wrong by ten years for a moment would let no slot run for ten years.
"""

from __future__ import annotations

from typing import Protocol

SPANS_MAX = 100  # of slots that had their run: each pause may leave a gap; then the one farthest away is forgotten


class Timetable(Protocol):
    """Slots of the wall clock, ns since 1970."""

    def after(self, wall: int) -> int | None:
        """Return the first slot after an instant, None if none follows."""

    def before(self, wall: int) -> int:
        """Return the last slot not after an instant; the instant itself if there is none."""


class Done:
    """The slots of a timetable without those that had their run; these are kept as spans without a gap."""

    def __init__(self, table: Timetable) -> None:
        self.table = table
        self._spans: list[tuple[int, int]] = []  # first and last slot; no two have a slot in common

    def after(self, wall: int) -> int | None:
        """Return the first slot after an instant that had no run."""
        found = self.table.after(wall)
        while found is not None and (span := self._span(found)):
            found = self.table.after(span[1])
        return found

    def before(self, wall: int) -> int:
        """Return the last slot not after an instant that had no run; there is one."""
        found = self.table.before(wall)
        while span := self._span(found):
            found = self.table.before(span[0] - 1)
        return found

    def add(self, first: int, last: int, now: int) -> None:
        """Take note that all slots from `first` to `last` had their run, by the wall clock at `now`."""
        if left := self._span(self.table.before(first - 1)):
            first = left[0]
        after = self.table.after(last)
        if after is not None and (right := self._span(after)):
            last = right[1]
        self._spans = [span for span in self._spans if not first <= span[0] <= last]
        self._spans.append((first, last))
        if len(self._spans) > SPANS_MAX:
            self._spans.remove(max(self._spans, key=lambda span: max(span[0] - now, now - span[1])))

    def _span(self, wall: int) -> tuple[int, int] | None:
        return next((span for span in self._spans if span[0] <= wall <= span[1]), None)
