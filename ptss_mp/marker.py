"""The marker page: what a worker is doing, and the answers it has not sent yet.

One memfd per worker, written by it and read by warden and parent (who also
write to it: the ids of revoked jobs, and holds).  A job can scribble here: what
it says is evidence, checked before it is believed.

Eight-byte fields, each written by one store through memoryview.cast("Q"):
struct.pack_into zeroes its target first (15 % of reads of a record that was
never zero saw a zero), so it serves only for what a later count publishes.
The id of the running attempt is stored before its number, and read first and again: else it would seem for a moment
that the attempt before, whose answer is out, runs once more.
"""

from __future__ import annotations

import mmap
import os
import struct
from typing import NamedTuple

from .wire import FACT, VALUE

# Indices of fields.  An attempt runs while NUMBER == COMPLETED and RUNNING is not 0.
STARTED, NUMBER, COMPLETED, RUNNING, CPU, READY, REVOKED, SENDING = range(8)
COUNT, BLOB, GENERATION = 8, 9, 10  # unsent answers, bytes of their blobs, flushes so far
RESIDENT = 11  # bytes it held when it became ready
TICKET = 12  # of the parts that the parent has moved last, or has refused (freight.py)
ROOM = 13  # bytes that the program has room for, if it refused them for that; else 0
ANSWERS_MAX = 256  # as core.scheduler.DEPTH
# REVOKED has three writers, a byte each, and a worker looks at all of them at once before each attempt: whether
# there are revoked ids to look at (the parent's), and two holds, by the warden and by the parent: somebody is about
# to kill for the attempt before, and nothing begins until it is dead or the hold is taken back.
REVOKED_SOME_AT = REVOKED * 8
HELD_BY_PARENT_AT, HELD_AT = REVOKED * 8 + 6, REVOKED * 8 + 7
REVOKED_AT = 16  # index of the first of ANSWERS_MAX job ids
REVOKED_END = REVOKED_AT + ANSWERS_MAX  # what is free is 0
FACTS_AT = REVOKED_END * 8
VALUES_AT = FACTS_AT + ANSWERS_MAX * FACT.size
BLOBS_AT = VALUES_AT + ANSWERS_MAX * VALUE.size
BLOBS_MAX = 24 << 10  # a longer answer goes straight to the pipe
PROGRESS_AT = BLOBS_AT + BLOBS_MAX
PROGRESS = struct.Struct("<QddQ")  # job, done, total (negative: unknown), bytes of the text that follows
TEXT_BYTES = 200
PROGRESS_MAX = 1e15  # beyond it a float does not count ones
# A run of items of one `map` (chunk.py): whose it is, items that are done, bytes of their values; then these.
CHUNK_AT = (PROGRESS_AT + 8 + PROGRESS.size + TEXT_BYTES) // 8 + 1
CHUNK_JOB, CHUNK_DONE, CHUNK_USED = range(CHUNK_AT, CHUNK_AT + 3)
NOTES_AT = (CHUNK_AT + 3) * 8
NOTES_BYTES = 16 << 10
PAGE_BYTES = 56 << 10
assert PROGRESS_AT % 8 == 0
assert NOTES_AT + NOTES_BYTES <= PAGE_BYTES


class Progress(NamedTuple):
    """What a job has told of itself.  `total` is None if it does not know; `version` differs from report to report."""

    version: int
    job: int
    done: float
    total: float | None
    text: str


def attempt(words: memoryview) -> tuple[int, int, int]:
    """Return (job of the running attempt, its start, number completed); job 0 between two (warden, parent)."""
    for _ in range(4):
        job = words[RUNNING]
        began, number, done = words[STARTED], words[NUMBER], words[COMPLETED]
        if words[RUNNING] == job:
            return (job if number == done else 0), began, done
    return 0, 0, words[COMPLETED]


def report(page: mmap.mmap, job: int, done: float, total: float, text: str) -> None:
    """Write how far a job is: the version before the report is odd while it is being written (worker)."""
    words = memoryview(page).cast("Q")
    version = words[PROGRESS_AT // 8] | 1
    words[PROGRESS_AT // 8] = version
    data = str.encode(text, "utf-8", "backslashreplace")[:TEXT_BYTES]
    body = PROGRESS.pack(job, done, total, len(data)) + data
    page[PROGRESS_AT + 8 : PROGRESS_AT + 8 + len(body)] = body
    words[PROGRESS_AT // 8] = (version + 1) & (1 << 64) - 1


def reported(page: mmap.mmap, words: memoryview) -> Progress | None:
    """Return the last report in a page, None if there is none, or none that makes sense (parent)."""
    for _ in range(4):  # a report is written in microseconds; who is always at it will be read another time
        version = words[PROGRESS_AT // 8]
        data = page[PROGRESS_AT + 8 : PROGRESS_AT + 8 + PROGRESS.size + TEXT_BYTES]
        if version & 1 == 0 and words[PROGRESS_AT // 8] == version:
            break
    else:
        return None
    job, done, total, size = PROGRESS.unpack_from(data)
    if not job or not 0 <= done <= PROGRESS_MAX or not total <= PROGRESS_MAX:  # NaN too
        return None
    text = data[PROGRESS.size : PROGRESS.size + min(size, TEXT_BYTES)].decode("utf-8", "replace")
    return Progress(version, job, done, total if total >= 0 else None, text)


def seal_page(name: str) -> int:
    """Return a memfd of PAGE_BYTES that nobody can shrink (a shrunk one kills whoever maps it: SIGBUS)."""
    import fcntl

    fd = os.memfd_create(name, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.ftruncate(fd, PAGE_BYTES)
    fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL)
    return fd
