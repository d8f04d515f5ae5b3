"""Why a worker never came as far as its first job: its last words, for the log and for `PoolBroken`."""

from __future__ import annotations

import contextlib
import signal
from typing import TYPE_CHECKING

from ..warden import kernel, proc
from ..warden.protocol import DUMP_NS
from .hire import await_deaths

if TYPE_CHECKING:
    from .channel import Channel
    from .report import Report

OUTPUT_CHARACTERS, STACK_CHARACTERS = 2_000, 4_000  # as much as the errors of jobs tell


def too_late(channel: Channel, limit_ns: int) -> str:
    """Let a worker that is late show where it hangs, as its last act; return what to say of it."""
    if proc.status(channel.pid).can_dump:
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(channel.pidfd, kernel.DUMP_SIGNAL)
        await_deaths([channel.pidfd], DUMP_NS)
    return f"was not ready after {limit_ns / 1e9:g} s, and was killed; if it needs longer, give start_timeout more"


def last_words(channel: Channel, report: Report, late: str, initializer: bool) -> str:
    """Return how a worker ended before it was ready: what it raised or printed, and where it was.

    Args:
        report: of its end.
        late: what `too_late` said of it, or "".
        initializer: the pool has one.
    """
    if channel.failure:
        facts = channel.failure
        return f"it raised {facts.type_name}: {facts.text}\n{facts.traceback.rstrip()}"
    noise = f"sent {channel.violation}" if channel.violation else ""
    told = f"it {late or noise or report.exited(channel.status)}"
    if initializer and not late:
        told += "; call the initializer in a program of its own to see more"
    output = (report.err or report.out or b"").decode("utf-8", "replace")
    if output.strip():
        told += f"\n--- its last output ---\n{output[-OUTPUT_CHARACTERS:].rstrip()}"
    if report.stack:
        told += f"\n--- its stack ---\n{report.stack[-STACK_CHARACTERS:].rstrip()}"
    return told
