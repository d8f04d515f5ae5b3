"""Tasks with a name, released by the pool itself: once, or again and again.

`add` freezes a call as `submit` does, and notes what it waits for.  When a slot has come (core/recurrence.py decides),
the loop thread makes the Futures of a run: one for the task, one for each task that hangs on it.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future as AnyFuture
from dataclasses import dataclass, field
from datetime import datetime
from logging import INFO, WARNING
from typing import TYPE_CHECKING, Any

from . import wire
from .core import recurrence
from .core.job import NEVER
from .core.recurrence import Recurrences, Release, Replace, Rule
from .declare import Options
from .errors import InvalidOption
from .future import Future, submitting
from .keyed import Keyed
from .keys import Standing
from .outcome import Outcome
from .remembered import admit, is_over, key_of_release, remember, take_up
from .shell.clock import difference, monotonic_ns
from .shell.report import Extra
from .shell.use import Use
from .submission import instants
from .timetable import utc, wall_ns
from .units import duration_ns

if TYPE_CHECKING:
    from .pool import Pool

LOOK_NS = 1_000_000_000  # while a slot hangs on the wall clock: somebody may set it; and while callbacks lag behind
DUE_MAX = 10_000  # callbacks and logs due at which nothing more is released: no caller is there to be slowed down


class Recurring(Standing):
    """A task that was added; made by `Executor.add`.

    Among the arguments of another `add` it stands for the value of its job; there and in `after` it is a prerequisite.

    Attributes:
        name: by which `Executor.tasks` has it.
        runs: runs that are over; each is one job of this task, and of a recurring one those of all that hangs on it.
    """

    def __init__(self, releases: Releases, entry: Entry) -> None:
        self._releases, self._entry = releases, entry
        self.name: str = entry.use.name
        self.runs = 0
        self._last: Future[Any] | None = None
        self._key = entry.key  # in a journal, and in the keys of what it is an argument of

    @property
    def next_run(self) -> datetime | None:
        """When it is to be released next (UTC, jitter aside); None if that is not known, or no release follows."""
        wall = self._releases.next_wall(self._entry)
        return None if wall is None else utc(wall)

    @property
    def last_outcome(self) -> Outcome[Any] | None:
        """How its job of the last run that is over has ended."""
        return self._last.outcome() if self._last else None

    def cancel(self, *, kill: bool = False) -> None:
        """Release it no more, nor what hangs on it; what was released goes on.

        Args:
            kill: end that too, as `Future.cancel` does.

        Raises:
            RuntimeError: in a fork of the program that started the pool; so the three below.
        """
        self._releases.cancel(self._entry, kill)

    def pause(self) -> None:
        """Release it no more until `resume`, nor what hangs on it."""
        self._releases.hold(self._entry, True)

    def resume(self) -> None:
        """Release it again; what was missed meanwhile is treated as `misfire` says."""
        self._releases.hold(self._entry, False)

    def add_done_callback(self, fn: Callable[[Future[Any]], object]) -> None:
        """Call `fn(future)` when a job of this task is settled, each from now on, on the pool's callback thread.

        If the one job of a task that does not recur is settled: now, in this thread.
        """
        self._releases.add_callback(self._entry, fn)

    def __repr__(self) -> str:
        return f"<Recurring {self.name!r}, {self.runs} runs>"

    def __reduce_ex__(self, _protocol: Any) -> tuple[Any, ...]:
        """Inside `add` it pickles as the value of its job; elsewhere it does not."""
        needs: dict[Any, int] | None = submitting.needs
        if needs is None:
            raise TypeError("a Recurring can be pickled only as an argument of add, where it becomes its job's value")
        return wire.prerequisite, (needs.setdefault(self, len(needs)),)


@dataclass(eq=False)
class Entry:
    """What is made into a job at each release.

    Attributes:
        use: function and options.
        call: the pickled arguments.
        needs: what stands in them for values, in their order: Entries, and Futures of jobs that are there.
        after: all prerequisites, likewise.
        root: on whose slots it hangs; None: it is released once.
        only: the Future of one that is released once.
        key: its own; "": nobody asks for one.
        callbacks: of each of its Futures.
        held, ended: it is paused (of a root the core knows that); it is released no more.
    """

    use: Use
    call: Any
    needs: tuple[Any, ...]
    after: tuple[Any, ...]
    key: str = ""
    root: Root | None = None
    only: Future[Any] | None = None
    callbacks: list[Callable[[Any], object]] = field(default_factory=list)
    held: bool = False
    ended: bool = False

    @property
    def handle(self) -> Recurring:
        """The public face."""
        found: Recurring = self.use.pool.releases.tasks[self.use.name]
        return found


@dataclass(eq=False)
class Root:
    """A recurring task with all that hangs on it, in the order in which they were added: each after what it needs."""

    number: int
    course: recurrence.Course
    name: str
    entries: list[Entry] = field(default_factory=list)
    runs: dict[int, Run] = field(default_factory=dict)  # that are not over
    last: int = 0  # slot, by the wall clock, whose run is over
    told: bool = False  # that slots are left out while a run goes on

    @property
    def ended(self) -> bool:
        """It is released no more: somebody has cancelled its handle."""
        return self.entries[0].ended


@dataclass(eq=False)
class Run:
    """The jobs of one release."""

    number: int
    root: Root | None
    slot: int | None = None  # by the wall clock
    jobs: dict[Entry, Future[Any]] = field(default_factory=dict)
    left: int = 0  # that are not settled


class Releases:
    """All added tasks of a pool.  Callers add and ask; `turn` is the loop thread's."""

    def __init__(self, pool: Pool) -> None:
        self.pool = pool
        self.tasks: dict[str, Recurring] = {}
        self.core = Recurrences(seed=pool.core.seed)
        self.closed = False
        self._lock = threading.RLock()  # of making a run: who has cancelled or closed knows that no further one comes
        self._roots: dict[int, Root] = {}
        self._told: deque[Callable[[int], None]] = deque()  # by callers, and by whoever settled a job

    # ---- any thread

    def add(self, entry: Entry, rule: Rule | None, given: Options) -> Recurring:
        """Take a task in; the pool's lock is held.

        Raises:
            InvalidOption: the name is taken, or nothing is ever released.
        """
        self.free(entry.use.name)
        handle = Recurring(self, entry)
        if rule:
            now, offset = monotonic_ns(), difference()
            number, start = len(self.tasks) + 1, given.get("start_time")
            date = wall_ns(start) if isinstance(start, datetime) else None
            wait_ns = duration_ns(start, "start_time") if start is not None and date is None else 0
            course = self.core.course(number, rule, now + wait_ns, offset, date)
            if course.slot is None:
                raise InvalidOption(f"{entry.use.name!r} would never run: it has no slot between its start and until")
            entry.root = Root(number, course, entry.use.name)
        self.tasks[entry.use.name] = handle
        root = entry.root
        if root is None:
            self._once(entry, given)
            return handle
        root.entries.append(entry)
        if rule:  # last: it may be released at once
            anchored = isinstance(given.get("start_time"), datetime)
            self._tell(lambda now: self._begin(root, now, anchored))
        return handle

    def free(self, name: str) -> None:
        """Raise InvalidOption if a task has this name."""
        if name in self.tasks:
            raise InvalidOption(f"a task named {name!r} is there already")

    def _begin(self, root: Root, now: int, anchored: bool) -> None:
        self._roots[root.number] = root
        take_up(self.pool, root.name, root.course, anchored)
        self.core.take(root.course, now, difference())

    def _once(self, entry: Entry, given: Options) -> None:
        """Make the one job of a task that does not recur."""
        now = monotonic_ns()
        release, due = instants(given, entry.use.deadline_ns, now)
        run = Run(0, None)
        future = entry.only = self._job(entry, run, now, release, due)
        dates = [isinstance(given.get(what), datetime) for what in ("start_time", "deadline")]
        if any(dates):
            self.pool.dates.add(future, *dates)
        self.pool.know(future)  # before it can end
        self._tell(lambda _now: self._put(run))

    def next_wall(self, entry: Entry) -> int | None:
        """Return the next instant of a task, ns since 1970."""
        if entry.ended or self.closed or (entry.root and entry.root.ended):
            return None
        if entry.root:
            slot, listed = entry.root.course.slot, entry.root.course.rule.table
            return None if slot is None else slot.wall if listed else slot.at + difference()
        assert entry.only
        ahead = entry.only._release > monotonic_ns() and not entry.only.done()
        return entry.only._release + difference() if ahead else None

    def cancel(self, entry: Entry, kill: bool) -> None:
        """End a task."""
        self.pool.refuse_forks()
        root = entry.root
        with self._lock:
            entry.ended = True
        if root and root.ended:
            self._tell(lambda _now: self.core.drop(root.number))
        if kill:
            self._kill(entry)
        elif entry.only:
            self.pool.cancel_unsent([entry.only])

    def _kill(self, entry: Entry) -> None:
        """Cancel the jobs of a task, and before them what hangs on them, so that none of it begins meanwhile."""
        if entry.only:
            entry.only.cancel()
            return
        assert entry.root
        below = {entry}
        for one in entry.root.entries:
            if not below.isdisjoint(one.after):
                below.add(one)
        for run in list(entry.root.runs.values()):
            for one, future in reversed(run.jobs.items()):
                if one in below:
                    future.cancel()

    def hold(self, entry: Entry, held: bool) -> None:
        """Pause a task, or go on with it."""
        self.pool.refuse_forks()
        root = entry.root
        if root and root.entries[0] is entry:
            self._tell(lambda _now: self.core.hold(root.number, held))
        elif entry.only:
            raise InvalidOption(f"{entry.use.name!r} runs once: there is no further release to be paused")
        else:
            entry.held = held

    def add_callback(self, entry: Entry, fn: Callable[[Any], object]) -> None:
        """Call `fn` with each Future of a task, those that are out included."""
        self.pool.refuse_forks()
        with self._lock:
            entry.callbacks.append(fn)
            runs = list(entry.root.runs.values()) if entry.root else []
            out = [run.jobs[entry] for run in runs if entry in run.jobs and not run.jobs[entry].done()]
        for future in [entry.only] if entry.only else out:
            future.add_done_callback(fn)

    def close(self, owned: Callable[[Any], bool] | None = None) -> None:
        """Release nothing more; of one view alone if it is told which Uses are its.  In a fork it does nothing."""
        if self.pool.pid not in (0, os.getpid()):
            return
        if owned is None:
            with self._lock:
                self.closed = True
            self.pool.wake()
            return
        for handle in list(self.tasks.values()):
            if handle._entry.root and owned(handle._entry.use):
                self.cancel(handle._entry, False)

    def end(self) -> None:
        """Take note of the last runs; the loop has ended."""
        self.closed = True
        with contextlib.suppress(Exception):  # of a loop that has failed for what would fail here again
            self.turn()

    def settled(self, run: Run, future: Future[Any]) -> None:
        """Take note that a job of a run is being settled (whoever settles it)."""
        self._tell(lambda now: self._take(run, now))

    def _tell(self, what: Callable[[int], None]) -> None:
        self._told.append(what)
        self.pool.wake()

    # ---- the loop thread

    @property
    def wake_at(self) -> int:
        """When `turn` is wanted."""
        if self._told:
            return 1  # at once; a timer set to 0 is none
        if self.closed:
            return NEVER
        self.core.held = self.pool.held or self._lagging
        at = self.core.wake_at
        return min(at, monotonic_ns() + LOOK_NS) if self.core.by_wall or self._lagging else at

    @property
    def _lagging(self) -> bool:
        journal = self.pool.journal
        return len(self.pool.callbacks.due) >= DUE_MAX or (journal is not None and journal.shut)

    @property
    def told(self) -> bool:
        """Something was told that may bring a job at once."""
        return bool(self._told)

    @property
    def go_on(self) -> bool:
        """Something will be released that is not there yet."""
        return bool(self._told) or (self.core.go_on and not self.closed)

    def turn(self) -> None:
        """Do what was told, and release what is due."""
        now = monotonic_ns()
        for _ in range(len(self._told)):
            self._told.popleft()(now)
        if not self.closed:
            self.core.held = self.pool.held or self._lagging
            self._obey(self.core.turn(now, difference()), now)

    def _obey(self, actions: Iterable[recurrence.Action], now: int) -> None:
        for action in actions:
            root = self._roots[action.course]
            if isinstance(action, Release):
                self._release(root, action, now)
            elif isinstance(action, Replace):
                self._kill(root.entries[0])
            else:
                self._say_skipped(root, action)

    def _say_skipped(self, root: Root, skipped: recurrence.Skipped) -> None:
        when = f"{utc(skipped.first):%Y-%m-%d %H:%M:%S}Z"
        if skipped.last != skipped.first:
            when += f" to {utc(skipped.last):%Y-%m-%d %H:%M:%S}Z"
        level, root.told = (INFO if root.told and skipped.why != "missed" else WARNING), True
        self.pool.callbacks.log(level, "%s: no run of its own for %s: %s", root.name, when, skipped.why)

    def _release(self, root: Root, released: Release, now: int) -> None:
        with self._lock:
            if self.closed or root.ended:
                return
            run = root.runs[released.run] = Run(released.run, root, released.slot.wall)
            root.told = False
            release = now if released.slot.late else min(released.slot.at, now)
            for entry in root.entries:
                above = [one for one in entry.after if isinstance(one, Entry) and one.root]
                if entry.ended or entry.held or not all(one in run.jobs for one in above):
                    continue
                due = release + entry.use.deadline_ns if entry.use.deadline_ns else NEVER
                self.pool.know(self._job(entry, run, now, release, due))
            self._put(run)

    def _job(self, entry: Entry, run: Run, now: int, release: int, due: int) -> Future[Any]:
        """Make a job of a run."""
        kind = Keyed if entry.key else Future
        future: Future[Any] = kind(next(self.pool.ids), entry.call, entry.use, now, release, due)
        if isinstance(future, Keyed):
            future._key = key_of_release(entry.key, run.slot)
        needs = tuple(_there(entry.needs, run))
        future._extra = extra = Extra(needs, tuple(dict.fromkeys((*needs, *_there(entry.after, run)))))
        extra.released = run
        if extra.after:
            self.pool.linked = True
        run.jobs[entry] = future
        run.left += 1
        self.pool.futures[future._id] = future  # first: a Future that nobody holds counts as being settled
        for fn in entry.callbacks:
            future.add_done_callback(fn)
        return future

    def _put(self, run: Run) -> None:
        for future in run.jobs.values():
            if not future.done() and (self.pool.journal is None or admit(future)):  # type: ignore[arg-type]
                self.pool.enqueue(future)

    def _take(self, run: Run, now: int) -> None:
        run.left -= 1
        if run.left:
            return
        for entry, future in run.jobs.items():
            handle = entry.handle
            handle._last = future
            handle.runs += 1
        if run.root:
            older = any((one.slot or 0) < (run.slot or 0) for one in run.root.runs.values())  # of an overlap
            if run.slot is not None and run.slot > run.root.last and not older and is_over(run.jobs.values()):
                run.root.last = run.slot
                remember(self.pool, run.root.name, run.slot)
            del run.root.runs[run.number]
            if not self.closed:
                self._obey(self.core.ended(run.root.number, run.number, now), now)


def _there(prerequisites: Iterable[Any], run: Run) -> Iterator[AnyFuture[Any]]:
    """Yield the Futures that Entries stand for in a run."""
    for one in prerequisites:
        if isinstance(one, Entry):
            yield run.jobs[one] if one.only is None else one.only
        else:
            yield one
