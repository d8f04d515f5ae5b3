"""What the warden gives back of a talkative job's output."""

from __future__ import annotations

import os

import pytest

from ptss_mp import marker
from ptss_mp.warden.clock import Watched

KEEP = 1 << 16


@pytest.fixture
def talkative():
    page, out = marker.seal_page("test"), os.memfd_create("test")
    watched = Watched(1, 1, os.getpid(), os.pidfd_open(os.getpid()), page, (out,), 0)
    os.close(page)
    yield watched, out
    watched.close()
    os.close(out)


def held(fd: int) -> int:
    return os.fstat(fd).st_blocks * 512


def test_all_but_the_last_part_is_given_back(talkative):
    watched, out = talkative
    os.write(out, b"x" * 4 * KEEP)
    assert watched.trim(KEEP)
    assert held(out) == KEEP
    assert not watched.trim(KEEP)


def test_output_that_the_parent_has_emptied_begins_anew(talkative):
    watched, out = talkative
    os.write(out, b"x" * 9 * KEEP)
    assert watched.trim(KEEP)
    os.ftruncate(out, 0)
    os.lseek(out, 0, os.SEEK_SET)
    assert not watched.trim(KEEP)
    os.write(out, b"x" * 4 * KEEP)
    assert watched.trim(KEEP)
    assert held(out) == KEEP
