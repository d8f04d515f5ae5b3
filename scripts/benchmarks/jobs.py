"""Functions that workers run.  They import almost nothing: workers that are new interpreters import this file."""

import os
import time


def noop(number):
    """Return what proves the argument and the process: no pool can answer it by itself."""
    return number << 22 | os.getpid()


def double(number):
    return 2 * number


def echo(value):
    return value


def describe(path):
    """Stand for jobs that look at a file and tell a few facts."""
    folder, name = os.path.split(path)
    stem, suffix = os.path.splitext(name)
    return {"folder": folder, "stem": stem, "suffix": suffix, "length": len(path)}


def spin(seconds):
    """Use the processor for so long, and return how much of it that took."""
    began, end = time.thread_time(), time.perf_counter() + seconds
    while time.perf_counter() < end:
        pass
    return time.thread_time() - began


def started():
    """Return when it began to run, on the clock that all processes share."""
    return time.monotonic()


def hold(fifo):
    """Wait for one byte: what is submitted meanwhile is a backlog."""
    with open(fifo, "rb", buffering=0) as file:
        file.read(1)


def die(path):
    """Die as native code does, and leave the moment of it in a file."""
    fd = os.open(path, os.O_WRONLY)
    os.pwrite(fd, b"%.9f" % time.monotonic(), 0)
    os.abort()


def total():
    """Use numpy, which somebody should have imported before."""
    import numpy

    return float(numpy.ones(4).sum())
