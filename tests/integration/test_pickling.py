"""Calls and results that plain pickle cannot carry, and main modules that no worker can import."""

from __future__ import annotations

import os
import subprocess
import sys
import threading

import pytest
from support import CAP_S

import ptss_mp
from ptss_mp import InvalidOption, NotLoadable, NotPicklable, ResultNotPicklable, TaskRaised

CONTEXTS = pytest.mark.parametrize("context", [None, "spawn"])
ROOT = os.path.dirname(os.path.dirname(ptss_mp.__file__))

JOBS = """\
import sys
from ptss_mp import Executor
class Point:
    def __init__(self, x): self.x = x
class Odd(Exception):
    def __init__(self, x, why): super().__init__(f"{x}: {why}"); self.x = x
def double(x): return helper(x) * 2
def helper(x): return x
def point(x): return Point(x)
def odd(x): raise Odd(x, "not even")
def tell(): print(__name__, file=sys.stderr)
if __name__ == "__main__":
    with Executor(1, %s) as ex:
        print(ex.submit(double, 21).result(30), list(ex.map(double, range(3))))
        p = ex.submit(point, 7).result(30)
        print(type(p) is Point, p.x)
        try: ex.submit(odd, 3).result(30)
        except Odd as error: print(repr(error), error.x)
        add = 5
        print(ex.submit(lambda x: x + add, 1).result(30))
        print(ex.submit(max, [3, 1]).result(30))
"""
SAID = "42 [0, 2, 4]\nTrue 7\nOdd('3: not even') 3\n6\n3\n"


def program(argv: list[str], text: str = "", cwd: str | None = None, **env: str) -> tuple[str, str, int]:
    path = os.pathsep.join([ROOT, os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, *argv], input=text, cwd=cwd, text=True, capture_output=True, timeout=60, check=False,
        env=os.environ | {"PYTHONPATH": path} | env,
    )  # fmt: skip
    return done.stdout, done.stderr, done.returncode


# ---- by value


@CONTEXTS
def test_closures_go_and_come(pool, context):
    ex = pool(1, context)
    base = 10
    assert ex.submit(lambda x: x + base, 5).result(CAP_S) == 15
    assert ex.submit(lambda: (lambda y: y * base)).result(CAP_S)(4) == 40

    class Local:
        def __init__(self, x: int) -> None:
            self.x = x

    back = ex.submit(lambda v: Local(v.x + 1), Local(1)).result(CAP_S)
    assert type(back) is Local
    assert back.x == 2


def test_a_class_of_an_exception_that_exists_nowhere_else_is_raised_as_itself(pool):
    class Local(Exception):
        pass

    def job() -> None:
        raise Local("here")

    with pytest.raises(Local, match="here") as caught:
        pool(1).submit(job).result(CAP_S)
    assert "in job" in str(caught.value.__cause__)


@pytest.mark.parametrize(
    ("call", "part"),
    [
        (lambda ex, lock: ex.submit(print, 1, lock), "argument 2"),
        (lambda ex, lock: ex.submit(print, 1, file=lock), "keyword file"),
        (lambda ex, lock: ex.submit(lambda: lock), "function"),
        (lambda ex, lock: ex.submit(lock.acquire), "function"),
        (lambda ex, lock: ex.submit(print, [lambda: {"deep": lock}]), "argument 1"),
    ],
)
def test_what_nothing_can_carry_is_born_failed_and_named(pool, call, part):
    ex = pool(1)
    future = call(ex, threading.Lock())
    assert future.done()
    assert future.outcome().status == "not_picklable"
    assert future.outcome().attempts == 0
    with pytest.raises(NotPicklable, match="lock") as caught:
        future.result()
    assert caught.value.part == part
    assert "ptss_mp[closures]" not in str(caught.value), "that would not help"
    assert ex.submit(pow, 2, 3).result(CAP_S) == 8


def test_a_result_that_nothing_can_carry(pool):
    ex = pool(1)
    with pytest.raises(ResultNotPicklable, match="lock"):
        ex.submit(threading.Lock).result(CAP_S)
    with pytest.raises(ResultNotPicklable, match="generator"):
        ex.submit(lambda: (i for i in range(3))).result(CAP_S)
    assert ex.submit(pow, 2, 3).result(CAP_S) == 8


def test_an_initializer_that_cannot_be_pickled_is_refused_at_once():
    with pytest.raises(InvalidOption, match=r"initializer 'print' or its initargs cannot be pickled: .*lock"):
        ptss_mp.Executor(1, initializer=print, initargs=(threading.Lock(),))


@CONTEXTS
def test_an_initializer_may_be_a_closure(pool, context):
    here = os.getpid()

    def note() -> None:
        os.environ["NOTED"] = str(here)

    assert pool(1, context, initializer=note).submit(os.getenv, "NOTED").result(CAP_S) == str(here)


WITHOUT = """\
import sys
sys.modules["cloudpickle"] = None  # as where it is not installed
from ptss_mp import Executor
ex = Executor(1)
add = 1
for call in [(lambda: 1,), (max, [lambda: 1]), (lambda x: x + add, 1)]:
    print(ex.submit(*call).exception(30))
def double(x): return 2 * x
print(ex.submit(double, "__main__").exception(30))
print(ex.submit(max, ["__main__", ""]).result(30))
ex.shutdown()
"""


def test_without_cloudpickle_the_text_says_what_to_install():
    out, err, code = program(["-c", WITHOUT])
    assert (err, code) == ("", 0)
    first, second, third, fourth, fifth = out.splitlines()
    for line, part in ((first, "function"), (second, "argument 1"), (third, "function")):
        assert f"its {part} cannot be pickled" in line
        assert "pip install 'ptss_mp[closures]'" in line
    assert "defined in __main__, which a worker cannot import here" in fourth
    assert "pip install 'ptss_mp[closures]'" in fourth
    assert fifth == "__main__", "a text is no reference"


# ---- main modules


@pytest.mark.parametrize("context", ["mp_context=None", "mp_context='spawn'"])
@pytest.mark.parametrize("how", ["file", "-c", "stdin", "-m", "package", "folder", "archive"])
def test_functions_of_any_main_module(tmp_path, how, context):
    text = JOBS % context
    file = tmp_path / "program.py"
    file.write_text(text)
    if how in ("package", "folder"):
        (tmp_path / "pack").mkdir()
        (tmp_path / "pack" / "__init__.py").touch()
        (tmp_path / "pack" / "__main__.py").write_text(text)
    if how == "archive":
        import zipapp

        (tmp_path / "source").mkdir()
        (tmp_path / "source" / "__main__.py").write_text(text)
        zipapp.create_archive(tmp_path / "source", tmp_path / "program.pyz")
    argv, stdin = {
        "file": ([str(file)], ""),
        "-c": (["-c", text], ""),
        "stdin": (["-"], text),
        "-m": (["-m", "program"], ""),
        "package": (["-m", "pack"], ""),
        "folder": (["pack"], ""),
        "archive": (["program.pyz"], ""),
    }[how]
    assert program(argv, stdin, str(tmp_path)) == (SAID, "", 0)


def test_what_is_typed_into_an_interpreter(tmp_path):
    lines = [
        "from ptss_mp import Executor",
        "ex = Executor(1)",
        "def double(x): return 2 * x\n",
        "ex.submit(double, 4).result(30)",
        "def double(x): return 20 * x\n",
        "ex.submit(double, 4).result(30)",
        "ex.submit(lambda: 1 / 0).exception(30)",
        "ex.shutdown()",
        "",
    ]
    out, err, code = program(["-i", "-q", "-c", ""], "\n".join(lines), str(tmp_path))
    assert code == 0
    assert out.splitlines() == ["8", "80", "ZeroDivisionError('division by zero')"]
    assert "Traceback" not in err


def test_a_function_under_the_guard_says_so(tmp_path):
    file = tmp_path / "program.py"
    file.write_text("""\
from ptss_mp import Executor
if __name__ == "__main__":
    def guarded(): return 1
    with Executor(1) as ex:
        error = ex.submit(guarded).exception(30)
        print(type(error).__name__, error)
""")
    out, err, code = program([str(file)])
    assert (err, code) == ("", 0)
    assert out.startswith("NotLoadable ")
    assert "`if __name__ == '__main__':`" in out


@pytest.mark.parametrize("context", ["", "mp_context='spawn'"])
def test_a_script_without_a_guard_is_told_the_two_lines(tmp_path, context):
    file = tmp_path / "program.py"
    file.write_text(f"""\
from ptss_mp import Executor
print("imported", flush=True)
def double(x): return 2 * x
ex = Executor(2, {context})
print(ex.submit(double, 2).result(30))
""")
    out, err, code = program([str(file)])
    assert code == 1
    assert "if __name__ == \"__main__\":\n        main()" in err
    assert "PoolBroken" in err.splitlines()[-4] or "PoolBroken" in err
    assert out.count("imported") <= 3, "a program, the warden, and no bomb"


def test_a_module_that_is_gone_in_the_worker(pool, tmp_path, monkeypatch):
    (tmp_path / "passing.py").write_text("def job(): return 1\n")
    monkeypatch.syspath_prepend(tmp_path)
    ex = pool(1)
    ex.submit(pow, 1, 1).result(CAP_S)
    import passing

    (tmp_path / "passing.py").unlink()
    with pytest.raises(NotLoadable, match="passing"):
        ex.submit(passing.job).result(CAP_S)
    monkeypatch.delitem(sys.modules, "passing")


# ---- exceptions


class TwoWords(Exception):
    def __init__(self, first: str, second: str) -> None:
        super().__init__(f"{first} {second}")
        self.first, self.second = first, second


class KeywordOnly(Exception):
    def __init__(self, *, code: int) -> None:
        super().__init__(f"code {code}")
        self.code = code


class WithText(Exception):
    def __init__(self, code: int) -> None:
        self.code = code

    def __str__(self) -> str:
        return f"code is {self.code}"


class OsLike(OSError):
    def __init__(self, path: str) -> None:
        super().__init__(2, "no such thing", path)
        self.path = path


class Sealed(Exception):
    def __init__(self) -> None:
        super().__init__("sealed")
        self.lock = threading.Lock()


def raise_it(kind: type[Exception], args: tuple, kwargs: dict) -> None:
    raise kind(*args, **kwargs)


@pytest.mark.parametrize(
    ("kind", "args", "kwargs", "facts"),
    [
        (TwoWords, ("a", "b"), {}, {"first": "a", "second": "b"}),
        (KeywordOnly, (), {"code": 7}, {"code": 7}),
        (WithText, (9,), {}, {"code": 9}),
        (OsLike, ("/x",), {}, {"errno": 2, "filename": "/x", "path": "/x"}),
        (UnicodeDecodeError, ("utf-8", b"\xff", 0, 1, "bad"), {}, {"reason": "bad"}),
        (KeyError, ("k",), {}, {}),
        (ImportError, ("m",), {"name": "n"}, {"name": "n"}),
    ],
)
def test_an_exception_with_any_constructor_is_raised_as_itself(pool, kind, args, kwargs, facts):
    with pytest.raises(kind) as caught:
        pool(1).submit(raise_it, kind, args, kwargs).result(CAP_S)
    assert str(caught.value) == str(kind(*args, **kwargs))
    assert {name: getattr(caught.value, name) for name in facts} == facts
    assert "in raise_it" in str(caught.value.__cause__)


def raise_group() -> None:
    raise ExceptionGroup("many", [TwoWords("a", "b"), ExceptionGroup("inner", [OsLike("/x"), KeyError("k")])])


def test_a_group_arrives_with_all_that_is_in_it(pool):
    with pytest.raises(ExceptionGroup, match="many") as caught:
        pool(1).submit(raise_group).result(CAP_S)
    words, inner = caught.value.exceptions
    assert (type(words), words.second) == (TwoWords, "b")
    assert [type(e) for e in inner.exceptions] == [OsLike, KeyError]
    assert inner.exceptions[0].filename == "/x"


def test_an_exception_that_holds_what_cannot_travel_comes_as_text(pool):
    with pytest.raises(TaskRaised, match="sealed") as caught:
        pool(1).submit(raise_it, Sealed, (), {}).result(CAP_S)
    assert caught.value.type_name == "Sealed"
    assert "in raise_it" in caught.value.traceback


def raise_with_notes() -> None:
    try:
        raise KeyError("inner")
    except KeyError as inner:
        error = ValueError("outer")
        error.add_note("a note")
        raise error from inner


def test_notes_and_chain_arrive(pool):
    with pytest.raises(ValueError, match="outer") as caught:
        pool(1).submit(raise_with_notes).result(CAP_S)
    assert caught.value.__notes__ == ["a note"]
    text = str(caught.value.__cause__)
    assert "KeyError: 'inner'" in text
    assert "direct cause" in text
    assert "a note" in text


def raise_deep() -> None:
    error: Exception = ValueError("deep")
    for _ in range(20_000):
        error = ValueError("deep", error)
    raise error


def raise_itself() -> None:
    error = ValueError("ring")
    error.args = ("ring", error)
    error.__cause__ = error
    raise error


def raise_huge() -> None:
    raise ValueError("x" * (32 << 20))


@pytest.mark.parametrize("job", [raise_deep, raise_itself, raise_huge])
def test_awkward_exceptions_fail_their_job_alone(pool, job):
    ex = pool(1)
    future = ex.submit(job)
    assert future.outcome(60).status == "failed"
    assert len(future.outcome().error) <= 600
    assert isinstance(future.exception(), ValueError | TaskRaised)
    assert ex.submit(pow, 2, 3).result(CAP_S) == 8


class Plain:
    """Shown with its address."""


class Restless(Exception):
    told = 0

    def __str__(self) -> str:
        Restless.told += 1
        return f"told {Restless.told} times"


def raise_with_object(kind: type[Exception], *args: object) -> None:
    raise kind(*args, Plain())


class OwnWay(Exception):
    def __init__(self, *args: object) -> None:
        super().__init__("own")
        self.all = args

    def __reduce__(self) -> tuple:
        return OwnWay, self.all

    def __str__(self) -> str:
        return f"own {self.all}"


class Errors(ExceptionGroup):
    """As Python's documentation has it."""

    def __new__(cls, errors: list[Exception], code: int) -> Errors:
        self = super().__new__(Errors, f"exit code: {code}", errors)
        self.code = code
        return self

    def derive(self, excs: list[Exception]) -> Errors:
        return Errors(excs, self.code)


class NewPair(Exception):
    def __new__(cls, first: str, second: str) -> NewPair:
        self = super().__new__(cls, first)
        self.second = second
        return self

    def __init__(self, first: str, second: str) -> None:
        super().__init__(first)


def raise_errors() -> None:
    raise Errors([TwoWords("a", "b"), NewPair("c", "d")], 3)


def test_an_exception_whose_new_wants_more_than_it_keeps_is_raised_as_itself(pool):
    """Regression: only its `__init__` was gone around."""
    ex = pool(1)
    with pytest.raises(Errors, match="exit code: 3") as caught:
        ex.submit(raise_errors).result(CAP_S)
    assert caught.value.code == 3
    assert [type(error) for error in caught.value.exceptions] == [TwoWords, NewPair]
    with pytest.raises(NewPair, match="c") as pair:
        ex.submit(raise_it, NewPair, ("c", "d"), {}).result(CAP_S)
    assert pair.value.second == "d"


@pytest.mark.parametrize("args", [(), ("bad",)])
@pytest.mark.parametrize("kind", [ValueError, KeyError, TwoWords, Restless, OwnWay])
def test_an_exception_whose_text_is_another_each_time_is_raised_as_itself(pool, kind, args):
    """Regression: an argument without a text of its own shows its address, and the class was lost for that."""
    if kind is TwoWords:
        args = ("bad",)
    with pytest.raises(kind) as caught:
        pool(1).submit(raise_with_object, kind, *args).result(CAP_S)
    if kind not in (TwoWords, OwnWay):
        assert type(caught.value.args[-1]) is Plain
    assert "in raise_with_object" in str(caught.value.__cause__)


def raise_long_number() -> None:
    raise ValueError(10**5000)


def test_an_exception_whose_text_cannot_be_had_is_raised_as_itself(pool):
    error = pool(1).submit(raise_long_number).exception(CAP_S)
    assert type(error) is ValueError
    assert error.args == (10**5000,)


class NoCode(SystemExit):
    @property
    def code(self) -> int:  # type: ignore[override]
        raise ZeroDivisionError


class Number(int):
    def __lt__(self, _other: object) -> bool:
        raise ZeroDivisionError

    __gt__ = __lt__


def leave(how: str) -> None:
    raise NoCode() if how == "no code" else SystemExit(Number(3))


@pytest.mark.parametrize(("how", "code"), [("no code", 1), ("odd number", 3)])
def test_an_exit_whose_code_is_odd_fails_its_job_and_ends_no_worker(pool, how, code):
    """Regression: what the code raised went through the worker's loop, and was a crash."""
    outcome = pool(1).submit(leave, how).outcome(CAP_S)
    assert (outcome.status, outcome.exit_code) == ("failed", code)


BROKEN = """\
import sys
from ptss_mp import Executor
class TwoWords(Exception):
    def __init__(self, first, second): super().__init__(f"{first} {second}")
def fail(): raise TwoWords("a", "b")
if __name__ == "__main__":
    with Executor(1) as ex:
        print(repr(ex.submit(fail).exception(30)))
        print(ex.submit(lambda: 0).exception(30))
        print(ex.submit(pow, 2, 3).result(30))
"""


@pytest.mark.parametrize(
    "source", ["raise AttributeError('module types has no CellType')", "def dumps(value, protocol): return b''"]
)
def test_a_cloudpickle_that_does_not_work_is_as_none(tmp_path, source):
    """Regression: what its import raised cost exceptions their class that never needed it."""
    (tmp_path / "cloudpickle.py").write_text(source + "\n")
    file = tmp_path / "program.py"
    file.write_text(BROKEN)
    out, err, code = program([str(file)])
    assert (err, code) == ("", 0)
    error, refusal, value = out.splitlines()
    assert (error, value) == ("TwoWords('a b')", "8")
    assert "attribute lookup <lambda>" in refusal
    assert "pip install 'ptss_mp[closures]'; the one that is there cannot be used: AttributeError" in refusal


class Submits:
    """Has a job of its own while it is pickled, one that cannot be."""

    ex: ptss_mp.Executor

    def __getstate__(self) -> dict[str, str]:
        self.ex.submit(abs, threading.Lock())
        return {"by": "hand"}


def second_of(_first: object, second: int) -> int:
    return second


def test_an_argument_that_submits_while_it_is_pickled_leaves_futures_what_they_are(pool):
    """Regression: a call that could not be pickled, within another, took from that one that it was being submitted."""
    ex = Submits.ex = pool(1)
    try:
        assert ex.submit(second_of, Submits(), ex.submit(abs, -3)).result(CAP_S) == 3
    finally:
        del Submits.ex
