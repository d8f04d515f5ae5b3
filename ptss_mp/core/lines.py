"""Lines: the ready queue of a pool in which jobs hold tokens.

Jobs that need the same tokens stand in one line of their own, all others where
they always stood.  Whether the first of a line may start decides for the whole
line: those behind it need what it lacks.  So of a million jobs behind a
blocked one only the first is ever looked at, and nothing is moved when a token
comes free: the heads are compared again, as many as there are lines.

A line is of one token, whatever its jobs need of it; or of the very needs, if
these are several, for then one behind the first may lack another token, and be
before the jobs of another line that need that.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import chain

from .job import ID_MASK, NEVER, Spec
from .ready import ReadyQueue
from .slices import Slice
from .tokens import Tokens


class Lines:
    """As a `ReadyQueue`; `head` is the first that lacks nothing, and is passed by nobody who may not (P3).

    Args:
        plain: those that need no tokens and no environment.
        jobs: the job table.
        tokens: what is free.
        work: bounds how many dead ones are skipped in one go.
    """

    __slots__ = (
        "_arrived", "_due", "_first", "_jobs", "_lines", "_looked", "_moved", "_tokens", "_told", "_told_at",
        "_work", "current", "plain",
    )  # fmt: skip

    def __init__(self, plain: ReadyQueue, jobs: Mapping[int, Spec], tokens: Tokens, work: Slice) -> None:
        self.plain, self._jobs, self._tokens, self._work = plain, jobs, tokens, work
        self.current = plain.current
        self._lines: dict[object, ReadyQueue] = {}
        self._looked = -1  # Tokens.changes at the last look; -1: something else has changed since
        self._first = 0
        self._due = NEVER
        self._arrived: list[int] = []  # bound jobs since the last `news`
        self._told: set[int] = set()  # heads that lacked something then
        self._told_at, self._moved = -1, False  # Tokens.changes then; some line has changed since

    def __len__(self) -> int:
        """Return how many may start, as far as that is known without looking at each: of all lines one job."""
        self._look()
        return len(self.plain) + bool(self._first)

    def __bool__(self) -> bool:
        return bool(self._lines) or bool(self.plain)

    # ---- in and out

    def _line(self, job: int) -> ReadyQueue:
        spec = self._jobs[job]
        if not spec.bound:
            return self.plain
        self._looked, self._moved = -1, True
        line = self._lines.get(spec.line)
        if line is None:
            line = self._lines[spec.line] = ReadyQueue(self._jobs, self._work, self.current)
        return line

    def push(self, key: int) -> None:
        """Add a job whose due instant, if it has one, is its killing deadline."""
        line = self._line(key & ID_MASK)
        line.push(key)
        if line is not self.plain:
            self._arrived.append(key & ID_MASK)

    def push_soft(self, key: int) -> None:
        """Add a job whose due instant only orders."""
        line = self._line(key & ID_MASK)
        line.push_soft(key)
        if line is not self.plain:
            self._arrived.append(key & ID_MASK)

    def rekey(self, key: int) -> None:
        """Give a ready job another key."""
        self._line(key & ID_MASK).rekey(key)

    def drop_later(self, job: int) -> None:
        """Note that a job's entry is about to die."""
        self._line(job).drop_later()

    def forget(self, job: int) -> None:
        """Drop what is noted of a settled job."""
        self.current.pop(job, None)

    def pop(self, key: int) -> None:
        """Take `key`, which `head` has just returned."""
        self._line(key & ID_MASK).pop(key)

    def expired(self, now: int) -> Iterator[int]:
        """Take and yield the jobs whose killing deadline is not after `now`."""
        for line in (self.plain, *self._lines.values()):
            self._looked, self._moved = -1, True
            yield from line.expired(now)

    @property
    def expires_at(self) -> int:
        """The earliest killing deadline of a ready job."""
        self._look()
        return min(self._due, self.plain.expires_at)

    def valid_keys(self) -> list[int]:
        """Return all valid keys, unordered."""
        return list(chain(self.plain.valid_keys(), *(line.valid_keys() for line in self._lines.values())))

    # ---- who is first

    def head(self) -> int:
        """Return the least key of those that lack nothing and pass nobody; 0 if there is none."""
        key = self.plain.head()
        self._look()
        first = self._first
        return first if first and (not key or first < key) else key

    def _look(self) -> None:
        """Find the first of the lines that lacks nothing, if anything has changed."""
        if self._looked == self._tokens.changes and (not self._first or self._first & ID_MASK in self._jobs):
            return
        self._first, self._looked = 0, self._tokens.changes
        lacked: set[str] = set()
        for key in self._heads():
            short = self._short(key & ID_MASK, lacked)
            if not short:
                self._first = key
                break
            lacked.update(short)
        self._due = min((line.expires_at for line in self._lines.values()), default=NEVER)

    def _heads(self) -> list[int]:
        """Return the first of each line, in order; let go of empty lines.  One that has none yet is looked at again."""
        heads = []
        for name, line in list(self._lines.items()):
            key = line.head()
            if key:
                heads.append(key)
            elif line:
                self._looked, self._moved = -1, True
            else:
                del self._lines[name]
        return sorted(heads)

    def _short(self, job: int, lacked: set[str]) -> list[str]:
        """Return the tokens that a job lacks, if those before it lack these."""
        left = self._tokens.left
        return [name for name, count in self._jobs[job].needs if name in lacked or left(name) < count]

    # ---- for those who hire and tell

    def demand(self) -> Iterator[tuple[Spec, int]]:
        """Yield, in order of the heads, (what the first of a line is, how many stand there)."""
        keys = [*self._heads(), *filter(None, (self.plain.head(),))]
        for key in sorted(keys):
            spec = self._jobs[key & ID_MASK]
            yield spec, len(self._lines[spec.line]) if spec.bound else len(self.plain)

    def news(self, sent: Mapping[int, object]) -> dict[tuple[str, ...], list[int]]:
        """Return who waits for which tokens and was not told so: those that came, and new heads of lines.

        Args:
            sent: jobs that hold tokens: they wait no longer.
        """
        found: dict[tuple[str, ...], list[int]] = {}
        if not self._moved and self._told_at == self._tokens.changes:
            return found
        self._told_at, self._moved = self._tokens.changes, False
        arrived, self._arrived = self._arrived, []
        lacked: set[str] = set()
        behind: dict[object, set[str]] = {}
        heads = set()
        for key in self._heads():
            job = key & ID_MASK
            short = self._short(job, lacked)
            lacked.update(short)
            behind[self._jobs[job].line] = set(lacked)
            if short:
                heads.add(job)
        for job in dict.fromkeys((*arrived, *(heads - self._told))):
            spec = self._jobs.get(job)
            if spec and spec.line in behind and job not in sent:
                short = self._short(job, behind[spec.line])
                if short:
                    found.setdefault(tuple(short), []).append(job)
        self._told = heads
        return found
