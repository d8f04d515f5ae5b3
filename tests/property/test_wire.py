"""Round trips of values, and a channel that is fed anything: rows or a violation, never another error."""

from __future__ import annotations

import os
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from ptss_mp import wire
from ptss_mp.codec import encode
from ptss_mp.wire import ANSWERS, FACT, VALUE
from tests.unit.test_channel import Hand

SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text() | st.binary()
VALUES = st.recursive(SCALARS, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=10)
WORD = st.integers(0, 2**64 - 1) | st.integers(0, 70)


@given(VALUES)
def test_every_value_comes_back(value: Any) -> None:
    kind, raw, blob = encode(value)
    back = wire.scalar(kind, raw) if blob is None else wire.decode(kind, blob)
    assert back == value
    assert type(back) is type(value)


@given(st.binary(), st.text(max_size=50), st.text(), st.text(), st.none() | st.integers(-(2**31), 2**31))
def test_every_error_comes_back(pickled: bytes, name: str, text: str, trace: str, code: int | None) -> None:
    facts = wire.unpack_error(wire.pack_error(pickled, name, text, trace, code))
    if not any("\ud800" <= c <= "\udfff" for c in name + text + trace):
        assert facts == (pickled, name, text, trace, code)


@given(st.binary(max_size=200))
def test_any_bytes_are_some_error(blob: bytes) -> None:
    wire.unpack_error(blob)


def feed(data: bytes, cuts: list[int]) -> None:
    """Write data in pieces, reading after each."""
    hand = Hand()
    try:
        at = 0
        for cut in [*sorted(c % (len(data) + 1) for c in cuts), len(data)]:
            hand.say(data[at:cut])
            at = cut
            hand.read()
    finally:
        hand.close()


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=400), st.lists(st.integers(0, 400), max_size=3))
def test_any_bytes_in_the_pipe(data: bytes, cuts: list[int]) -> None:
    feed(data, cuts)


@settings(max_examples=300, deadline=None)
@given(
    st.lists(st.tuples(WORD, WORD, WORD, WORD, WORD, st.integers(-(2**63), 2**63 - 1)), min_size=1, max_size=4),
    st.binary(max_size=150),
    st.lists(st.integers(0, 400), max_size=2),
)
def test_any_facts_and_values_in_a_frame(rows: list[tuple[int, ...]], blob: bytes, cuts: list[int]) -> None:
    facts = b"".join(FACT.pack(*row[:4]) for row in rows)
    values = b"".join(VALUE.pack(*row[4:]) for row in rows)
    feed(ANSWERS.pack(len(rows), len(blob)) + facts + values + blob, cuts)


@settings(max_examples=200, deadline=None)
@given(st.sampled_from((wire.LENT, wire.LENT | wire.WITH_COSTS, wire.PARCEL)), WORD, st.binary(max_size=300))
def test_any_bytes_in_the_place_of_a_table(flags: int, kind: int, body: bytes) -> None:
    values = VALUE.pack(kind & 15 | flags, len(body))
    feed(ANSWERS.pack(1, len(body)) + FACT.pack(7, 0, 10, 5) + values + body, [])
    feed(ANSWERS.pack(wire.ASK, len(body)) + body, [])


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 2**32), WORD, WORD)
def test_any_bytes_in_the_page(seed: int, count: int, blob: int) -> None:
    import random

    from ptss_mp import marker

    hand = Hand()
    try:
        hand.page[:] = random.Random(seed).randbytes(marker.PAGE_BYTES)
        hand.words[marker.COUNT], hand.words[marker.BLOB] = count, blob
        hand.words[marker.GENERATION] = 0
        hand.channel.marked()
        hand.channel.last_report("crashed", 1)
        hand.channel.peek({})
    finally:
        hand.close()


def test_the_fixture_leaks_nothing() -> None:
    before = len(os.listdir("/proc/self/fd"))
    feed(b"", [])
    assert len(os.listdir("/proc/self/fd")) == before
