"""When a task recurs, under virtual time: every rule of overlap, misfire, jitter, until, max_runs, and set clocks."""

import pytest

from ptss_mp.core.done import SPANS_MAX, Done
from ptss_mp.core.job import NEVER
from ptss_mp.core.recurrence import (
    COURSES,
    RUN_ALL_MAX,
    Recurrences,
    Release,
    Replace,
    Rule,
    Skipped,
)

S = 1_000_000_000
HOUR, DAY, YEAR = 3600 * S, 86_400 * S, 366 * 86_400 * S
WALL = 1_700_000_000 * S  # wall clock less monotonic clock; slots of `Every` are multiples of its period beyond it
BASE = 7 * DAY  # the machine runs since then; instants in the tests count from here
LATE, BUSY = "missed", "the run before it is not over"


class Every:
    """Slots each so many ns of the wall clock, some left out, maybe with a last one."""

    def __init__(self, period, last=None, without=()):
        self.period, self.last, self.without = period, last, {WALL + slot for slot in without}

    def after(self, wall):
        found = wall + self.period - (wall - WALL) % self.period
        while found in self.without:
            found += self.period
        return found if self.last is None or found <= WALL + self.last else None

    def before(self, wall):
        found = wall - (wall - WALL) % self.period
        if self.last is not None:
            found = min(found, WALL + self.last)
        while found in self.without:
            found -= self.period
        return found


class World:
    """Recurrences with one clock; what it says is noted as short words, walls in seconds after WALL."""

    def __init__(self, *rules, now=0, seed=0, start=None):
        self.core, self.now, self.offset = Recurrences(seed), now, WALL
        for number, rule in enumerate(rules, 1):
            at = None if start is None else WALL + start
            course = self.core.course(number, rule, now + BASE, self.offset - BASE, at)
            self.core.take(course, now + BASE, self.offset - BASE)

    def at(self, seconds):
        """Look at an instant of the monotonic clock; return what came."""
        self.now = round(seconds * S)
        return said(self.core.turn(self.now + BASE, self.offset - BASE))

    def until(self, seconds):
        """Look whenever it asks for it, until an instant; return what came and when."""
        out = []
        while (at := max(self.now, self.wake_at)) <= seconds * S:
            out += [(at / S, *word) for word in self.at(at / S)]
        self.now = seconds * S
        return out

    def end(self, run, number=1):
        return said(self.core.ended(number, run, self.now + BASE))

    def set_clock(self, by):
        """Set it; what that brings comes with the next look."""
        self.offset += round(by * S)

    @property
    def wake_at(self):
        at = self.core.wake_at
        return at - BASE if at < NEVER else NEVER

    @property
    def fires(self):
        """When the pending slot is due; it may ask to be looked at before."""
        assert self.wake_at <= self.course.fire_at - BASE
        return self.course.fire_at - BASE

    @property
    def course(self):
        return self.core.courses[1]

    @property
    def next(self):
        slot = self.course.slot
        return slot and (slot.wall - WALL) / S


def said(actions):
    words = []
    for action in actions:
        if isinstance(action, Release):
            words.append((action.run, (action.slot.wall - WALL) / S))
        elif isinstance(action, Replace):
            words.append(("replace",))
        else:
            assert isinstance(action, Skipped)
            words.append((action.why, (action.first - WALL) / S, (action.last - WALL) / S))
    return words


def ending(world, seconds):
    """Look until an instant; each run ends at once."""
    out = []
    while (at := max(world.now, world.wake_at)) <= seconds * S:
        for word in world.at(at / S):
            out.append(word)
            if isinstance(word[0], int):
                out += world.end(word[0])
    return out


# ---- the three kinds of slots


@pytest.mark.parametrize(
    ("start", "slots"),
    [
        (None, [100, 110, 120]),
        (100 * S, [100, 110, 120]),
        (103 * S, [103, 113, 123]),  # to come
        (99 * S, [99, 109, 119]),  # just past: it is meant
        (98 * S, [108, 118, 128]),  # past: on its grid
        (0, [100, 110, 120]),
        (3 * S - YEAR, [103, 113, 123]),  # a year is a multiple of ten seconds
    ],
)
def test_an_interval_is_anchored_at_its_start(start, slots):
    world = World(Rule(every_ns=10 * S), now=100 * S, start=start)
    assert [wall for _, wall in ending(world, slots[-1])] == slots


@pytest.mark.parametrize(("start", "first"), [(None, 100), (105 * S, 105), (99 * S, 99), (50 * S, 100), (-YEAR, 100)])
def test_a_delay_counts_from_the_end_of_a_run(start, first):
    world = World(Rule(delay_ns=10 * S), now=100 * S, start=start)
    assert [word[1:] for word in world.until(200)] == [(1, first)], "no second run while the first goes on"
    assert world.next is None
    assert world.core.go_on
    world.now = 250 * S
    assert world.end(1) == []
    assert world.until(300) == [(260, 2, 260)]


@pytest.mark.parametrize(
    ("start", "slots"),
    [
        (None, [100, 110, 120]),
        (100 * S + 1, [110, 120]),
        (115 * S, [120, 130]),
        (99 * S, [100, 110]),
        (-YEAR, [100, 110]),  # what was before there was a task was not missed by it
    ],
)
def test_a_timetable_is_followed_from_its_start(start, slots):
    world = World(Rule(table=Every(10 * S)), now=100 * S, start=start)
    assert [wall for _, wall in ending(world, slots[-1])] == slots


def test_a_slot_of_a_timetable_that_is_just_past_when_it_begins_is_meant():
    world = World(Rule(table=Every(10 * S)), now=100 * S + S // 2, start=99 * S)
    assert world.at(100.5) == [(1, 100)]
    assert World(Rule(table=Every(10 * S)), now=100 * S + 1).next == 110


def test_a_timetable_may_end():
    world = World(Rule(table=Every(10 * S, last=25 * S)))
    assert ending(world, 1000) == [(1, 0), (2, 10), (3, 20)]
    assert (world.next, world.wake_at, world.core.go_on) == (None, NEVER, False)


def test_a_wall_far_away_is_none_of_never():
    """NEVER is an instant of the monotonic clock; as a wall it would be the year 2043."""
    for rule in (Rule(every_ns=YEAR), Rule(table=Every(YEAR))):
        world = World(rule)
        assert len(ending(world, 40 * YEAR // S)) == 41
        assert world.core.go_on


# ---- overlap


@pytest.mark.parametrize("kind", ["interval", "cron"])
@pytest.mark.parametrize(
    ("overlap", "words", "after"),
    [
        ("skip", [(1, 0), (BUSY, 10, 10), (BUSY, 20, 20), (BUSY, 30, 30)], []),
        ("queue", [(1, 0), (BUSY, 20, 20), (BUSY, 30, 30)], [(2, 10)]),
        ("allow", [(1, 0), (2, 10), (3, 20), (4, 30)], []),
        ("replace", [(1, 0), ("replace",), (2, 10), ("replace",), (3, 20), ("replace",), (4, 30)], []),
    ],
)
def test_overlap(kind, overlap, words, after):
    rule = Rule(overlap=overlap, **{"interval": {"every_ns": 10 * S}, "cron": {"table": Every(10 * S)}}[kind])
    world = World(rule)
    assert [word[1:] for word in world.until(35)] == words
    assert world.end(1) == after
    assert world.end(1) == [], "it has ended already"


def test_a_run_that_was_replaced_is_over():
    world = World(Rule(every_ns=10 * S, overlap="replace"))
    world.until(10)
    assert world.end(1) == []
    assert world.until(20) == [(20, "replace"), (20, 3, 20)], "the end of the first says nothing of the second"
    assert world.end(3) == []
    assert world.until(30) == [(30, 4, 30)], "nothing to replace"


def test_one_waits_again_after_the_one_that_waited():
    world = World(Rule(every_ns=10 * S, overlap="queue"))
    world.until(15)
    assert world.end(1) == [(2, 10)]
    assert world.until(25) == []
    assert world.end(2) == [(3, 20)]
    assert world.end(3) == []
    assert world.until(30) == [(30, 4, 30)]


# ---- misfire

KINDS = {"interval": {"every_ns": 10 * S}, "cron": {"table": Every(10 * S)}}


def missed_by_a_pause(world):
    world.core.held = True
    assert world.wake_at == NEVER
    assert world.at(35) == []
    world.core.held = False


def missed_by_a_pause_of_the_task(world):
    world.core.hold(1, True)
    assert world.at(35) == []
    world.core.hold(1, False)


def missed_by_a_late_turn(world):
    world.now = 35 * S


def missed_while_suspended(world):
    """The monotonic clock stood still, the wall clock did not; so it is if somebody sets it."""
    world.now = 5 * S
    world.set_clock(30)


PASSED = [missed_by_a_pause, missed_by_a_pause_of_the_task, missed_by_a_late_turn, missed_while_suspended]


@pytest.mark.parametrize("how", PASSED)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("misfire", "words"),
    [
        ("run_once", [(LATE, 10, 20), (2, 30)]),
        ("run_all", [(2, 10), (3, 20), (4, 30)]),
        ("skip", [(LATE, 10, 30)]),
    ],
)
def test_misfire(how, kind, misfire, words):
    world = World(Rule(misfire=misfire, **KINDS[kind]))
    world.at(0)
    world.end(1)
    how(world)
    if kind == "interval" and how is missed_while_suspended:
        assert world.at(5) == [], "an interval is a duration: of the monotonic clock"
        assert world.until(10) == [(10, 2, 10)]
        return
    got = world.at(world.now / S)
    for word in got:
        if isinstance(word[0], int):
            got += world.end(word[0])
    assert got == words
    assert world.next == 40


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("turn", "misfire", "words"),
    [
        (10.999, "skip", [(2, 10)]),
        (11, "skip", [(2, 10)]),  # late is more than a second
        (11.001, "skip", [(LATE, 10, 10)]),
        (11.001, "run_once", [(2, 10)]),
        (11.001, "run_all", [(2, 10)]),
        (20.5, "skip", [(LATE, 10, 10), (2, 20)]),  # the last one is on time
        (20.5, "run_once", [(LATE, 10, 10), (2, 20)]),
    ],
)
def test_a_turn_that_comes_late(kind, turn, misfire, words):
    world = World(Rule(misfire=misfire, **KINDS[kind]))
    world.at(0)
    world.end(1)
    assert world.at(turn) == words


def test_the_end_of_a_run_that_is_none_begins_no_delay():
    world = World(Rule(delay_ns=10 * S))
    world.at(0)
    world.end(1)
    world.now = 5 * S
    assert world.end(1) == world.end(2) == []
    assert world.fires == 10 * S


@pytest.mark.parametrize("misfire", ["run_once", "run_all", "skip"])
def test_a_delay_that_was_missed_goes_on(misfire):
    world = World(Rule(delay_ns=10 * S, misfire=misfire))
    world.at(0)
    world.end(1)
    got = world.at(100)
    assert got == ([(LATE, 10, 10)] if misfire == "skip" else [(2, 10)])
    if misfire == "skip":
        assert world.until(110) == [(110, 2, 110)], "without a run none would ever follow"


@pytest.mark.parametrize("kind", KINDS)
def test_run_all_makes_up_for_the_last_thousand(kind):
    world = World(Rule(misfire="run_all", overlap="allow", **KINDS[kind]))
    world.at(0)
    got = world.at(50_005)
    assert got[0] == (LATE, 10, 50_000 - RUN_ALL_MAX * 10)
    assert [word[1] for word in got[1:]] == [50_000 - (RUN_ALL_MAX - 1 - i) * 10 for i in range(RUN_ALL_MAX)]


@pytest.mark.parametrize("kind", KINDS)
def test_missed_runs_come_one_after_the_other(kind):
    world = World(Rule(misfire="run_all", **KINDS[kind]))
    world.at(0)
    assert world.at(35) == [], "run 1 is not over"
    assert world.until(40) == [(40, BUSY, 40, 40)]
    assert [world.end(run) for run in (1, 2, 3, 4)] == [[(2, 10)], [(3, 20)], [(4, 30)], []]


def test_the_missed_runs_of_many_pauses_are_one():
    world = World(Rule(every_ns=10 * S))
    world.at(0)
    assert world.at(35) == [(LATE, 10, 20)]
    assert world.at(65) == [(LATE, 40, 50), (LATE, 30, 30)]
    assert world.end(1) == [(2, 60)]
    assert world.end(2) == []


def test_what_is_owed_is_bounded_and_told():
    world = World(Rule(every_ns=10 * S, misfire="run_all"))
    world.at(0)
    assert world.at(9_995) == []
    told = world.at(19_995)
    assert len(world.course.owed) == RUN_ALL_MAX
    assert told == [(LATE, slot, slot) for slot in range(10, 10_000, 10)]


# ---- max_runs, until, jitter


@pytest.mark.parametrize("rule", [{"every_ns": 10 * S}, {"delay_ns": 10 * S}, {"table": Every(10 * S)}])
def test_max_runs(rule):
    world = World(Rule(max_runs=3, **rule))
    assert ending(world, 1000) == [(1, 0), (2, 10), (3, 20)]
    assert (world.next, world.core.go_on, world.wake_at) == (None, False, NEVER)


@pytest.mark.parametrize("overlap", ["skip", "queue"])
def test_what_is_left_out_is_no_run(overlap):
    world = World(Rule(every_ns=10 * S, max_runs=2, overlap=overlap))
    world.until(25)
    assert world.core.go_on
    world.end(1)
    world.until(50)
    assert world.course.runs == 2
    assert not world.core.go_on


def test_max_runs_counts_what_is_owed():
    world = World(Rule(every_ns=10 * S, max_runs=3, misfire="run_all"))
    world.at(0)
    assert world.at(65) == []
    assert (world.next, world.core.go_on) == (None, True)
    assert [world.end(run) for run in (1, 2, 3)] == [[(2, 10)], [(3, 20)], []]
    assert not world.core.go_on


@pytest.mark.parametrize("rule", [{"every_ns": 10 * S}, {"delay_ns": 10 * S}, {"table": Every(10 * S)}])
@pytest.mark.parametrize(("until", "slots"), [(20 * S, [0, 10, 20]), (20 * S - 1, [0, 10]), (0, [0]), (-1, [])])
def test_until_is_the_last_instant(rule, until, slots):
    world = World(Rule(until=WALL + until, **rule))
    assert [wall for _, wall in ending(world, 1000)] == slots
    assert not world.core.go_on


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("misfire", "words"),
    [("run_once", [(LATE, 10, 10), (2, 20)]), ("run_all", [(2, 10), (3, 20)]), ("skip", [(LATE, 10, 20)])],
)
def test_what_was_missed_after_until_is_none(kind, misfire, words):
    world = World(Rule(misfire=misfire, overlap="allow", until=WALL + 25 * S, **KINDS[kind]))
    world.at(0)
    assert world.at(100) == words
    assert not world.core.go_on


@pytest.mark.parametrize("rule", [{"every_ns": 10 * S}, {"delay_ns": 10 * S}])
def test_until_is_of_the_wall_clock_though_durations_are_not(rule):
    world = World(Rule(until=WALL + 100 * S, **rule))
    world.at(0)
    world.end(1)
    world.set_clock(95)
    assert world.at(5) == []
    assert world.next is None, "at its instant it will be 105 by the wall clock"


def test_jitter_is_of_the_seed_and_moves_no_slot():
    def releases(seed):
        world = World(Rule(every_ns=10 * S, jitter_ns=4 * S, overlap="allow", misfire="skip"), seed=seed)
        return world.until(1000)

    assert releases(1) == releases(1) != releases(2)
    late = [at - wall for at, _, wall in releases(1)]
    assert [wall for _, _, wall in releases(1)] == [10 * i for i in range(len(late))]
    assert 0 <= min(late) < 0.5
    assert 3.5 < max(late) <= 4
    assert len(set(late)) > 90


def test_jitter_of_a_slot_hangs_on_nothing_that_happened_before():
    def instants(overlap):
        told = World(Rule(table=Every(10 * S), jitter_ns=4 * S, overlap=overlap)).until(200)
        return {wall: at for at, _, wall, *_ in told}

    assert instants("skip") == instants("allow")


def test_jitter_of_a_timetable_never_overtakes_the_next_slot():
    world = World(Rule(table=Every(10 * S), jitter_ns=HOUR))
    got = []
    while len(got) < 200:
        at = world.wake_at
        ((run, wall),) = world.at(at / S)
        assert wall <= at / S < wall + 10
        got.append(wall)
        world.end(run)
    assert got == [10 * i for i in range(200)], "none was missed by it"


# ---- pause, drop, what is unknown


@pytest.mark.parametrize("whose", ["task", "pool"])
@pytest.mark.parametrize("overlap", ["skip", "queue"])
def test_a_pause_holds_what_is_owed_too(whose, overlap):
    world = World(Rule(every_ns=10 * S, overlap=overlap))
    world.at(0)
    world.at(10 if overlap == "queue" else 15)
    hold(world, whose, True)
    assert world.end(1) == []
    assert world.at(21) == []
    assert world.wake_at == NEVER
    hold(world, whose, False)
    assert world.wake_at <= world.now
    assert world.at(22)[0] == (2, 10) if overlap == "queue" else (LATE, 10, 10)


def hold(world, whose, held):
    if whose == "task":
        world.core.hold(1, held)
    else:
        world.core.held = held


def test_the_delay_after_a_run_that_ends_in_a_pause():
    world = World(Rule(delay_ns=10 * S))
    world.at(0)
    world.core.hold(1, True)
    world.now = 5 * S
    world.end(1)
    assert world.at(14) == []
    world.core.hold(1, False)
    assert world.until(15) == [(15, 2, 15)]


def test_a_task_that_is_dropped_runs_no_more():
    world = World(Rule(every_ns=10 * S, overlap="queue"), Rule(every_ns=10 * S))
    world.until(10)
    world.core.drop(1)
    world.core.drop(2)
    assert (world.core.go_on, world.core.by_wall) == (False, False)
    assert world.end(1) == world.end(1, number=2) == []
    assert world.until(100) == []


def test_what_is_unknown_is_left_alone():
    world = World(Rule(every_ns=10 * S))
    world.core.drop(7)
    world.core.hold(7, True)
    assert world.end(1, number=7) == []
    assert world.end(1) == [], "it was not released yet"
    assert world.at(0) == [(1, 0)]


# ---- the clock is set


@pytest.mark.parametrize("by", [1, 60, HOUR // S, DAY // S, 10 * YEAR // S])
@pytest.mark.parametrize("kind", ["every_ns", "delay_ns"])
def test_durations_do_not_care_what_the_clock_shows(kind, by):
    world = World(Rule(**{kind: 10 * S}))
    for run, sign in ((1, 1), (2, -1), (3, -1), (4, 1)):
        assert [word[:2] for word in world.until((run - 1) * 10)] == [((run - 1) * 10, run)]
        world.end(run)
        world.set_clock(sign * by)
        assert world.at((run - 1) * 10 + 1) == []


@pytest.mark.parametrize("kind", ["every_ns", "delay_ns"])
def test_after_a_first_instant_of_the_wall_clock_they_do_not_care_either(kind):
    world = World(Rule(**{kind: 10 * S}), start=5 * S)
    assert world.until(5) == [(5, 1, 5)]
    world.end(1)
    assert not world.core.by_wall
    for by in (HOUR // S, -2 * HOUR // S):
        world.set_clock(by)
        assert world.at(6) == []
        assert world.fires == 15 * S


@pytest.mark.parametrize("by", [5, 25, 1000])
def test_a_first_instant_is_of_the_wall_clock(by):
    for rule in (Rule(every_ns=10 * S), Rule(delay_ns=10 * S), Rule(table=Every(10 * S))):
        world = World(rule, start=2000 * S)
        assert world.core.by_wall
        world.set_clock(-by)
        world.at(0)
        assert world.fires == (2000 + by) * S
        world.set_clock(2 * by)
        world.at(0)
        assert world.fires == (2000 - by) * S
        assert world.until(2000 - by) == [(2000 - by, 1, 2000)]


def test_who_begins_now_begins_now_whatever_the_clock():
    for rule in (Rule(every_ns=10 * S, misfire="skip"), Rule(delay_ns=10 * S, misfire="skip")):
        for by in (HOUR // S, -HOUR // S):
            world = World(rule)
            assert not world.core.by_wall
            world.set_clock(by)
            assert world.at(0) == [(1, 0)]


def test_a_clock_set_back_runs_no_slot_twice():
    world = World(Rule(table=Every(10 * S)))
    assert len(ending(world, 100)) == 11
    world.set_clock(-50)
    assert world.at(101) == []
    assert world.fires == 160 * S, "110 by a clock that is 50 behind"
    assert ending(world, 160) == [(12, 110)]


def test_a_clock_set_forth_and_back_catches_up_once():
    world = World(Rule(table=Every(10 * S)))
    ending(world, 100)
    far = 10 * YEAR // S
    world.set_clock(far)
    assert world.at(105) == [(LATE, 110, far + 90), (12, far + 100)]
    world.end(12)
    world.set_clock(-far)
    assert ending(world, 130) == [(13, 110), (14, 120), (15, 130)]
    world.set_clock(far - 30)
    assert world.at(131) == [(LATE, 140, far + 80), (16, far + 90)], "not `far + 100`, which had its run"
    assert world.next == far + 110


def test_slots_that_ran_lie_between_those_that_were_missed():
    world = World(Rule(table=Every(10 * S), overlap="allow"))
    world.at(0)
    world.set_clock(95)
    assert world.at(1) == [(LATE, 10, 80), (2, 90)]
    world.set_clock(-75)
    assert world.at(1) == []
    assert world.next == 30
    world.set_clock(75)
    assert world.at(1) == [(LATE, 30, 70), (3, 80)], "90 has had its run"
    assert world.next == 100


def test_run_all_leaves_out_those_that_ran_before_the_clock_was_set_back():
    world = World(Rule(table=Every(10 * S), overlap="allow", misfire="run_all"))
    world.at(0)
    for slot in range(60, 90, 10):  # the clock is ahead for a moment
        world.course._done.add(WALL + slot * S, WALL + slot * S, WALL)
    assert [wall for _, wall in world.at(115)] == [10, 20, 30, 40, 50, 90, 100, 110]


@pytest.mark.parametrize("by", [-0.5, -5, -50])
def test_a_clock_set_back_loses_no_slot_that_is_put_off(by):
    jittered = World(Rule(table=Every(100 * S), jitter_ns=90 * S), now=10 * S)
    fires = jittered.wake_at / S
    assert fires > 101, "or this test says nothing"
    jittered.at(fires - 0.001)
    jittered.set_clock(by)
    assert jittered.at(fires - 0.001) == []
    assert jittered.fires == round((fires - by) * S)
    assert jittered.at(fires - by) == [(1, 100)]


@pytest.mark.parametrize("by", [-0.5, -5, -50])
def test_a_clock_set_back_loses_no_slot_that_was_missed(by):
    world = World(Rule(table=Every(10 * S)))
    assert ending(world, 0) == [(1, 0)]
    world.core.held = True
    world.at(75)
    world.set_clock(by)
    world.at(75)
    world.core.held = False
    last = (75 + by) // 10 * 10
    assert world.at(75) == [(LATE, 10, last - 10), (2, last)]


def test_a_clock_set_back_runs_nothing_before_the_start():
    world = World(Rule(table=Every(10 * S)), start=55 * S)
    world.set_clock(-30)
    world.at(1)
    assert world.next == 60
    assert ending(world, 91) == [(1, 60)]
    world.set_clock(-50)
    assert ending(world, 150) == [(2, 70)]


def test_an_interval_with_a_past_start_does_not_wait_for_a_clock_that_was_set_back():
    world = World(Rule(every_ns=10 * S), now=105 * S, start=0)
    assert world.next == 110
    world.set_clock(-1000)
    world.at(106)
    assert world.next == 0, "its start: by this clock it lies ahead"
    world = World(Rule(every_ns=10 * S), now=105 * S, start=-YEAR)
    world.set_clock(-1002)
    world.at(106)
    assert world.next == -890
    assert world.fires == 112 * S


def test_a_set_clock_is_told_to_a_bounded_number_of_tasks_in_a_turn():
    world = World(*[Rule(table=Every(10 * S))] * (3 * COURSES), now=S)
    world.set_clock(10)
    got = [len(world.at(1))]
    while world.wake_at <= world.now:
        got.append(len(world.at(1)))
        assert len(got) < 20
    assert sum(got) == 3 * COURSES
    assert max(got) <= COURSES + 1
    assert got[:2] == [0, 0], "and nothing is looked at before all have heard of it"


def test_a_turn_stops_after_so_many_actions():
    world = World(*[Rule(every_ns=S, misfire="run_all", overlap="allow")] * 5)
    got = []
    while world.wake_at <= 900 * S:
        got.append(len(world.at(900)))
    assert sum(got) == 5 * 901
    assert max(got) <= RUN_ALL_MAX


def test_the_heap_stays_small():
    world = World(*[Rule(table=Every(10 * S))] * 10)
    for i in range(2000):
        world.core.hold(i % 10 + 1, True)
        world.core.hold(i % 10 + 1, False)
        world.set_clock(-1 if i % 2 else 1)
        world.at(0)
    assert len(world.core._due) <= 2 * 10 + COURSES + 1


def test_an_instant_before_the_start_of_the_machine_is_now():
    """So it is with a slot that a clock set forth has missed; a timer takes no negative number."""
    world = World(Rule(table=Every(10 * S)), now=1)
    world.core.held = True
    world.set_clock(YEAR // S)
    assert world.at(0.5) == []
    world.core.held = False
    assert world.course.fire_at < 0
    assert world.core.wake_at == 1


def test_a_task_hears_of_a_clock_that_was_set_before_it_was_taken():
    core = Recurrences()
    for number in (1, 2):
        course = core.course(number, Rule(table=Every(10 * S)), BASE + S, WALL - BASE)
        core.take(course, BASE + S, WALL - BASE + 4 * S)
        assert course.fire_at == BASE + 6 * S


# ---- the spans


def test_spans_join_and_the_farthest_is_forgotten():
    done = Done(Every(10))
    at = WALL + 10
    for slot in (10, 30, 20, 40):  # in any order
        done.add(WALL + slot, WALL + slot, at)
    assert len(done._spans) == 1
    assert (done.after(at - 1), done.before(at + 30)) == (WALL + 50, WALL)
    for k in range(1, SPANS_MAX + 5):
        done.add(WALL + 1000 * k, WALL + 1000 * k, at)
    assert len(done._spans) == SPANS_MAX
    assert done.after(at - 1) == WALL + 50, "the nearest is kept"
    assert done.after(WALL + 1000 * (SPANS_MAX + 4) - 1) > WALL + 1000 * (SPANS_MAX + 3)
