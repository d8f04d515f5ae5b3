"""The worker's half of large values: the parent fetches and brings them, from memory to memory (shell/freight.py).

The worker says where the bytes stand, or shall stand, and waits until the parent has written the ticket into the page.
Nothing is shared, so nothing is left when either of them dies, and no other job can touch it.  A ticket is drawn, not
counted: what a job has forked sees the page too, and must not say for the parent that another job's call is there.
"""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Any

from . import marker, memory
from .codec import describe
from .parcel import parts_of, payload_of, sizes_of
from .pipes import write_all
from .wire import ANSWERS, ASK, COSTS, DESCRIBED, LENT, MOVED_BYTES, PARCEL, VALUE, WITH_COSTS, numbers, table

if TYPE_CHECKING:
    from .worker import Loop

PAUSE_S, PAUSE_MAX_S = 0.00002, 0.001  # between two looks at the page; 64 MiB take 10 to 20 ms


def send(loop: Loop, fact: bytes, kind: int, costs: bytes, blob: Any) -> tuple[int, int, bytes, bytes] | None:
    """Send a large answer; return once the parent has all of it.

    Returns:
        None; or kind, place, costs and blob of an answer to be given instead: the program has no room for this one.
    """
    parts = parts_of(blob)
    sizes = sizes_of(parts)
    if len(blob) >= MOVED_BYTES:
        ticket = _draw()
        body = costs + table(ticket, [memory.address(part) for part in parts], sizes)
        write_all(ANSWERS.pack(1, len(body)) + fact + VALUE.pack(kind | LENT, len(body)) + body)
        if _moved(loop, ticket):
            return None
        if room := loop.words[marker.ROOM]:
            return _refusal(kind, costs, len(blob), room)
        # the parent may not read here (ptrace(2), "access mode checking"): by pipe, then
    if len(parts) > 1:
        kind, costs = kind | PARCEL, costs + numbers([len(parts), *sizes])
    size = len(costs) + len(blob)
    write_all(ANSWERS.pack(1, size) + fact + VALUE.pack(kind, size) + costs)
    for part in parts:
        write_all(part)
    return None


def _refusal(kind: int, costs: bytes, size: int, room: int) -> tuple[int, int, bytes, bytes]:
    error = MemoryError(f"it has {size >> 20:,} MiB, and the program has room for {room >> 20:,} MiB")
    blob = describe(error, False)
    if costs:
        costs = costs[: COSTS.size] + VALUE.pack(DESCRIBED, len(blob))
    return kind & WITH_COSTS | DESCRIBED, 0, costs, blob


def receive(loop: Loop, job: int, call: Any, needs: Any, blobs: Any, at: int) -> tuple[Any, Any, int]:
    """Return call and prerequisites of a job with their payloads, and where the next one's blobs begin.

    Args:
        call, needs: of its row; in the place of a payload stands a list: whether it is to be asked for, sizes of parts.
        blobs: what came behind the rows.
        at: where this job's begin.
    """
    sizes = [size for asked, *sizes in _lists(call, needs) if asked for size in sizes]
    brought = iter(_bring(loop, job, sizes) if sizes else ())

    def payload(asked: int, *sizes: int) -> Any:
        nonlocal at
        if asked:
            return payload_of([next(brought) for _ in sizes])
        parts: list[Any] = []
        for size in sizes:
            view = blobs[at : at + abs(size)]
            at += abs(size)
            parts.append(view if len(sizes) == 1 else bytes(view) if size < 0 else bytearray(view))
        return payload_of(parts)

    if type(call) is list:
        call = payload(*call)
    needs = needs and [(kind, payload(*value) if in_blob else value) for kind, value, in_blob in needs]
    return call, needs, at


def _lists(call: Any, needs: Any) -> list[list[int]]:
    return [call] * (type(call) is list) + [value for _, value, in_blob in needs or () if in_blob]


def _bring(loop: Loop, job: int, sizes: list[int]) -> list[Any]:
    """Let the parent fill new objects of these sizes, and mark the attempt: until then it is not the job's time."""
    words = loop.words
    if words[marker.REVOKED] and job in words[marker.REVOKED_AT : marker.REVOKED_END].tolist():
        return [b""] * len(sizes)  # it will not begin
    if loop.count:
        loop.flush()
    words[marker.SENDING] = 1
    parts, ticket = [memory.blank(size) for size in sizes], _draw()
    body = numbers([job]) + table(ticket, list(map(memory.address, parts)), sizes)
    write_all(ANSWERS.pack(ASK, len(body)) + body)
    _moved(loop, ticket)
    words[marker.STARTED] = time.monotonic_ns()
    words[marker.RUNNING] = job
    words[marker.NUMBER] = loop.completed
    words[marker.SENDING] = 0  # last: the warden takes what was sent long ago and has not begun for late
    return parts


def _draw() -> int:
    return int.from_bytes(os.urandom(8), "little") >> 2 << 1 | 2


def _moved(loop: Loop, ticket: int) -> bool:
    """Wait until the parent is done; return False if it may not reach this memory.

    It always answers or kills; when it dies this process does (prctl(2), PR_SET_PDEATHSIG of the warden).  So there is
    no bound of time: a disk may be slow, and the parent stopped.  It looks, for it shares no descriptor with the parent
    that a job could not read empty or close; a thousand looks a second cost 2 % of a processor.
    """
    words, pause = loop.words, PAUSE_S
    while (told := words[marker.TICKET]) | 1 != ticket | 1:
        time.sleep(pause)
        pause = min(2 * pause, PAUSE_MAX_S)
    return told == ticket
