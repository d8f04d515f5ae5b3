"""Large values: they come and go whole, nobody else can touch them, and nothing is left of them."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import pickle
import random
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import deeds
import pytest
from support import CAP_S, until

from ptss_mp import ResultNotPicklable, wire
from ptss_mp.parcel import PART_BYTES, PARTS_MAX
from ptss_mp.shell import memfree
from ptss_mp.shell.freight import Freight

MIB = 1 << 20
LARGE = 8 * MIB  # 2 ms on its way
SIZES = [PART_BYTES - 1, PART_BYTES, wire.MOVED_BYTES - 1, wire.MOVED_BYTES, MIB, LARGE + 3]


def shmem_bytes() -> int:
    return int(re.search(r"Shmem: +(\d+)", Path("/proc/meminfo").read_text())[1]) << 10


def channel_of(ex):
    return until(lambda: next(iter(ex._pool.channels.values()), None), "a worker")


# ---- what comes is what went


@pytest.mark.parametrize("size", SIZES)
def test_values_of_every_kind_and_size(pool, size):
    ex = pool(1, spares=0)
    data = os.urandom(size)
    for value in (data, bytearray(data), "é" * size, [data, data], {"a": [bytearray(data)], "b": data}, [1] * size):
        back = ex.submit(deeds.echo, value).result(CAP_S)
        assert back == value
        assert type(back) is type(value)
    block = ex.submit(deeds.echo, deeds.Block(bytearray(data))).result(CAP_S)
    assert (type(block.data), block.data) == (bytearray, data)
    block = ex.submit(deeds.echo, deeds.Block(data)).result(CAP_S)
    assert (type(block.data), block.data) == (bytes, data)
    assert len({ex.submit(deeds.pid).result(CAP_S) for _ in range(3)}) == 1


def test_arrays_stay_what_they_are(pool):
    numpy = pytest.importorskip("numpy", reason="numpy is not installed: pip install 'ptss_mp[bench]'")
    ex = pool(1, spares=0)
    array = numpy.arange(MIB, dtype=float).reshape(1024, -1)
    locked = array.copy()
    locked.flags.writeable = False
    for value in (array, locked, array.T, array[::2, ::3], array[5:], array.astype("f4")):
        back = ex.submit(deeds.echo, value).result(CAP_S)
        assert numpy.array_equal(back, value)
        assert (back.dtype, back.flags.writeable) == (value.dtype, value.flags.writeable)
    back = ex.submit(deeds.echo, {"x": [array, {"y": (array.T, b"z" * MIB)}]}).result(CAP_S)
    assert numpy.array_equal(back["x"][0], array)
    assert numpy.array_equal(back["x"][1]["y"][0], array.T)
    assert back["x"][1]["y"][1] == b"z" * MIB


def test_more_buffers_than_are_set_apart(pool):
    ex = pool(1, spares=0)
    blocks = [deeds.Block(bytes([i % 256]) * PART_BYTES) for i in range(PARTS_MAX + 5)]
    back = ex.submit(deeds.echo, blocks).result(CAP_S)
    assert [block.data for block in back] == [block.data for block in blocks]


def test_many_at_once_with_small_ones_among_them(pool):
    ex = pool(2)
    values = [bytes([n % 256]) * (LARGE // 4) if n % 3 == 0 else n for n in range(120)]
    assert list(ex.map(deeds.echo, values)) == values


def test_an_exception_may_be_large(pool):
    ex = pool(1, spares=0)
    error = ex.submit(deeds.fail_at_length, LARGE).exception(CAP_S)
    assert type(error) is ValueError
    assert len(str(error)) == LARGE


def test_large_values_go_into_new_interpreters(pool):
    ex = pool(1, spares=0, mp_context=multiprocessing.get_context("spawn"))
    data = os.urandom(LARGE)
    assert ex.submit(deeds.echo, data).result(CAP_S) == data


# ---- whose is it


def test_what_is_submitted_is_what_it_was_then(pool, gate):
    ex = pool(1, spares=0)
    ex.submit(deeds.gate, gate.path)
    block = deeds.Block(bytearray(b"old") + bytes(LARGE))
    future = ex.submit(deeds.first_bytes, block)
    block.data[:3] = b"new"
    gate.open()
    assert future.result(CAP_S) == b"old"


def test_a_job_may_write_into_its_arguments_and_the_caller_into_results(pool):
    ex = pool(2)
    block = deeds.Block(bytearray(b"mine") + bytes(LARGE))
    given = [ex.submit(deeds.write_into, block) for _ in range(4)]
    assert [f.result(CAP_S).data[:4] for f in given] == [b"jobe"] * 4
    assert block.data[:4] == b"mine"
    given[0].result().data[:4] = b"past"
    assert given[0].outcome().result().data[:4] == b"jobe", "decoded anew from what came"
    follower = ex.submit(deeds.first_bytes, given[0])
    assert follower.result(CAP_S) == b"job", "what follows gets what came"
    assert given[0].outcome().result() is not given[0].outcome().result()


def test_results_go_on_to_who_waits_for_them(pool):
    ex = pool(2)
    source = ex.submit(deeds.give_block, LARGE)
    raw = ex.submit(deeds.give, LARGE)
    both = ex.submit(deeds.echo, [source, raw, source])
    first, second, third = both.result(CAP_S)
    assert (first.data, second) == (b"x" * LARGE, b"x" * LARGE)
    assert first is third
    told = ex.options(run_if="done", after=[source]).submit(deeds.echo, {"outcome": source}).result(CAP_S)
    assert told["outcome"].result().data == b"x" * LARGE


# ---- what is larger than the memory that is left


@pytest.mark.parametrize("way", ["memory", "pipe"])
@pytest.mark.parametrize("kind", [bytes, bytearray, deeds.Block])
def test_a_result_for_which_there_is_no_room_is_not_taken(pool, monkeypatch, way, kind):
    """Untouched pages cost a job nothing, and the program that takes them its life (the kernel's OOM killer)."""
    ex = pool(1, spares=0)
    pid = ex.submit(deeds.pid).result(CAP_S)
    channel_of(ex).refused, times = way == "pipe", 1 + (way == "pipe")  # what comes by pipe is copied once more
    monkeypatch.setattr(memfree, "available_bytes", lambda: 70 * MIB)
    future = ex.submit(deeds.make, kind, 80 * MIB)
    assert future.outcome(CAP_S).status == "not_picklable"
    assert isinstance(future.exception(), ResultNotPicklable)
    assert f"it has 80 MiB, and the program has room for {70 // times} MiB" in future.outcome().error
    size = 66 // times * MIB
    assert len(ex.submit(deeds.make, bytes, size).result(CAP_S)) == size
    assert ex.submit(deeds.pid).result(CAP_S) == pid, "nobody is killed for it"


def test_a_frame_for_which_there_is_no_room_is_not_collected(pool, monkeypatch):
    ex = pool(1, spares=0)
    assert ex.submit(abs, -1).result(CAP_S) == 1
    monkeypatch.setattr(memfree, "available_bytes", lambda: 70 * MIB)
    assert ex.submit(deeds.claim_by_pipe, 80 * MIB).outcome(CAP_S).status == "protocol"
    assert ex.submit(abs, -2).result(CAP_S) == 2


# ---- limits, cancels, deaths


def test_a_transfer_is_not_the_jobs_time(pool):
    ex = pool(1, spares=0)
    size, limit = 512 * MIB, 0.1
    ex.submit(deeds.echo, b"").result(CAP_S)
    there = ex.options(timeout=limit).submit(len, b"x" * size)
    assert there.result(CAP_S) == size
    del there
    begun = time.monotonic()
    outcome = ex.options(timeout=20).submit(deeds.give, size).outcome(CAP_S)
    assert len(outcome.result()) == size
    assert outcome.wall_time < time.monotonic() - begun


@pytest.mark.parametrize("way", ["there", "back"])
def test_a_cancel_in_the_midst(pool, way):
    ex = pool(1, spares=0)
    size = 256 * MIB
    value = b"x" * (size if way == "there" else 0)
    channel = channel_of(ex) if ex.submit(pow, 2, 3).result(CAP_S) else None
    future = ex.submit(len, value) if way == "there" else ex.submit(deeds.give, size)
    until(lambda: channel.move or future.done(), "a move")
    future.cancel()
    assert future.outcome(CAP_S).status in ("cancelled", "succeeded")
    assert ex.submit(pow, 2, 3).result(CAP_S) == 8
    until(lambda: not [t for t in threading.enumerate() if t.name == "ptss-mp-freight"], "an end of the move")


def test_the_warden_dies_in_the_midst(pool):
    ex = pool(1, spares=0)
    ex.submit(pow, 2, 3).result(CAP_S)
    channel = channel_of(ex)
    future = ex.submit(deeds.give, 256 * MIB)
    until(lambda: channel.move or future.done(), "a move")
    os.kill(ex._pool.warden.process.pid, signal.SIGKILL)
    assert future.outcome(CAP_S).status in ("crashed", "succeeded")
    assert len(ex.submit(deeds.give, LARGE).result(CAP_S)) == LARGE


def test_two_hundred_kills_leave_nothing(pool):
    """A worker is killed at a random instant of a large value's way there, its run, or its way back."""
    ex = pool(1)
    ex.submit(pow, 2, 3).result(CAP_S)
    rng, data, ends = random.Random(5), os.urandom(LARGE), []
    before = shmem_bytes(), len(os.listdir("/proc/self/fd"))
    for _ in range(200):
        future = ex.submit(deeds.echo, data)
        until(lambda f=future: f.worker_pid or f.done(), "a start")
        time.sleep(rng.random() * 0.02)  # the instant is the test's subject: no state to wait for
        with contextlib.suppress(ProcessLookupError):
            os.kill(future.worker_pid, signal.SIGKILL)
        outcome = future.outcome(CAP_S)
        ends.append(outcome.status)
        if outcome.ok:
            assert outcome.result() == data
    assert set(ends) <= {"succeeded", "crashed"}
    assert not Freight.forbidden, "a death is no refusal"
    assert ex.submit(deeds.echo, data).result(CAP_S) == data
    until(lambda: not [t for t in threading.enumerate() if t.name == "ptss-mp-freight"], "the ends of all moves")
    until(lambda: len(os.listdir("/proc/self/fd")) <= before[1] + 4, "the descriptors of one open memory")
    until(lambda: shmem_bytes() < before[0] + LARGE, "shared memory as before")


# ---- jobs that mean harm


@pytest.mark.parametrize("size", [LARGE, 1 << 35])
def test_an_offer_of_what_is_nowhere_costs_nobody_anything(pool, size):
    ex = pool(1, spares=0)
    until(lambda: ex.submit(deeds.offer_what_is_nowhere, size).result(CAP_S) == 1, "a refusal")
    assert ex.submit(deeds.give, LARGE).result(CAP_S) == b"x" * LARGE, "it comes by pipe from now on"


def test_a_job_cannot_ask_for_anothers_call(pool):
    ex = pool(1, spares=0)
    for _ in range(150):  # proven short, so that two travel together
        ex.submit(deeds.first_bytes, deeds.Block(bytearray(LARGE // 8))).result(CAP_S)
    ex.pause()
    thief = ex.submit(deeds.ask_for, 0, LARGE)
    victim = ex.submit(deeds.first_bytes, deeds.Block(bytearray(b"own") + bytes(LARGE)))
    ex.resume()
    assert thief.outcome(CAP_S).status == "protocol"
    assert victim.outcome(CAP_S).result() == b"own"


REFUSING = """
import ctypes, struct, sys
sys.path.insert(0, {folder!r})
import deeds
from ptss_mp import Executor

if __name__ == "__main__":
    libc = ctypes.CDLL(None, use_errno=True)  # capset(2): even root may not look then
    assert libc.capset(struct.pack("=Ii", 0x20080522, 0), struct.pack("=6I", 0, 0, 0, 0, 0, 0)) == 0
    with Executor(1, preload=["deeds"], initializer=deeds.undump) as ex:
        for size in 1 << 18, 3 << 20:
            data = bytes(range(256)) * (size // 256)
            assert ex.submit(deeds.echo, data).result(30) == data
            block = ex.submit(deeds.echo, deeds.Block(bytearray(data))).result(30)
            assert type(block.data) is bytearray and block.data == data
        refused = [channel.memory is None and channel.refused for channel in ex._pool.channels.values()]
    print(refused)
"""


def test_where_the_kernel_forbids_it_all_goes_by_pipe(tmp_path):
    program = tmp_path / "program.py"
    program.write_text(REFUSING.format(folder=str(Path(deeds.__file__).parent)))
    done = subprocess.run([sys.executable, str(program)], capture_output=True, text=True, timeout=60, check=False)
    assert (done.stdout, done.stderr) == ("[True]\n", "")


def test_a_pickle_shows_what_is_set_apart_by_size_alone():
    from ptss_mp.parcel import Apart

    apart = Apart()
    blocks = [deeds.Block(bytes(PART_BYTES - 1)), deeds.Block(bytes(PART_BYTES))]
    pickled = pickle.dumps(blocks, 5, buffer_callback=apart)
    assert [len(view) for view in apart] == [PART_BYTES]
    assert len(pickled) < PART_BYTES + 200
