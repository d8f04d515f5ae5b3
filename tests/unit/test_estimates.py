"""The estimate of a function's run time."""

from ptss_mp.core.estimates import Estimates


def test_first_runs_set_it_and_later_ones_move_it():
    estimates = Estimates()
    estimates.learn(1, 3000, 3)
    assert estimates == {1: 1000}
    estimates.learn(1, 2000, 1)
    assert estimates == {1: 1125}


def test_a_run_four_times_as_long_replaces_it():
    estimates = Estimates({1: 1000})
    estimates.learn(1, 4001, 1)
    assert estimates == {1: 4001}
