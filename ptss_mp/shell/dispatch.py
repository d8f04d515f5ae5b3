"""A dispatch: rows for the worker, runs for the warden, written before the worker can see the rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from .. import wire
from ..core.job import NEVER
from ..core.tokens import Holding
from ..warden.protocol import TICK_MAX_NS
from .channel import Channel
from .fitness import company
from .hire import Warden
from .rows import call_row, tell_about

if TYPE_CHECKING:
    from ..future import Future


def prepare_main(channel: Channel, main: bytes) -> tuple[Any, ...]:
    """Return the row by which a worker leaves, for the next one is born with `__main__`; or imports it (worker.py)."""
    channel.main = channel.dismissed = True
    return 0, wire.PREPARE_MAIN, 0, main, 0


def dispatch(
    channel: Channel, futures: Sequence[Future[Any]], warden: Warden, main: bytes, now: int, tokens: Holding
) -> bool:
    """Send these jobs to a worker; return True if the pipe did not take all.

    One who says that it is done and goes on is sent nothing: that stands in `violation` then.

    Jobs of one use and deadline make one run (3 % of the throughput; an entry per job would cost ten times that).

    Args:
        main: how to prepare `__main__`, for a worker that was born without it; empty: no call needs it.
        tokens: what the one job holds, if it does.
    """
    if not futures:
        return False
    if channel.sent == channel.answered and channel.still_runs():
        channel.violation = "an answer for a job that it still runs"
        return False
    rows: list[tuple[Any, ...]] = []
    blobs: list[Any] = []
    first = sent = channel.sent
    last, due, kill_at, limits = None, 0, 0, (0, 0, 0, 0)
    hurry, told = False, channel.use
    if main and not channel.main:
        rows.append(prepare_main(channel, main))
    for future in futures:
        use = future._use
        if use is not last or future._due != due:
            if last is not None:
                channel.limit(first, sent - first, now, kill_at, limits)
            first, last, due = sent, use, future._due
            kill_at = due if due != NEVER and use.rules.kill_at_deadline else 0
            limits = use.limits
            if use.rules.processes:
                limits = (*limits[:3], use.rules.processes + company(channel, now))
            if use.rules.file_bytes:
                channel.output.rewind()
            if use.spec.timeout_ns:
                warden.watch_for(use.spec.timeout_ns)
            hurry = hurry or use.watched or bool(kill_at and kill_at - now < (warden.tick_ns or TICK_MAX_NS))
            number = use.function.number
            if number >= 0 and number not in channel.known:
                channel.known.add(number)
                rows.append((0, wire.DEFINE, number, use.function.pickled, 0))
        if use is not told or future._extra is not None:
            told = tell_about(channel, future, rows, tokens)
        sent += 1
        future._pid = channel.pid
        rows.append(call_row(channel, future, kill_at, blobs))
    channel.limit(first, sent - first, now, kill_at, limits)
    channel.sent = sent
    channel.publish()
    warden.nudge() if hurry else warden.nudge_if_asleep()
    return channel.send(rows, blobs)
