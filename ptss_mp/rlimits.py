"""Kernel limits of one attempt: `open_files` and `file_size`, set in its worker before the call is decoded.

Soft limits, so that what stands above them (hard limits, the worker's own descriptors) stays, and what the job forks
inherits them.  They are set back to what they were, whether the job has lowered or raised them meanwhile.
"""

from __future__ import annotations

import errno
import os
import resource
from collections.abc import Callable
from typing import Any

OWN_FILES = 11  # what a worker holds at most when it begins (pipes.py, and mmap's copy of its page)
_FILES, _SIZE, _NONE = resource.RLIMIT_NOFILE, resource.RLIMIT_FSIZE, resource.RLIM_INFINITY

_before: dict[int, int] = {}  # while an attempt is limited: limit -> soft value to be set back
_file_bytes = _NONE  # what `lower` has set


def lower(file_bytes: int, open_files: int) -> None:
    """Begin a limited attempt.

    Args:
        file_bytes: how long a write may make a file; 0: as long as before.
        open_files: how many more descriptors may be opened; 0: as many as before.
    """
    global _file_bytes  # noqa: PLW0603 - a limit of the process
    if open_files:
        _set(_FILES, bound(_open(), open_files))
    if file_bytes:
        _file_bytes = _set(_SIZE, file_bytes)


def set_back() -> None:
    """End a limited attempt; nothing to do if there is none, or if it was ended before."""
    global _file_bytes  # noqa: PLW0603 - a limit of the process
    while _before:
        limit, soft = _before.popitem()
        hard = resource.getrlimit(limit)[1]  # a job may have lowered that too: hygiene's affair
        resource.setrlimit(limit, (min(soft, hard, key=_order), hard))
    _file_bytes = _NONE


def lifted(error: OSError, write: Callable[..., Any], *args: Any) -> Any:
    """Repeat a write of what is kept for the outcome: that is no file of the job's, so `file_size` does not count it.

    The limit is the process's, so it is lifted for the other threads too, for the microseconds of one write.

    Args:
        error: what the write raised; raised again if `file_size` is not why.
    """
    soft, hard = resource.getrlimit(_SIZE)
    if error.errno != errno.EFBIG or soft not in (_file_bytes, hard):  # else a limit of the job's own making
        raise error
    resource.setrlimit(_SIZE, (hard, hard))
    try:
        return write(*args)
    finally:
        resource.setrlimit(_SIZE, (min(_file_bytes, hard, key=_order), hard))


def bound(held: set[int], more: int) -> int:
    """Return the number below which exactly `more` descriptors are free.

    The kernel gives the lowest free number and refuses to go up to the limit: it does not count.
    """
    number = more
    for fd in sorted(held):
        if fd >= number:
            break
        number += 1
    return number


def refusal(limit: str, asked: int) -> str:
    """Return why this process cannot give a job so much ("": it can): beyond its hard limit there is no more to allow.

    Args:
        limit: "open_files" or "file_size".
    """
    hard = resource.getrlimit(_FILES if limit == "open_files" else _SIZE)[1]
    own = OWN_FILES if limit == "open_files" else 0
    if _order(asked + own) <= _order(hard):
        return ""
    flag, extra = ("-Hn", f" and {own} of its worker's") if own else ("-Hf", "")
    return f"{limit}={asked}{extra}: {hard} is this program's hard limit (ulimit {flag}); ask for less or raise that"


def _set(limit: int, soft: int) -> int:
    before, hard = resource.getrlimit(limit)
    soft = min(soft, hard, key=_order)
    resource.setrlimit(limit, (soft, hard))
    _before[limit] = before
    return soft


def _open() -> set[int]:
    """Return the descriptors that are open, without that of this look itself."""
    held = set()
    for name in os.listdir("/proc/self/fd"):
        try:
            os.get_inheritable(int(name))
            held.add(int(name))
        except OSError:
            pass
    return held


def _order(value: int) -> float:
    return float("inf") if value == _NONE else value
