"""What the container leaves to this program: bounds of the cgroup at /sys/fs/cgroup, in a container its own.

Of version 2, or of version 1 if there is no such file.  Read only; groups for workers are made in warden/cgroup.py.
"""

from __future__ import annotations

import contextlib

ROOT = "/sys/fs/cgroup"
_MEMORY = (  # of versions 2 and 1: limit, in use, and the part of that which files cache
    ("memory.max", "memory.current", "memory.stat", "inactive_file"),
    ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes", "memory/memory.stat", "total_inactive_file"),
)


def processes() -> int | None:
    """Return how many processes and threads may be; None: there is no bound."""
    return _number("pids.max", "pids/pids.max")


def processors() -> int | None:
    """Return how many processors may be busy, by the quota of version 2, rounded up; None: there is no bound."""
    with contextlib.suppress(ValueError):  # "max" is no number
        quota, period = map(int, _read("cpu.max").split())
        return -(-quota // period)
    return None


def memory_bytes() -> int | None:
    """Return how much memory may be in use; None: there is no bound."""
    return _number(*(limit for limit, _, _, _ in _MEMORY))


def memory_left_bytes() -> int | None:
    """Return how much more memory could be in use; None: there is no bound."""
    for limit_name, used_name, stat_name, cached_name in _MEMORY:
        limit, used = _number(limit_name), _number(used_name)
        if limit is not None and used is not None:
            return max(0, limit - used + _cached(stat_name, cached_name))
    return None


def _cached(name: str, field: str) -> int:
    """Return what the kernel would give up before it refuses anybody memory: files that were not used lately."""
    words = _read(name).split()
    return int(words[words.index(field) + 1]) if field in words else 0


def _number(*names: str) -> int | None:
    for name in names:
        with contextlib.suppress(ValueError):  # "max" is no number
            return int(_read(name))
    return None


def _read(name: str) -> str:
    with contextlib.suppress(OSError), open(f"{ROOT}/{name}") as file:
        return file.read()
    return ""
