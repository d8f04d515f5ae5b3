"""Every call in every state, on an Executor and on a view, against the table; and what a pause leaves alone."""

from __future__ import annotations

import deeds
import pytest
from support import CAP_S, until, within

import ptss_mp
from ptss_mp.calls import EXECUTOR, VIEW
from ptss_mp.executor import Executor
from ptss_mp.pool import State
from ptss_mp.view import ExecutorView


def enter(ex):
    with ex:
        pass


def first_outcome(ex):
    """It submits when it is asked for the first one, which in a pause would not come."""
    outcomes = ex.map_outcomes(deeds.double, [1])
    if ex.state is not State.PAUSED:
        next(outcomes)


# What the call comes to; what is not named here is called without arguments.
HOW = {
    "submit": lambda ex: ex.submit(deeds.double, 1),
    "add": lambda ex: ex.add(deeds.double, "added", args=(1,)),
    "map": lambda ex: ex.map(deeds.double, [1]),
    "map_outcomes": first_outcome,
    "with": enter,
    "drain": lambda ex: ex.drain(CAP_S),
    "join": lambda ex: ex.join(CAP_S),
    "options": lambda ex: ex.options(priority=1),
    "state": lambda ex: ex.state,
    "tasks": lambda ex: ex.tasks,
    "stop": lambda ex: ex.stop(0),
    "story": lambda ex: ex.story(ex.told),
    "subscribe": lambda ex: ex.subscribe(print).close(),
}
WAITS = ("drain", "join", "shutdown")  # for what runs


def public(kind):
    return {name for name in dir(kind) if not name.startswith("_")}


@pytest.mark.parametrize("kind", [Executor, ExecutorView])
def test_the_table_has_every_call(kind):
    table = EXECUTOR if kind is Executor else VIEW
    assert set(table) - {"with"} == public(kind)
    assert all(len(cells) == len(State) for cells in table.values())


@pytest.fixture
def in_state(pool, gate):
    """Return an Executor in a state, with nothing to do; SHUTTING_DOWN waits for one job at the gate."""

    def make(state):
        ex = pool(1)
        if state is not State.INITIALIZED:
            ex.start()
        if state is State.PAUSED:
            ex.pause()
        elif state is State.SHUTTING_DOWN:
            running = ex.submit(deeds.gate, gate.path)
            until(running.running, "its start")
            ex.shutdown(wait=False)
        elif state is State.STOPPED:
            ex.shutdown()
        assert ex.state is state
        return ex

    return make


@pytest.mark.parametrize("whose", ["executor", "view"])
@pytest.mark.parametrize("state", State)
@pytest.mark.parametrize("verb", EXECUTOR)
def test_every_call_in_every_state(in_state, gate, verb, state, whose):
    ex = in_state(state)
    asked = ex if whose == "executor" else ex.options(priority=1)
    asked.told = ptss_mp.Future(0, None, None, 0, 0, 0)  # of some job that nobody remembers
    expected = (EXECUTOR if whose == "executor" else VIEW)[verb][list(State).index(state)]
    call = HOW.get(verb, lambda ex: getattr(ex, verb)())
    if verb in WAITS and state is State.SHUTTING_DOWN:
        gate.open()
    if isinstance(expected, State):
        call(asked) if verb in ("serve", "with") else within(CAP_S, lambda: call(asked))
        reached = {expected, State.STOPPED} if expected is State.SHUTTING_DOWN else {expected}
        assert until(lambda: ex.state in reached, f"{expected}, it is {ex.state}", 5)
    else:
        with pytest.raises(Exception) as caught:  # noqa: PT011 - the table says which
            call(asked)
        assert type(caught.value).__name__ == expected
        assert ex.state is state


def test_a_pause_lets_running_jobs_end_and_starts_none(pool, gate, tmp_path):
    """Also the next attempt of a job that fails, and dependents of one that succeeds."""
    ex, log = pool(2), str(tmp_path / "log")
    runs = [ex.submit(deeds.gated, log, gate.path, i) for i in range(2)]
    after = ex.options(after=runs[0]).submit(deeds.double, 4)
    waits = ex.submit(deeds.double, 5)
    until(lambda: (tmp_path / "log").exists() and (tmp_path / "log").read_text().count("begin") == 2, "both")
    ex.pause()
    gate.open(2)
    assert [future.result(CAP_S) for future in runs] == [0, 1]
    until(lambda: ex.status().ready == 2, "its dependent")
    assert (ex.state, ex.status().running) == (State.PAUSED, 0)
    assert not after.running()
    assert not waits.running()
    assert not ex.drain(0.05)
    ex.resume()
    assert [after.result(CAP_S), waits.result(CAP_S)] == [8, 10]
