"""Answers about as large as what the worker's page holds: in the page, or straight to the pipe."""

import deeds
import pytest
from support import CAP_S

from ptss_mp import marker


@pytest.mark.parametrize("less", [-100, 0, 1, 40, 88, 100, 200])
def test_an_answer_that_is_too_long_for_the_page_is_said_to_be_sent(pool, less):
    """Regression: one that was so only with its costs was not, and the next dispatch took its worker for one that
    answers for a job that it still runs: it was killed."""
    ex, size = pool(1, spares=0), marker.BLOBS_MAX - less
    ex.submit(deeds.watch_writes).result(CAP_S)
    assert [len(future.result(CAP_S)) for future in [ex.submit(deeds.text_of, size) for _ in range(3)]] == [size] * 3
    assert set(ex.submit(deeds.writes).result(CAP_S)) <= {1}


def test_flushes_are_counted_alike_behind_large_answers(pool):
    """Regression: a worker flushed nothing behind each large answer, and counted that; its page was then read twice."""
    ex = pool(1, spares=0)
    for _ in range(20):
        assert len(ex.submit(deeds.text_of, 2 * marker.BLOBS_MAX).result(CAP_S)) == 2 * marker.BLOBS_MAX
    assert ex.submit(deeds.double, 1).result(CAP_S) == 2
    (channel,) = ex._pool.channels.values()
    assert channel.words[marker.GENERATION] <= channel.flushes + 1
