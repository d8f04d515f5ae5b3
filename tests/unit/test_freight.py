"""The parent's half of large values, against a worker's side moved by hand: this process is its own worker."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from ptss_mp import marker, memory, wire
from ptss_mp.parcel import PARTS_MAX, Parcel, payload_of, sizes_of
from ptss_mp.shell import memfree
from ptss_mp.shell.freight import Freight, reaches
from ptss_mp.wire import ANSWERS, ASK, COSTS, FACT, LENT, PARCEL, VALUE, WITH_COSTS, numbers, table
from tests.unit.test_channel import Hand

MIB = 1 << 20
TICKET = 1 << 40


class Freighter(Hand):
    """A Hand whose moves are taken in by the test."""

    def __init__(self) -> None:
        super().__init__()
        self.ended: list[Any] = []
        self.channel.land = self.ended.append
        self.kept: list[Any] = []  # what stands where the tables say

    def land(self) -> list[Any]:
        """Wait for the move; return the rows that it completes."""
        self.channel.move.join(10)
        assert not self.channel.move.is_alive()
        return self.channel.landed(self.ended.pop(), self.got)

    def table(self, parts: list[Any]) -> bytes:
        self.kept += parts
        return table(TICKET, [memory.address(part) for part in parts], sizes_of(parts))

    def offer(self, kind: int, body: bytes, job: int = 7) -> None:
        head = FACT.pack(job, 0, 10, 5) + VALUE.pack(kind | LENT, len(body))
        self.say(ANSWERS.pack(1, len(body)) + head + body)

    def ask(self, job: int, body: bytes) -> None:
        self.say(ANSWERS.pack(ASK, 8 + len(body)) + numbers([job]) + body)


@pytest.fixture
def hand() -> Iterator[Freighter]:
    hand = Freighter()
    yield hand
    if hand.channel.move:
        hand.channel.move.join(10)
    hand.close()


def test_an_offer_is_fetched_and_the_worker_told(hand):
    data = os.urandom(9 * MIB)
    hand.offer(wire.BYTES, hand.table([data]))
    assert hand.read() == []
    assert hand.channel.receiving
    hand.say(ANSWERS.pack(0, 0))
    assert hand.read() == [], "nothing is read until it is here"
    assert hand.words[marker.TICKET] == 0
    assert hand.land() == [(7, 0, 10, 5)]
    assert hand.got[7][:2] == (wire.BYTES, data)
    assert hand.words[marker.TICKET] == TICKET
    assert hand.read() == []
    assert hand.channel.ready


def test_what_is_on_its_way_has_its_room(monkeypatch):
    first, second = Freighter(), Freighter()
    begun, go_on = threading.Event(), threading.Event()
    blank = memory.blank

    def held(size: int) -> Any:
        begun.set()
        assert go_on.wait(10)
        return blank(size)

    monkeypatch.setattr(memory, "blank", held)
    monkeypatch.setattr(memfree, "available_bytes", lambda: 150 * MIB)
    try:
        for other in (first, second):
            other.offer(wire.BYTES, other.table([bytes(100 * MIB)]))
        first.read()
        assert begun.wait(10)
        second.read()
        assert second.channel.move is None
        assert (second.words[marker.TICKET], second.words[marker.ROOM]) == (TICKET | 1, 50 * MIB)
        go_on.set()
        assert first.land() == [(7, 0, 10, 5)]
        second.offer(wire.BYTES, second.table([bytes(100 * MIB)]))
        second.read()
        assert second.land() == [(7, 0, 10, 5)]
        assert (second.words[marker.TICKET], second.words[marker.ROOM]) == (TICKET, 0)
    finally:
        go_on.set()
        first.close()
        second.close()


def test_an_offer_with_costs_and_parts(hand):
    parts = [b"p" * 10, bytearray(b"a" * MIB), b"b" * 70_000]
    costs = COSTS.pack(0, 0, 0, 0, 0, 0, 1234, 0) + VALUE.pack(wire.PICKLE, 0)
    hand.offer(wire.PICKLE | WITH_COSTS, costs + hand.table(parts))
    hand.read()
    assert [row[0] for row in hand.land()] == [7]
    kind, payload, report = hand.got[7]
    assert (kind, report.cpu_ns) == (wire.PICKLE, 1234)
    assert payload.parts == parts
    assert list(map(type, payload.parts)) == [bytes, bytearray, bytes]


def test_what_cannot_be_read_is_refused_and_costs_nothing(hand):
    for address, size in ((1 << 46, 9 * MIB), (1 << 46, 1 << 35), (8, 1)):
        hand.offer(wire.BYTES, table(TICKET, [address], [-size]))
        assert hand.read() == []
        if hand.channel.move:
            assert hand.land() == []
        assert hand.words[marker.TICKET] == TICKET | 1
        hand.words[marker.TICKET] = 0
    assert (hand.channel.refused, hand.channel.violation, hand.got) == (True, "", {})


TOO_MUCH = [1 << 46] * 2, [-(1 << 35) - 1] * 2


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"x" * 7,
        numbers([TICKET]),
        numbers([TICKET, 1]),
        table(TICKET, [0], [-MIB]),
        table(TICKET, [-5], [-MIB]),
        table(TICKET, *TOO_MUCH),
        table(TICKET, [1 << 46], [-(1 << 62)]),
        numbers([TICKET] + [1 << 46] * (2 * wire.TABLE_PARTS + 2)),
    ],
)
def test_a_table_that_makes_no_sense(hand, body):
    hand.offer(wire.BYTES, body)
    hand.read()
    while hand.channel.dry is False and not hand.channel.violation:
        hand.read()
    assert hand.channel.violation
    assert hand.channel.move is None


def test_an_offer_for_a_job_of_another(hand):
    hand.offer(wire.BYTES, hand.table([b"x" * MIB]), job=5_000)
    hand.read()
    assert "5000" in hand.channel.violation


def test_a_second_offer_before_the_first_is_fetched(hand):
    body = hand.table([b"x" * MIB])
    head = FACT.pack(7, 0, 10, 5) + VALUE.pack(wire.BYTES | LENT, len(body))
    hand.say(2 * (ANSWERS.pack(1, len(body)) + head + body))
    hand.read()
    assert hand.channel.violation


@pytest.mark.parametrize("kind", [wire.RAISED, wire.STR, wire.UNLOADABLE])
def test_parts_where_there_is_one_value(hand, kind):
    hand.offer(kind, hand.table([b"x" * MIB, b"y" * MIB]))
    hand.read()
    assert hand.land() == []
    assert hand.channel.violation
    assert hand.got == {}


def test_what_is_to_be_bytes_is(hand):
    hand.offer(wire.STR, hand.table([bytearray(MIB)]))
    hand.read()
    hand.land()
    assert hand.channel.violation


def test_an_offer_in_the_page_or_among_others_is_none(hand):
    body = hand.table([b"x" * MIB])
    facts = FACT.pack(1, 0, 10, 5) + FACT.pack(2, 0, 10, 5)
    hand.say(ANSWERS.pack(2, len(body)) + facts + 2 * VALUE.pack(wire.BYTES | LENT, len(body)) + body)
    hand.read()
    assert "not offered" in hand.channel.violation


def test_what_is_asked_for_is_brought(hand):
    parts = [os.urandom(100), bytearray(os.urandom(9 * MIB)), os.urandom(MIB)]
    blobs: list[Any] = []
    assert hand.channel.stow(7, parts, blobs) == [1, -100, 9 * MIB, -MIB]
    assert blobs == []
    places = [memory.blank(size) for size in sizes_of(parts)]
    hand.ask(7, hand.table(places))
    hand.read()
    assert hand.land() == []
    assert places == parts
    assert hand.words[marker.TICKET] == TICKET
    assert hand.channel.stowed == {}


def test_small_parts_go_by_pipe(hand):
    blobs: list[Any] = []
    assert hand.channel.stow(7, [b"x" * 100, bytearray(70_000)], blobs) == [0, -100, 70_000]
    assert list(map(len, blobs)) == [100, 70_000]


def test_more_parts_than_one_table_holds_go_by_pipe(hand):
    blobs: list[Any] = []
    parts = [b"x" * 1_000] * wire.TABLE_PARTS
    assert hand.channel.stow(7, parts, blobs)[0] == 1
    assert hand.channel.stow(7, [b"x" * MIB], blobs)[0] == 0
    assert list(map(len, blobs)) == [MIB]


@pytest.mark.parametrize(
    ("job", "sizes"), [(8, [-MIB]), (7, [MIB]), (7, [-MIB + 1]), (7, [-MIB, -1])], ids=["job", "kind", "size", "count"]
)
def test_what_was_not_sent_is_not_brought(hand, job, sizes):
    hand.channel.stow(7, [b"x" * MIB], [])
    place = bytearray(2 * MIB)
    hand.ask(job, table(TICKET, [memory.address(place)] * len(sizes), sizes))
    hand.read()
    assert hand.channel.violation
    assert place == bytes(2 * MIB)


def test_what_cannot_be_brought_ends_that_worker_alone(hand, monkeypatch):
    monkeypatch.setattr(Freight, "forbidden", False)
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    os.close(hand.channel.pidfd)
    hand.channel.pidfd, hand.channel.pid = os.pidfd_open(child.pid), child.pid
    hand.channel.stow(7, [b"x" * MIB], [])
    hand.ask(7, table(TICKET, [1 << 46], [-MIB]))
    hand.read()
    assert hand.land() == []
    child.communicate()
    assert (child.returncode, hand.words[marker.TICKET]) == (-signal.SIGKILL, 0)
    blobs: list[Any] = []
    assert hand.channel.stow(8, [b"x" * MIB], blobs)[0] == 0, "by pipe from now on"


def test_a_question_while_a_job_runs(hand):
    hand.channel.stow(7, [b"x" * MIB], [])
    hand.words[marker.RUNNING] = 6
    hand.ask(7, hand.table([bytearray(MIB)]))
    hand.read()
    assert hand.channel.violation
    assert 7 in hand.channel.stowed


def test_what_was_stowed_goes_with_its_job(hand):
    hand.channel.stow(7, [b"x" * MIB], [])
    hand.channel.revoke(7)
    hand.say(ANSWERS.pack(1, 0) + FACT.pack(7, wire.WAS_REVOKED, 10, 0) + VALUE.pack(wire.NONE, 0))
    hand.read()
    assert hand.channel.stowed == {}


def test_what_a_process_that_has_ended_had_does_not_count(hand):
    """Its number may be another's by then."""
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    os.close(hand.channel.pidfd)
    hand.channel.pidfd = os.pidfd_open(child.pid)
    hand.offer(wire.BYTES, hand.table([b"x" * MIB]))
    hand.read()
    hand.channel.move.join(10)
    child.communicate(b"\n")
    assert hand.land() == []
    assert hand.got == {}
    assert hand.words[marker.TICKET] == 0


def test_who_can_be_reached_is_tried():
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    assert reaches(child.pid)
    child.communicate(b"\n")
    assert not reaches(child.pid)


def parcel(sizes: list[int], rest: bytes, count: int | None = None) -> bytes:
    body = numbers([len(sizes) if count is None else count, *sizes]) + rest
    return ANSWERS.pack(1, len(body)) + FACT.pack(7, 0, 10, 5) + VALUE.pack(wire.PICKLE | PARCEL, len(body)) + body


def test_a_parcel_by_pipe(hand):
    hand.say(parcel([-3, 4, -2], b"abcdefghi"))
    hand.read()
    assert hand.got[7][1].parts == [b"abc", bytearray(b"defg"), b"hi"]


@pytest.mark.parametrize(
    ("sizes", "rest", "count"),
    [([], b"", None), ([-3], b"abc", None), ([-3, 4], b"abc", None), ([-3, 4], b"abcdefgh", None), ([-1], b"a", 99),
     ([3, 3], b"abcdef", None), ([-3, 4], b"abcdefg", PARTS_MAX + 2), ([-3, 4], b"abcdefg", 1 << 60)],
)  # fmt: skip
def test_a_parcel_that_makes_no_sense(hand, sizes, rest, count):
    hand.say(parcel(sizes, rest, count))
    hand.read()
    assert hand.channel.violation
    assert hand.got == {}


# ---- memory and parcels


@pytest.mark.parametrize("size", [1, 100, memory.HUGE_FROM, memory.SHARED_FROM + 5])
@pytest.mark.parametrize("make", [bytes, bytearray])
def test_a_copy_is_the_same_and_its_own(size, make):
    data = make(os.urandom(size))
    copy = memory.copied(memoryview(data))
    assert (type(copy), copy) == (make, data)
    if make is bytearray:
        copy[-1] ^= 1
        assert copy != data


def test_an_address_is_where_the_bytes_are():
    import ctypes

    for part in (b"abc", bytearray(b"abc"), memoryview(b"xabc")[1:]):
        assert ctypes.string_at(memory.address(part), 3) == b"abc"


def test_a_copy_of_a_parcel_shares_what_nobody_can_change():
    fixed, changeable = b"x" * 100, bytearray(b"y" * 100)
    copy = Parcel([b"p", fixed, changeable]).copy()
    assert copy.parts[1] is fixed
    assert copy.parts[2] == changeable
    assert copy.parts[2] is not changeable
    assert len(copy) == 201
    assert payload_of([b"p"]) == b"p"


def test_tables_come_back():
    ticket, parts = wire.read_table(table(TICKET, [1, 2], [-3, 4]))
    assert (ticket, parts) == (TICKET, [(1, -3), (2, 4)])
