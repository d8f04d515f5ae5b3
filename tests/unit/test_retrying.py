"""`Retry`: what is legal, what is refused and with which words."""

import pickle
import sys
from datetime import timedelta

import pytest

from ptss_mp import Options, Retry
from ptss_mp.errors import InvalidOption, InvalidType
from ptss_mp.rules import rules

MS, S = 1_000_000, 1_000_000_000


class Unavailable(ConnectionError):
    pass


def local_class():
    class Local(Exception):
        pass

    return Local


def test_a_retry_has_the_defaults_of_the_contract():
    retry = Retry()
    budgets = retry.exception, retry.crash, retry.timeout, retry.memory, retry.cpu
    assert (budgets, retry.only) == ((0, 0, 0, 0, 0), ())
    assert (retry.backoff, retry.factor, retry.jitter, retry.max_delay) == (1.0, 2.0, 0.1, 60.0)
    assert repr(Retry(crash=1, backoff="2s")) == "Retry(crash=1, backoff='2s')"


@pytest.mark.parametrize("cause", ["exception", "crash", "timeout", "memory", "cpu"])
@pytest.mark.parametrize(
    ("value", "error"), [(-1, InvalidOption), (1001, InvalidOption), (True, InvalidType), (1.0, InvalidType)]
)
def test_a_budget_is_a_whole_number_of_its_cause(cause, value, error):
    with pytest.raises(error, match=f"{cause} of Retry must be"):
        Retry(**{cause: value})


@pytest.mark.parametrize(
    ("field", "value", "error"),
    [
        ("backoff", -1, InvalidOption),
        ("backoff", float("nan"), InvalidOption),
        ("backoff", float("inf"), InvalidOption),
        ("backoff", "soon", InvalidOption),
        ("backoff", True, InvalidType),
        ("backoff", None, InvalidType),
        ("max_delay", "-1s", InvalidOption),
        ("max_delay", 11 * 366 * 86_400, InvalidOption),
        ("factor", 0.5, InvalidOption),
        ("factor", 1001, InvalidOption),
        ("factor", float("nan"), InvalidOption),
        ("factor", "2", InvalidType),
        ("jitter", -0.1, InvalidOption),
        ("jitter", 1.5, InvalidOption),
        ("jitter", True, InvalidType),
        ("only", "ConnectionError", InvalidType),
        ("only", int, InvalidType),
        ("only", [ValueError, 7], InvalidType),
        ("only", [ValueError()], InvalidType),
        ("only", None, InvalidType),
    ],
)
def test_what_a_retry_refuses(field, value, error):
    with pytest.raises(error, match=f"{field} of Retry"):
        Retry(**{field: value})


def test_a_retry_takes_durations_and_no_pause_at_all():
    assert (Retry(backoff="250ms").backoff_ns, Retry(max_delay=timedelta(seconds=2)).max_delay_ns) == (250 * MS, 2 * S)
    assert [Retry(backoff=zero).backoff_ns for zero in (0, 0.0, "0s", timedelta(0))] == [0] * 4
    with pytest.raises(InvalidOption, match="must not be negative"):
        Retry(backoff=-1)


def test_only_takes_one_class_or_several_and_keeps_them():
    assert Retry(only=Unavailable).only == (Unavailable,)
    assert Retry(only=(kind for kind in (OSError, SystemExit))).only == (OSError, SystemExit)
    retry = Retry(exception=2, only=[Unavailable])
    assert pickle.loads(retry.pickled_only()) == (Unavailable,)
    assert pickle.loads(pickle.dumps(retry)) == retry
    assert Retry(crash=1, only=Unavailable).pickled_only() == b"", "no exception is followed by another attempt"


def test_a_class_that_no_worker_finds_is_refused_by_its_name(monkeypatch):
    monkeypatch.setitem(sys.modules, "cloudpickle", None)
    with pytest.raises(InvalidOption, match=r"could not load the class .*Local; define it at the top of a module"):
        Retry(exception=1, only=local_class())


def test_a_retry_is_an_option():
    given = Options(retries=Retry(crash=1, only=Unavailable))
    assert given.retries.crash == 1
    assert hash(rules(given)) == hash(rules(Options(retries=Retry(crash=1, only=[Unavailable]))))
    assert rules(given) != rules(Options(retries=1))
    assert (Options(retries=Retry(crash=1)) | Options(retries=2)).retries == 2
    for wrong in ("2", 1.5, Retry, True):
        with pytest.raises(InvalidType, match="retries must be a whole number"):
            Options(retries=wrong)
