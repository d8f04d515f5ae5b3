"""The worker's side of values: results and exceptions become bytes here.

Runs the job's code (`__reduce__`, `__getstate__`, `__str__`), so it is called
inside the marked attempt, and what it raises is the job's affair.
"""

from __future__ import annotations

import contextlib
import pickle
from typing import Any

from . import pickling, wire
from .parcel import Apart, Parcel
from .wire import BOOL, BYTES, EXIT_CODE_MAX, FLOAT, INT, INT_MAX, NONE, PICKLE, STACK_GLOBAL, STR

# Files from which warden and workers call what is the program's own.
_OURS = {
    __file__.replace("codec.py", name)
    for name in (
        "chunk.py",
        "codec.py",
        "worker.py",
        "mainmodule.py",
        "warden/child.py",
        "warden/main.py",
        "cli/functions.py",
    )
}


def describe(error: BaseException, keep: bool = True, more: str = "") -> bytes:
    """Return an exception as `wire.pack_error`; itself pickled only if it can be rebuilt.  Never raises.

    Args:
        keep: False: text only.
        more: what else is to be said, behind its text and its traceback.
    """
    pickled, code, name = b"", None, "Exception"
    if isinstance(error, SystemExit):
        code = 1
        with contextlib.suppress(BaseException):  # a subclass, or an int that is one, may have its say
            code = int(error.code) if isinstance(error.code, int) else int(error.code is not None)
            code = max(-EXIT_CODE_MAX, min(code, EXIT_CODE_MAX))
    with contextlib.suppress(BaseException):  # a metaclass may have its say
        name = str(type(error).__qualname__)
    if keep and isinstance(error, Exception):
        with contextlib.suppress(BaseException):
            pickled = pickling.dumps_exception(error)
    text = _text(error)
    try:
        import traceback

        trace = "".join(traceback.format_exception(type(error), error, own_part(error.__traceback__)))
    except BaseException:
        trace = "(its traceback cannot be had)\n"
    if more:
        text, trace = f"{text} ({more})", f"{trace}{more}\n"
    return wire.pack_error(pickled, name, text, trace, code)


def is_one_of(error: BaseException, pickled: bytes) -> tuple[bool, str]:
    """Return whether an exception is of one of these classes, and why that cannot be told, or "".  Never raises.

    Args:
        pickled: a tuple of classes (`Retry.only`); loaded now, when the job's own module surely is.
    """
    try:
        return isinstance(error, pickle.loads(pickled)), ""
    except BaseException as why:
        return False, f"not made again: Retry(only=...) cannot be used here: {type(why).__name__}: {_text(why)}"


def _text(error: BaseException) -> str:
    try:
        return str(error)
    except BaseException:
        return "(its text cannot be had)"


def own_part(trace: Any) -> Any:
    """Return a traceback without our own frames at its beginning."""
    while trace and trace.tb_frame.f_code.co_filename in _OURS:
        trace = trace.tb_next
    return trace


def encode(value: Any) -> tuple[int, int, bytes | Parcel | None]:
    """Return (kind, raw, blob) of a result; blob is None if the value stands in `raw`.

    A pickle that names a class or function is loaded once, here: what cannot
    be rebuilt is found where the job is to blame, and the parent decodes nothing.
    """
    kind = type(value)
    if value is None:
        return NONE, 0, None
    if kind is int and -INT_MAX < value < INT_MAX:
        return INT, value, None
    if kind is bool:
        return BOOL, int(value), None
    if kind is float:
        return FLOAT, wire.float_bits(value), None
    if kind is str:
        return STR, 0, value.encode("utf-8", "surrogatepass")
    if kind is bytes:
        return BYTES, 0, value
    apart = Apart()
    blob = pickling.dumps(value, apart)
    if STACK_GLOBAL in blob:
        _check(blob, apart)
    return PICKLE, 0, Parcel([blob, *apart]) if apart else blob


def _check(pickled: bytes, apart: Apart) -> None:
    """Load a pickle whose buffers are the result's own: first as what cannot be written to, which needs no copy."""
    if apart:
        with contextlib.suppress(Exception):
            pickle.loads(pickled, buffers=[view.toreadonly() for view in apart])
            return
    pickle.loads(pickled, buffers=Parcel([b"", *apart]).copy().parts[1:])
