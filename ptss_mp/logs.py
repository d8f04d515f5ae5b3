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
from importlib.machinery import ModuleSpec, PathFinder
from typing import Any

from . import rlimits
from .pipes import LOG_FD

TEXT_MAX = 60 << 10  # of a message or traceback
EXTRAS_MAX = 32  # attributes that `extra=` adds
LINE_MAX = 900 << 10  # below what is read at once (shell.output.TEE_BYTES): of a longer one nothing would be left
SHORT_MAX = 2 << 10  # of each text where the line would be too long: 35 of them, at 12 bytes a character, are not
INT_BITS_MAX = 2_000  # a longer number may be none that Python writes as digits (sys.set_int_max_str_digits)
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


class _Hook:
    """Installs the handler once `logging` has been imported (no `importlib.abc`: a third of a warden's start)."""

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
                _keep(_line(record))
                told()
            except Exception:
                self.handleError(record)

    root = logging.getLogger()
    for handler in list(root.handlers):
        if type(handler) is logging.StreamHandler:  # of the main module's import; the program has one itself
            root.removeHandler(handler)
    forward = Forward()
    root.addHandler(forward)
    for name, level in levels.items():
        if name == DISABLE:
            logging.disable(level)
        elif not name or logging.getLogger(name).level == logging.NOTSET:
            logging.getLogger(name).setLevel(level)
    _kept[:] = [(logging, forward, root.level, root.manager.disable)]


_kept: list[tuple[Any, Any, int, int]] = []  # once installed: logging, the handler, the root's level, of `disable`


def set_back() -> bool:
    """Undo what a job has done to logging as a whole, for it would silence the next; return True if it had.

    What was told of single loggers stays: modules do that, once, while they are imported.
    """
    if not _kept:
        return False
    logging, forward, level, disabled = _kept[0]
    root = logging.root
    if forward in root.handlers and root.level == level and root.manager.disable == disabled:
        return False
    root.setLevel(level)
    logging.disable(disabled)
    if forward not in root.handlers:  # `basicConfig(force=True)`; `dictConfig`, which disables the loggers there are
        root.addHandler(forward)
        for logger in list(root.manager.loggerDict.values()):
            logger.disabled = False
    return True


def _keep(line: bytes) -> None:
    """Write a whole line, also where a job's `file_size` is in the way."""
    while line:
        try:
            written = os.write(LOG_FD, line)
        except OSError as error:
            written = rlimits.lifted(error, os.write, LOG_FD, line)
        line = line[written:]


def _line(record: Any) -> bytes:
    import json

    line = json.dumps(_facts(record, TEXT_MAX)).encode()
    if len(line) > LINE_MAX:
        line = json.dumps(_facts(record, SHORT_MAX)).encode()
    return line + b"\n"


def _facts(record: Any, text_max: int) -> dict[str, Any]:
    logging: Any = sys.modules["logging"]
    facts = {name: getattr(record, name, None) for name in _SENT}
    facts["msg"] = record.getMessage()[:text_max]
    if record.exc_info and not record.exc_text:
        record.exc_text = logging.Formatter().formatException(record.exc_info)
    facts["exc_text"] = record.exc_text and record.exc_text[-text_max:]
    facts["stack_info"] = record.stack_info and record.stack_info[-text_max:]
    extra = record.__dict__.keys() - logging.LogRecord("", 0, "", 0, "", (), None).__dict__.keys()
    names = sorted(name for name in extra if type(name) is str and len(name) < 100)
    facts["extra"] = {name: _shown(getattr(record, name), text_max) for name in names[:EXTRAS_MAX]}
    return facts


def _shown(value: Any, text_max: int) -> Any:
    """Return a value of `extra=` as JSON has it; what it cannot be shown as is no reason to lose the record."""
    if type(value) in _PLAIN or (type(value) is int and value.bit_length() <= INT_BITS_MAX):
        return value
    if type(value) is str:
        return value[:text_max]
    try:
        return repr(value)[:1000]
    except Exception:
        return f"({type(value).__name__}: it cannot be shown)"


_PLAIN = frozenset((float, bool, type(None)))
