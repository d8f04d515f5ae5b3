"""What a pickled call holds, as text, without running any code of the program's or of a job's.

Classes and functions that a pickle names are not looked up: a `Named` stands for each, and remembers what it would have
been called with.
"""

from __future__ import annotations

import io
import pickle
import reprlib
from collections.abc import Sequence
from typing import Any

PICKLE_BYTES = 16 << 10  # of a larger one only its size is told
TEXT_CHARS = 400


class _Short(reprlib.Repr):
    def repr_int(self, x: int, level: int) -> str:
        try:
            return super().repr_int(x, level)
        except ValueError:  # more digits than Python writes (sys.set_int_max_str_digits)
            return f"<a number of {x.bit_length()} bits>"


_short = _Short()
_short.maxstring = _short.maxother = _short.maxlong = 120
_short.maxtuple = _short.maxlist = _short.maxarray = 8


class Named:
    """What a pickle makes of something that it names; each name has a subclass of its own."""

    name = "?"

    def __new__(cls, *args: Any, **kwargs: Any) -> Named:
        made = object.__new__(cls)
        made.__dict__["parts"] = [_short.repr(arg) for arg in args]
        made.__dict__["parts"] += [f"{key}={_short.repr(value)}" for key, value in kwargs.items()]
        return made

    def __init__(self, *_: Any, **__: Any) -> None:
        self.parts: list[str]

    def __repr__(self) -> str:
        return f"{self.name}({', '.join(self.parts)})"

    def __setstate__(self, state: Any) -> None:
        if isinstance(state, dict):
            self.parts += [f"{key}={_short.repr(value)}" for key, value in list(state.items())[:8]]
        else:
            self.parts.append(_short.repr(state))

    def __call__(self, *args: Any, **kwargs: Any) -> Named:
        return type(self)(*args, **kwargs)

    def __setitem__(self, key: Any, value: Any) -> None:
        self.parts.append(f"{_short.repr(key)}: {_short.repr(value)}")

    def append(self, item: Any) -> None:
        """A list's item."""
        self.parts.append(_short.repr(item))

    def extend(self, items: Any) -> None:
        """Items of a list."""
        self.parts += [_short.repr(item) for item in list(items)[:8]]

    add = append
    update = extend


class _Reader(pickle.Unpickler):
    def __init__(self, data: bytes, buffers: Sequence[Any], results: Sequence[str]) -> None:
        shown = [f"({len(part)} bytes)".encode() for part in buffers]
        super().__init__(io.BytesIO(data), buffers=shown)
        self._results = results

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) == ("ptss_mp.wire", "prerequisite"):
            results = self._results
            return type("Result", (Named,), {"__repr__": lambda self: f"<result of {results[int(self.parts[0])]!r}>"})
        return type("Named", (Named,), {"name": name if module == "builtins" else f"{module}.{name}"})


def call_text(name: str, call: Any, results: Sequence[str]) -> str:
    """Return a call as people write it, shortened: "convert('a.pdf', dpi=300)".

    Args:
        call: what a Future keeps: a number, a tuple of plain arguments, or a pickle as its parts.
        results: names of the jobs whose results are among the arguments, by their numbers.
    """
    kwargs: dict[str, Any] = {}
    if isinstance(call, list):
        if len(call[0]) > PICKLE_BYTES:
            return f"{name}(... {sum(map(len, call))} bytes)"
        try:
            *_, args, kwargs = _Reader(call[0], call[1:], results).load()
        except Exception:
            return f"{name}(...)"  # whatever is odd about it: this is only for people
    else:
        args = call if isinstance(call, tuple) else (call,)
    parts = [*map(_short.repr, args), *(f"{key}={_short.repr(value)}" for key, value in kwargs.items())]
    text = f"{name}({', '.join(parts)})"
    return text if len(text) <= TEXT_CHARS else text[: TEXT_CHARS - 4] + "...)"
