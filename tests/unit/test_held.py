"""Reads and writes with and without the interpreter lock: the same results, the same errors."""

import contextlib
import os
import threading
import time

import pytest

from ptss_mp.shell import held


@pytest.fixture(params=[False, True], ids=["lock released", "lock kept"])
def pipe(request, monkeypatch):
    monkeypatch.setattr(held, "_crowded_until", 1 << 62 if request.param else 0)
    reading, writing = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    yield reading, writing
    for fd in (reading, writing):
        with contextlib.suppress(OSError):
            os.close(fd)


def test_what_is_written_is_read(pipe):
    reading, writing = pipe
    assert held.write(writing, b"a\x00b" * 7_000) == 21_000
    assert held.read(reading) == b"a\x00b" * 7_000


def test_a_pipe_that_is_full_or_empty_does_not_block(pipe):
    reading, writing = pipe
    with pytest.raises(BlockingIOError):
        held.read(reading)
    assert held.write(writing, bytes(held.READ_BYTES)) == held.READ_BYTES
    with pytest.raises(BlockingIOError):
        held.write(writing, b"x")
    assert held.read(reading) == bytes(held.READ_BYTES)


def test_ends_that_are_closed(pipe):
    reading, writing = pipe
    os.close(writing)
    assert held.read(reading) == b""
    os.close(reading)
    with pytest.raises(OSError, match="Bad file descriptor"):
        held.read(reading)
    again, writing = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    os.close(again)
    with pytest.raises(BrokenPipeError):
        held.write(writing, b"x")
    os.close(writing)


def test_a_thread_that_computes_is_noticed(monkeypatch):
    """Each call gives the lock away, and waits for it until the other one has to give it back."""
    monkeypatch.setattr(held, "_crowded_until", 0)
    reading, writing = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    over, began = threading.Event(), threading.Event()

    def compute():
        began.set()
        while not over.is_set():
            pass

    thread = threading.Thread(target=compute)
    thread.start()
    try:
        began.wait(10)
        until = time.monotonic() + 20
        while not held._crowded_until and time.monotonic() < until:
            held.write(writing, bytes(held.READ_BYTES))
            held.read(reading)
        assert held._crowded_until
    finally:
        over.set()
        thread.join()
        os.close(reading)
        os.close(writing)
