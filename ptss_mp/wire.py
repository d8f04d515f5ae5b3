"""Frames between parent and worker, codecs of values, and the layout of the marker page.

To the worker: `CALLS` (bytes of rows, bytes of blobs), the rows by marshal,
the blobs raw, but for the largest, which it asks for (freight.py).  A row is
`(job, fn, call, prerequisites, due)`; job 0 tells the worker something instead
(`DEFINE`, `PREPARE_MAIN`, `ABOUT`).  Back: `ANSWERS` (count, bytes of blobs),
then the facts, the values and the blobs, exactly as they stand in the page.
The facts go to the core, the values to the Futures: the core sees no payload
by construction.

marshal is for the direction to the worker only: it is not safe against bytes
that a worker wrote.  Imported in every worker, so it imports almost nothing.
"""

from __future__ import annotations

import pickle
import struct
from typing import Any, NamedTuple

from .parcel import PARTS_MAX, Parcel

CALLS = struct.Struct("<QQ")  # bytes of rows, bytes of blobs
ANSWERS = struct.Struct("<QQ")  # answers (0: ready, or why not), bytes of blobs
FACT = struct.Struct("<4Q")  # job, end, started, duration: core.events.AnswerRow
VALUE = struct.Struct("<Qq")  # kind, and the value itself or offset << 40 | length of its blob
COSTS = struct.Struct("<8Q")  # stdout from, to, stderr from, to, log from, to, CPU ns, peak resident bytes

# What a row with job 0 says: a function; how to prepare the main module; what `current()` shall tell in the jobs that
# follow, and under which limits they run, as (name, key, attempt, timeout ns, deadline that does not kill, tokens held,
# pickled classes of exceptions: a job that raises none of these is not to be made again, whether they are metered,
# file bytes, open files); 0 and empty: none
DEFINE, PREPARE_MAIN, ABOUT = 0, 1, 2
BY_VALUE = -1  # fn of a call that carries its function

INLINE_BYTES = 64 << 10  # a longer argument goes raw behind the rows, not through marshal
BLOB_BYTES_MAX = 1 << 36  # 64 GiB: no result of a machine this is for is larger; a longer claim is no frame of ours

# How an attempt ended: `end` of core.events.AnswerRow (a test compares; workers import nothing of the core)
OK, FAILED, FAILED_FOR_GOOD, RESULT_NOT_PICKLABLE, CALL_NOT_LOADABLE, WAS_REVOKED, HAD_EXPIRED, UNFINISHED = range(8)

# Kinds of values.  Up to BOOL the value stands in the frame; the others are bytes until somebody asks.
NONE, INT, FLOAT, BOOL, STR, BYTES, PICKLE, RAISED, DESCRIBED, UNLOADABLE = range(10)
UNKEPT = 10  # no worker sends it: the value of a job that succeeded in an earlier run, which was not kept
WITH_COSTS = 16  # flag: the blob begins with COSTS and the VALUE of what follows
# Flags of a large answer, alone in its frame: the blob ends with the sizes of a parcel's parts, and the parts; or with
# a `table`, for the parts are to be read where they stand in the worker's memory (freight.py)
PARCEL, LENT = 32, 64
FLAGS = WITH_COSTS | PARCEL | LENT
ASK = 1 << 32  # in the place of the count of ANSWERS: no answer, but a job, and a table of where its call shall go
# Parts of so many bytes together are moved from memory to memory: less is as fast by pipe (1 MiB takes thrice as long)
MOVED_BYTES = 512 << 10
TABLE_PARTS = 4 * (PARTS_MAX + 1)  # of one table, at most: a call and its prerequisites have more than one pickle
TABLE_MAX = 16 * (TABLE_PARTS + 1)  # bytes: job, ticket, address and size of each part
INT_MAX = 1 << 62
STACK_GLOBAL = b"\x93"  # opcode: the pickle names a class or function, so loading it runs more than builtins

Value = tuple[int, Any]
NOTHING: Value = (NONE, None)

_FLOAT, _RAW = struct.Struct("<d"), struct.Struct("<q")
_ERROR = struct.Struct("<4Iq")
NO_EXIT_CODE = -(1 << 40)
EXIT_CODE_MAX = (1 << 31) - 1  # of sys.exit(n): a larger n is told as this
TEXT_MAX = 64 << 10  # of an exception's text; a longer one is cut in the middle of nothing useful
TRACEBACK_MAX = 256 << 10

loads = pickle.loads

importing_main = False  # warden and worker: the program's main module is being imported (warden.main)
outer_workers = 1  # in a worker: how many share the machine with it


class ErrorFacts(NamedTuple):
    """An exception as bytes and text."""

    pickled: bytes  # empty if it cannot be rebuilt, or must not be raised as itself
    type_name: str
    text: str
    traceback: str
    exit_code: int | None


def pack_error(pickled: bytes, type_name: str, text: str, traceback: str, exit_code: int | None) -> bytes:
    """Return an exception's facts as one blob; the texts are cut to their bounds."""
    parts = (  # a text may be of a subclass of str, with an `encode` of its own
        pickled,
        str.encode(type_name, "utf-8", "backslashreplace")[:1000],
        str.encode(text, "utf-8", "backslashreplace")[:TEXT_MAX],
        str.encode(traceback, "utf-8", "backslashreplace")[-TRACEBACK_MAX:],
    )
    code = NO_EXIT_CODE if exit_code is None else exit_code
    return _ERROR.pack(*map(len, parts), code) + b"".join(parts)


def unpack_error(blob: bytes) -> ErrorFacts:
    """Return what `pack_error` was given; bytes of another shape give an empty description, never an error."""
    if len(blob) < _ERROR.size:
        return ErrorFacts(b"", "Exception", "", "", None)
    *lengths, code = _ERROR.unpack_from(blob)
    at, parts = _ERROR.size, []
    for length in lengths:
        parts.append(bytes(blob[at : at + length]))
        at += length
    type_name, text, traceback = (part.decode("utf-8", "replace") for part in parts[1:])
    return ErrorFacts(parts[0], type_name, text, traceback, None if code == NO_EXIT_CODE else code)


def float_bits(value: float) -> int:
    """Return a float as the eight bytes of a VALUE."""
    return int(_RAW.unpack(_FLOAT.pack(value))[0])


def scalar(kind: int, raw: int) -> Any:
    """Return the value that stands in a VALUE itself (kinds up to BOOL)."""
    if kind == INT:
        return raw
    if kind == FLOAT:
        return _FLOAT.unpack(_RAW.pack(raw))[0]
    return bool(raw) if kind == BOOL else None


def decode(kind: int, payload: Any) -> Any:
    """Return the object that a kind and its payload stand for.  Runs the job's code for PICKLE."""
    if kind <= BOOL:
        return payload
    if kind == STR:
        return str(payload, "utf-8", "surrogatepass")
    if kind == BYTES:
        return bytes(payload)
    if kind == UNKEPT:
        raise LookupError("its value is not in the journal (keep_result=False, or too large)")
    return payload.load() if type(payload) is Parcel else loads(payload)


def numbers(values: list[int]) -> bytes:
    """Return integers as bytes."""
    return struct.pack(f"<{len(values)}q", *values)


def table(ticket: int, addresses: list[int], sizes: list[int]) -> bytes:
    """Return where parts stand in the worker's memory, as bytes.

    Args:
        ticket: what the parent writes into the page once they are moved.
        sizes: as of `parcel.sizes_of`.
    """
    return numbers([ticket, *addresses, *sizes])


def read_table(data: bytes | memoryview) -> tuple[int, list[tuple[int, int]]]:
    """Return (ticket, (address, size) of each part) of a table that a worker wrote.

    Raises:
        ValueError: it is none.
    """
    count, rest = divmod(len(data) // 8 - 1, 2)
    if rest or len(data) % 8 or not 1 <= count <= TABLE_PARTS:
        raise ValueError(f"a table of {len(data)} bytes")
    ticket, *found = struct.unpack(f"<{1 + 2 * count}q", data)
    parts = list(zip(found[:count], found[count:], strict=True))
    if min(found[:count]) <= 0 or sum(abs(size) for _, size in parts) > BLOB_BYTES_MAX:
        raise ValueError("a table of parts that nobody has")
    return ticket, parts


# ---- Futures as arguments.  A Future pickles as `prerequisite(i)` while it is submitted (future.py).

_prerequisites: list[Value] = []


def prerequisites(values: list[Value]) -> None:
    """Set the values that `prerequisite` hands out, for the call decoded next (worker)."""
    global _prerequisites  # noqa: PLW0603 - a worker has one call at a time
    _prerequisites = values


def prerequisite(index: int) -> Any:
    """Return the value of the call's prerequisite number `index` (worker, while decoding arguments)."""
    return decode(*_prerequisites[index])
