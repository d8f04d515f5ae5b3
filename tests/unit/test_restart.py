"""Restart intensity, and the pauses between attempts."""

from ptss_mp.core.restart import BACKOFF_NS, RestartWindow, backoff_ns


def test_one_more_than_the_intensity_is_too_many():
    window = RestartWindow(2, 10)
    assert [window.exceeded(at) for at in (0, 1, 2)] == [False, False, True]


def test_old_deaths_are_forgotten():
    window = RestartWindow(2, 10)
    assert not any(window.exceeded(at) for at in range(0, 1000, 6))


def test_none_allowed():
    assert RestartWindow(0, 10).exceeded(5)


def test_backoff_doubles_up_to_a_minute_within_ten_percent():
    for failures in range(1, 40):
        pause = min(BACKOFF_NS * 2 ** (failures - 1), 60 * BACKOFF_NS)
        got = [backoff_ns(failures, seed, 7) for seed in range(200)]
        assert all(0.9 * pause <= g <= 1.1 * pause for g in got)
        assert len(set(got)) > 150


def test_backoff_depends_on_seed_job_and_number_alone():
    assert backoff_ns(1, 2, 3) == backoff_ns(1, 2, 3)
    assert len({backoff_ns(1, 2, 3), backoff_ns(1, 2, 4), backoff_ns(1, 3, 3)}) == 3
