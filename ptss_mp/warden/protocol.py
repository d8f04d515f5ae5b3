"""What parent and warden say to each other, and the limits page that both map.

Messages are SEQPACKET datagrams over one inherited socketpair: nothing
listens, nothing is named.  Each begins with one letter.

The limits memfd has a slot per worker, mapped in no worker.  The parent writes
one run per stretch of equal options in a dispatch, then the head count as one
store; the warden reads them at every tick, and writes the verdict cell before
it sends a signal.
"""

from __future__ import annotations

import struct

# to the warden
FORK = struct.Struct("<cQIB")  # b"F": worker, slot, in which groups; + pickle of an environment of its own
MEMORY_GROUP, PIDS_GROUP = 1, 2  # of FORK: limits of trees are in use (fences.py)
KILL = struct.Struct("<cQQB")  # b"K": worker, job, why; the parent has sent SIGKILL, the warden walks the tree
# b"M" + pickle: prepare __main__ · b"Q": end everything

# to the parent
FORKED = struct.Struct("<cQIQB")  # b"P": worker, pid, resident bytes at the fork, __main__ prepared; + FDS descriptors
READY = struct.Struct("<cI")  # b"R": threads of the warden
VERDICT = struct.Struct("<cQQBQQQQB")  # b"V": worker, job, why, at, observed (ns, bytes), peak bytes, CPU ns, dumping
#     + text: a line for each thread, where a Python stack would not tell all
EXITED = struct.Struct("<cQIiQQ")  # b"X": worker, pid, wait status (-errno: it was not born), peak bytes, CPU ns
GONE = struct.Struct("<cQ")  # b"G": worker; what it had started has ended too, as far as it was seen at its end
# b"B" + text: it cannot go on, and why

FDS = 8  # of FORKED: pidfd, answers, calls, page, fault, out, err, log
MESSAGE_MAX = 1 << 20  # how to prepare a `__main__`, with a long sys.path, is the largest

WHYS = ("", "crashed", "timeout", "deadline", "memory", "cpu", "cancelled", "protocol", "interrupted")
CRASHED, TIMEOUT, DEADLINE, MEMORY, CPU = map(WHYS.index, ("crashed", "timeout", "deadline", "memory", "cpu"))
# a verdict of "crashed" with something observed: so many processes, and they were too many

SLOT_BYTES = 36 << 10
TICK, ASLEEP = 0, 8  # of slot 0, as indices of eight-byte words: shortest tick ns; 1 while the warden sleeps
HEAD = 0  # of a slot: runs written so far
# first number, count, sent at; then limits, 0: none: timeout ns, due instant, memory bytes, CPU ns, processes
RUN = struct.Struct("@8Q")
RUNS_AT = 64
RUNS = 512  # a worker has at most 256 jobs out, so 256 runs live: a reader is a whole ring behind before it is torn
VERDICT_AT = (RUNS_AT + RUNS * RUN.size) // 8  # as index of words: why, at, observed, job
assert VERDICT_AT * 8 + 32 <= SLOT_BYTES

TICK_MAX_NS = 500_000_000
TICK_MIN_NS = 2_000_000
DUMP_NS = 20_000_000  # what a stack may cost; then SIGKILL
