"""Each error: caught as what callers already catch, and whole after a pickle."""

import concurrent.futures
import pickle
import queue
from concurrent.futures.process import BrokenProcessPool

import pytest

from ptss_mp import errors

ERRORS = [
    value
    for value in vars(errors).values()
    if isinstance(value, type) and issubclass(value, errors.PtssError) and value.__module__ == errors.__name__
]
FACTS = {"limit": 2.5, "signal": 11, "root": "load", "outcome": ("a", "tuple")}


@pytest.mark.parametrize("kind", ERRORS)
def test_survives_pickle_with_its_facts_and_text(kind):
    error = kind("64 MiB seen, 32 MiB allowed; try memory='64MiB'", **FACTS)
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is kind
    assert str(copy) == str(error) == "64 MiB seen, 32 MiB allowed; try memory='64MiB'"
    assert {name: getattr(copy, name) for name in FACTS} == FACTS
    assert copy.args == error.args


@pytest.mark.parametrize("kind", ERRORS)
def test_without_text_or_facts(kind):
    copy = pickle.loads(pickle.dumps(kind()))
    assert str(copy) == ""
    assert vars(copy) == {}


@pytest.mark.parametrize(
    ("kind", "caught"),
    [
        (errors.InvalidOption, ValueError),
        (errors.InvalidType, TypeError),
        (errors.ExecutorClosed, RuntimeError),
        (errors.QueueFull, queue.Full),
        (errors.JournalError, OSError),
        (errors.PoolBroken, BrokenProcessPool),
        (errors.WorkerCrashed, BrokenProcessPool),
        (errors.ProtocolViolated, errors.WorkerCrashed),
        (errors.TaskTimeout, TimeoutError),
        (errors.DeadlineMissed, TimeoutError),
        (errors.TaskSkipped, concurrent.futures.CancelledError),
        (errors.NotPicklable, pickle.PicklingError),
        (errors.ResultNotPicklable, errors.NotPicklable),
        (errors.NotLoadable, BrokenProcessPool),
        (errors.TaskRaised, errors.TaskFailed),
        (errors.TaskInterrupted, errors.TaskFailed),
        (errors.DependencyFailed, errors.TaskFailed),
    ],
)
def test_is_caught_as(kind, caught):
    assert issubclass(kind, caught)
    assert issubclass(kind, errors.PtssError)


def test_whether_the_pool_goes_on():
    assert errors.WorkerCrashed().pool_usable
    assert not errors.PoolBroken().pool_usable


def test_remote_traceback_shows_its_text_and_pickles():
    copy = pickle.loads(pickle.dumps(errors.RemoteTraceback("Traceback …")))
    assert "Traceback …" in str(copy)
    assert copy.text == "Traceback …"
