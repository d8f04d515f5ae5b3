"""Which number the kernel must refuse so that exactly so many more descriptors can be opened."""

from __future__ import annotations

import resource

import pytest

from ptss_mp import InvalidOption, Options, rlimits
from ptss_mp.rules import rules


@pytest.mark.parametrize(
    ("held", "more", "bound"),
    [
        (set(), 3, 3),
        ({0, 1, 2}, 2, 5),
        ({0, 1, 5}, 2, 4),
        ({0, 1, 3, 4}, 1, 3),
        ({0, 1, 3, 4}, 2, 6),
        ({1_000}, 1, 1),
        (set(range(11)), 1, 12),
        (set(range(11)), 1 << 20, (1 << 20) + 11),
    ],
)
def test_as_many_are_free_below_the_bound_as_were_allowed(held, more, bound):
    assert rlimits.bound(held, more) == bound
    assert len(set(range(min(bound, 2_000))) - held) == min(more, 2_000 - len(held & set(range(2_000))))


def test_what_the_hard_limit_does_not_grant_is_refused(monkeypatch):
    monkeypatch.setattr(resource, "getrlimit", lambda _limit: (50, 100))
    assert rules(Options(open_files=89, file_size=100)).open_files == 89
    with pytest.raises(InvalidOption, match=r"open_files=90 and 11 of .*: 100 is .* \(ulimit -Hn\)"):
        rules(Options(open_files=90))
    with pytest.raises(InvalidOption, match=r"file_size=101: 100 is .* hard limit \(ulimit -Hf\)"):
        rules(Options(file_size=101))


def test_no_hard_limit_grants_everything(monkeypatch):
    monkeypatch.setattr(resource, "getrlimit", lambda _limit: (50, resource.RLIM_INFINITY))
    assert rules(Options(open_files=1 << 20, file_size="1TiB")).file_bytes == 1 << 40


def test_a_limited_attempt_is_set_back_to_what_it_was():
    before = [resource.getrlimit(limit) for limit in (resource.RLIMIT_NOFILE, resource.RLIMIT_FSIZE)]
    rlimits.lower(1_000, 5)
    try:
        during = [resource.getrlimit(limit) for limit in (resource.RLIMIT_NOFILE, resource.RLIMIT_FSIZE)]
    finally:
        rlimits.set_back()
    assert during[1] == (1_000, before[1][1])
    assert 5 < during[0][0] < before[0][0]
    assert [hard for _, hard in during] == [hard for _, hard in before]
    assert before == [resource.getrlimit(limit) for limit in (resource.RLIMIT_NOFILE, resource.RLIMIT_FSIZE)]
    rlimits.set_back()  # again: nothing
