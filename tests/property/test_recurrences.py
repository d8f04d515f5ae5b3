"""Recurring tasks under any history of turns, ends of runs, pauses and set clocks, with an auditor that keeps its own books."""

import copy

from hypothesis import given, settings
from hypothesis import strategies as st

from ptss_mp.core.job import NEVER
from ptss_mp.core.recurrence import COURSES, RUN_ALL_MAX, Recurrences, Release, Replace, Rule, Skipped

S = 1_000_000_000
YEAR = 366 * 86_400 * S
EPOCH = 1_700_000_000 * S  # wall clock less monotonic clock, at the beginning
JUST_PAST = S  # a slot that old at the beginning still counts


class Pattern:
    """Slots at some marks of each period of the wall clock."""

    def __init__(self, period, marks):
        self.period, self.marks = period, sorted(marks)

    def after(self, wall):
        turn, rest = divmod(wall, self.period)
        later = [mark for mark in self.marks if mark > rest]
        return turn * self.period + later[0] if later else (turn + 1) * self.period + self.marks[0]

    def before(self, wall):
        turn, rest = divmod(wall, self.period)
        sooner = [mark for mark in self.marks if mark <= rest]
        return turn * self.period + sooner[-1] if sooner else (turn - 1) * self.period + self.marks[-1]


class Books:
    """What the auditor knows of one task."""

    def __init__(self, rule, start, now, offset):
        self.rule, self.start = rule, start
        self.begin = now + offset
        self.ran, self.active, self.last_end = {}, set(), None  # slots that had a run; runs that are not over
        self.told, self.spans = set(), []  # slots, and spans of them, that were told to have none
        self.passed, self.open = [], []  # spans (after, upto) of the wall clock that went by; not yet accounted for
        first = self.begin if start is None else max(start, self.begin - JUST_PAST)
        self.seen = first - 1
        self.held = self.dropped = False

    def look(self, wall):
        """The wall clock is seen to show this."""
        if wall > self.seen:
            self.passed.append((self.seen, wall))
            self.open.append((self.seen, wall))
            self.seen = wall
        elif self.start is None or wall >= self.start:
            self.seen = wall  # it was set back

    def tell(self, first, last):
        if first == last:
            self.told.add(first)
        else:
            self.spans.append((first, last))

    def upto(self, slot, owed):
        """Return the slot up to which the slots from this one on were dealt with, or None."""
        if slot in self.ran or slot in self.told or slot in owed:
            return slot
        return max((last for first, last in self.spans if first <= slot <= last), default=None)


class Auditor:
    """Drives `Recurrences` and checks what it says."""

    def __init__(self, rules):
        self.now, self.offset = 50 * S, EPOCH
        self.offsets = [self.offset]
        self.core = Recurrences(seed=7)
        self.paused = False
        self.books = {}
        for number, (rule, start) in enumerate(rules, 1):
            wall = self.now + self.offset
            at = None if start is None else wall + start
            course = self.core.course(number, rule, self.now, self.offset, at)
            self.core.take(course, self.now, self.offset)
            self.books[number] = Books(rule, at, self.now, self.offset)

    # ---- what may happen

    def turn(self, by=0):
        self.now += by
        self.check_silent_before()
        for number, books in self.books.items():
            course = self.core.courses.get(number)
            if course and not course.over:
                books.look(self.now + self.offset)
        self.take(self.core.turn(self.now, self.offset))
        for _ in range(4 * len(self.books) + 4):  # whatever is due is done in a few turns at one instant
            if self.core.wake_at > self.now:
                break
            self.take(self.core.turn(self.now, self.offset))
        assert self.core.wake_at > self.now, "it asks to be looked at again and again, and does nothing"

    def wake(self):
        """Look when it asks to be looked at."""
        at = self.core.wake_at
        if at < NEVER:
            self.turn(max(0, at - self.now))
        else:
            self.check_nothing_to_do()

    def end(self, draw):
        going = [(number, run) for number, books in self.books.items() for run in sorted(books.active)]
        if going:
            number, run = going[draw % len(going)]
            books = self.books[number]
            books.active.discard(run)
            books.last_end = self.now
            self.take(self.core.ended(number, run, self.now))
        assert self.core.ended(1, 10**9, self.now) == [], "a run that is none"
        assert self.core.ended(10**9, 1, self.now) == [], "of a task that is none"

    def hold(self, draw, held):
        number = draw % len(self.books) + 1
        self.books[number].held = held
        self.core.hold(number, held)

    def pause(self, paused):
        self.paused = self.core.held = paused

    def step(self, by):
        self.offset += by
        self.offsets.append(self.offset)

    def drop(self, draw):
        number = draw % len(self.books) + 1
        self.books[number].dropped = True
        self.core.drop(number)

    # ---- what must hold

    def take(self, actions):
        for action in actions:
            books = self.books[action.course]
            assert not books.held and not books.dropped and not self.paused
            if isinstance(action, Skipped):
                assert action.first <= action.last and action.why
                books.tell(action.first, action.last)
            elif isinstance(action, Replace):
                assert books.rule.overlap == "replace" and books.active
                books.active.clear()
            else:
                assert isinstance(action, Release)
                self.released(books, action)
        for course in self.core.courses.values():
            assert len(course.owed) <= RUN_ALL_MAX + 1
        assert len(self.core._due) <= 3 * len(self.books) + COURSES

    def released(self, books, action):
        rule, slot = books.rule, action.slot
        assert action.run == max(books.ran.values(), default=0) + 1
        assert not books.active or rule.overlap == "allow", "two runs at once"
        assert slot.wall not in books.ran or rule.delay_ns, "a slot had two runs"
        assert not rule.max_runs or action.run <= rule.max_runs
        assert books.start is None or slot.wall >= books.start, "before start_time"
        if rule.table:
            assert rule.table.before(slot.wall) == slot.wall, "this is none of its slots"
            assert any(after < slot.wall <= upto for after, upto in books.passed), "its slot had not come"
            assert rule.until is None or slot.wall <= rule.until
        else:
            assert slot.at <= self.now, "too early by the monotonic clock"
            assert rule.until is None or any(slot.at + offset <= rule.until for offset in self.offsets)
        if rule.every_ns:
            anchor = books.begin if books.start is None else books.start
            assert (slot.wall - anchor) % rule.every_ns == 0, "off the grid"
            assert slot.wall > max(books.ran, default=-YEAR)
        if rule.delay_ns and books.last_end is not None:
            assert slot.at >= books.last_end + rule.delay_ns, "the delay was cut short"
        books.ran[slot.wall] = action.run
        books.active.add(action.run)

    def check_silent_before(self):
        """What asks to be looked at at an instant has nothing to say before it."""
        at = min(self.core.wake_at, self.now + 1)
        if self.core._offset == self.offset and at > self.now - S:
            assert copy.deepcopy(self.core).turn(at - 1, self.offset) == []

    def check_nothing_to_do(self):
        for number, course in self.core.courses.items():
            books = self.books[number]
            waits = books.rule.delay_ns and books.active
            assert self.paused or books.held or course.over or waits or course.fire_at >= NEVER

    def check_slots(self):
        """Each slot that went by has a run, or was told, or waits."""
        for number, books in self.books.items():
            course = self.core.courses.get(number)
            if books.dropped or (books.rule.max_runs and course.over):
                continue
            rule, owed = books.rule, {slot.wall for slot in course.owed}
            if rule.table:
                books.open = [left for span in books.open if (left := self.unaccounted(books, course, owed, *span))]
            elif rule.every_ns and books.ran:
                first = min(books.ran)
                last = course.slot.wall - rule.every_ns if course.slot else max(books.ran)
                for slot in range(first, min(last, first + 5000 * rule.every_ns) + 1, rule.every_ns):
                    assert books.upto(slot, owed) is not None, f"the slot {slot} was forgotten"
            elif rule.delay_ns:
                assert course.slot or course.over or books.active

    def unaccounted(self, books, course, owed, after, upto):
        """Go through the slots in a span of the wall clock; return what of it is still pending."""
        last = upto if books.rule.until is None else min(upto, books.rule.until)
        while (slot := books.rule.table.after(after)) <= last:
            if course.slot and course.slot.wall <= slot:
                return (after, upto)  # what comes after the pending one will be looked at with it
            after = books.upto(slot, owed)
            assert after is not None, f"the slot {slot} was forgotten"
        return None


periods = st.sampled_from([700_000_000, 3 * S, 60 * S, 3600 * S, 30 * 86_400 * S])
waits = st.integers(0, 60).map(lambda tenths: tenths * S // 10) | st.sampled_from(
    [S - 1, S, S + 1, 59 * S, 61 * S, 3600 * S, 86_400 * S, 40 * 86_400 * S]
)
steps = st.sampled_from([S // 2, S, S + 1, 5 * S, 3600 * S, 86_400 * S, YEAR, 10 * YEAR]).flatmap(
    lambda by: st.sampled_from([by, -by])
)
starts = st.none() | st.sampled_from([-YEAR, -100 * S, -S, -S // 2, 0, 1, 5 * S, 100 * S])


@st.composite
def rules(draw):
    period, kind = draw(periods), draw(st.sampled_from(["every", "delay", "table", "table"]))
    common = {
        "overlap": draw(st.sampled_from(["skip", "queue", "allow", "replace"])),
        "misfire": draw(st.sampled_from(["run_once", "run_all", "skip"])),
        "jitter_ns": draw(st.sampled_from([0, 0, 1, 5 * S, 90 * S])),
        "max_runs": draw(st.sampled_from([0, 0, 0, 1, 4])),
        "until": draw(st.sampled_from([None, None, None, EPOCH + 120 * S, EPOCH + 30 * YEAR])),
    }
    if kind == "every":
        common["jitter_ns"] = min(common["jitter_ns"], period - 1)
        return Rule(every_ns=period, **common), draw(starts)
    if kind == "delay":
        return Rule(delay_ns=period, **common), draw(starts)
    marks = draw(st.sets(st.integers(0, 9), min_size=1, max_size=4))
    return Rule(table=Pattern(period, [mark * (period // 10) for mark in marks]), **common), draw(starts)


acts = st.one_of(
    st.tuples(st.just("turn"), waits),
    st.tuples(st.just("wake")),
    st.tuples(st.just("wake")),
    st.tuples(st.just("end"), st.integers(0, 9)),
    st.tuples(st.just("end"), st.integers(0, 9)),
    st.tuples(st.just("hold"), st.integers(0, 9), st.booleans()),
    st.tuples(st.just("pause"), st.booleans()),
    st.tuples(st.just("step"), steps),
    st.tuples(st.just("drop"), st.integers(0, 9)),
)


@settings(max_examples=600)
@given(st.lists(rules(), min_size=1, max_size=3), st.lists(acts, max_size=40))
def test_any_history(tasks, history):
    world = Auditor(tasks)
    for name, *given_ in history:
        getattr(world, name)(*given_)
        if name == "turn":
            world.check_slots()
    world.pause(False)
    for number in list(world.core.courses):
        world.hold(number - 1, False)
    world.turn()
    world.check_slots()
    while any(books.active for books in world.books.values()):
        world.end(0)
        world.check_slots()
