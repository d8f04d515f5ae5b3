"""A function named on the command line ("module:function"): found and called in workers only.

A worker imports this module, so it imports little.
"""

from __future__ import annotations

import importlib
import inspect
import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, NoReturn

from ..jobsimport import StdoutToStderr, silently, told_of

REPR_CHARS = 64 << 10  # of a value that is no JSON; one that is, is what was asked for, and is kept whole
AS_JSON, AS_TEXT = "=", "~"  # what a value's text begins with

# ---- The worker's half.

_found: dict[tuple[str, str], Callable[[str], str]] = {}  # one look for a function per worker


class NoFunction(Exception):
    """There is no such function; `missing` says whether it is its module that is not there."""

    def __init__(self, text: str, missing: bool = False) -> None:
        super().__init__(text, missing)
        self.text, self.missing = text, missing

    def __str__(self) -> str:
        return self.text


def resolve(module: str, name: str, folder: str) -> Callable[[str], str]:
    """Return what calls the function and gives its value as text; import its module if this worker has not yet.

    Args:
        folder: where the program was started: its modules are found, as with `python -m`.
    """
    if (module, name) not in _found:
        fn = _function(module, name, folder)

        def call(item: str) -> str:
            return shown(fn(item))

        _found[module, name] = call
    return _found[module, name]


def _function(module: str, name: str, folder: str) -> Callable[..., Any]:
    if folder not in sys.path:
        sys.path.insert(0, folder)
    try:
        with StdoutToStderr():
            value: Any = importlib.import_module(module)
    except ModuleNotFoundError as error:
        if f"{module}.".startswith(f"{error.name}."):
            raise NoFunction(f"there is no module {error.name!r} here", missing=True) from None
        raise
    for part in name.split("."):
        try:
            value = getattr(value, part)
        except AttributeError:
            raise NoFunction(f"module {module!r} has no {name!r}") from None
    if not callable(value):
        raise NoFunction(f"{module}:{name} is no function but of type {type(value).__name__}")
    return value  # type: ignore[no-any-return]


def shown(value: Any) -> str:
    """Return a value as JSON, else as its repr, behind a sign that says which."""
    try:
        return AS_JSON + json.dumps(value, allow_nan=False)
    except (TypeError, ValueError, RecursionError):
        return AS_TEXT + repr(value)[:REPR_CHARS]


def describe(module: str, name: str, folder: str) -> dict[str, Any]:
    """Look for the function; return {} if it can be called with an item, else {"error": text, "missing": bool}."""
    try:
        fn = _function(module, name, folder)
        try:
            inspect.signature(fn).bind("item")
        except TypeError as error:
            raise NoFunction(f"{module}:{name}{inspect.signature(fn)} cannot be called with an item: {error}") from None
        except ValueError:
            pass  # a built-in without a signature: it takes what it takes
    except NoFunction as none:
        return {"error": none.text, "missing": none.missing}
    except BaseException as error:  # SystemExit too: it is the module's, not ours
        return {"error": f"the import of {module!r} failed: {told_of(error)}", "missing": False}
    return {}


def load_silently(module: str, name: str, folder: str) -> None:
    """Import the function's module for what it leaves in memory."""
    with silently():
        _function(module, name, folder)


# ---- The parent's half.


@dataclass(frozen=True)
class FunctionRef:
    """A function by its name; pickles to `resolve(...)`."""

    module: str
    name: str
    folder: str

    by_reference: ClassVar[bool] = True  # equal ones have equal pickles: the executor keeps them

    def __post_init__(self) -> None:
        named = {"__name__": self.name.rpartition(".")[2], "__qualname__": self.name, "__module__": self.module}
        for name, value in named.items():  # what a job's name and key are made of
            object.__setattr__(self, name, value)

    def key_of_call(self, item: str) -> str:
        """Return the key of an item in a journal; one journal serves one function."""
        from ..keys import text_key

        return text_key(item)

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[str, str, str]]:
        return resolve, (self.module, self.name, self.folder)

    def __call__(self, _item: str) -> NoReturn:
        raise TypeError(f"{self.module}:{self.name} runs in workers only; here it is a reference")
