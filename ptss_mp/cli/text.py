"""Rendering: what people read.  It goes to stderr; data goes to stdout."""

from __future__ import annotations

import contextlib
import json
import os
import re
import sys
import sysconfig
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ..jobsfile import Planned
    from ..outcome import Outcome
    from ..shell.lateness import Tardiness
    from .exits import CommandError

# "File "x.py", line 3, in f" of a traceback, "File "x.py", line 3 in f" of faulthandler
_FRAME = re.compile(r'File "(.+?)", line (\d+),? in (\S+)')
_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
LATE_MAX = 10  # tasks whose lateness has a line
LINE_CHARS_MAX = 1000  # a line of a summary is to be read


_as_json = False  # of what goes to stderr; `--log-json`


def visible(text: str, keep: str = "") -> str:
    """Return text whose control characters, and others that do not print, are seen: ESC as \\x1b.

    Args:
        keep: control characters that may stay.
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c in keep else c.encode("unicode_escape").decode("ascii") for c in text)


def speak_json(on: bool) -> None:
    """From now on `say` writes JSON objects, one a line, or plain lines."""
    global _as_json  # noqa: PLW0603 - how this program speaks, decided by its arguments
    _as_json = on


def json_line(at: datetime, level: str, logger: str, message: str, **facts: Any) -> str:
    """Return one line of JSON; no character in it does anything to a terminal."""
    from ..outcome import instant_text

    line = json.dumps({"at": instant_text(at), "level": level, "logger": logger, "message": message, **facts})
    return line.replace("\x7f", "\\u007f")  # the one control character that JSON lets through


def say(line: str, level: str = "INFO", at: datetime | None = None, *, whole: bool = False, **facts: Any) -> None:
    """Write one line to stderr in one piece; a stderr that nobody reads is no reason to fail.

    Args:
        at: when that was, if not now.
        whole: however long it is: it is data.
        level, facts: stand in the line if it is JSON.
    """
    if _as_json:
        line = json_line(at or datetime.now(UTC), level, "ptss_mp.cli", line, **facts)
    else:
        line = visible(f"{at} {line}" if at else line)
        if len(line) > LINE_CHARS_MAX and not whole:
            line = line[: LINE_CHARS_MAX - 400] + " … " + line[-397:]
    with contextlib.suppress(OSError, ValueError):
        sys.stderr.write(line + "\n")
        sys.stderr.flush()


def failed(error: CommandError) -> int:
    """Say why the command, or a part of it, failed; return the exit status."""
    if str(error):
        say(f"ptss-mp: {error}", "ERROR")
    return error.status


def emit(text: str) -> bool:
    """Write data to stdout in one piece.  Once its reader has gone the rest vanishes quietly.

    A terminal is no reader of bytes: there, what a job prints may do nothing but be seen.

    Returns:
        False if the reader has gone just now.
    """
    if text and sys.stdout.isatty():
        text = visible(text, keep="\n\t")
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except BrokenPipeError:
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, sys.stdout.fileno())
        os.close(null)
        return False
    return True


def emit_all(text: str) -> None:
    """Write what a command is for to stdout.

    Raises:
        CommandError: it cannot be written.
    """
    from .exits import CommandError, Exit

    try:
        emit(text)
    except OSError as error:
        raise CommandError(Exit.IO_ERROR, f"cannot write to stdout: {error.strerror or error}") from None


def count(number: int, noun: str) -> str:
    """Return "1 job", "2 jobs"."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def seconds(value: float) -> str:
    """Return a duration in seconds with three digits that matter."""
    return f"{value:.3f} s" if value < 1 else f"{value:.1f} s"


def frames(stack: str) -> list[tuple[str, int, str]]:
    """Return the frames (file, line, function) of a traceback or a faulthandler stack, innermost first."""
    crash = "most recent call first" in stack
    if crash:  # several threads: the one that crashed is called current
        stack = stack[max(stack.find("Current thread"), 0) :].partition("\n\n")[0]
    found = [(file, int(line), name) for file, line, name in _FRAME.findall(stack)]
    return found if crash else found[::-1]


def where(stack: str | None, prefer: str | None = None) -> str:
    """Return "file:line in function" of the user's own innermost frame, else of a library's; never of ours, "" then.

    Args:
        stack: as in an `Outcome`.
        prefer: a file whose frames are taken before all others.
    """
    all_frames = [frame for frame in frames(stack or "") if not frame[0].startswith(_PACKAGE)]
    preferred = [frame for frame in all_frames if frame[0] == prefer]
    own = [frame for frame in all_frames if not _is_library(frame[0])]
    for file, line, name in (*preferred, *own, *all_frames):
        file = file if file == prefer else _short(file)
        return f"{file}:{line}" + ("" if name == "<module>" else f" in {name}")
    return ""


def _short(file: str) -> str:
    """Return a path below the current folder as relative to it."""
    try:
        return file.removeprefix(os.getcwd() + os.sep)
    except OSError:
        return file  # the current folder is gone


def _is_library(file: str) -> bool:
    paths = (sysconfig.get_path("stdlib"), sysconfig.get_path("platstdlib"))
    return "site-packages" in file or file.startswith(("<", *(path + os.sep for path in paths)))


def failure(outcome: Outcome[Any]) -> str:
    """Return the line of a failed job: name, cause, where, seconds, memory, its last word."""
    return failure_of(outcome.as_dict())


def failure_of(facts: Mapping[str, Any]) -> str:
    """Return the line of a failed job.

    Args:
        facts: as of an outcome as data.
    """
    from ..outcome import signal_name

    cause, causes = str(facts["status"]), []
    if facts["signal"] is not None:
        causes.append(signal_name(facts["signal"]))
    if facts["exit_code"] is not None:
        causes.append(f"exit status {facts['exit_code']}")
    if causes:
        cause += f" ({', '.join(causes)})"
    parts = [f"{facts['name']}: {cause}" + (f": {facts['error']}" if facts["error"] else "")]
    at = where(facts["stack"])
    if at:
        parts.append(f"at {at}")
    if facts["wall_time"] is not None:
        parts.append(seconds(facts["wall_time"]))
    if facts["max_rss"] is not None:
        parts.append(memory(facts["max_rss"]))
    if (facts["attempts"] or 0) > 1:
        parts.append(f"{facts['attempts']} attempts")
    last = (facts["stderr"] or "").rstrip().rpartition("\n")[2]
    if last and last not in parts[0]:
        parts.append(f"stderr: {last[-200:]}")
    return " | ".join(parts)


def memory(size: int) -> str:
    """Return what a job held, beyond what it was forked with: so a small one has nothing to show."""
    from ..units import shown_size

    return shown_size(size) if size >= 1 << 20 else "< 1 MiB"


def late(tasks: Mapping[str, Tardiness]) -> list[str]:
    """Return a line for each of the tasks that were the latest, and one for the others."""
    worst = sorted(tasks.items(), key=lambda item: -item[1].worst)
    lines = []
    for task, told in worst[:LATE_MAX]:
        what = "1 job ended after its deadline" if told.jobs == 1 else f"{told.jobs} jobs ended after their deadlines"
        lines.append(f"{task}: {what}, {seconds(told.worst)} late" + (" at most" if told.jobs > 1 else ""))
    if len(worst) > LATE_MAX:
        lines.append(f"{count(len(worst) - LATE_MAX, 'further task')} had jobs that ended after their deadlines")
    return lines


def totals(counts: Mapping[str, int], took: float, noun: str = "job") -> str:
    """Return the closing line of a run."""
    return f"{count(sum(counts.values()), noun)}: {by_status(counts) or 'nothing to do'} | {seconds(took)}"


def by_status(counts: Mapping[str, int]) -> str:
    """Return "3 succeeded, 1 failed": always in the order of `Status`, so that two runs can be compared."""
    from ..outcome import Status

    places = {status.value: place for place, status in enumerate(Status)}
    ordered = sorted(counts.items(), key=lambda item: places.get(item[0], len(places)))
    return ", ".join(f"{number} {status}" for status, number in ordered if number)


def planned(task: Planned) -> str:
    """Return the line of a task in `check`: name, size of a batch, what it needs."""
    line = task.name
    if task.items is not None:
        whole = len(task.items)
        line += f" ({count(whole, 'job')})" if task.jobs == whole else f" ({task.jobs} of {count(whole, 'job')})"
    if task.needs:
        line += f" <- {', '.join(task.needs)}"
        run_if = task.options.get("run_if", "success")
        if run_if != "success":
            line += f" (run_if={run_if})"
    return visible(line)
