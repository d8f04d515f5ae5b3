"""kill -9 of the program: each job has its outcome exactly once, no finished job is repeated, none is forgotten."""

from __future__ import annotations

import random

import pytest

from tests.journal.kills import until_done


@pytest.mark.parametrize("policy", ["fail", "rerun"])
def test_a_killed_program_is_resumed_to_its_end(tmp_path, policy):
    kills, ends = until_done(tmp_path, 400, policy, random.Random(policy), kills_max=8)
    assert kills >= 2, "the program ended before it could be killed: nothing was shown"
    assert sum(ends.values()) == 400
    assert ends["succeeded"] >= 20, "most of a graph may hang on what was interrupted, but not nearly all of it"
    if policy == "rerun":
        assert ends == {"succeeded": 400}
