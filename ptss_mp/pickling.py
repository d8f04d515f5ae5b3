"""From an object to bytes: plain pickle first, cloudpickle where that fails.

cloudpickle (extra `closures`) is imported when it is needed, never for what plain pickle can do: it takes 19 ms to
import and four times as long for a small call (0.6 and 2.4 µs), and by value a function loses its identity.

What is defined in the program's `__main__` pickles as a name.  Where a worker cannot import that module (typed in,
`-c`, standard input, a notebook, a `__main__.py`), plain pickle succeeds and the worker fails; so there such a call
goes by value.  Imported in every worker, so it imports almost nothing.
"""

from __future__ import annotations

import io
import os
import pickle
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .parcel import Apart

INSTALL = "pip install 'ptss_mp[closures]'"
# Of pickles: `__main__` as the text of a module's name; 8 bytes long, so that the length is one byte (protocol 4 up).
MAIN = b"\x8c\x08__main__"
_CLOSURE_MARKS = ("<lambda>", "<locals>", "__main__")  # in the texts of pickle's refusals: what cloudpickle could do


def dumps(value: Any, apart: Apart | None = None) -> bytes:
    """Return a pickle of protocol 5.

    Args:
        apart: takes what is large out of it; None: all stays in.

    Raises:
        Exception: what the last of the two picklers raised; plain pickle's without cloudpickle.
    """
    try:
        return pickle.dumps(value, 5, buffer_callback=apart)
    except Exception as error:
        by_value, why = _cloudpickle()
        if by_value is None:
            if any(mark in str(error) for mark in _CLOSURE_MARKS):
                raise pickle.PicklingError(f"{error} (closures and lambdas: {why})") from error
            raise
    return _by_value(by_value, value, apart)


def _by_value(cloudpickle: Any, value: Any, apart: Apart | None) -> bytes:
    if apart:
        apart.clear()  # of plain pickle's try
    return bytes(cloudpickle.dumps(value, 5, buffer_callback=apart))


def dumps_for_worker(value: Any, apart: Apart | None = None) -> bytes:
    """Return a pickle that a worker can load, though it may not be able to import the main module.

    Raises:
        Exception: as `dumps`.
    """
    data = dumps(value, apart)
    if not names_main(data) or main_is_importable():
        return data
    by_value, why = _cloudpickle()
    if by_value is None:
        raise pickle.PicklingError(
            "it is defined in __main__, which a worker cannot import here (typed in, -c, standard input or a "
            f"__main__.py): move it into a module, or {why}"
        )
    return _by_value(by_value, value, apart)


def _cloudpickle() -> tuple[Any, str]:
    """Return the module cloudpickle, or None and what to do about it."""
    try:
        import cloudpickle  # type: ignore[import-untyped,unused-ignore]

        assert issubclass(cloudpickle.Pickler, pickle.Pickler), "it is no cloudpickle from 3 on"
    except ImportError:
        return None, INSTALL
    except Exception as error:  # one that is too old for this Python, or broken, or something else of that name
        return None, f"{INSTALL}; the one that is there cannot be used: {type(error).__name__}: {error}"
    return cloudpickle, ""


def main_is_importable() -> bool:
    """Return True if another process can import the program's main module, as `multiprocessing.spawn` would."""
    main = sys.modules.get("__main__")
    name = getattr(getattr(main, "__spec__", None), "name", None)
    if name is not None:  # `-m`; a package's or archive's `__main__` is never imported a second time
        return str(name).rpartition(".")[2] != "__main__"
    path = getattr(main, "__file__", None)
    return isinstance(path, str) and os.path.exists(path)


def names_main(data: bytes) -> bool:
    """Return True if a pickle names something in `__main__`.  A text that only speaks of it is no reference."""
    if MAIN not in data:
        return False
    import pickletools

    texts: list[Any] = [None, None]  # the last two that were pushed: module and name, when STACK_GLOBAL comes
    memo: list[Any] = []
    pushed: Any = None
    for opcode, argument, _ in pickletools.genops(data):
        if opcode.name == "MEMOIZE":
            memo.append(pushed)
            continue
        if opcode.name == "STACK_GLOBAL" and texts[-2] == "__main__":
            return True
        pushed = None
        if opcode.name in _TEXTS:
            pushed = argument
        elif opcode.name in _GETS:
            pushed = memo[int(argument or 0)]
        if pushed is not None:
            texts = [texts[-1], pushed]
    return False


_TEXTS = frozenset(("SHORT_BINUNICODE", "BINUNICODE", "BINUNICODE8"))
_GETS = frozenset(("BINGET", "LONG_BINGET"))


def dumps_exception(error: Exception) -> bytes:
    """Return an exception as a pickle that gives its like: the same class, arguments and text.

    Its own way first; where that is wrong (`__init__` wants more than `args` holds), without its `__init__`.
    There what is kept is what Python keeps; so a text that differs (it shows the address of an argument) is no sign.

    Raises:
        ValueError: no way gives its like.
        BaseException: whatever its own code raised.
    """
    text, kind = _text(error), type(error)
    for way in (dumps, _without_init):
        try:
            data = way(error)
            again = pickle.loads(data)
        except Exception:  # the other way may do; `__reduce__`, `__setstate__` and `__init__` are the user's
            continue
        if type(again) is not kind:
            continue
        told = _text(again)
        if _alike(told, text) or (way is _without_init and _kept_by_python(kind) and None not in (told, text)):
            return data
    raise ValueError(f"an exception of {kind} cannot be rebuilt")


def _text(error: BaseException) -> str | None:
    """Return an exception's text, None if it cannot be had."""
    try:
        return str(error)
    except Exception:
        return None


def _alike(told: str | None, text: str | None) -> bool:
    """Return True for texts that are the same, but for the addresses of objects."""
    if told == text or told is None or text is None:
        return told == text
    import re

    bare = re.compile("0x[0-9a-f]+").sub
    return bare("", told) == bare("", text)


def _kept_by_python(kind: type[BaseException]) -> bool:
    """Return True for a class that has no way of its own to be pickled."""
    return bool(kind.__reduce__ is _builtin(kind).__reduce__)


def _without_init(error: Exception) -> bytes:
    """Pickle an exception, and those within it, as calls of `rebuild`."""
    by_value, _ = _cloudpickle()
    base: Any = by_value.Pickler if by_value else pickle.Pickler

    class Pickler(base):  # type: ignore[misc]
        def reducer_override(self, value: Any) -> Any:
            kind: Any = type(value)
            if isinstance(value, BaseException) and _kept_by_python(kind):
                args, state = (*kind.__reduce__(value)[1:], None)[:2]
                made_of = args
                if isinstance(value, BaseExceptionGroup):  # its `args` are those of its own `__new__`
                    made_of = (value.message, list(value.exceptions))
                return rebuild, (kind, args, state, made_of)
            return super().reducer_override(value) if by_value else NotImplemented

    file = io.BytesIO()
    Pickler(file, 5).dump(error)
    return file.getvalue()


def rebuild(kind: type[BaseException], args: tuple[Any, ...], state: Any, made_of: tuple[Any, ...]) -> BaseException:
    """Return an exception without its own `__new__` and `__init__`: they may want other arguments than it keeps."""
    base = _builtin(kind)
    error: BaseException = base.__new__(kind, *made_of)
    base.__init__(error, *args)
    base.__setstate__(error, state or {})
    return error


def _builtin(kind: type[BaseException]) -> Any:
    """Return the exception class of Python's own that a class derives from: it knows what `args` mean."""
    return next(base for base in kind.__mro__ if base.__module__ == "builtins")
