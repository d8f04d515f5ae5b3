"""A worker's half of logging: records become lines of JSON in a memfd, and the program says them (shell.records).

A memfd, not the pipe: it never blocks, has no lock that a killed job could keep, and what was logged before a
crash is in it.  `logging` itself takes 17 ms to import, so a worker does not: an import hook waits for the first job
that does.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Mapping
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from typing import Any

from .pipes import LOG_FD

TEXT_MAX = 60 << 10  # of a message or traceback: with its other facts a line stays far below what is read at once
EXTRAS_MAX = 32  # attributes that `extra=` adds
DISABLE = "disable"  # among the levels: what `logging.disable` was called with; no logger can be called so twice
_SENT = (
    "name", "levelno", "levelname", "pathname", "lineno", "funcName", "created", "thread", "threadName", "process",
    "processName",
)  # fmt: skip


def forward(levels: Mapping[str, int], told: Any) -> None:
    """Send the records of this worker's loggers home, from now or from the import of `logging` on.

    Args:
        levels: the program's levels by name of logger, "" the root, and `DISABLE`.
        told: called after each record, so that its job is examined.
    """
    if "logging" in sys.modules:
        _install(levels, told)
    else:
        sys.meta_path.insert(0, _Hook(levels, told))


class _Hook(MetaPathFinder):
    """Installs the handler once `logging` has been imported."""

    def __init__(self, levels: Mapping[str, int], told: Any) -> None:
        self.levels, self.told = levels, told

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        if name != "logging":
            return None
        with contextlib.suppress(ValueError):
            sys.meta_path.remove(self)
        spec = PathFinder.find_spec(name, path)
        loader: Any = spec.loader if spec else None
        if loader is None:
            return None
        run = loader.exec_module

        def exec_module(module: Any) -> None:
            run(module)
            _install(self.levels, self.told)

        loader.exec_module = exec_module
        return spec


def _install(levels: Mapping[str, int], told: Any) -> None:
    logging: Any = sys.modules["logging"]

    class Forward(logging.Handler):  # type: ignore[misc]
        def emit(self, record: Any) -> None:
            try:
                os.write(LOG_FD, _line(record))
                told()
            except Exception:
                self.handleError(record)

    root = logging.getLogger()
    for handler in list(root.handlers):
        if type(handler) is logging.StreamHandler:  # of the main module's import; the program has one itself
            root.removeHandler(handler)
    root.addHandler(Forward())
    for name, level in levels.items():
        if name == DISABLE:
            logging.disable(level)
        elif not name or logging.getLogger(name).level == logging.NOTSET:
            logging.getLogger(name).setLevel(level)


def _line(record: Any) -> bytes:
    import json

    logging: Any = sys.modules["logging"]
    facts = {name: getattr(record, name, None) for name in _SENT}
    facts["msg"] = record.getMessage()[:TEXT_MAX]
    if record.exc_info and not record.exc_text:
        record.exc_text = logging.Formatter().formatException(record.exc_info)
    facts["exc_text"] = record.exc_text and record.exc_text[-TEXT_MAX:]
    facts["stack_info"] = record.stack_info and record.stack_info[-TEXT_MAX:]
    extra = record.__dict__.keys() - logging.LogRecord("", 0, "", 0, "", (), None).__dict__.keys()
    facts["extra"] = {
        name: value if type(value) in _PLAIN else repr(value)[:1000]
        for name in sorted(extra)[:EXTRAS_MAX]
        if len(name) < 100 and len(str(value := getattr(record, name))) <= TEXT_MAX
    }
    return json.dumps(facts).encode() + b"\n"


_PLAIN = frozenset((str, int, float, bool, type(None)))
