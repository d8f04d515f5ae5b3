"""The program's half of logging: what jobs logged is said by the same-named logger here.

A record is a line of JSON that a job controls: it is checked, and makes no logger that is not there yet (a logger
is never freed; the nearest one above it would handle the record in the same way).
"""

from __future__ import annotations

import json
import logging
from typing import Any

from ..logs import DISABLE

LOGGERS_MAX = 1_000  # whose levels workers take over; a program that sets more levels by hand does not exist
NAME_MAX = 1_000
LEVEL_MAX = 10_000  # a logger keeps for good what it was asked of each level
CREATED_MAX = 6e10  # seconds since 1970, either way: calendars that programs write instants in end not far behind it
_TEXTS = ("levelname", "pathname", "funcName", "threadName", "processName", "exc_text", "stack_info")
_NUMBERS = ("lineno", "thread", "process")


def levels() -> dict[str, int]:
    """Return the levels that workers take over: of the root, of each logger with one of its own, of `disable`."""
    manager = logging.root.manager
    found = {"": logging.root.level, DISABLE: manager.disable}
    for name, logger in list(manager.loggerDict.items()):
        if isinstance(logger, logging.Logger) and logger.level and len(found) < LOGGERS_MAX:
            found[name] = logger.level
    return found


def replay(lines: bytes, job: str | None) -> None:
    """Hand the records of a job's attempt to the program's loggers, with `record.ptss_job`.

    Raises:
        Exception: the first that a handler or filter of the program's raised, when all records were handed over.
    """
    whole = lines[: lines.rfind(b"\n") + 1]
    raised: Exception | None = None
    for line in whole.splitlines():
        try:
            record = _record(json.loads(line), job)
        except (ValueError, TypeError, KeyError, OverflowError, RecursionError):
            continue  # not ours: the job wrote there, or the beginning was given back
        try:
            logger = nearest(record.name)
            if logger.isEnabledFor(record.levelno):
                logger.handle(record)
        except Exception as error:  # a filter or handler of the program's; the other records have a right to be said
            raised = raised or error
    if raised:
        try:
            raise raised
        finally:
            del raised  # no cycle: error, traceback, this frame, error


def _record(facts: dict[str, Any], job: str | None) -> logging.LogRecord:
    name, message, level = facts["name"], facts["msg"], facts["levelno"]
    if type(name) is not str or type(message) is not str or type(level) is not int or len(name) > NAME_MAX:
        raise TypeError("no record of ours")
    created = float(facts["created"])
    if not -CREATED_MAX <= created <= CREATED_MAX:  # NaN too
        raise ValueError("no instant")
    level = max(-LEVEL_MAX, min(level, LEVEL_MAX))
    record = logging.LogRecord(name, level, "", 0, message, (), None)
    for key, value in dict(facts["extra"]).items():
        if type(key) is str and not hasattr(record, key):  # nor a method
            record.__dict__[key] = value
    record.__dict__ |= {key: facts[key] for key in _TEXTS if type(facts.get(key)) in (str, type(None))}
    record.__dict__ |= {key: facts[key] for key in _NUMBERS if type(facts.get(key)) is int}
    record.filename = (record.pathname or "").rpartition("/")[2]
    record.module = record.filename.removesuffix(".py")
    record.created = created
    record.msecs = created % 1 * 1000
    record.ptss_job = job
    return record


def nearest(name: str) -> logging.Logger:
    """Return the logger of that name, or the nearest one above it that exists."""
    known = logging.root.manager.loggerDict
    while name:
        logger = known.get(name)
        if isinstance(logger, logging.Logger):
            return logger
        name = name.rpartition(".")[0]
    return logging.root


