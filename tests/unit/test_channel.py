"""The parent's ends of a worker, against pipes and pages made by hand: whatever comes, rows or a violation."""

from __future__ import annotations

import mmap
import os
import signal
import threading
import time
from collections.abc import Iterator
from struct import pack_into

import pytest

from ptss_mp import marker, wire
from ptss_mp.core import events as on
from ptss_mp.core.scheduler import Scheduler
from ptss_mp.shell import memfree
from ptss_mp.shell.channel import Channel
from ptss_mp.shell.desk import Desk
from ptss_mp.warden.protocol import SLOT_BYTES
from ptss_mp.wire import ANSWERS, COSTS, FACT, VALUE


class Hand:
    """A Channel and the worker's side of it, moved by hand."""

    def __init__(self) -> None:
        answers, self.answers = os.pipe()
        self.calls, calls = os.pipe()
        page = marker.seal_page("test-page")
        self.page = mmap.mmap(page, marker.PAGE_BYTES)
        self.words = memoryview(self.page).cast("Q")
        files = [os.memfd_create(f"test-{name}") for name in ("fault", "out", "err", "log")]
        self.fault, self.out, self.err, self.log = files
        fds = [os.pidfd_open(os.getpid()), answers, calls, page, *files]
        self.limits = mmap.mmap(-1, 2 * SLOT_BYTES)
        self.channel = Channel(1, 1, os.getpid(), 0, False, fds, self.limits)
        self.channel.given = range(1000)
        self.got: dict[int, object] = {}

    def close(self) -> None:
        self.channel.close()
        self.words.release()
        self.page.close()
        self.limits.close()
        for fd in (self.answers, self.calls):
            if fd >= 0:
                os.close(fd)

    def say(self, data: bytes) -> None:
        os.write(self.answers, data)

    def read(self) -> list[tuple[int, ...]] | None:
        return self.channel.read(self.got)  # type: ignore[arg-type]

    def in_page(self, *answers: tuple[int, int]) -> None:
        """Let small answers (job, value) stand in the page, as a worker does before it flushes."""
        for i, (job, value) in enumerate(answers):
            FACT.pack_into(self.page, marker.FACTS_AT + i * FACT.size, job, 0, 1, 1)
            VALUE.pack_into(self.page, marker.VALUES_AT + i * VALUE.size, wire.INT, value)
        self.words[marker.COUNT] = len(answers)


@pytest.fixture
def hand() -> Iterator[Hand]:
    hand = Hand()
    yield hand
    hand.close()


def frame(*answers: tuple[int, int], blob: bytes = b"", end: int = 0) -> bytes:
    """Return a frame of (job, value) answers."""
    facts = b"".join(FACT.pack(job, end, 10, 5) for job, _ in answers)
    values = b"".join(VALUE.pack(wire.INT, value) for _, value in answers)
    return ANSWERS.pack(len(answers), len(blob)) + facts + values + blob


def one(kind: int, raw: int, blob: bytes) -> bytes:
    return ANSWERS.pack(1, len(blob)) + FACT.pack(7, 0, 10, 5) + VALUE.pack(kind, raw) + blob


def test_nothing_there_and_the_end_of_the_file(hand):
    assert hand.read() == []
    os.close(hand.answers)
    hand.answers = -1
    assert hand.read() is None


def test_whole_frames(hand):
    hand.say(frame((1, 11)) + frame((2, 22), (3, 33)))
    assert hand.read() == [(1, 0, 10, 5), (2, 0, 10, 5), (3, 0, 10, 5)]
    assert {job: answer[1] for job, answer in hand.got.items()} == {1: 11, 2: 22, 3: 33}
    assert hand.channel.flushes == 2


def test_frames_torn_at_every_byte(hand):
    text = "né" * 50
    data = text.encode()
    frames = frame((1, 11)) + one(wire.STR, len(data), data) + frame((2, 22), (3, 33)) + ANSWERS.pack(0, 0)
    for cut in range(1, len(frames)):
        hand.say(frames[:cut])
        rows = list(hand.read())
        hand.say(frames[cut:])
        rows += hand.read()
        assert [row[0] for row in rows] == [1, 7, 2, 3]
        assert bytes(hand.got[7][1]) == data
    assert hand.channel.ready


def test_frames_byte_by_byte(hand):
    frames = frame((1, 11)) + one(wire.BYTES, 300, b"x" * 300) + frame((2, 22), (3, 33))
    rows = []
    for i in range(len(frames)):
        hand.say(frames[i : i + 1])
        rows += hand.read()
    assert [row[0] for row in rows] == [1, 7, 2, 3]


def test_a_large_answer_comes_in_many_reads(hand):
    data = os.urandom(300_000)
    whole, rows, sent = one(wire.BYTES, len(data), data), [], 0
    while sent < len(whole):
        sent += os.write(hand.answers, whole[sent : sent + 50_000])
        rows += hand.read()
    assert [row[0] for row in rows] == [7]
    assert hand.got[7][1] == data
    assert hand.channel.flushes == 0, "it did not stand in the page"


@pytest.mark.parametrize(
    "data",
    [
        ANSWERS.pack(marker.ANSWERS_MAX + 1, 0),
        ANSWERS.pack(1, wire.BLOB_BYTES_MAX + 1),
        ANSWERS.pack((1 << 64) - 1, 0),
        one(200, 0, b""),
        one((1 << 64) - 1, 0, b""),
        one(wire.STR, 11, b"0123456789"),
        one(wire.STR, 1 << 40 | 10, b"0123456789"),
        one(wire.STR, -1, b"0123456789"),
        one(wire.STR, -(1 << 63), b""),
        one(wire.WITH_COSTS | wire.INT, 10, b"0123456789"),
        one(wire.WITH_COSTS | wire.STR, COSTS.size + VALUE.size, COSTS.pack(*[0] * 8) + VALUE.pack(77, 0)),
    ],
)
def test_what_no_worker_sends_is_a_violation(hand, data):
    hand.say(data)
    assert hand.read() == []
    assert hand.channel.violation
    assert hand.got == {}


def test_what_stands_before_noise_is_good(hand):
    """Regression: the answers of finished jobs were lost with the noise of the next, and the jobs made again."""
    hand.say(frame((1, 11)) + frame((2, 22), (3, 33)) + b"\xff" * 100)
    assert [row[0] for row in hand.read()] == [1, 2, 3]
    assert set(hand.got) == {1, 2, 3}
    assert hand.channel.violation


def test_noise_does_not_hide_what_stands_in_the_page(hand):
    hand.words[marker.GENERATION] = 1
    hand.in_page((3, 33), (4, 44))
    hand.say(frame((1, 11)) + b"\xff" * 100)
    assert [row[0] for row in hand.channel.drain(hand.got)] == [1, 3, 4]


def test_a_job_that_made_noise_and_returned_has_not_succeeded(hand):
    """Regression: whether it had depended on how soon the noise was read."""
    hand.words[marker.GENERATION] = 1
    hand.in_page((4, 44))
    hand.say(frame((1, 11)) + b"\xff" * 100)
    assert [row[0] for row in hand.channel.drain(hand.got)] == [1]
    assert set(hand.got) == {1}


def test_what_nobody_has_revoked_cannot_be_given_back(hand):
    """Regression: only the number of times was bounded, and honest workers came up to it."""
    hand.channel.revoke(2)
    hand.say(frame((1, 0), (2, 0), end=wire.WAS_REVOKED))
    assert [row[:2] for row in hand.read()] == [(1, on.LOST), (2, wire.WAS_REVOKED)]


def test_unfinished_of_a_job_that_was_taken_back_stands_for_nothing(hand):
    hand.channel.recalled.add(7)
    hand.say(frame((7, 1), end=wire.UNFINISHED))
    rows = hand.read()
    assert (len(rows), hand.got) == (1, {})
    assert hand.channel.unfinished
    assert Desk(Scheduler(1), False, "test").carry_on(rows, {}) == rows


def test_an_answer_to_what_it_was_not_asked_stands_for_nothing(hand):
    """Regression: it took the place of another worker's answer."""
    hand.channel.given = {1: 0, 2: 0}
    hand.say(frame((1, 11)) + frame((2, 22), (77, 0)))
    assert [row[0] for row in hand.read()] == [1]
    assert set(hand.got) == {1}
    assert "77" in hand.channel.violation


def test_one_who_never_stops_writing_holds_up_nobody(hand, monkeypatch):
    monkeypatch.setattr(memfree, "available_bytes", lambda: 1 << 40)
    hand.say(ANSWERS.pack(1, wire.BLOB_BYTES_MAX))
    stop = threading.Event()

    def write() -> None:
        while not stop.is_set():
            try:
                os.write(hand.answers, b"x" * 65_536)
            except OSError:
                return

    thread = threading.Thread(target=write)
    thread.start()
    try:
        assert hand.channel.drain(hand.got) == []
        assert hand.channel.receiving
    finally:
        stop.set()
        while thread.is_alive():
            hand.read()
        thread.join()
    end = time.monotonic() + 10
    while hand.channel.receiving:
        assert time.monotonic() < end, "it has not grown for a while"
        time.sleep(0.001)


def test_a_program_without_room_for_descriptors(hand):
    """Regression: the loop, and with it every job, died of a worker's descriptors that were lost on the way."""
    fds = [os.open("/dev/null", os.O_RDONLY) for _ in range(3)]
    with pytest.raises(OSError, match="Too many open files"):
        Channel(2, 1, os.getpid(), 0, False, fds, hand.limits)
    for fd in fds:
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(fd)


@pytest.mark.parametrize("word", [1, 1 << 40, 1 << 63, (1 << 64) - 1])
def test_offsets_of_output_beyond_the_file(hand, word):
    os.write(hand.out, b"said")
    blob = COSTS.pack(0, word, word - 1, word, 1, word, word, word) + VALUE.pack(wire.NONE, 0)
    hand.say(one(wire.WITH_COSTS | wire.NONE, len(blob), blob))
    assert [row[0] for row in hand.read()] == [7]
    assert hand.got[7][2].out in (b"s", b"said")
    report = hand.channel.last_report("crashed", time.monotonic_ns())
    assert report.status == "crashed"


def test_a_worker_tells_that_it_is_ready_or_why_not(hand):
    hand.say(ANSWERS.pack(0, 0))
    assert hand.read() == []
    assert hand.channel.ready
    blob = wire.pack_error(b"", "RuntimeError", "no model", "Traceback", None)
    hand.say(ANSWERS.pack(0, len(blob)) + blob)
    assert hand.read() == []
    assert hand.channel.failure.text == "no model"


# ---- the page


def test_a_peek_takes_what_was_not_flushed_once(hand):
    hand.in_page((1, 11), (2, 22))
    assert [row[0] for row in hand.channel.peek(hand.got)] == [1, 2]
    assert hand.channel.peek(hand.got) == []
    hand.in_page((1, 11), (2, 22), (3, 33))
    assert [row[0] for row in hand.channel.peek(hand.got)] == [3]


def test_peeked_answers_are_dropped_when_they_come_by_the_pipe(hand):
    hand.in_page((1, 11), (2, 22))
    hand.channel.peek(hand.got)
    hand.got.clear()
    hand.say(frame((1, 11), (2, 22), (3, 33)))
    assert [row[0] for row in hand.read()] == [3]
    assert set(hand.got) == {3}
    assert hand.channel.peeked == set()


def test_what_was_peeked_at_may_have_come_again_and_run_by_now(hand):
    """Regression: it was taken back, peeked at, sent to the same worker once more, and running when the frame with its
    first answer was read; that was called a forgery, and the job ended as `protocol`."""
    hand.in_page((1, 11), (2, 22))
    hand.channel.peek(hand.got)
    hand.got.clear()
    hand.words[marker.RUNNING], hand.words[marker.NUMBER], hand.words[marker.COMPLETED] = 1, 2, 2
    hand.say(frame((1, 11), (2, 22), (3, 33)))
    assert [row[0] for row in hand.read()] == [3]
    assert not hand.channel.violation
    hand.say(frame((1, 11)))
    assert hand.read() == []
    assert "which it still runs" in hand.channel.violation


def test_a_worker_that_rests_between_its_write_and_its_clearing_is_not_read_twice(hand):
    """Regression: the page still showed what had been read from the pipe, and the job was answered twice."""
    hand.in_page((1, 11))
    hand.say(frame((1, 11)))
    assert [row[0] for row in hand.read()] == [1]
    assert hand.channel.peek(hand.got) == []
    hand.words[marker.COUNT] = 0
    hand.words[marker.GENERATION] = 1
    hand.in_page((2, 22))
    assert [row[0] for row in hand.channel.peek(hand.got)] == [2]


@pytest.mark.parametrize("count", [0, marker.ANSWERS_MAX + 1, (1 << 64) - 1])
def test_a_page_that_claims_nonsense_gives_nothing(hand, count):
    hand.in_page((1, 11))
    hand.words[marker.COUNT] = count
    assert hand.channel.peek(hand.got) == []
    hand.words[marker.COUNT], hand.words[marker.BLOB] = 1, marker.BLOBS_MAX + 1
    assert hand.channel.peek(hand.got) == []


def test_the_marked_attempt(hand):
    channel, words = hand.channel, hand.words
    assert channel.marked() == (0, 0)
    words[marker.STARTED], words[marker.NUMBER], words[marker.RUNNING] = 99, 0, 5
    assert channel.marked() == (5, 99)
    words[marker.COMPLETED] = 1
    assert channel.marked() == (0, 0)


def listed(words):
    """Return the revoked ids that a worker sees, by place."""
    found = words[marker.REVOKED_AT : marker.REVOKED_END].tolist() if words[marker.REVOKED] else []
    return {job: at for at, job in enumerate(found) if job}


def test_a_revoked_job_is_listed_and_told_whether_it_runs(hand):
    channel, words = hand.channel, hand.words
    assert not channel.revoke(5)
    words[marker.RUNNING] = 6
    assert channel.revoke(6)
    both = listed(words)
    assert both.keys() == {5, 6}
    channel._acknowledge([(5, 4, 0, 0)])
    assert listed(words) == {6: both[6]}, "no id is moved: the worker may be looking"
    assert not channel.revoke(7)
    assert listed(words) == {6: both[6], 7: both[5]}
    channel._acknowledge([(6, 0, 0, 0), (7, 4, 0, 0)])
    assert listed(words) == {}
    assert words[marker.REVOKED] == 0, "no job after them has to look"


@pytest.fixture
def flushed_in_between(hand, monkeypatch):
    """The worker flushes its page between the parent's reading of the pipe and its look at the page."""
    hand.in_page((1, 11), (2, 22))
    look = Channel.peek

    def flushed_just_before(channel, answers):
        hand.say(frame((1, 11), (2, 22)))
        hand.words[marker.COUNT] = 0
        return look(channel, answers)

    monkeypatch.setattr(Channel, "peek", flushed_just_before)
    return hand


def test_a_recall_sees_what_leaves_the_page_for_the_pipe_in_that_moment(flushed_in_between):
    """Regression: a worker that rests between clearing its page and counting the flush hid what it had done."""
    hand = flushed_in_between
    rows, back = hand.channel.recall([1, 2, 3], hand.got)
    assert [row[0] for row in rows] == [1, 2]
    assert back == [3]
    assert {job: answer[1] for job, answer in hand.got.items()} == {1: 11, 2: 22}


def test_a_burial_sees_what_leaves_the_page_for_the_pipe_in_that_moment(flushed_in_between):
    """Regression: who is sent SIGKILL runs on for microseconds; what it flushed then was lost, and made again."""
    hand = flushed_in_between
    assert [row[0] for row in hand.channel.drain(hand.got)] == [1, 2]
    assert {job: answer[1] for job, answer in hand.got.items()} == {1: 11, 2: 22}


def test_no_place_for_a_revoked_job_is_told_as_too_late(hand):
    assert not any(hand.channel.revoke(job) for job in range(100, 100 + marker.ANSWERS_MAX))
    assert hand.channel.revoke(1)


def test_a_start_in_the_future_is_not_believed(hand):
    now = time.monotonic_ns()
    pack_into("<Q", hand.page, marker.STARTED * 8, (1 << 64) - 1)
    report = hand.channel.last_report("crashed", now)
    assert (report.started, report.duration) == (now, 0)


# ---- to the worker


def test_what_the_pipe_does_not_take_waits(hand):
    big = os.urandom(200_000)
    assert hand.channel.send([(1, -1, len(big), None, 0)], [big])
    got = b""
    while hand.channel.write():
        got += os.read(hand.calls, 1 << 20)
    got += os.read(hand.calls, 1 << 20)
    while len(got) < 200_000:
        got += os.read(hand.calls, 1 << 20)
    assert got.endswith(big)
    rows, blobs = wire.CALLS.unpack_from(got)
    assert blobs == len(big)
    assert len(got) == wire.CALLS.size + rows + blobs


def test_a_worker_that_is_gone_takes_nothing_and_harms_nobody(hand):
    os.close(hand.calls)
    hand.calls = -1
    assert not hand.channel.send([(1, 0, (), None, 0)], [])
    assert not hand.channel.send([(1, 0, (), None, 0)], [b"x" * 100_000])


def test_a_kill_for_a_job_that_has_given_way_to_another_is_not_made(hand, monkeypatch):
    channel, words, sent = hand.channel, hand.words, []
    monkeypatch.setattr(signal, "pidfd_send_signal", lambda _pidfd, number: sent.append(number))
    words[marker.RUNNING] = 6
    assert not channel.kill(5)
    assert (sent, words[marker.REVOKED]) == ([], 0)
    words[marker.RUNNING] = 5
    assert channel.kill(5)
    assert sent == [signal.SIGKILL]
    assert words[marker.REVOKED], "nothing begins behind it"
