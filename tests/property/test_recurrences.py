"""Recurring tasks under any history of turns, ends, pauses and set clocks; an auditor keeps books of its own."""

import copy
import random

import pytest

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
        self.ran, self.runs, self.active, self.last_end = (
            {},
            0,
            set(),
            None,
        )  # slots that had a run; runs that are not over
        self.told, self.spans = set(), []  # slots, and spans of them, that were told to have none
        self.passed, self.open = [], []  # spans (after, upto) of the wall clock that went by; not yet accounted for
        first = self.begin if start is None else max(start, self.begin - JUST_PAST)
        self.seen = first - 1
        self.held = self.dropped = False

    def look(self, wall):
        """The wall clock is seen to show this."""
        if wall < self.seen:  # it was set back
            self.seen = (wall if self.start is None else max(wall, self.start)) - 1
        if wall > self.seen:
            self.passed.append((self.seen, wall))
            self.open.append((self.seen, wall))
            self.seen = wall

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
        going = [number for number, books in self.books.items() if books.active]
        if going:
            number = going[draw % len(going)]
            books = self.books[number]
            run = next(iter(books.active))
            books.active.discard(run)
            books.last_end = self.now
            self.take(self.core.ended(number, run, self.now))
        self.take(self.core.ended(1, 10**9, self.now))  # a run that is none
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
            assert not any((books.held, books.dropped, self.paused))
            if isinstance(action, Skipped):
                assert action.first <= action.last
                assert action.why
                books.tell(action.first, action.last)
            elif isinstance(action, Replace):
                assert books.rule.overlap == "replace"
                assert books.active
                books.active.clear()
            else:
                assert isinstance(action, Release)
                self.released(books, action)
        for course in self.core.courses.values():
            assert len(course.owed) <= RUN_ALL_MAX + 1
        assert self.core.wake_at >= 1, "no instant for a timer"
        assert len(self.core._due) <= 3 * len(self.books) + COURSES

    def released(self, books, action):
        rule, slot = books.rule, action.slot
        assert action.run == books.runs + 1
        assert not books.active or rule.overlap == "allow", "two runs at once"
        assert slot.wall not in books.ran or rule.delay_ns, "a slot had two runs"
        assert not rule.max_runs or action.run <= rule.max_runs
        assert books.start is None or slot.wall >= books.start or (rule.delay_ns and action.run > 1), "before start"
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
            assert slot.wall > next(reversed(books.ran), -YEAR)
        if rule.delay_ns and books.last_end is not None:
            assert slot.at >= books.last_end + rule.delay_ns, "the delay was cut short"
        books.ran[slot.wall] = books.runs = action.run
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
            assert rule.until is not None or not course.over, "it died out"
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


PERIODS = [7 * S // 10, 3 * S, 60 * S, 3600 * S, 30 * 86_400 * S]
WAITS = [S - 1, S, S + 1, 59 * S, 61 * S, 3600 * S, 86_400 * S, 40 * 86_400 * S]
STEPS = [S // 2, S, S + 1, 5 * S, 45 * S, 3600 * S, 86_400 * S, YEAR, 10 * YEAR]
STARTS = [None, None, None, -YEAR, -100 * S, -S, -S // 2, 0, 1, 5 * S, 100 * S]
ACTS = ["turn"] * 6 + ["wake"] * 8 + ["end"] * 8 + ["hold", "hold", "pause", "pause", "step", "step", "step", "drop"]


def some_rule(dice):
    period = dice.choice(PERIODS)
    common = {
        "overlap": dice.choice(["skip", "queue", "allow", "replace"]),
        "misfire": dice.choice(["run_once", "run_all", "skip"]),
        "jitter_ns": dice.choice([0, 0, 1, 5 * S, 90 * S]),
        "max_runs": dice.choice([0, 0, 0, 0, 1, 4]),
        "until": dice.choice([None, None, None, EPOCH + 120 * S, EPOCH + 2 * YEAR]),
    }
    kind = dice.choice(["every", "delay", "table", "table"])
    if kind == "every":
        common["jitter_ns"] = min(common["jitter_ns"], period - 1)
        rule = Rule(every_ns=period, **common)
    elif kind == "delay":
        rule = Rule(delay_ns=period, **common)
    else:
        marks = dice.sample(range(10), dice.randint(1, 4))
        rule = Rule(table=Pattern(period, [mark * (period // 10) for mark in marks]), **common)
    return rule, dice.choice(STARTS)


def some_act(dice):
    name = dice.choice(ACTS)
    if name == "turn":
        return name, dice.choice([dice.randint(0, 60) * S // 10, dice.choice(WAITS)])
    if name == "step":
        return name, dice.choice([1, -1]) * dice.choice(STEPS)
    if name == "pause":
        return name, dice.random() < 0.3
    if name == "hold":
        return name, dice.randrange(9), dice.random() < 0.3
    return (name, dice.randrange(9)) if name in ("end", "drop") else (name,)


@pytest.mark.parametrize("block", range(8))
def test_any_history(block):
    for seed in range(block * 50, block * 50 + 50):
        dice = random.Random(seed)
        tasks = [some_rule(dice) for _ in range(dice.randint(1, 3))]
        history = [some_act(dice) for _ in range(dice.randint(1, 60))]
        try:
            live(Auditor(tasks), history)
        except Exception as error:
            error.add_note(f"seed {seed}: {tasks}\n{history}")
            raise


def live(world, history):
    for name, *given in history:
        if name != "drop" or given[0] == 0:
            getattr(world, name)(*given)
        if name == "turn":
            world.check_slots()
    world.pause(False)
    for number in list(world.core.courses):
        world.hold(number - 1, False)
    world.turn()
    world.check_slots()
    for _ in range(100):
        if not any(books.active for books in world.books.values()):
            break
        world.end(0)
    world.check_slots()
