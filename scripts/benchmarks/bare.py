"""What the means cost by themselves, without any pool: the bounds of what a pool can reach."""

import multiprocessing
import os
import statistics
import time

from . import jobs

MESSAGE = b"m" * 100


def roundtrip(count, _workers):
    """100 bytes to another process and back by two pipes, each process on a processor of its own."""
    cores = sorted(os.sched_getaffinity(0))
    (there_r, there_w), (back_r, back_w) = os.pipe(), os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.sched_setaffinity(0, cores[-1:])
            for _ in range(count):
                os.write(back_w, os.read(there_r, 100))
        finally:
            os._exit(0)
    os.sched_setaffinity(0, cores[:1])
    times = []
    for _ in range(count):
        began = time.perf_counter()
        os.write(there_w, MESSAGE)
        os.read(back_r, 100)
        times.append(time.perf_counter() - began)
    os.waitpid(child, 0)
    return {"p50_us": statistics.median(times) * 1e6}


def _echo_all(connection):
    while (value := connection.recv()) is not None:
        connection.send(value)


def payload(value, trips):
    """A value to another process and back by `Connection.send` and `recv`."""
    context = multiprocessing.get_context("fork")
    here, there = context.Pipe()
    child = context.Process(target=_echo_all, args=(there,))
    child.start()
    times = []
    for _ in range(trips + 1):
        began = time.perf_counter()
        here.send(value)
        here.recv()
        times.append(time.perf_counter() - began)
    here.send(None)
    child.join()
    return {"ms": statistics.median(times[1:]) * 1e3}


def _answer(connection):
    connection.send(jobs.total())


def fresh(count, _workers):
    """A new process of multiprocessing's fork server, which has imported numpy, to its first result."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["numpy"])
    times = []
    for _ in range(count + 2):
        began = time.perf_counter()
        here, there = context.Pipe()
        child = context.Process(target=_answer, args=(there,))
        child.start()
        assert here.recv() == 4
        times.append(time.perf_counter() - began)
        child.join()
    return {"ms": statistics.median(times[2:]) * 1e3}
