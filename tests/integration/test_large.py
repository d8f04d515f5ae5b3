"""Values beyond 2 GiB, where counts of 32 bits end."""

from __future__ import annotations

import psutil
import pytest

BYTES = (2 << 30) + 12_345
NEEDED = 8 << 30  # the worker holds the value once, the program twice while it arrives


def make(size: int) -> bytes:
    return b"x" * size


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.skipif(
    psutil.virtual_memory().available < NEEDED,
    reason=f"needs 8 GiB of free memory, here are {psutil.virtual_memory().available >> 20} MiB",
)
def test_a_value_beyond_2_gib_comes_and_goes(pool):
    ex = pool(1, spares=0)
    value = ex.submit(make, BYTES).result(120)
    assert type(value) is bytes
    assert len(value) == BYTES
    assert value[-1:] == b"x"
    assert ex.submit(len, value).result(120) == BYTES
    assert ex.submit(pow, 2, 3).result(30) == 8
