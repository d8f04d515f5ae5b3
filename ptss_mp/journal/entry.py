"""A job as a row of the journal, and back: facts as JSON, the value as bytes that nobody here decodes."""

from __future__ import annotations

import json
import signal
import struct
from dataclasses import fields
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from .. import wire
from ..keys import storable
from ..outcome import Outcome, Status, instant_text
from ..parcel import PARTS_MAX, Parcel, sizes_of
from ..shell.clock import monotonic_ns, wall
from ..shell.report import make_outcome
from .store import BLOB_BYTES_MAX, Found

if TYPE_CHECKING:
    from ..future import Future

ACCEPTED, STARTED, SETTLED = range(3)  # what is to be written of a job
FACTS_MAX = 16 << 20  # characters of one row's facts: output, stack and texts have bounds far below
# A resumed run makes these again: nothing has run, or not to its own end, or what decided it may end otherwise now.
AGAIN = frozenset(("cancelled", "skipped", "dependency"))

_text = json.encoder.encode_basestring_ascii
_INT, _FLOAT = struct.Struct("<q"), struct.Struct("<d")
_INSTANTS = ("submitted", "released", "started", "finished", "deadline")
_TEXTS = ("error", "stack", "stdout", "stderr", "root")
_NUMBERS = ("max_rss", "cpu_time", "wall_time", "limit", "observed")

Row = tuple[Any, ...]


class Damaged(ValueError):
    """A row says what no row of ours says."""


def row_of(future: Future[Any], what: int, job: int, run: int, began_ns: int) -> Row:
    """Return a job's row of `jobs`, as far as ACCEPTED, STARTED or SETTLED."""
    use = future._use
    began = instant_text(wall(began_ns)) if began_ns and what != ACCEPTED else None
    if what != SETTLED:
        accepted = instant_text(wall(future._submitted))
        return job, run, future._key, storable(use.name), accepted, began, None, None, None, None, None
    if type(future._report) is tuple and future._due >= use.pool.never:
        return job, run, future._key, storable(use.name), *_plain_success(future, future._report)
    outcome = make_outcome(future)
    facts = outcome.as_dict()
    kept = not outcome.ok or use.scope.options.get("keep_result", True)
    kind, result = stored(*outcome._value) if kept else (None, None)
    accepted, settled, status = facts["submitted"], facts["finished"], facts["status"]
    ended = facts["started"] or began, status, settled, _json(facts, outcome), kind, result
    return job, run, future._key, storable(use.name), accepted, *ended


def _plain_success(future: Future[Any], fact: tuple[int, int, int, int]) -> Row:
    """Return what `row_of` tells of a cheap success (a bare row of its answer), in a third of the time."""
    use, now = future._use, monotonic_ns()
    began_ns, ended_ns = min(fact[2], now), min(fact[2] + fact[3], now)
    submitted, began, ended = (instant_text(wall(at)) for at in (future._submitted, began_ns, ended_ns))
    released = submitted if future._release == future._submitted else instant_text(wall(future._release))
    said = '""' if use.pool.captures else "null"
    facts = (
        f'{{"status": "succeeded", "name": {_text(use.name)}, "key": {_text(future._key)}, "submitted": "{submitted}", '
        f'"finished": "{ended}", "signal": null, "exit_code": null, "error": null, "stack": null, "stdout": {said}, '
        f'"stderr": {said}, "max_rss": null, "cpu_time": null, "wall_time": {min(fact[3], ended_ns) / 1e9!r}, '
        f'"attempts": 1, "worker_pid": {future._pid or "null"}, "limit": null, "observed": null, "root": null, '
        f'"resumed": false, "released": "{released}", "started": "{began}", "deadline": null, "tardiness": 0.0, '
        f'"signal_name": null, "ok": true, "root_key": ""}}'
    )
    kept = use.scope.options.get("keep_result", True)
    value = stored(future._kind, future._result) if kept else (None, None)
    return submitted, began, "succeeded", ended, facts, *value


def _json(facts: dict[str, Any], outcome: Outcome[Any]) -> str:
    """Return the facts of a report, and the key of the root, as JSON."""
    facts["root_key"] = outcome._root_key
    return json.dumps(facts)


def interrupted(name: str, key: str, accepted: str, started: str | None, now: datetime) -> str:
    """Return the facts of a job that ran when its program ended."""
    at = _instant(started) or now
    outcome: Outcome[Any] = Outcome(
        status=Status.INTERRUPTED, name=name, key=key, submitted=_instant(accepted) or at, finished=now, started=at,
        attempts=1, error="was running when the program ended",
    )  # fmt: skip
    return _json(outcome.as_dict(), outcome)


# ---- values


def stored(kind: int, payload: Any) -> tuple[int | None, bytes | None]:
    """Return (kind, bytes) of a value as the journal keeps it; (None, None): it is too large to be kept."""
    if kind <= wire.BOOL:  # the value itself; its kind says only whether it is a whole number
        if payload is None:
            return wire.NONE, None
        if type(payload) is float:
            return wire.FLOAT, _FLOAT.pack(payload)
        return (wire.BOOL if type(payload) is bool else wire.INT), _INT.pack(payload)
    if kind == wire.UNKEPT or len(payload) > BLOB_BYTES_MAX - (1 << 16):
        return None, None
    if type(payload) is Parcel:
        sizes = sizes_of(payload.parts)
        return kind | wire.PARCEL, b"".join([wire.numbers([len(sizes), *sizes]), *payload.parts])
    return kind, bytes(payload)


def value_of(kind: int | None, result: bytes | None) -> wire.Value:
    """Return what `stored` was given.

    Raises:
        Damaged: it was given nothing like that.
    """
    if kind is None:
        return wire.UNKEPT, None
    if kind == wire.NONE:
        return wire.NOTHING
    if not isinstance(result, bytes):
        raise Damaged("a value without bytes")
    if kind in (wire.INT, wire.BOOL, wire.FLOAT):
        if len(result) != 8:
            raise Damaged(f"a number of {len(result)} bytes")
        if kind == wire.FLOAT:
            return wire.NONE, _FLOAT.unpack(result)[0]
        (number,) = _INT.unpack(result)
        return (wire.NONE, bool(number)) if kind == wire.BOOL else (wire.INT, number)
    if kind == wire.PICKLE | wire.PARCEL:
        return wire.PICKLE, _parcel(result)
    if not wire.BOOL < kind <= wire.UNLOADABLE:
        raise Damaged(f"a value of kind {kind}")
    return kind, result


def _parcel(data: bytes) -> Parcel:
    count = _INT.unpack_from(data)[0] if len(data) >= 8 else 0
    if not 1 <= count <= PARTS_MAX + 1 or len(data) < 8 * (count + 1):
        raise Damaged("a value in parts whose number is wrong")
    sizes = struct.unpack_from(f"<{count}q", data, 8)
    at, parts = 8 * (count + 1), []
    if sum(map(abs, sizes)) != len(data) - at:
        raise Damaged("a value in parts whose sizes are wrong")
    for size in sizes:
        part = data[at : at + abs(size)]
        parts.append(part if size < 0 else bytearray(part))
        at += abs(size)
    parts[0] = bytes(parts[0])
    return Parcel(parts)


# ---- outcomes


def outcome_of(found: Found, name: str, key: str) -> Outcome[Any]:
    """Return the outcome that a settled row tells, marked as resumed.

    Args:
        name, key: as they are now.

    Raises:
        Damaged: the row makes no sense.
    """
    try:
        if not isinstance(found.facts, str) or len(found.facts) > FACTS_MAX:
            raise Damaged("no facts, or far too many")
        facts = json.loads(found.facts)
        status = Status(found.status or "")
    except (ValueError, RecursionError) as error:
        raise Damaged(f"its facts or its status: {error}") from None
    if not isinstance(facts, dict):
        raise Damaged("facts that are none")
    told: dict[str, Any] = {word: _instant(facts.get(word)) for word in _INSTANTS}
    told |= {word: _typed(facts.get(word), str) for word in _TEXTS}
    told |= {word: _typed(facts.get(word), int, float) for word in _NUMBERS}
    told |= {word: _typed(facts.get(word), int) for word in ("exit_code", "worker_pid")}
    if told["submitted"] is None or told["finished"] is None:
        raise Damaged("no instants")
    there = status is Status.SUCCEEDED or found.kind is not None
    try:
        late = float(_typed(facts.get("tardiness"), int, float) or 0)
    except OverflowError:
        raise Damaged("a number that is none") from None
    return Outcome(
        status=status, name=name, key=key, resumed=True, signal=_signal(_typed(facts.get("signal"), int)),
        attempts=_typed(facts.get("attempts"), int) or 0, tardiness=late,
        _value=value_of(found.kind, found.result) if there else wire.NOTHING,
        _root_key=_typed(facts.get("root_key"), str) or "", **told,
    )  # fmt: skip


def _typed(value: Any, *kinds: type) -> Any:
    if value is not None and type(value) not in kinds:
        raise Damaged(f"a fact of type {type(value).__name__}")
    return value


def _instant(value: Any) -> datetime | None:
    if value is None:
        return None
    try:
        return datetime.fromisoformat(_typed(value, str)).astimezone(UTC)
    except (ValueError, OverflowError):
        raise Damaged("an instant that is none") from None


def _signal(number: int | None) -> Any:
    try:
        return None if number is None else signal.Signals(number)
    except ValueError:
        return number


assert {f.name for f in fields(Outcome) if not f.name.startswith("_")} == {
    *_INSTANTS, *_TEXTS, *_NUMBERS, "status", "name", "key", "signal", "exit_code", "worker_pid", "attempts",
    "resumed", "tardiness",
}, "each fact comes back"  # fmt: skip
