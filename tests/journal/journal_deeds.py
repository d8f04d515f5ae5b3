"""Jobs for these tests."""

from __future__ import annotations

import os
import time
from pathlib import Path


def add(*numbers):
    return sum(numbers)


def count(path, value=None):
    """Note that it was called, and return what it was given."""
    fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(fd, b".")
    os.close(fd)
    return value


def fail(path):
    count(path)
    raise KeyError("as it should")


def times(path):
    """Return how often `count` was called."""
    return Path(path).stat().st_size if Path(path).exists() else 0


def crash(path):
    count(path)
    os.abort()


def sleep(path, seconds):
    count(path)
    time.sleep(seconds)


def large(size):
    return bytearray(size), b"x" * size


def refuse(*_):
    raise AssertionError("a key was made of what it should not be")
