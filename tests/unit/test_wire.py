"""Codecs of values and errors."""

from __future__ import annotations

import math

import pytest

from ptss_mp import wire
from ptss_mp.codec import describe, encode
from ptss_mp.core import events
from ptss_mp.core.scheduler import ENDS


@pytest.mark.parametrize("value", [0.0, -0.0, 1.5, math.inf, -math.inf, 5e-324])
def test_floats_keep_their_bits(value):
    back = wire.scalar(wire.FLOAT, wire.float_bits(value))
    assert (back, math.copysign(1, back)) == (value, math.copysign(1, value))


def test_nan_stays_nan():
    assert math.isnan(wire.scalar(wire.FLOAT, wire.float_bits(math.nan)))


KINDS = [
    *((None, wire.NONE), (7, wire.INT), (True, wire.BOOL), (0.5, wire.FLOAT), ("é", wire.STR), (b"x", wire.BYTES)),
    *((1 << 62, wire.PICKLE), (-(1 << 62), wire.PICKLE), ([1], wire.PICKLE)),
]


@pytest.mark.parametrize(("value", "kind"), KINDS)
def test_kinds(value, kind):
    assert encode(value)[0] == kind


@pytest.mark.parametrize("value", [object, ValueError("x")])
def test_what_names_a_class_is_loaded_once_where_the_job_is_to_blame(value):
    assert encode(value)[0] == wire.PICKLE


def test_an_error_keeps_its_facts():
    facts = wire.unpack_error(describe(ValueError("no")))
    assert (facts.type_name, facts.text, facts.exit_code) == ("ValueError", "no", None)
    assert isinstance(wire.loads(facts.pickled), ValueError)
    assert wire.unpack_error(describe(ValueError("no"), keep=False)).pickled == b""
    assert wire.unpack_error(describe(SystemExit(4))).exit_code == 4
    assert wire.unpack_error(describe(SystemExit(4))).pickled == b""


def test_texts_are_cut():
    facts = wire.unpack_error(wire.pack_error(b"p", "T" * 5_000, "x" * (1 << 20), "y" * (1 << 20) + "end", 3))
    assert (len(facts.type_name), len(facts.text)) == (1_000, wire.TEXT_MAX)
    assert len(facts.traceback) == wire.TRACEBACK_MAX
    assert facts.traceback.endswith("end")
    assert (facts.pickled, facts.exit_code) == (b"p", 3)


class Speechless(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no words")


def test_an_error_without_words_is_described_all_the_same():
    assert wire.unpack_error(describe(Speechless())).text == "(its text cannot be had)"


def test_workers_and_core_mean_the_same_by_an_end():
    names = (
        "OK", "FAILED", "FAILED_FOR_GOOD", "RESULT_NOT_PICKLABLE", "CALL_NOT_LOADABLE", "REVOKED", "EXPIRED",
        "UNFINISHED",
    )  # fmt: skip
    written = {"REVOKED": "WAS_REVOKED", "EXPIRED": "HAD_EXPIRED"}
    assert [getattr(wire, written.get(name, name)) for name in names] == [getattr(events, name) for name in names]
    assert events.LOST == len(names) == len(ENDS) - 1, "no worker says that"
