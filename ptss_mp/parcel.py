"""A pickle and what stands beside it: large buffers of its object, which no pickler need copy.

Protocol 5 sets apart what an object shows as a buffer (arrays of numpy); `bytes` that are an argument themselves join
them.  What could not be written to comes out as `bytes`, what could as a `bytearray`, as if it were in the pickle.
Imported in every worker, so it imports almost nothing.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterable
from typing import Any

PART_BYTES = 64 << 10  # a smaller buffer stays in the pickle: to set it apart costs more than to copy it
PARTS_MAX = 1_000  # of one pickle; all that follow stay in it, so that a table of them is short


class Parcel:
    """A value on its way: as immutable as `bytes` are.

    Attributes:
        parts: the pickle, then its buffers in their order.
    """

    __slots__ = ("parts",)

    def __init__(self, parts: list[Any]) -> None:
        self.parts = parts

    def __len__(self) -> int:
        return sum(map(len, self.parts))

    def load(self) -> Any:
        """Return the object, which may keep and change the parts: so to be asked once.  Runs the job's code."""
        return pickle.loads(self.parts[0], buffers=self.parts[1:])

    def copy(self) -> Parcel:
        """Return one with parts of its own, where they can be written to."""
        from .memory import copied

        return Parcel([part if type(part) is bytes else copied(part) for part in self.parts])


class Apart(list[Any]):
    """A `buffer_callback` that collects what is large, as flat views."""

    def __call__(self, buffer: pickle.PickleBuffer) -> bool:
        """Take a buffer out of the pickle; return True to leave it there."""
        view = buffer.raw()
        stays = view.nbytes < PART_BYTES or len(self) >= PARTS_MAX
        if not stays:
            self.append(view)
        return stays

    def own(self) -> None:
        """Take copies, for who owns them may change them before they are sent."""
        from .memory import copied

        for i, view in enumerate(self):
            whole = type(view.obj) is bytes and len(view.obj) == len(view)
            self[i] = view.obj if whole else copied(view)


def set_apart(value: Any) -> Any:
    """Return an argument as a pickler shall see it: large `bytes` as a buffer."""
    return pickle.PickleBuffer(value) if type(value) is bytes and len(value) >= PART_BYTES else value


def parts_of(payload: Any) -> list[Any]:
    """Return what is to be moved of a value's bytes."""
    return payload.parts if type(payload) is Parcel else [payload]


def payload_of(parts: list[Any]) -> Any:
    """Return what `parts_of` was given."""
    return parts[0] if len(parts) == 1 else Parcel(parts)


def sizes_of(parts: Iterable[Any]) -> list[int]:
    """Return the length of each part, negative: it is to be `bytes`."""
    return [-len(part) if memoryview(part).readonly else len(part) for part in parts]
