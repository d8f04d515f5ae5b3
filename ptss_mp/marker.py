"""The marker page: what a worker is doing, and the answers it has not sent yet.

One memfd per worker, written by it and read by warden and parent (which also
writes the ids of revoked jobs).  A job can scribble here: what it says is
evidence, checked before it is believed.

Eight-byte fields, each written by one store through memoryview.cast("Q"):
struct.pack_into zeroes its target first (15 % of reads of a record that was
never zero saw a zero), so it serves only for what a later count publishes.
The id of the running attempt is stored last and read first and again.
"""

from __future__ import annotations

import os

from .wire import FACT, VALUE

# Indices of fields.  An attempt runs while NUMBER == COMPLETED and RUNNING is not 0.
STARTED, NUMBER, COMPLETED, RUNNING, CPU, READY, REVOKED, SENDING = range(8)
COUNT, BLOB, GENERATION = 8, 9, 10  # unsent answers, bytes of their blobs, flushes so far
ANSWERS_MAX = 64  # as core.scheduler.DEPTH
REVOKED_AT = 16  # index of the first of ANSWERS_MAX job ids
FACTS_AT = (REVOKED_AT + ANSWERS_MAX) * 8
VALUES_AT = FACTS_AT + ANSWERS_MAX * FACT.size
BLOBS_AT = VALUES_AT + ANSWERS_MAX * VALUE.size
BLOBS_MAX = 24 << 10  # a longer answer goes straight to the pipe
PAGE_BYTES = 32 << 10
assert BLOBS_AT + BLOBS_MAX <= PAGE_BYTES


def seal_page(name: str) -> int:
    """Return a memfd of PAGE_BYTES that nobody can shrink (a shrunk one kills whoever maps it: SIGBUS)."""
    import fcntl

    fd = os.memfd_create(name, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.ftruncate(fd, PAGE_BYTES)
    fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL)
    return fd
