"""A job's row for the worker: its call, and the values of its prerequisites, as bytes that nobody here decodes."""

from __future__ import annotations

import pickle
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from .. import wire
from .report import make_outcome

if TYPE_CHECKING:
    from ..future import Future


def call_row(future: Future[Any], due: int, blobs: list[bytes]) -> tuple[Any, ...]:
    """Return the row of wire.CALLS; what is too long for it is appended to `blobs`."""
    call, extra = future._call, future._extra
    if type(call) is bytes and len(call) > wire.INLINE_BYTES:
        blobs.append(call)
        call = len(call)
    needs = None
    if extra is not None and extra.needs:
        as_outcome = future._use.rules.run_if != "success"
        needs = [_need(need, as_outcome, blobs) for need in extra.needs]
    return future._id, future._use.function.number, call, needs, due


def _need(future: Future[Any], as_outcome: bool, blobs: list[bytes]) -> tuple[int, Any, bool]:
    """Return (kind, payload or its length, whether it stands among the blobs) of a settled prerequisite."""
    if as_outcome:
        kind, payload = wire.PICKLE, pickle.dumps(replace(make_outcome(future), _cause=None), 5)
    else:
        kind, payload = future._kind, future._result
    if kind > wire.BOOL and len(payload) > wire.INLINE_BYTES // 64:  # 64 jobs of 64 needs each stay under 4 MiB
        blobs.append(payload)
        return kind, len(payload), True
    return kind, payload, False
