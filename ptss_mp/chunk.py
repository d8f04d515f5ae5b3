"""A run of items of one `map` as one job: the worker's half, and what both halves know.

Each item's value is noted in the worker's page when it is there.  So a crash in the middle costs the item that ran:
the values before it are taken from the page.  A chunk ends early, between two items, when its time is over (it bends
the order of deadlines no more than a batch of short jobs does), when its notes are full, and at the first item that
fails; it goes back to the queue, and is made on from there (chunking.py).

Imported in workers, so it imports almost nothing.
"""

from __future__ import annotations

import pickle
import struct
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from . import attempt, marker, wire
from .codec import describe
from .pickling import dumps

CHUNK_NS = 1_000_000  # no item begins later than this behind the beginning of its chunk
ITEMS_MAX = marker.NOTES_BYTES // 8  # a whole number is noted as eight bytes, by one store

_LENGTH = struct.Struct("<I")
_PART = struct.Struct("<?IIQ")  # numbers, done, bytes of notes, bytes of the last one; behind these


class Part(NamedTuple):
    """What came of some items of a chunk, in order.

    Attributes:
        numbers: the notes are whole numbers of eight bytes each, else pickles, each behind its length.
        done: how many values were noted.
        notes: these values.
        last: the pickle of one more, for which there was no room; empty: there is none.
    """

    numbers: bool
    done: int
    notes: bytes
    last: bytes = b""

    @property
    def made(self) -> int:
        """How many items have a value."""
        return self.done + bool(self.last)

    def pack(self) -> bytes:
        """Return it as bytes that `unpack` finds at the end of an answer."""
        sizes = _PART.pack(self.numbers, self.done, len(self.notes), len(self.last))
        return self.notes + self.last + sizes

    def load(self, found: list[Any]) -> None:
        """Append the values, decoded in this thread, to `found`.

        Raises:
            Exception: what loading one of them raised; those before it are there.
        """
        at = 0
        if self.numbers:
            found += memoryview(self.notes).cast("q").tolist()
            at = len(self.notes)
        while at < len(self.notes):
            (size,) = _LENGTH.unpack_from(self.notes, at)
            at += _LENGTH.size + size
            found.append(pickle.loads(self.notes[at - size : at]))
        if self.last:
            found.append(pickle.loads(self.last))


def unpack(answer: Any) -> Part | None:
    """Return the part that stands at the end of an answer, None if what stands there is none."""
    if type(answer) is not bytes or len(answer) < _PART.size:
        return None
    numbers, done, notes, last = _PART.unpack_from(answer, len(answer) - _PART.size)
    end = len(answer) - _PART.size
    if done > ITEMS_MAX or notes + last > end or (notes != done * 8 if numbers else notes < done * _LENGTH.size):
        return None
    return Part(numbers, done, answer[end - last - notes : end - last], answer[end - last : end])


def noted(page: Any, words: memoryview, job: int) -> Part | None:
    """Return what a job has noted in its worker's page, None if it is no chunk, or has scribbled there (parent)."""
    done, used = words[marker.CHUNK_DONE], words[marker.CHUNK_USED]
    size = used or done * 8
    if words[marker.CHUNK_JOB] != job or done > ITEMS_MAX or size > marker.NOTES_BYTES:
        return None
    return Part(not used, done, bytes(page[marker.NOTES_AT : marker.NOTES_AT + size]))


class At:
    """In a chunk's arguments: the item to begin with, filled in at each sending (shell.rows)."""

    def __reduce__(self) -> tuple[Any, ...]:
        return wire.prerequisite, (0,)


class Packed:
    """Items that may hold others: each pickled on its own, and loaded when its turn has come.

    So none sees what another one has changed, and one that cannot be loaded costs none before it.

    Args:
        items: of each its pickle, and the buffers set apart from it.
    """

    def __init__(self, items: Sequence[tuple[Any, ...]]) -> None:
        self.items = items

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, at: Any) -> Any:
        if isinstance(at, slice):
            return Packed(self.items[at])
        data, *buffers = self.items[at]  # IndexError ends an iteration
        try:
            return pickle.loads(data, buffers=buffers)
        except BaseException as error:
            raise Unloadable from error


class Unloadable(Exception):
    """An item cannot be loaded, for its cause."""


class Ended(Exception):
    """Not by returning; with the answer (end, kind, raw, blob) that `Loop.attempt` gives."""

    def __init__(self, *answer: Any) -> None:
        super().__init__()
        self.answer = answer


class Chunk:
    """A function as one of runs of items; it bears that function's names.

    Args:
        fn: what is called; a function or class that is pickled as a name.
        star: items are tuples of arguments.
    """

    by_reference = True

    def __init__(self, fn: Callable[..., Any], star: bool) -> None:
        self.key = (fn, star)
        self.__module__, self.__qualname__ = fn.__module__, fn.__qualname__

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Chunk) and self.key == other.key

    def __hash__(self) -> int:
        return hash((Chunk, self.key))

    def __reduce__(self) -> tuple[Any, ...]:
        return Chunk, self.key

    def __call__(self, items: Sequence[Any], at: int) -> bytes:
        """Make the items from `at` on; return their values as a part, packed.

        Raises:
            Ended: an item failed, or the chunk is over before the last item.
        """
        (fn, star), notes, items = self.key, Notes(), items[at:] if at else items
        part, failure = notes.take((lambda item: fn(*item)) if star else fn, items)
        if failure:
            end, kind, blob = failure
            raise Ended(end, kind, 0, blob + part.pack())
        if part.made < len(items):
            raise Ended(wire.UNFINISHED, wire.BYTES, 0, part.pack())
        return part.pack()


class Notes:
    """The place in the worker's page where a chunk notes its values."""

    def __init__(self) -> None:
        loop = attempt._loop
        assert loop is not None
        self.words = memoryview(loop.page).cast("Q")
        self.bytes = memoryview(loop.page)[marker.NOTES_AT : marker.NOTES_AT + marker.NOTES_BYTES]
        self.numbers = self.bytes.cast("q")
        _views[:] = self.words, self.numbers, self.bytes
        self.until = time.monotonic_ns() + CHUNK_NS
        self.done = self.used = 0
        self.words[marker.CHUNK_DONE] = self.words[marker.CHUNK_USED] = 0
        self.words[marker.CHUNK_JOB] = self.words[marker.RUNNING]  # last: what stood here was another's

    def take(self, call: Callable[[Any], Any], items: Sequence[Any]) -> tuple[Part, tuple[int, int, bytes] | None]:
        """Make items until the chunk is over; return what came of them, and (end, kind, blob) of one that failed."""
        last, ends = b"", (wire.FAILED, wire.RAISED)
        try:
            value = self._numbers(call, items)
            while value is not _NONE:
                ends = wire.RESULT_NOT_PICKLABLE, wire.DESCRIBED
                data = _pickled(value)
                if (self.done and not self.used) or not self._note(data):
                    last = data
                    break
                if self.done == len(items) or time.monotonic_ns() >= self.until:
                    break
                ends = wire.FAILED, wire.RAISED
                value = call(items[self.done])
        except Unloadable as error:
            wrong = describe(error.__cause__ or error, keep=False)
            return self._part(), (wire.CALL_NOT_LOADABLE, wire.UNLOADABLE, wrong)
        except BaseException as error:  # SystemExit too: an item does not end its worker by raising
            return self._part(), (*ends, describe(error, keep=ends[0] == wire.FAILED))
        return self._part(last), None

    def _numbers(self, call: Callable[[Any], Any], items: Sequence[Any]) -> Any:
        """Note whole numbers; return the first value that is none.

        Two stores, a look at the type and one at the clock for each item take 0.15 µs; a job of its own takes 7.
        """
        words, notes, clock = self.words, self.numbers, time.monotonic_ns
        done, until = 0, self.until
        try:
            for item in items:
                value = call(item)
                if type(value) is not int:
                    return value
                try:
                    notes[done] = value
                except ValueError:  # it needs more than eight bytes
                    return value
                done += 1
                words[marker.CHUNK_DONE] = done
                if clock() > until:
                    break
            return _NONE
        finally:
            self.done = done

    def _note(self, data: bytes) -> bool:
        """Note a pickle; return False if there is no room."""
        end = self.used + _LENGTH.size + len(data)
        if end > marker.NOTES_BYTES:
            return False
        self.bytes[self.used : end] = _LENGTH.pack(len(data)) + data
        self.used = self.words[marker.CHUNK_USED] = end
        self.done += 1
        self.words[marker.CHUNK_DONE] = self.done
        return True

    def _part(self, last: bytes = b"") -> Part:
        return Part(not self.used, self.done, bytes(self.bytes[: self.used or self.done * 8]), last)


_NONE = object()
_views: list[memoryview] = []  # by which the running chunk notes


def let_go() -> None:
    """In a fork that an item made: it can note nothing, so if it comes back it makes no other item, and ends."""
    for view in _views:
        view.release()


def _pickled(value: Any) -> bytes:
    """Pickle a value; what may fail to load is loaded once, here (codec.encode)."""
    data = dumps(value)
    if wire.STACK_GLOBAL in data:
        pickle.loads(data)
    return data
