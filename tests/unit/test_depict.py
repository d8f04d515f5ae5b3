"""A pickled call as text, without any of its code being run."""

from __future__ import annotations

import collections
import datetime
import decimal
import enum
import functools
import pathlib
import pickle

import pytest

from ptss_mp import depict, wire
from ptss_mp.depict import call_text


class Loud:
    """Its code must not run."""

    def __init__(self, x):
        self.x = x

    def __setstate__(self, state):
        raise AssertionError("unpickled")

    def __repr__(self):
        raise AssertionError("shown")


class Colour(enum.Enum):
    RED = 1


class Deep(list):
    pass


def bomb():
    raise AssertionError("called")


class Bomb:
    def __reduce__(self):
        return bomb, ()


@pytest.mark.parametrize(
    ("args", "kwargs", "text"),
    [
        ((1, "a", None, b"x"), {}, "f(1, 'a', None, b'x')"),
        ((), {"dpi": 300}, "f(dpi=300)"),
        ((pathlib.PurePosixPath("a.pdf"),), {}, f"f({pathlib.PurePosixPath.__module__}.PurePosixPath('a.pdf'))"),
        ((Loud(7),), {}, "f(tests.unit.test_depict.Loud(x=7))"),
        ((Bomb(),), {}, "f(tests.unit.test_depict.bomb())"),
        ((Colour.RED,), {}, "f(tests.unit.test_depict.Colour(1))"),
        ((Deep([1, 2]),), {}, "f(tests.unit.test_depict.Deep(1, 2))"),
        ((decimal.Decimal("1.5"), {1, 2}, [3], {"a": 4}), {}, "f(decimal.Decimal('1.5'), {1, 2}, [3], {'a': 4})"),
        ((collections.OrderedDict(a=1),), {}, "f(collections.OrderedDict('a': 1))"),
        ((3 + 4j, bytearray(b"ab")), {}, "f(complex(3.0, 4.0), bytearray(b'ab'))"),
    ],
)
def test_what_a_call_holds(args, kwargs, text):
    assert call_text("f", [pickle.dumps((args, kwargs), 5)], ()) == text


def test_plain_calls():
    assert call_text("f", 7, ()) == "f(7)"
    assert call_text("f", (1, "a"), ()) == "f(1, 'a')"


def test_results_of_other_jobs_are_named():
    class Prerequisite:
        def __reduce__(self):
            return wire.prerequisite, (1,)

    data = pickle.dumps((([Prerequisite()],), {}), 5)
    assert call_text("f", [data], ("a", "snapshot")) == "f([<result of 'snapshot'>])"


def test_buffers_are_told_by_their_size():
    buffers: list[pickle.PickleBuffer] = []
    value = pickle.PickleBuffer(bytearray(100_000))
    data = pickle.dumps(((value,), {}), 5, buffer_callback=buffers.append)
    assert call_text("f", [data, *(b.raw() for b in buffers)], ()) == "f(b'(100000 bytes)')"


@pytest.mark.parametrize("data", [b"", b"nonsense", pickle.dumps(3), pickle.dumps(((1,), {}))[:-4], b"\x80\x05N."])
def test_what_is_odd_is_no_error(data):
    assert call_text("f", [data], ()) == "f(...)"


def test_long_ones_are_cut():
    text = call_text("f", [pickle.dumps((tuple("x" * 100 + str(i) for i in range(9)), {}), 5)], ())
    assert len(text) == depict.TEXT_CHARS
    assert text.endswith("...)")
    assert call_text("f", [bytes(depict.PICKLE_BYTES + 1), b"123"], ()) == f"f(... {depict.PICKLE_BYTES + 4} bytes)"
    assert len(call_text("f", [pickle.dumps((([[[[0] * 99] * 99] * 99] * 9,), {}), 5)], ())) <= depict.TEXT_CHARS


def test_a_call_by_value():
    """Functions of closures travel before their arguments."""
    assert call_text("f", [pickle.dumps((functools.partial(int, "3"), (1,), {"a": datetime.date(2026, 1, 2)}), 5)], ())[
        :5
    ] == "f(1, "


def test_numbers_of_more_digits_than_python_writes():
    assert call_text("f", (10**5000, [10**5000]), []) == "f(<a number of 16610 bits>, [<a number of 16610 bits>])"
