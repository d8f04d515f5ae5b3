"""`map` in chunks: what holds for an item on its own holds for it in a chunk."""

from __future__ import annotations

import threading

import deeds
import pytest
from support import CAP_S, lines, until, within

from ptss_mp import (
    DependencyFailed,
    InvalidType,
    NotLoadable,
    NotPicklable,
    ProtocolViolated,
    ResultNotPicklable,
    TaskRaised,
    TaskTimeout,
    WorkerCrashed,
)
from ptss_mp.chunk import ITEMS_MAX, Part, unpack

SIZES = pytest.mark.parametrize("chunksize", [None, 7, 1_000])


def warmed(ex):
    """Let the pool know that the functions of these tests are short: else the first items of a map tell."""
    assert list(ex.map(deeds.double, range(50))) == [2 * i for i in range(50)]
    return ex


def given(iterator):
    """Return what a map gives before it raises, and what it raises."""
    found = []
    try:
        found.extend(iterator)
    except Exception as error:
        return found, error
    return found, None


# ---- items


def test_an_item_that_is_or_holds_a_future_has_its_value(pool):
    ex = warmed(pool(2))
    short, long = ex.submit(deeds.double, 21), ex.submit(deeds.nap, 0.3)
    items = [*range(700), short, [7, long], *range(700)]
    assert list(ex.map(deeds.same, items, chunksize=None)) == [*range(700), 42, [7, 0.3], *range(700)]
    assert list(ex.map(deeds.same, [short] * 700, chunksize=None)) == [42] * 700


def test_only_the_item_whose_prerequisite_failed_fails(pool):
    ex = warmed(pool(2))
    found, error = given(ex.map(deeds.same, [*range(700), ex.submit(deeds.fail), *range(9)], chunksize=None))
    assert (found, type(error)) == (list(range(700)), DependencyFailed)


@pytest.mark.parametrize(
    ("item", "wrong"),
    [(deeds.Unready("raises"), NotPicklable), (deeds.Bad("raises"), NotLoadable), (deeds.Bad("segv"), WorkerCrashed)],
)
def test_an_item_that_cannot_travel_costs_none_before_it(pool, item, wrong):
    ex = warmed(pool(2))
    found, error = given(ex.map(deeds.same, [*range(700), item, *range(9)], chunksize=None))
    assert (found, type(error)) == (list(range(700)), wrong)


def test_items_share_nothing_that_one_of_them_could_change(pool):
    ex = warmed(pool(2))
    shared = [0]
    assert list(ex.map(deeds.grown, [shared] * 700, chunksize=None)) == [1] * 700
    assert list(ex.map(deeds.grown, [shared] * 700, range(700), chunksize=None)) == [1] * 700


def test_large_items(pool):
    items = [bytearray([i]) * (100 << 10) for i in range(200)]
    assert list(warmed(pool(2)).map(deeds.same, items, chunksize=8)) == items


# ---- values


@SIZES
@pytest.mark.parametrize("kind", ["int", "big", "negative", "float", "bool", "none", "text", "dict", "mixed", "large"])
def test_values_are_what_the_function_returned(pool, chunksize, kind):
    ex = warmed(pool(2))
    found = list(ex.map(deeds.value_of, [kind] * 500, range(500), chunksize=chunksize))
    assert found == [deeds.value_of(kind, i) for i in range(500)]
    assert [type(value) for value in found] == [type(deeds.value_of(kind, i)) for i in range(500)]


@SIZES
@pytest.mark.parametrize("count", [0, 1, 2, 9, ITEMS_MAX, 10_001])
def test_any_number_of_items(pool, chunksize, count):
    assert list(pool(2).map(deeds.double, iter(range(count)), chunksize=chunksize)) == [2 * i for i in range(count)]


def test_short_items_do_travel_in_chunks(pool):
    ex = warmed(pool(2))
    before = ex.metrics()["jobs_succeeded_total"]
    assert sum(ex.map(deeds.double, range(20_000), chunksize=None)) == 20_000 * 19_999
    assert ex.metrics()["jobs_succeeded_total"] - before < 2_000


def test_large_items_go_alone(pool):
    """In a chunk they would be pickled, go by pipe, and hold the memory of all of them at once at both ends."""
    ex = warmed(pool(2))
    before = ex.metrics()["jobs_succeeded_total"]
    assert list(ex.map(len, (bytes(1 << 20) for _ in range(60)), chunksize=None)) == [1 << 20] * 60
    assert ex.metrics()["jobs_succeeded_total"] - before == 60
    before = ex.metrics()["jobs_succeeded_total"]
    small_then_large = (bytes(1 if i < 108 else 1 << 20) for i in range(168))
    assert sum(ex.map(len, small_then_large, chunksize=20)) == 108 + (60 << 20)
    assert ex.metrics()["jobs_succeeded_total"] - before >= 8 + 5 + 1 + 40, "all but one chunk of the large ones"


def test_the_shortest_input_ends_them_and_items_are_arguments(pool):
    ex = warmed(pool(2))
    assert list(ex.map(pow, range(1_000), [2] * 700, chunksize=50)) == [i * i for i in range(700)]


def test_functions_of_any_kind(pool):
    ex = warmed(pool(2))
    assert list(ex.map(abs, range(-300, 0), chunksize=None)) == list(range(300, 0, -1))
    assert list(ex.map(complex, range(300), chunksize=None)) == [complex(i) for i in range(300)]
    assert list(ex.map("x".join, [["a", "b"]] * 100, chunksize=None)) == ["axb"] * 100


# ---- what an item does


@SIZES
def test_an_items_error_is_raised_at_its_place(pool, chunksize):
    ex = warmed(pool(2))
    found, error = given(ex.map(deeds.fails_at, range(5_000), [3_210] * 5_000, chunksize=chunksize))
    assert found == list(range(3_210))
    assert type(error) is KeyError
    assert error.args == (3_210,)
    assert "fails_at" in str(error.__cause__)
    assert warmed(ex)


def test_an_items_error_that_is_no_exception_and_one_that_cannot_travel(pool):
    ex = warmed(pool(2))
    found, error = given(ex.map(deeds.exits_at, range(1_000), [500] * 1_000, chunksize=100))
    assert found == list(range(500))
    assert isinstance(error, TaskRaised)
    assert error.exit_code == 3
    found, error = given(ex.map(deeds.unpicklable_at, range(1_000), [501] * 1_000, chunksize=100))
    assert found == list(range(501))
    assert isinstance(error, ResultNotPicklable)
    assert error.outcome.status == "not_picklable"
    found, error = given(ex.map(deeds.unloadable_here_at, range(1_000), [499] * 1_000, chunksize=100))
    assert found == list(range(499))
    assert isinstance(error, NotLoadable)


@SIZES
@pytest.mark.parametrize("kind", ["int", "text"])
def test_a_crash_costs_its_item_and_nothing_before_it_runs_twice(pool, tmp_path, chunksize, kind):
    ex, log = warmed(pool(2)), str(tmp_path / "log")
    calls = zip(*[(kind, i, 600, log) for i in range(1_000)], strict=True)
    found, error = given(ex.map(deeds.dies_at, *calls, chunksize=chunksize))
    assert found == [deeds.value_of(kind, i) for i in range(600)]
    assert isinstance(error, WorkerCrashed)
    assert error.outcome.exit_code == 7
    assert "chunk.py" not in (error.outcome.stack or ""), "the frames below an item's are ours"
    ran = list(map(int, lines(tmp_path / "log")))
    assert sorted(ran) == sorted(set(ran)), "none ran twice"
    assert set(range(600)) <= set(ran)
    assert warmed(ex)


def test_an_item_that_waits_for_a_future_gets_its_value(pool):
    ex = warmed(pool(2))
    first = ex.submit(deeds.double, 50)
    items = [*range(600), first, [first], *range(602, 1_000)]
    assert list(ex.map(deeds.double, items, chunksize=100)) == [
        *range(0, 1_200, 2), 200, [100, 100], *range(1_204, 2_000, 2),
    ]  # fmt: skip
    assert list(ex.map(deeds.add, iter(items[:601]), range(601), chunksize=100))[-3:] == [1196, 1198, 700]


def test_a_future_that_failed_costs_the_item_that_waits_for_it(pool):
    ex = warmed(pool(2))
    failed = ex.submit(deeds.fails_at, 0, 0)
    found, error = given(ex.map(deeds.double, [*range(650), failed, 1, 2], chunksize=100))
    assert found == list(range(0, 1_300, 2))
    assert isinstance(error, DependencyFailed)


def test_an_argument_that_cannot_be_pickled_costs_its_item(pool):
    ex = warmed(pool(2))
    found, error = given(ex.map(deeds.double, [*range(650), threading.Lock(), 1, 2], chunksize=100))
    assert found == list(range(0, 1_300, 2))
    assert isinstance(error, NotPicklable)


def test_a_future_of_another_executor_is_refused_at_the_call_as_without_chunks(pool):
    ex, stranger = warmed(pool(2)), pool(1).submit(deeds.double, 1)
    for chunksize in (1, 100):
        with pytest.raises(InvalidType, match="of another"):
            ex.map(deeds.double, [*range(650), stranger], chunksize=chunksize)


@pytest.mark.parametrize("kind", ["int", "text"])
@pytest.mark.parametrize("at", [300, 307])
def test_what_an_item_forks_makes_no_other_item(pool, tmp_path, kind, at):
    """It comes back from the item, sees the worker's page, and would go on with the chunk."""
    ex, log = warmed(pool(1)), tmp_path / "log"
    calls = zip(*[(kind, i, at, str(log)) for i in range(600)], strict=True)
    assert list(ex.map(deeds.forks_at, *calls, chunksize=100)) == [deeds.value_of(kind, i) for i in range(600)]
    assert sorted(map(int, lines(log))) == list(range(600)), "none ran twice"


@pytest.mark.parametrize("at", [0, 1, 16, 123])
def test_a_timeout_holds_for_each_item(pool, tmp_path, at):
    ex, log = warmed(pool(2)), tmp_path / "log"
    calls = zip(*[(i, at + 300, str(log)) for i in range(1_000)], strict=True)
    found, error = given(ex.options(timeout=0.3).map(deeds.hangs_at, *calls, chunksize=500))
    assert found == list(range(at + 300))
    assert isinstance(error, TaskTimeout)
    assert error.limit == 0.3
    assert "in hangs_at" in error.outcome.stack
    assert "chunk.py" not in error.outcome.stack, "the frames below an item's are ours"
    began, ended = next(float(line) for line in lines(log)), error.outcome.finished.timestamp()
    assert ended - began >= 0.3, "never early"


def test_items_that_take_time_add_up_to_no_timeout(pool):
    ex = warmed(pool(1))
    assert list(ex.options(timeout=0.5).map(deeds.slow_from, range(60), [40] * 60, [0.05] * 60, chunksize=30)) == list(
        range(60)
    )


@SIZES
def test_retries_hold_for_each_item(pool, tmp_path, chunksize):
    ex = warmed(pool(2))
    calls = zip(*[(str(tmp_path), i) for i in range(60)], strict=True)
    found = list(ex.options(retries=1).map(deeds.fails_once, *calls, chunksize=chunksize))
    assert found == list(range(60))


def test_what_items_print_is_said(pool, capfd):
    ex = warmed(pool(2))
    assert list(ex.map(deeds.prints, range(500), chunksize=50)) == list(range(500))
    ex.shutdown()
    assert sorted(map(int, capfd.readouterr().out.split())) == list(range(500))


def test_what_an_item_leaves_behind_is_not_the_next_chunks(pool):
    ex = warmed(pool(1))
    found = list(ex.map(deeds.cwd_then_leave, range(300), chunksize=10))
    assert len(set(found[20::10])) == 1, "the first of each chunk finds the folder set back"


def test_current_is_the_chunks(pool):
    ex = warmed(pool(2))
    assert set(ex.map(deeds.name_of_current, range(500), chunksize=50)) == {"name_of_current"}


# ---- their place among others


def test_a_chunk_makes_way_between_two_items(pool, tmp_path):
    """What turned out slow holds up an urgent job by an item, not by a chunk; and no item runs twice."""
    ex, log = warmed(pool(1)), tmp_path / "log"
    slow = ex.map(deeds.slow_from, range(60), [20] * 60, [0.05] * 60, [str(log)] * 60, chunksize=60)
    until(lambda: len(lines(log)) > 25, "the slow ones", CAP_S)
    before = len(lines(log))
    assert ex.options(priority=10).submit(deeds.double, 1).result(CAP_S) == 2
    assert len(lines(log)) - before <= 5
    assert list(slow) == list(range(60))
    assert sorted(map(int, lines(log))) == list(range(60))


def test_all_accepted_items_are_made_after_a_shutdown(pool):
    ex = warmed(pool(2))
    found = ex.map(deeds.slow_from, range(300), [280] * 300, [0.02] * 300, chunksize=100)
    ex.shutdown(wait=True)
    assert list(found) == list(range(300))


@pytest.mark.parametrize("how", ["close", "del"])
def test_leaving_early_cancels_what_has_not_started(pool, tmp_path, how):
    ex, log = warmed(pool(1)), tmp_path / "log"
    items = ex.map(deeds.slow_from, range(4_000), [3] * 4_000, [0.02] * 4_000, [str(log)] * 4_000, chunksize=10)
    for value in items:
        if value == 2 and how == "close":
            items.close()
        elif value == 2:
            break
    if how == "del":
        del items
    else:
        items.close()
    assert ex.drain(CAP_S)
    assert len(lines(log)) < 100
    assert warmed(ex)


def test_a_buffer_bounds_what_is_pulled(pool):
    pulled = []
    source = (pulled.append(i) or i for i in range(10_000))
    items = warmed(pool(2)).map(deeds.double, source, chunksize=None, buffersize=100)
    for back in range(9_000):
        assert next(items) == 2 * back
        assert len(pulled) <= back + 100 + 100, "the buffer, and the chunk that is being given back"
    items.close()


def test_an_input_that_raises_loses_nothing_before_it(pool):
    def source():
        yield from range(777)
        raise OSError("the disk is gone")

    found, error = given(warmed(pool(2)).map(deeds.double, source(), chunksize=100))
    assert found == [2 * i for i in range(777)]
    assert isinstance(error, OSError)


def test_the_timeout_of_map(pool):
    ex = warmed(pool(1))
    items = ex.map(deeds.slow_from, range(100), [20] * 100, [0.2] * 100, timeout=1, chunksize=10)
    found, error = given(items)
    assert type(error) is TimeoutError
    assert found == list(range(len(found)))
    assert len(found) < 40


def test_a_pool_with_few_places(pool):
    ex = warmed(pool(2, max_pending=4))
    assert list(ex.map(deeds.double, range(3_000), chunksize=20)) == [2 * i for i in range(3_000)]


def test_spawned_workers(pool):
    ex = warmed(pool(2, mp_context="spawn"))
    assert list(ex.map(deeds.double, range(3_000), chunksize=None)) == [2 * i for i in range(3_000)]


def test_no_thread_takes_what_another_one_is_given(pool):
    """It is the standard library's generator in this: who comes while another one waits is told so."""
    items = warmed(pool(2)).map(deeds.double, range(20_000), chunksize=100)
    import threading

    found, errors = [], []

    def consume():
        while True:
            try:
                found.append(next(items))
            except StopIteration:
                return
            except ValueError as error:
                errors.append(error)

    threads = [threading.Thread(target=consume) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(CAP_S)
    assert sorted(found) == [2 * i for i in range(20_000)]
    assert all("already executing" in str(error) for error in errors)


# ---- what a job could say that it must not


def test_who_is_no_chunk_cannot_come_back_for_ever(pool):
    ex = pool(1)
    assert ex.submit(deeds.unfinished).outcome(CAP_S).status == "protocol"
    assert warmed(ex)


@pytest.mark.parametrize("what", ["nothing", "noise", "too many", "back"])
def test_a_chunk_that_forges_its_part(pool, what):
    """It spoils none that was made before, is given no more values than it has items, and ends."""
    ex = warmed(pool(1))
    found, error = within(CAP_S, lambda: given(ex.map(deeds.forges_part, [what] * 200, range(200), chunksize=50)))
    honest = next((i for i, value in enumerate(found) if value != i), len(found))
    assert 60 < honest <= 104, "the first four alone, then by fifty; the one of item 60 may have come back"
    said = found[honest:]  # of its own items, one at each time
    assert set(said) == ({0} if what == "back" else set())
    assert len(said) < 50
    assert type(error) is ProtocolViolated
    assert "its worker gave it back" in str(error)
    assert warmed(ex)


@pytest.mark.parametrize("how", ["number", "costs", "parcel", "part", "twice"])
def test_who_forges_unfinished_ends(pool, how):
    """A job, and a chunk; neither ends the pool, and neither comes back for ever."""
    ex = warmed(pool(1))
    assert ex.submit(deeds.says_unfinished, how).outcome(CAP_S).status in ("protocol", "crashed")
    found, error = given(ex.map(deeds.says_unfinished, [how] * 200, range(200), timeout=CAP_S, chunksize=50))
    assert found == list(range(len(found)))
    assert len(found) <= 60
    assert isinstance(error, ProtocolViolated | WorkerCrashed)
    assert warmed(ex)


def test_a_chunk_that_says_too_much_gives_no_more_than_its_items(pool):
    found, error = given(warmed(pool(1)).map(deeds.notes_too_much, range(200), chunksize=50))
    assert isinstance(error, WorkerCrashed)
    assert len(found) < 200


def test_a_part_is_what_was_packed():
    for part in (Part(True, 2, bytes(16)), Part(False, 0, b""), Part(False, 1, b"\4\0\0\0abcd", b"last")):
        assert unpack(b"an error" + part.pack()) == part


@pytest.mark.parametrize("data", [b"", b"x", bytes(17), b"\xff" * 17, b"\1" + b"\xff" * 40, bytes(200)[:-1] + b"\1"])
def test_what_is_no_part_is_none(data):
    part = unpack(data)
    assert part is None or part.made == 0
