"""Keys: the same for the same call whatever else differs, and never the same for two that differ."""

from __future__ import annotations

import os
import subprocess
import sys
from datetime import UTC, datetime, timedelta, timezone
from enum import Enum, Flag, IntEnum
from functools import partial
from pathlib import Path, PurePosixPath

import pytest

from ptss_mp import Executor, InvalidOption, InvalidType
from ptss_mp.keys import (
    DEPTH_MAX,
    default_key,
    form,
    function_name,
    given_key,
    numbered,
    release_key,
    text_key,
    unnumbered,
)


class Colour(Enum):
    RED = 1
    BLUE = 2


class Level(IntEnum):
    LOW = 1


class Mode(Flag):
    A = 1
    B = 2


def job(*args, **kwargs):
    """Nothing."""


# All of these differ from each other.
DIFFERENT = [
    None, True, False, 1, 1.0, 0, -0.0, 0.0, float("inf"), float("nan"), 1 << 20_000, "1", "", b"1", b"", "None",
    (1,), [1], (1, 2), (12,), ("1", "2"), ("12",), ("1:2",), [[1], 2], [1, [2]], [], (), {}, set(), frozenset(), {1},
    frozenset({1}),
    {"a": 1}, {"a": "1"}, [("a", 1)], {1: "a"}, Colour.RED, Colour.BLUE, Level.LOW, Mode.A | Mode.B, Path("a"),
    Path("a/b"), "a",
    datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 1, 1), datetime(2026, 1, 1, tzinfo=timezone(timedelta(hours=1))),
    datetime(2026, 1, 1, fold=1), "x" * 5_000, "x" * 5_001, b"x" * 5_000, "\udcff", "é", "e\u0301",
]  # fmt: skip


def test_different_values_have_different_forms():
    forms = [form(value) for value in DIFFERENT]
    assert len(set(forms)) == len(forms)


def test_order_and_identity_do_not_count():
    assert form({"a": 1, "b": 2}) == form({"b": 2, "a": 1})
    assert form({"x", "y", "z"}) == form({"z", "y", "x"})
    assert form(float("nan")) == form(float("nan"))
    assert form(Path("a/b")) == form(PurePosixPath("a//b"))


@pytest.mark.parametrize(
    "value", [object(), job, 1j, bytearray(b"x"), range(3), type("Text", (str,), {})("x"), [{"a": {object()}}]]
)
def test_what_has_no_form_is_named(value):
    with pytest.raises(InvalidOption, match="no canonical form"):
        form(value)


def test_depth_is_bounded():
    deep: list = []
    for _ in range(DEPTH_MAX):
        deep = [deep]
    form(deep)
    with pytest.raises(InvalidOption, match="deep"):
        form([deep])
    deep.append(deep)
    with pytest.raises(InvalidOption, match="holds itself"):
        form(deep)


def test_keys_of_calls_differ_where_the_calls_do():
    calls = [
        (job, (), {}), (job, (1,), {}), (job, (1, 2), {}), (job, ((1, 2),), {}), (job, (1,), {"a": 2}),
        (job, (), {"a": 1}),
        (job, (), {"b": 1}), (job, (), {"a": 1, "b": 1}), (job, ("a", 1), {}), (abs, (1,), {}),
        (partial(job, 1), (), {}),
        (partial(job, 1), (2,), {}), (partial(job, a=1), (), {}), ("abc".join, (["x"],), {}),
        ("abd".join, (["x"],), {}),
    ]  # fmt: skip
    keys = [default_key(*call) for call in calls]
    assert len(set(keys)) == len(keys)
    assert default_key(job, (), {"a": 1, "b": 2}) == default_key(job, (), {"b": 2, "a": 1})
    assert keys[0].startswith("tests.unit.test_keys.job:") or keys[0].startswith("test_keys.job:")
    assert function_name(abs) == "builtins.abs"


def test_a_closure_needs_a_key():
    captured = 5

    def inner():
        return captured

    with pytest.raises(InvalidOption, match="closure"):
        default_key(inner, (), {})


def test_the_same_in_another_interpreter_with_another_hash_seed():
    """These digests are of Python 3.11; whoever changes the form makes every journal begin anew."""
    program = (
        "from ptss_mp.keys import default_key; from pathlib import Path;"
        "print(default_key(abs, ({'b', 'a', 'c'}, {'x': 1.5, 'y': None}, Path('p'), 2**70), {'k': b'v'}))"
    )
    for seed in ("0", "1", "77"):
        run = subprocess.run(
            [sys.executable, "-c", program], env=os.environ | {"PYTHONHASHSEED": seed}, capture_output=True, text=True,
            timeout=30, check=True,
        )  # fmt: skip
        assert run.stdout.strip() == "builtins.abs:a600b79bb1b56aefec0fc8d42ad25428"


def test_main_counts_as_its_file(tmp_path):
    program = tmp_path / "nightly.py"
    program.write_text(
        "from enum import Enum\nfrom ptss_mp.keys import default_key\n"
        "class E(Enum):\n    A = 1\ndef f(): pass\nprint(default_key(f, (E.A,), {}))\n"
    )
    env = os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])}
    as_main = subprocess.run([sys.executable, program], env=env, capture_output=True, text=True, check=True, timeout=30)
    imported = subprocess.run(
        [sys.executable, "-c", "import nightly"], cwd=tmp_path, env=env, capture_output=True, text=True, check=True,
        timeout=30,
    )  # fmt: skip
    assert as_main.stdout == imported.stdout
    assert as_main.stdout.startswith("nightly.f:")


def test_a_given_key():
    assert given_key("k", (), {}) == "k"
    assert given_key(lambda n, *, tail: f"{n}-{tail}", (4,), {"tail": "t"}) == "4-t"
    with pytest.raises(InvalidType, match="return text, not int"):
        given_key(lambda: 5, (), {})
    with pytest.raises(InvalidOption, match="what key= returns must have 1"):
        given_key(lambda: "", (), {})


def test_names_of_files_that_are_no_text_can_be_keys():
    one, other = (given_key(str, (Path(os.fsdecode(name)),), {}) for name in (b"a\xff", b"a\xfe"))
    assert one != other
    assert one.encode()


def test_a_dependency_counts_as_its_key():
    with Executor(max_workers=1) as ex:
        first = ex.options(key="one").submit(abs, -1)
        other = ex.options(key="two").submit(abs, -1)
        assert default_key(job, (first,), {}) != default_key(job, (other,), {})
        assert default_key(job, ([first],), {}) != default_key(job, (first,), {})
        assert default_key(job, (first,), {}) != default_key(job, ("one",), {})
        assert given_key(lambda value: value + "!", (first,), {}) == "one!"


def test_numbers_and_releases():
    assert [numbered("k", n) for n in (1, 2, 3)] == ["k", "k#2", "k#3"]
    assert release_key("k", "2026-12-01T02:00:00Z") == "k@2026-12-01T02:00:00Z"


def test_texts_that_are_keys_themselves():
    """Two different texts never have one key, whichever number of equal ones they are."""
    bases = ["", "a", "#", "#0", "x:", "x" * 1_024, "x" * 1_025, "x" * 2_000, "\udcff", "\\udcff", "a\n", "é", "#٣"]
    texts = {text + tail for text in bases for tail in ("", "#1", "#2", "#02", "#10", "#1#2", "#2#1", f":{'0' * 32}")}
    texts |= {text_key(text) for text in texts}
    texts |= {numbered(text_key(text), 2) for text in texts}
    keys = {numbered(text_key(text), number) for text in texts for number in (1, 2, 10)}
    assert len(keys) == 3 * len(texts)
    assert all(unnumbered(numbered(text_key(text), n)) == text_key(text) for text in texts for n in (1, 2, 19))
    assert text_key("inbox/7.pdf") == "inbox/7.pdf"
    assert max(map(len, keys)) < 1_200
    for key in keys:
        key.encode()
