"""Added tasks in a pool with a journal: the keys of their jobs, and where an earlier program has ended.

A run is remembered once all its jobs have ended, as its slot's instant.  So what a program leaves half done has a slot
that was missed: the next one releases it again, under the same keys, and what had ended of it is not repeated.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from logging import ERROR, WARNING
from typing import TYPE_CHECKING, Any

from .errors import JournalError
from .journaling import counted
from .keyed import Keyed
from .keys import release_key, storable
from .outcome import instant_text
from .timetable import FIRST, LAST, utc, wall_ns

if TYPE_CHECKING:
    from .core.recurrence import Course
    from .future import Future
    from .pool import Pool

NOT_OVER = frozenset(("cancelled", "interrupted"))  # a run with such a job is begun again by the next program


def key_of_release(key: str, slot: int | None) -> str:
    """Return a job's key from its task's, and the instant of its slot; None: the task runs once."""
    return key if slot is None else release_key(key, instant_text(utc(slot)))


def take_up(pool: Pool, name: str, course: Course, anchored: bool) -> None:
    """Let a course go on where an earlier program has ended (loop thread).

    Args:
        anchored: its first instant was given as a date, which counts; a duration counts from the first program's start.
    """
    journal = pool.journal
    if journal is None:
        return
    try:
        anchor, last = (_read(text) for text in journal.slot(storable(name)))
    except (JournalError, ValueError) as error:
        pool.callbacks.log(WARNING, "%s: the journal does not say when it ran last: %s", name, str(error))
        return
    if anchor is None and course.slot:
        journal.remember_slot(storable(name), None, instant_text(utc(course.slot.wall)))
    elif anchor is not None:
        course.go_on(anchor if course.start is None or not anchored else course.start, last)


def _read(text: str | None) -> int | None:
    if text is None:
        return None
    at = datetime.fromisoformat(text)
    if at.tzinfo is None or not FIRST <= at < LAST:
        raise ValueError(f"an instant without zone, or far from all calendars: {text!r:.80}")
    return wall_ns(at)


def admit(future: Keyed[Any]) -> bool:
    """Put a job into the journal; return False if it is not to be run: it has ended there, or cannot be put in."""
    use = future._use
    pool = use.pool
    journal = pool.journal
    assert journal
    try:
        future._key = journal.claim(future._key, False)
        outcome = journal.settled(future._key, use.name)
        if outcome is None:
            journal.accept(future)
            return True
    except JournalError as error:
        pool.callbacks.log(ERROR, "%s is not released: %s", use.name, str(error))
        future.cancel()
        return False
    if pool.futures.pop(future._id, None) is not None:  # else it was cancelled in this moment
        counted(outcome, pool)
        if future._settle_from(outcome):
            pool.callbacks.settled(future)
    return False


def is_over(jobs: Iterable[Future[Any]]) -> bool:
    """Return True if all jobs of a run have come to an end of their own."""
    return not any(job.status() in NOT_OVER for job in jobs)


def remember(pool: Pool, name: str, slot: int) -> None:
    """Note that the run of a slot is over, and those of all slots before it."""
    if pool.journal:
        pool.journal.remember_slot(storable(name), instant_text(utc(slot)))
