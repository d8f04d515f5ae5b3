"""Rows for the worker: a job's call and the values of its prerequisites, as bytes that nobody here decodes."""

from __future__ import annotations

import pickle
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from .. import wire
from ..core.job import NEVER
from ..core.tokens import Holding
from ..parcel import Parcel, parts_of
from .report import make_outcome

if TYPE_CHECKING:
    from ..future import Future
    from .channel import Channel
    from .use import Use


def call_row(channel: Channel, future: Future[Any], due: int, blobs: list[Any]) -> tuple[Any, ...]:
    """Return the row of wire.CALLS; what is too long for it is left to `Freight.stow`."""
    call, extra, number = future._result, future._extra, future._use.function.number
    if type(call) is Parcel or (type(call) is bytes and len(call) > wire.INLINE_BYTES):
        call = channel.stow(future._id, parts_of(call), blobs)
    elif type(call) is not tuple and type(call) is not bytes and call is not None:  # a number; None: just cancelled
        call = (call,)
    if extra is None or not (extra.needs or extra.run):
        return future._id, number, call, None, due
    if extra.run:
        return future._id, number, call, [(wire.INT, extra.run.at, False)], due
    as_outcome = future._use.rules.run_if != "success"
    return future._id, number, call, [_need(channel, future._id, n, as_outcome, blobs) for n in extra.needs], due


def tell_about(
    channel: Channel, future: Future[Any], rows: list[tuple[Any, ...]], tokens: Holding
) -> Use | None:
    """Say what `current()` tells in the jobs that follow, and their kernel limits, if it is not what was said last.

    Jobs of one use share it, but for later attempts, tokens, and deadlines that do not kill; so a run of them costs
    one row.

    Returns:
        The use of which the worker knows all that its next job needs, None if each has something of its own.
    """
    use, extra = future._use, future._extra
    tries = extra.tries if extra else 0
    due = 0 if use.rules.kill_at_deadline or future._due == NEVER else future._due
    rules, metered = use.rules, use.spec.metered
    limits = (use.only, metered, rules.file_bytes, rules.open_files)
    about = (use.name, future._key, tries + 1, rules.timeout_ns, due, dict(tokens), *limits)
    if about != channel.about:
        channel.about = about
        rows.append((0, wire.ABOUT, 0, about, 0))
    shared = use.rules.kill_at_deadline and not (tries or tokens) and use.function.number >= 0  # no other is kept here
    shared = shared and future._key is use.key
    channel.use = use if shared else None
    return channel.use


def _need(
    channel: Channel, job: int, future: Future[Any], as_outcome: bool, blobs: list[Any]
) -> tuple[int, Any, bool]:
    """Return (kind, payload or what `Freight.stow` says of it, whether it is the latter) of a settled prerequisite."""
    kind: int
    payload: Any
    if as_outcome:
        kind, payload = wire.PICKLE, pickle.dumps(replace(make_outcome(future), _cause=None), 5)
    else:
        kind, payload = future._kind, future._result
    if kind > wire.BOOL and len(payload) > wire.INLINE_BYTES // 64:  # 256 jobs of 64 needs stay near 16 MiB
        return kind, channel.stow(job, parts_of(payload), blobs), True
    return kind, payload, False
