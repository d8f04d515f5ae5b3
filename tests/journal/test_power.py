"""The loss of power: what was told is on the disk."""

from __future__ import annotations

import random

import pytest

from tests.journal import strace
from tests.journal.power import Recording, record

JOBS = 80


@pytest.fixture(scope="module")
def recording(tmp_path_factory):
    if why := strace.missing():
        pytest.skip(why)
    return Recording(record(tmp_path_factory.mktemp("recorded"), JOBS), JOBS)


def test_no_told_outcome_is_lost_and_none_is_invented(recording, tmp_path):
    chance = random.Random(1)
    told = [recording.lose_power(tmp_path, chance.randrange(1, recording.end + 1), chance) for _ in range(150)]
    assert len(recording.told) == JOBS
    assert max(told) > JOBS // 2
    assert recording.lose_power(tmp_path, recording.end, chance) == JOBS


def test_a_disk_that_does_not_sync_is_seen(recording, tmp_path):
    """What this shows is worth nothing if it would pass without the syncs."""
    lazy = Recording.__new__(Recording)
    vars(lazy).update(vars(recording), writes={
        name: [write for write in writes if write[1] != "s" or name != "journal.db-wal"]
        for name, writes in recording.writes.items()
    })  # fmt: skip
    chance = random.Random(2)

    def lose_often():
        for _ in range(50):
            lazy.lose_power(tmp_path, chance.randrange(lazy.end // 2, lazy.end), chance)

    with pytest.raises(AssertionError, match=r"was told|assert not told"):
        lose_often()
