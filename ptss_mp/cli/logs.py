"""What is logged, to stderr: lines that do nothing to a terminal, or one JSON object a line."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from . import text

if TYPE_CHECKING:
    from ..executor import Executor


class Lines(logging.Formatter):
    """A record in a line; only its traceback or stack, if it has one, takes more."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(name)s: %(message)s")

    def format(self, record: logging.LogRecord) -> str:
        """Return the line: what a job logs cannot forge another one, nor do anything to a terminal."""
        record.message = record.getMessage()
        record.asctime = self.formatTime(record)
        line = text.visible(self.formatMessage(record))
        job = getattr(record, "ptss_job", None)
        if job:
            line += f" (job {text.visible(job)})"
        more = (_traceback(record), record.stack_info)
        return "\n".join([line, *(text.visible(part, keep="\n") for part in more if part)])


class JsonLines(logging.Formatter):
    """A record in a line of JSON: at, level, logger, message, and job, traceback, stack if it has them."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        facts = {
            "job": getattr(record, "ptss_job", None),
            "traceback": _traceback(record),
            "stack": record.stack_info,
        }
        found = {name: value for name, value in facts.items() if value}
        at = datetime.fromtimestamp(record.created, UTC)
        return text.json_line(at, record.levelname, record.name, record.getMessage(), **found)


def _traceback(record: logging.LogRecord) -> str | None:
    """Return a record's traceback; that of a job's has come as text."""
    if record.exc_info and not record.exc_text:
        return logging.Formatter().formatException(record.exc_info)
    return record.exc_text


class Handler(logging.StreamHandler[Any]):
    """To stderr; one that nobody reads is no reason for a traceback."""

    def handleError(self, record: logging.LogRecord) -> None:
        """Let the record go."""


@contextlib.contextmanager
def to_stderr(level: str = "WARNING", as_json: bool = False, *, ours: bool = True) -> Iterator[None]:
    """Log to stderr from `level` on, while the block lasts.

    Args:
        ours: what this library logs, too; while a file is read the command itself says what went wrong.
    """
    root, handler = logging.getLogger(), Handler()
    if not ours:
        handler.addFilter(lambda record: record.name.partition(".")[0] != "ptss_mp")
    handler.setFormatter(JsonLines() if as_json else Lines())
    before = root.level
    root.setLevel(level)
    root.addHandler(handler)
    try:
        yield
    finally:
        root.removeHandler(handler)
        root.setLevel(before)


def show_transitions(pool: Executor) -> None:
    """Tell each transition of each job (`--log-level DEBUG`)."""

    def show(entry: Any) -> None:
        facts = {"job": entry.name, "what": entry.what, "detail": entry.detail}
        text.say(f"{entry.what} {entry.name} {entry.detail}".rstrip(), "DEBUG", entry.at, **facts)

    pool.subscribe(show)
