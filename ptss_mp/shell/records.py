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
    """Hand the records of a job's attempt to the program's loggers, with `record.ptss_job`."""
    whole = lines[: lines.rfind(b"\n") + 1]
    for line in whole.splitlines():
        try:
            record = _record(json.loads(line), job)
        except (ValueError, TypeError, KeyError, RecursionError):
            continue  # not ours: the job wrote there, or the beginning was given back
        logger = nearest(record.name)
        if logger.isEnabledFor(record.levelno):
            logger.handle(record)


def _record(facts: dict[str, Any], job: str | None) -> logging.LogRecord:
    name, message, level = facts["name"], facts["msg"], facts["levelno"]
    if type(name) is not str or type(message) is not str or type(level) is not int or len(name) > NAME_MAX:
        raise TypeError("no record of ours")
    record = logging.LogRecord(name, level, "", 0, message, (), None)
    for key, value in dict(facts["extra"]).items():
        if key not in record.__dict__ and type(key) is str:
            record.__dict__[key] = value
    record.__dict__ |= {key: facts[key] for key in _TEXTS if type(facts.get(key)) in (str, type(None))}
    record.__dict__ |= {key: facts[key] for key in _NUMBERS if type(facts.get(key)) is int}
    record.module = record.pathname.rpartition("/")[2].removesuffix(".py")
    record.filename = record.pathname.rpartition("/")[2]
    record.created = float(facts["created"])
    record.msecs = record.created % 1 * 1000
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


