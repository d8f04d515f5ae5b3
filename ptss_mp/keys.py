"""Keys: what a journal knows a job by, from one run of a program to the next.

By default the function's name and a digest of the arguments in a canonical form: independent of identity, hash seed,
order of sets and dicts, and version of Python.  What has no such form needs `key=`.  A Future counts as its job's key.
"""

from __future__ import annotations

import functools
import os
import re
import sys
from concurrent.futures import Future
from datetime import datetime
from enum import Enum
from hashlib import blake2b
from pathlib import PurePath
from types import ModuleType
from typing import Any

from .errors import InvalidOption, InvalidType
from .units import key as check_key

DEPTH_MAX = 100  # of an argument: a deeper one, or one that holds itself, needs a key
DIGEST_BYTES = 16  # two of a billion different calls have the same by a chance of 10**-21
LONG_BYTES = 1 << 10  # a longer text is told by its digest within the form of what holds it
TEXT_CHARS_MAX = 1 << 10  # of a text that is a key itself; a longer one is cut, and ends in its digest
LEGAL = "None, bool, int, float, str, bytes, datetime, Path, Enum, and list, tuple, dict, set, frozenset of these"


class Formed:
    """An argument whose canonical form was made where it could be looked at (a jobs file's, in its worker).

    Attributes:
        form: its digest; empty: it has none.
    """

    __slots__ = ()
    form: bytes


class Standing:
    """What stands for the value of a job to come; its job's key counts for it.

    Attributes:
        _key: of the job.
    """

    __slots__ = ()
    _key: str


def digest(data: bytes) -> bytes:
    """Return a short digest; equal on all machines and Pythons."""
    return blake2b(data, digest_size=DIGEST_BYTES).digest()


def module_name(module: str | None) -> str:
    """Return a module's name as it counts in keys: `__main__` as the stem of the program's file."""
    if module not in ("__main__", "__mp_main__"):
        return module or "?"
    path = getattr(sys.modules.get("__main__"), "__file__", None)
    return os.path.splitext(os.path.basename(path))[0] if isinstance(path, str) else "__main__"


def function_name(fn: Any) -> str:
    """Return "module.qualname" of a callable; of one without a name of its own what it wraps, or its class's."""
    if isinstance(fn, functools.partial):
        return function_name(fn.func)
    named = fn if getattr(fn, "__qualname__", None) else type(fn)
    return f"{module_name(getattr(named, '__module__', None))}.{named.__qualname__}"


def default_key(fn: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
    """Return a call's key; a function whose type has `key_of_call` knows it.

    Raises:
        InvalidOption: the function or an argument has no canonical form.
    """
    if own := getattr(type(fn), "key_of_call", None):
        return str(own(fn, *args, **kwargs))
    name = function_name(fn)
    call = [b"c", *_bound(fn, name)]
    call += [_form_of(name, f"argument {n}", value) for n, value in enumerate(args, 1)]
    for word in sorted(kwargs):
        call += [form(word), _form_of(name, f"argument {word!r}", kwargs[word])]
    return f"{name}:{digest(_joined(b'', [str(len(args)).encode(), *call])).hex()}"


def given_key(key: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
    """Return the key that `key=` gives a call.

    Raises:
        InvalidOption, InvalidType: a callable has returned what can be none.
    """
    if not isinstance(key, str):
        told = key(*map(_told, args), **{word: _told(value) for word, value in kwargs.items()})
        if not isinstance(told, str):
            raise InvalidType(f"key= must return text, not {type(told).__name__}")
        check_key(told, "what key= returns")
        key = told
    return storable(key)


def storable(key: str) -> str:
    """Return a key as SQLite can hold it: file names may have bytes that are no characters."""
    key = str.__str__(key)
    try:
        key.encode()
    except UnicodeEncodeError:
        return _marked(key, key)
    return key


def text_key(text: str) -> str:
    """Return the key of a call that is known by one text: that, mostly; no two texts have one, however numbered."""
    if not text or _MARKED.search(text):
        text += "#1"
    return storable(text) if len(text) <= TEXT_CHARS_MAX else _marked(text[:TEXT_CHARS_MAX], text)


def _marked(shown: str, text: str) -> str:
    """Return what can be shown of a text, and its digest."""
    told = shown.encode("utf-8", "backslashreplace").decode()
    return f"{told}:{digest(text.encode('utf-8', 'surrogatepass')).hex()}"


def _told(value: Any) -> Any:
    """Return an argument as a `key` callable sees it."""
    return value._key if _stands(value) else value


def _stands(value: Any) -> bool:
    return isinstance(value, Standing) or (isinstance(value, Future) and hasattr(value, "_key"))


def _bound(fn: Any, name: str) -> list[bytes]:
    """Return the forms of what a callable brings along beside the arguments of the call."""
    if isinstance(fn, functools.partial):
        bound = [_form_of(name, "an argument of the partial", value) for value in (*fn.args, fn.keywords)]
        return [b"partial", *bound, *_bound(fn.func, name)]
    owner = getattr(fn, "__self__", None)
    if owner is not None and not isinstance(owner, ModuleType | type):
        return [_form_of(name, "the object of the method", owner)]
    if not getattr(fn, "__qualname__", None):
        raise InvalidOption(f"the default key of {name!r}: the object that is called has no canonical form; give key=")
    if getattr(fn, "__closure__", None) and "<locals>" in fn.__qualname__:
        raise InvalidOption(f"the default key of {name!r}: a closure holds values that no key tells; give key=")
    return []


def _form_of(name: str, what: str, value: Any) -> bytes:
    try:
        return form(value)
    except InvalidOption as error:
        raise InvalidOption(f"the default key of {name!r}: {what} {error}; give key=") from None


def form(value: Any) -> bytes:
    """Return the digest of a value's canonical form.

    Raises:
        InvalidOption: it has none.
    """
    if isinstance(value, Formed):
        if not value.form:
            raise InvalidOption(f"has no canonical form (which {LEGAL} have)")
        return value.form
    return digest(_encoded(value, DEPTH_MAX))


def _encoded(value: Any, depth: int) -> bytes:
    """Return a text that only equal values of equal types have."""
    if depth < 0:
        raise InvalidOption(f"is nested more than {DEPTH_MAX} deep, or holds itself")
    encode = _PLAIN.get(type(value))
    if encode is not None:
        return bytes(encode(value))
    ordered = _ORDERED.get(type(value))
    if ordered is not None:
        return _joined(ordered, [_encoded(item, depth - 1) for item in value])
    mixed = _MIXED.get(type(value))
    if mixed is not None:
        return _joined(mixed, sorted(_encoded(item, depth - 1) for item in value))
    if type(value) is dict:
        pairs = ((_encoded(name, depth - 1), _encoded(item, depth - 1)) for name, item in value.items())
        return _joined(b"m", [part for pair in sorted(pairs) for part in pair])
    if isinstance(value, Enum):
        kind = type(value)
        member = str(value.name or value.value)  # of flags together there may be no name
        return _joined(b"e", [f"{module_name(kind.__module__)}.{kind.__qualname__}".encode(), member.encode()])
    if isinstance(value, PurePath):
        return _joined(b"p", [os.fspath(value).encode("utf-8", "surrogatepass")])
    if _stands(value):
        return _joined(b"j", [value._key.encode()])
    raise InvalidOption(f"holds a {type(value).__qualname__}, which has no canonical form ({LEGAL} have)")


def _joined(kind: bytes, parts: list[bytes]) -> bytes:
    """Return parts behind their lengths, so that no two lists of parts give the same; long ones by their digests."""
    told = (b"%d:%b" % (len(p), p) if len(p) <= LONG_BYTES else b"%d#%b" % (len(p), digest(p)) for p in parts)
    return kind + b"".join(told)


def _moment(value: datetime) -> bytes:
    return _joined(b"d", [value.isoformat().encode(), b"%d" % value.fold])


# A digest's and a number's mark at the end of a key; a text that ends like that is told apart.
_MARKED = re.compile(rf"(#[0-9]+|:[0-9a-f]{{{2 * DIGEST_BYTES}}})\Z")
_NUMBERED = re.compile(r"#([2-9]|[1-9][0-9]+)\Z")
_PLAIN: dict[type, Any] = {
    type(None): lambda _value: b"N",
    bool: lambda value: b"T" if value else b"F",
    int: lambda value: b"i" + hex(value).encode(),  # no limit on its digits (sys.set_int_max_str_digits)
    float: lambda value: b"f" + value.hex().encode(),
    str: lambda value: _joined(b"s", [value.encode("utf-8", "surrogatepass")]),
    bytes: lambda value: _joined(b"b", [value]),
    datetime: _moment,
}
_ORDERED: dict[type, bytes] = {list: b"l", tuple: b"t"}
_MIXED: dict[type, bytes] = {set: b"S", frozenset: b"Z"}


def numbered(key: str, number: int) -> str:
    """Return the key of the job that is number `number` of those with an identical default key, from 1."""
    return key if number == 1 else f"{key}#{number}"


def unnumbered(key: str) -> str:
    """Return the default key that `numbered` was given."""
    return _NUMBERED.sub("", key)


def release_key(key: str, instant: str) -> str:
    """Return the key of one release of a recurring task, by its scheduled instant (ISO 8601 with Z)."""
    return f"{key}@{instant}"
