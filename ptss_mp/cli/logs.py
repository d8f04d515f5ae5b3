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
    """A record in a line; only its traceback, if it has one, takes more."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(name)s: %(message)s")

    def formatMessage(self, record: logging.LogRecord) -> str:
        """Return the line: what a job logs cannot forge another one."""
        return text.visible(super().formatMessage(record))

    def formatException(self, ei: Any) -> str:
        """Return the traceback, its lines apart."""
        return text.visible(super().formatException(ei), keep="\n")

    def formatStack(self, stack_info: str) -> str:
        """Return the stack, its lines apart."""
        return text.visible(stack_info, keep="\n")


class JsonLines(logging.Formatter):
    """A record in a line of JSON: at, level, logger, message, and traceback if it has one."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        facts = {"traceback": self.formatException(record.exc_info)} if record.exc_info else {}
        at = datetime.fromtimestamp(record.created, UTC)
        return text.json_line(at, record.levelname, record.name, record.getMessage(), **facts)


class Handler(logging.StreamHandler[Any]):
    """To stderr; one that nobody reads is no reason for a traceback."""

    def handleError(self, record: logging.LogRecord) -> None:
        """Let the record go."""


@contextlib.contextmanager
def to_stderr(level: str, as_json: bool) -> Iterator[None]:
    """Log to stderr from `level` on, while the block lasts."""
    root, handler = logging.getLogger(), Handler()
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
