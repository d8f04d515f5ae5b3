"""What submitting threads ask a journal: is this key free, and has an earlier run settled its job?"""

from __future__ import annotations

import contextlib
import sqlite3
import threading
from collections.abc import Iterator
from typing import Any

from ..errors import InvalidOption
from ..keys import numbered, unnumbered
from ..outcome import Outcome, Status
from . import store
from .entry import AGAIN, Damaged, outcome_of
from .opening import Opened, reason
from .place import refused


class Asking:
    """The reading half of a journal.

    Args:
        path: of the database.
        resume: False: nothing is settled; True: what is settled in it is; "failed": what has succeeded is.
        rerun: what was interrupted is not settled.
    """

    def __init__(self, path: str, resume: bool | str, rerun: bool) -> None:
        self.path, self.resume, self.rerun = path, resume, rerun
        self._reader = threading.RLock()  # a signal handler may submit in the midst of a submission
        self._lookup: store.Lookup | None = None
        self._base = 0  # the last job that was there before this run

    def _ask(self, opened: Opened) -> None:
        self._lookup, self._base = opened.lookup, opened.base

    def _ask_no_more(self) -> None:
        with self._reader:
            if self._lookup:
                self._lookup.close()
                self._lookup = None

    def claim(self, key: str, given: bool) -> str:
        """Return the key of a new job: a default one is numbered if it was there before.

        Args:
            given: by `key=`.

        Raises:
            InvalidOption: a given key was given before, in this run.
            JournalError: the journal cannot be asked.
        """
        with self._reading() as lookup:
            times = lookup.claim(key)
            if given and times > 1:
                lookup.unclaim(key, times)
                raise InvalidOption(f"key {key!r} was given before in this run: a key serves one job")
        return key if given else numbered(key, times)

    def unclaim(self, key: str, given: bool) -> None:
        """Take a claim back: the job was refused.

        Args:
            key, given: what `claim` returned and was given.
        """
        base = key if given else unnumbered(key)
        number = key[len(base) + 1 :]
        with self._reading() as lookup:
            lookup.unclaim(base, int(number or 1))

    def settled(self, key: str, name: str) -> Outcome[Any] | None:
        """Return the outcome of a job that is not to be run, for an earlier run has settled it.

        Raises:
            JournalError: the journal cannot be asked, or its row makes no sense.
        """
        if not (self.resume and self._base):
            return None
        with self._reading() as lookup:
            found = lookup.find(key)
        if found is None or found.status is None or found.status in AGAIN or found.job > self._base:
            return None
        if found.status != "succeeded" and (self.resume == "failed" or (self.rerun and found.status == "interrupted")):
            return None
        try:
            outcome = outcome_of(found, name, key)
            never = outcome.status is Status.NOT_PICKLABLE and not outcome.attempts  # a call that could not be pickled
            return None if never else outcome
        except Damaged as error:
            raise refused(self.path, "bad", f"its row of job {found.job} is damaged: {error}") from None

    @contextlib.contextmanager
    def _reading(self) -> Iterator[store.Lookup]:
        """One thread at a time may read."""
        try:
            with self._reader:
                if self._lookup is None:
                    raise refused(self.path, "io", "it is closed")
                yield self._lookup
        except sqlite3.Error as error:
            raise refused(self.path, reason(error), f"it cannot be read: {error}") from None
        except UnicodeDecodeError as error:
            raise refused(self.path, "bad", f"it holds a text that is none: {error}") from None

    def slot(self, name: str) -> tuple[str | None, str | None]:
        """Return (anchor, last slot whose run is over) of a recurring task; None: the journal knows none."""
        with self._reading() as lookup:
            return lookup.slot(name)
