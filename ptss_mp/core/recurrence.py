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

When the clock is set, slots of the wall clock move with it; a machine that was suspended is the same, for its monotonic
clock stood still.  Set back, it makes no slot run twice (`Done`), and loses none that has come and is still pending.

Walls (ns since 1970) and instants (ns of the monotonic clock) differ by `offset`: wall = instant + offset.
"""

from __future__ import annotations

import heapq
from collections import deque
from typing import NamedTuple

from .done import Done, Timetable
from .job import NEVER
from .restart import drawn

LATE_NS = 1_000_000_000  # what is later was missed: a collection of garbage or a busy machine is no reason
RUN_ALL_MAX = 1_000  # missed slots that `misfire="run_all"` makes up for, the last ones; a set clock may miss millions
NOW = 1  # an instant that has come; a timer set to 0 is none
MISSED, NOT_OVER = "missed", "the run before it is not over"  # why a slot brings no run
COURSES = 100  # looked at in one turn: 2 ms; and actions after which a turn stops
AT_ONCE_MAX = 1_000  # runs of a task that may go on at once (`overlap="allow"`)


class Rule(NamedTuple):
    """How a task recurs: exactly one of `every_ns`, `delay_ns`, `table`."""

    every_ns: int = 0
    delay_ns: int = 0
    table: Timetable | None = None
    overlap: str = "skip"
    misfire: str = "run_once"
    jitter_ns: int = 0
    max_runs: int = 0  # 0: no bound
    until: int | None = None  # of the wall clock: no slot after it


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
        start: no slot before it, of the wall clock; None: from now on.
        slot: the next one; None if none follows, or if that hangs on the end of a run.
        fire_at: when it is to be looked at: the jitter after it.
        noted_at: for when that is noted (`Recurrences`).
        active: runs that are not over.
        owed: slots that have come and whose run waits for the one before.
        runs: released so far.
        held: paused by its handle.
        over: no further slot follows.
    """

    def __init__(self, number: int, rule: Rule, seed: int, now: int, offset: int, start: int | None) -> None:
        self.number, self.rule, self.seed, self.start = number, rule, seed, start
        self.offset = offset
        self.active: set[int] = set()
        self.owed: deque[Slot] = deque()
        self.runs = 0
        self.held = False
        self.over = False
        self.fire_at = self.noted_at = NEVER
        self.slot: Slot | None = None
        self._done = Done(rule.table) if rule.table else None
        # From its first slot on the monotonic clock counts, where no timetable does; who begins now begins so.
        self._by_monotonic = not rule.table and start is None
        self._set(self._first(now, LATE_NS))  # what is just past is on time: who says "from now on" means it

    # ---- slots

    def _first(self, now: int, grace: int) -> Slot | None:
        """Return the first slot from `start` on that is to come, or past by no more than `grace`."""
        wall = now + self.offset
        start = wall if self.start is None else self.start
        if self.rule.table:
            return self._listed(max(start, wall - grace) - 1)
        if wall - start > grace:
            every = self.rule.every_ns
            start = start - (start - wall) // every * every if every else wall
        return Slot(start, start - self.offset)

    def go_on(self, anchor: int, last: int | None) -> None:
        """Go on where an earlier program has ended: what came since then was missed.

        Args:
            anchor: the first slot.
            last: that of the last run that was over; None: none was.
        """
        rule = self.rule
        self._by_monotonic = False
        if last is None or (last < anchor and not rule.table):
            wall: int | None = anchor
        elif rule.every_ns:
            wall = anchor + ((last - anchor) // rule.every_ns + 1) * rule.every_ns
        else:
            wall = last + rule.delay_ns
        if self._done:
            wall = self._done.after(anchor - 1 if last is None else last)
        self._set(None if wall is None else Slot(wall, wall - self.offset))

    def _listed(self, wall: int) -> Slot | None:
        """Return the first slot of the timetable after an instant that had no run yet."""
        assert self._done
        found = self._done.after(wall)
        return None if found is None else Slot(found, found - self.offset)

    def _set(self, slot: Slot | None) -> None:
        """Let this be the next one, if it may still run."""
        if slot and self._beyond(slot):
            slot, self.over = None, True
        elif slot is None and not (self.rule.delay_ns and self.active):
            self.over = True
        self.slot = slot
        self.fire_at = slot.at + self._jitter(slot) if slot else NEVER

    def _beyond(self, slot: Slot) -> bool:
        """There were runs enough, or it lies after `until` (as the clock is set now)."""
        rule = self.rule
        return self._full or (rule.until is not None and slot.at + self.offset > rule.until)

    @property
    def _full(self) -> bool:
        return 0 < self.rule.max_runs <= self.runs + len(self.owed)

    def _jitter(self, slot: Slot) -> int:
        most = self.rule.jitter_ns
        if most and self.rule.table and (following := self.rule.table.after(slot.wall)):
            most = min(most, following - slot.wall - 1)  # or one release would overtake another
        return drawn(self.seed, self.number, slot.wall) % (most + 1)

    def _following(self, now: int) -> Slot:
        """Return the slot after the end of a run."""
        at = now + self.rule.delay_ns
        return Slot(at + self.offset, at)

    def clock_set(self, now: int, offset: int) -> None:
        """Take another difference between wall clock and monotonic clock."""
        back, self.offset = offset < self.offset, offset
        if self.slot is None:
            return
        if self.by_wall:
            # Set back, earlier slots than the pending one may come (again); one that has come stays pending.
            first = self._first(now, 0) if back else None
            wall = min(self.slot.wall, first.wall) if first else self.slot.wall
            self._set(Slot(wall, wall - offset))
        elif self.slot.at > now:
            self._set(self.slot)  # it may lie after `until` now

    @property
    def by_wall(self) -> bool:
        """The wall clock decides when the next slot is."""
        return self.slot is not None and not self._by_monotonic

    # ---- a slot comes

    def turn(self, now: int) -> list[Action]:
        """Take the slots that have come."""
        out = self.owing()
        slot = self.slot
        if slot is None or self.fire_at > now or self.held:
            return out
        self._by_monotonic = not self.rule.table
        came = now - (self.fire_at - slot.at)  # by it they are counted: the jitter is the pending one's alone
        last = self._last(slot, came)
        runs = self._chosen(slot, last, came - last.at > LATE_NS, out)
        if self._done and runs:
            self._done.add(runs[0].wall, runs[-1].wall, now + self.offset)
        for one in runs:
            self._arrive(one, out)
        if self.rule.table:
            self._set(self._listed(last.wall))
        elif self.rule.every_ns:
            self._set(self._shifted(last, self.rule.every_ns))
        else:  # if it was missed and is left out: without a run none would ever follow
            self._set(None if runs else self._following(now))
        return out

    def _shifted(self, slot: Slot, by: int) -> Slot:
        return Slot(slot.wall + by, slot.at + by)

    def _last(self, slot: Slot, came: int) -> Slot:
        """Return the last slot that has come and may run, `slot` being the first."""
        if self.rule.until is not None:
            came = min(came, self.rule.until - self.offset)
        if self.rule.every_ns:
            return self._shifted(slot, max(0, came - slot.at) // self.rule.every_ns * self.rule.every_ns)
        if self._done:
            wall = max(slot.wall, self._done.before(came + self.offset))
            return Slot(wall, wall - self.offset)
        return slot

    def _before(self, slot: Slot) -> Slot:
        if self.rule.every_ns:
            return self._shifted(slot, -self.rule.every_ns)
        assert self._done
        wall = self._done.before(slot.wall - 1)
        return Slot(wall, wall - self.offset)

    def _chosen(self, slot: Slot, last: Slot, late: bool, out: list[Action]) -> list[Slot]:
        """Return which of the slots from `slot` to `last` get a run; say a word about the others."""
        if slot == last and not late:
            return [slot]
        if self.rule.misfire == "skip" and late:
            out.append(Skipped(self.number, slot.wall, last.wall, MISSED))
            return []
        chosen = [last._replace(late=late)]
        while self.rule.misfire == "run_all" and chosen[-1].wall > slot.wall and len(chosen) < RUN_ALL_MAX:
            chosen.append(self._before(chosen[-1])._replace(late=True))
        if chosen[-1].wall > slot.wall:
            out.append(Skipped(self.number, slot.wall, self._before(chosen[-1]).wall, MISSED))
        return chosen[::-1]

    # ---- runs

    def _arrive(self, slot: Slot, out: list[Action]) -> None:
        """Give a slot its run: now, or once the one before is over, or not at all."""
        rule = self.rule
        if self._full:
            return
        if rule.overlap == "replace" and self.active:
            out.append(Replace(self.number))
            self.active.clear()
        many = len(self.active) >= AT_ONCE_MAX
        if not self.active or (rule.overlap == "allow" and not many):
            self._release(slot, out)
        elif rule.overlap == "allow":
            out.append(Skipped(self.number, slot.wall, slot.wall, f"{AT_ONCE_MAX} runs before it are not over"))
        elif slot.late:
            self._owe_late(slot, out)
        elif rule.overlap == "queue" and all(one.late for one in self.owed):
            self.owed.append(slot)
        else:
            out.append(Skipped(self.number, slot.wall, slot.wall, NOT_OVER))

    def _owe_late(self, slot: Slot, out: list[Action]) -> None:
        """Let a missed slot wait; of several that come of several pauses as many as of one."""
        late = [one for one in self.owed if one.late]
        if len(late) >= (RUN_ALL_MAX if self.rule.misfire == "run_all" else 1):
            self.owed.remove(late[0])
            out.append(Skipped(self.number, late[0].wall, late[0].wall, MISSED))
        self.owed.append(slot)

    def _release(self, slot: Slot, out: list[Action]) -> None:
        self.runs += 1
        self.active.add(self.runs)
        out.append(Release(self.number, self.runs, slot))

    def owing(self) -> list[Action]:
        """Release what waited for the end of a run."""
        out: list[Action] = []
        if self.owes_now:
            self._release(self.owed.popleft(), out)
        return out

    @property
    def owes_now(self) -> bool:
        """A slot has waited long enough."""
        return bool(self.owed) and not self.active and not self.held

    def ended(self, run: int, now: int) -> None:
        """Take note that all jobs of a run have ended; one that was replaced is none any more."""
        if run not in self.active:
            return
        self.active.discard(run)
        if self.rule.delay_ns and not self.active and not self.over:
            self._set(self._following(now))

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
            if self.held or self._moved or len(out) > COURSES or not self._due or self._due[0][0] > now:
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
        course.ended(run, now)
        out = [] if self.held else course.owing()
        self._note(course)
        return out

    def _note(self, course: Course) -> None:
        """Keep what is asked of all courses up to date after one was touched."""
        at = NEVER if course.held else NOW if course.owes_now else course.fire_at
        if at != course.noted_at and at < NEVER:
            heapq.heappush(self._due, (at, course.number))
        course.noted_at = at
        if len(self._due) > 2 * len(self.courses) + COURSES:  # most are out of date
            self._due = [(one.noted_at, one.number) for one in self.courses.values() if one.noted_at < NEVER]
            heapq.heapify(self._due)
        (self._walls.add if course.by_wall else self._walls.discard)(course.number)
        (self._going.add if course.goes_on else self._going.discard)(course.number)

    @property
    def wake_at(self) -> int:
        """The instant at which to look again if nothing happens."""
        if self._moved:
            return NOW
        return max(NOW, self._due[0][0]) if self._due and not self.held else NEVER

    @property
    def by_wall(self) -> bool:
        """Some slot hangs on the wall clock: it is to be looked at now and then."""
        return bool(self._walls)

    @property
    def go_on(self) -> bool:
        """Some course will release further runs."""
        return bool(self._going)
