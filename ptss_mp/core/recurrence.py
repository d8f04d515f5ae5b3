"""When a task recurs: its slots, and what is done with a slot that comes too early or too late.

A *slot* is an instant at which a task shall run; it is known by its time of the wall clock.  A *run* is what is
released for a slot: one job of the task, and one of each task that depends on it.  Three kinds of slots:

- each so many nanoseconds, by the monotonic clock, from the first one on (a first one of the wall clock is waited
  for by that clock);
- so many nanoseconds after the end of the run before;
- those of a timetable of the wall clock (timetable.py).

What comes too early is a slot while the last run is not over: `overlap`.  What comes too late is a slot that was
missed, for more than `LATE_NS`, while the pool was paused, the machine suspended, or because the clock was set:
`misfire`.  Each slot that brings no run of its own is told (`Skipped`), never forgotten.

A clock that is set back makes no slot run twice: those that had their run are kept as spans of time.
"""

from __future__ import annotations

import heapq
from collections import deque
from typing import NamedTuple, Protocol

from .job import NEVER
from .restart import drawn

LATE_NS = 1_000_000_000  # what is later was missed: a collection of garbage or a busy machine is no reason
RUN_ALL_MAX = 1_000  # missed slots that `misfire="run_all"` makes up for, the last ones; a set clock may miss millions
SPANS_MAX = 16  # of slots that had their run; more come only of as many gaps, and then the oldest are joined
COURSES = 100  # looked at in one turn: 2 ms
AT_ONCE_MAX = 1_000  # runs of a task that may go on at once (`overlap="allow"`); and that may wait for the one before


class Timetable(Protocol):
    """Slots of the wall clock, ns since 1970."""

    def after(self, wall: int) -> int:
        """Return the first slot after an instant, NEVER if none follows."""

    def before(self, wall: int) -> int:
        """Return the last slot not after an instant; there is one."""


class Rule(NamedTuple):
    """How a task recurs: exactly one of `every_ns`, `delay_ns`, `table`."""

    every_ns: int = 0
    delay_ns: int = 0
    table: Timetable | None = None
    overlap: str = "skip"
    misfire: str = "run_once"
    jitter_ns: int = 0
    max_runs: int = 0  # 0: no bound
    until: int = NEVER  # of the wall clock: no slot after it


class Slot(NamedTuple):
    """An instant at which a task shall run."""

    wall: int  # by which it is known
    at: int  # the same by the monotonic clock, when it was looked at
    late: bool = False  # it was missed


class Release(NamedTuple):
    """A run shall begin."""

    course: int
    run: int
    slot: Slot


class Replace(NamedTuple):
    """The runs of a course that are not over shall be killed: another one takes their place."""

    course: int


class Skipped(NamedTuple):
    """A slot, or several, that bring no run of their own."""

    course: int
    first: int  # wall clock
    last: int
    why: str


Action = Release | Replace | Skipped


class Course:
    """The slots and runs of one task.

    Attributes:
        slot: the next one; None if none follows, or if that hangs on the end of a run.
        fire_at: when it is to be looked at.
        noted_at: for when that is noted (`Recurrences`).
        active: runs that are not over.
        owed: slots whose run waits for the one before.
        runs: released so far.
        held: paused by its handle.
    """

    def __init__(self, number: int, rule: Rule, seed: int, now: int, offset: int, start: int | None) -> None:
        self.number, self.rule, self.seed = number, rule, seed
        self.offset = offset
        self.active: set[int] = set()
        self.owed: deque[Slot] = deque()
        self.runs = 0
        self.held = False
        self.over = False
        self.fire_at = self.noted_at = NEVER
        self.slot: Slot | None = None
        self._spans: list[list[int]] = []
        self._joined = False  # the pending slot follows the last span
        self._started = False  # a slot has come: from then on the monotonic clock counts, where it does
        self._set(self._first(now, start))

    # ---- slots

    def _first(self, now: int, start: int | None) -> Slot | None:
        wall = now + self.offset if start is None else start
        if self.rule.table:
            # A slot that is just past is on time: who says "from now on" means it.
            return self._listed(max(wall, now + self.offset - LATE_NS) - 1)
        at = wall - self.offset
        if self.rule.every_ns and now - at > LATE_NS:  # what was before there was a task was not missed by it
            ahead = -((at - now) // self.rule.every_ns) * self.rule.every_ns
            wall, at = wall + ahead, at + ahead
        return Slot(wall, at)

    def _listed(self, wall: int) -> Slot | None:
        """Return the first slot of the timetable after an instant that had no run yet."""
        table = self.rule.table
        assert table
        found = table.after(wall)
        for first, last in sorted(self._spans):
            if first <= found <= last:
                found = table.after(last)
        return Slot(found, found - self.offset) if found < NEVER else None

    def _set(self, slot: Slot | None) -> None:
        """Let this be the next one, if it may still run."""
        rule = self.rule
        if slot and (slot.wall > rule.until or (rule.max_runs and self.runs + len(self.owed) >= rule.max_runs)):
            slot, self.over = None, True
        elif slot is None and not (rule.delay_ns and self.active):
            self.over = True
        self.slot = slot
        self.fire_at = slot.at + self._jitter(slot) if slot else NEVER

    def _jitter(self, slot: Slot) -> int:
        return drawn(self.seed, self.number, slot.wall) % (self.rule.jitter_ns + 1)

    def clock_set(self, now: int, offset: int) -> None:
        """Take another difference between wall clock and monotonic clock."""
        back, self.offset = offset < self.offset, offset
        if self.slot is None:
            return
        if self.rule.table and back:
            self._joined = False
            self._set(self._listed(now + offset - LATE_NS - 1))
        elif self.rule.table or not self._started:
            self._set(self.slot._replace(at=self.slot.wall - offset))

    @property
    def by_wall(self) -> bool:
        """The wall clock decides when the next slot is."""
        return self.slot is not None and (self.rule.table is not None or not self._started)

    # ---- a slot comes

    def turn(self, now: int) -> list[Action]:
        """Take the slots that have come."""
        slot = self.slot
        if slot is None or self.fire_at > now or self.held:
            return []
        self._started = True
        came = now - (self.fire_at - slot.at)  # by it they are counted: the jitter is the pending one's alone
        last = self._last(slot, came)
        runs, out = self._chosen(slot, last, came - last.at > LATE_NS)
        self._note_span(slot, runs)
        for one in runs:
            self._arrive(one, out)
        if not self.rule.delay_ns:
            self._set(self._listed(last.wall) if self.rule.table else self._shifted(last, self.rule.every_ns))
        elif runs:
            self._set(None)
        else:  # it was missed and is left out: without a run none would ever follow
            self._set(Slot(now + self.offset + self.rule.delay_ns, now + self.rule.delay_ns))
        return out

    def _shifted(self, slot: Slot, by: int) -> Slot:
        return Slot(slot.wall + by, slot.at + by)

    def _last(self, slot: Slot, came: int) -> Slot:
        """Return the last slot that has come, `slot` being the first."""
        if self.rule.every_ns:
            return self._shifted(slot, (came - slot.at) // self.rule.every_ns * self.rule.every_ns)
        if self.rule.table:
            wall = max(slot.wall, self.rule.table.before(came + self.offset))
            return Slot(wall, wall - self.offset)
        return slot

    def _before(self, slot: Slot) -> Slot:
        if self.rule.every_ns:
            return self._shifted(slot, -self.rule.every_ns)
        assert self.rule.table
        wall = self.rule.table.before(slot.wall - 1)
        return Slot(wall, wall - self.offset)

    def _chosen(self, slot: Slot, last: Slot, late: bool) -> tuple[list[Slot], list[Action]]:
        """Return which of the slots from `slot` to `last` get a run; and a word about the others."""
        if slot == last and not late:
            return [slot], []
        chosen = [last._replace(late=late)]
        if self.rule.misfire == "skip" and late:
            return [], [Skipped(self.number, slot.wall, last.wall, "missed")]
        while self.rule.misfire == "run_all" and chosen[0].wall > slot.wall and len(chosen) < RUN_ALL_MAX:
            chosen.insert(0, self._before(chosen[0])._replace(late=True))
        if chosen[0].wall <= slot.wall:
            return chosen, []
        return chosen, [Skipped(self.number, slot.wall, self._before(chosen[0]).wall, "missed")]

    def _note_span(self, slot: Slot, runs: list[Slot]) -> None:
        """Remember the slots that have a run now (or had one before that is not over)."""
        if not self.rule.table or not runs:
            self._joined = False
            return
        if self._joined and runs[0].wall == slot.wall:
            self._spans[-1][1] = runs[-1].wall
        else:
            self._spans.append([runs[0].wall, runs[-1].wall])
            if len(self._spans) > SPANS_MAX:
                self._spans.remove(min(self._spans[:-1]))
        self._joined = True

    # ---- runs

    def _arrive(self, slot: Slot, out: list[Action]) -> None:
        rule = self.rule
        if rule.max_runs and self.runs + len(self.owed) >= rule.max_runs:
            return
        if rule.overlap == "replace" and self.active:
            out.append(Replace(self.number))
            self.active.clear()
        many = len(self.active) >= AT_ONCE_MAX
        if not self.active or (rule.overlap == "allow" and not many):
            self._release(slot, out)
        elif rule.overlap == "allow":
            out.append(Skipped(self.number, slot.wall, slot.wall, f"{AT_ONCE_MAX} runs before it are not over"))
        elif len(self.owed) < AT_ONCE_MAX and (slot.late or (rule.overlap == "queue" and not self._one_waits)):
            self.owed.append(slot)
        else:
            out.append(Skipped(self.number, slot.wall, slot.wall, "the run before it is not over"))

    @property
    def _one_waits(self) -> bool:
        return any(not one.late for one in self.owed)

    def _release(self, slot: Slot, out: list[Action]) -> None:
        self.runs += 1
        self.active.add(self.runs)
        out.append(Release(self.number, self.runs, slot))

    def ended(self, run: int, now: int) -> list[Action]:
        """Take note that all jobs of a run have ended."""
        out: list[Action] = []
        if run not in self.active:
            return out  # it was replaced
        self.active.discard(run)
        if self.owed and not self.active:
            self._release(self.owed.popleft(), out)
        elif self.rule.delay_ns and not self.active and not self.over:
            self._set(Slot(now + self.offset + self.rule.delay_ns, now + self.rule.delay_ns))
        return out

    @property
    def goes_on(self) -> bool:
        """Further runs will be released, or may be."""
        return not self.over or bool(self.owed)


class Recurrences:
    """All courses, by number; nothing is looked at before its instant.

    Args:
        seed: of the jitter.
    """

    def __init__(self, seed: int = 0) -> None:
        self.seed = seed
        self.courses: dict[int, Course] = {}
        self.held = False  # the pool is paused
        self._offset = 0
        self._due: list[tuple[int, int]] = []  # (instant, course); one that is out of date is found so when it comes up
        self._walls: set[int] = set()
        self._going: set[int] = set()
        self._moved: deque[int] = deque()  # courses that have not heard yet that the clock was set

    def course(self, number: int, rule: Rule, now: int, offset: int, start: int | None = None) -> Course:
        """Return a new course; `start` is its first instant, of the wall clock, None: now."""
        return Course(number, rule, self.seed, now, offset, start)

    def take(self, course: Course, now: int, offset: int) -> None:
        """Begin a course."""
        if not self.courses:
            self._offset = offset
        self.courses[course.number] = course
        course.clock_set(now, self._offset)
        self._note(course)

    def drop(self, number: int) -> None:
        """End a course: no further run."""
        if course := self.courses.pop(number, None):
            course.slot, course.over, course.fire_at = None, True, NEVER
            course.owed.clear()
            self._note(course)

    def hold(self, number: int, held: bool) -> None:
        """Pause a course, or go on with it: what it has missed is then looked at."""
        if course := self.courses.get(number):
            course.held = held
            self._note(course)

    def turn(self, now: int, offset: int) -> list[Action]:
        """Take the slots that have come; a bounded number of them, the others in the next turn."""
        if offset != self._offset:
            self._offset = offset
            self._moved = deque(self.courses)
        for _ in range(min(len(self._moved), COURSES)):
            if course := self.courses.get(self._moved.popleft()):
                course.clock_set(now, offset)
                self._note(course)
        out: list[Action] = []
        for _ in range(COURSES):
            if self.held or self._moved or not self._due or self._due[0][0] > now:
                break
            at, number = heapq.heappop(self._due)
            course = self.courses.get(number)
            if course and course.noted_at == at:
                course.noted_at = NEVER
                out += course.turn(now)
                self._note(course)
        return out

    def ended(self, number: int, run: int, now: int) -> list[Action]:
        """Take note that a run is over."""
        course = self.courses.get(number)
        if course is None:
            return []
        out = course.ended(run, now)
        self._note(course)
        return out

    def _note(self, course: Course) -> None:
        """Keep what is asked of all courses up to date after one was touched."""
        at = NEVER if course.held else course.fire_at
        if at != course.noted_at and at < NEVER:
            heapq.heappush(self._due, (at, course.number))
        course.noted_at = at
        (self._walls.add if course.by_wall else self._walls.discard)(course.number)
        (self._going.add if course.goes_on else self._going.discard)(course.number)

    @property
    def wake_at(self) -> int:
        """The instant at which to look again if nothing happens."""
        if self._moved:
            return 1  # at once; a timer set to 0 is none
        return self._due[0][0] if self._due and not self.held else NEVER

    @property
    def by_wall(self) -> bool:
        """Some slot hangs on the wall clock: it is to be looked at now and then."""
        return bool(self._walls)

    @property
    def go_on(self) -> bool:
        """Some course will release further runs."""
        return bool(self._going)
