"""Restart intensity, and the pauses between attempts."""

import pytest

from ptss_mp.core.restart import RestartWindow, Retries

S = 1_000_000_000


def test_one_more_than_the_intensity_is_too_many():
    window = RestartWindow(2, 10)
    assert [window.exceeded(at) for at in (0, 1, 2)] == [False, False, True]


def test_old_deaths_are_forgotten():
    window = RestartWindow(2, 10)
    for at in range(0, 1000, 6):
        assert not window.exceeded(at)
        window.in_a_row = 0  # somebody answered


def test_as_many_in_a_row_are_too_many_however_long_each_takes():
    window = RestartWindow(2, 10 * S)
    assert [window.exceeded(at * S) for at in (1, 101, 201)] == [False, False, True]
    assert window.told() == "3 times in a row, in 200 s (restart_intensity allows 2)"


def test_it_tells_how_often_within_what_time():
    window = RestartWindow(2, 10 * S)
    assert [window.exceeded(at * S) for at in (1, 2, 3)] == [False, False, True]
    assert window.told() == "3 times in 2 s (restart_intensity allows 2 in 10 s)"


def test_pauses_grow_and_beyond_the_intensity_they_are_long():
    window = RestartWindow(8, 10 * S)
    pauses = []
    for at in range(12):
        window.exceeded(at)
        pauses.append(window.pause_ns() // 10**6)
    assert pauses == [0, 10, 20, 40, 80, 100, 100, 100, 1000, 1000, 1000, 1000]


def test_none_allowed():
    assert RestartWindow(0, 10).exceeded(5)


@pytest.mark.parametrize("jitter", [0.0, 0.1, 0.5, 1.0])
@pytest.mark.parametrize(("factor", "max_delay"), [(2.0, 60 * S), (1.0, 60 * S), (1.5, 10 * S), (1000.0, 3600 * S)])
def test_pauses_grow_by_the_factor_up_to_the_longest_within_the_jitter(jitter, factor, max_delay):
    retries = Retries(5000, factor=factor, jitter=jitter, max_delay_ns=max_delay)
    for failures in (1, 2, 3, 4, 7, 20, 400, 5000):
        pause = max_delay if failures > 300 and factor > 1 else min(S * factor ** (failures - 1), max_delay)
        got = [retries.pause_ns(failures, seed, 7) for seed in range(200)]
        assert min(got) >= pause * (1 - jitter) - 1
        assert max(got) <= pause * (1 + jitter) + 1
        assert len(set(got)) > 150 if jitter else len(set(got)) == 1
        if jitter:
            assert max(got) - min(got) > pause * jitter, "the jitter is drawn from its whole range"


def test_a_first_pause_beyond_the_longest_is_the_longest():
    assert Retries(1, backoff_ns=9 * S, max_delay_ns=2 * S, jitter=0.0).pause_ns(1, 0, 1) == 2 * S


def test_no_backoff_no_pause():
    assert [Retries(9, backoff_ns=0, factor=1000.0).pause_ns(n, 3, 4) for n in (1, 2, 4000)] == [0, 0, 0]


def test_a_pause_depends_on_seed_job_and_number_alone():
    pause = Retries(9).pause_ns
    assert pause(1, 2, 3) == pause(1, 2, 3)
    assert len({pause(1, 2, 3), pause(1, 2, 4), pause(1, 3, 3)}) == 3


def test_only_causes_have_budgets():
    retries = Retries(failed=1, crashed=2, timeout=3, memory=4, cpu=5)
    statuses = ("failed", "crashed", "timeout", "memory", "cpu", "deadline", "protocol", "interrupted", "backoff_ns")
    assert [retries.budget(status) for status in statuses] == [1, 2, 3, 4, 5, 0, 0, 0, 0]
