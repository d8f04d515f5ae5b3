"""Arguments and dispatch.  Imports little, so that `--help` is quick."""

from __future__ import annotations

import argparse
import contextlib
import errno
import os
import sys
from collections.abc import Sequence
from datetime import datetime, timedelta
from datetime import time as clock_time
from typing import NoReturn

from . import text
from .exits import CommandError, Exit

WORKERS_MAX = 1000  # as pool.WORKERS_MAX (a test compares), which would have to be imported for --help
TASKS_MAX = 100_000_000
SHORTAGES = frozenset((errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EAGAIN))
# Without a class or number of its own: no process for a thread, no memory for an extension module or its start.
SHORTAGE_WORDS = (
    "RuntimeError: can't start new thread",
    "failed to map segment from shared object",
    "raised unreported exception",
)
STATUSES = """\
exit status:
  0 all succeeded or were skipped   1 some job failed
  2 usage                           3 only deadlines were missed
  65 bad jobs file                  66 missing file
  70 our own fault                  73 cannot create
  74 cannot write                   75 busy: the journal is in use
  77 no permission
  129, 130, 143 ended by SIGHUP, SIGINT (Ctrl-C), SIGTERM"""


class Parser(argparse.ArgumentParser):
    """An ArgumentParser whose errors are one line."""

    def error(self, message: str) -> NoReturn:
        raise CommandError(Exit.USAGE, f"{message} (see {self.prog} --help)")


class Version(argparse.Action):
    """`--version`; looked up only when it is asked for."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> NoReturn:
        from importlib.metadata import PackageNotFoundError, version

        try:
            number = version("ptss_mp")
        except PackageNotFoundError:
            number = "(not installed)"
        text.emit(f"ptss-mp {number}\n")
        parser.exit()


def main(argv: Sequence[str] | None = None) -> int:
    """Run the program; return its exit status."""
    _open_streams()
    text.speak_json(False)
    try:
        args = _parser().parse_args(argv)
        status = int(_dispatch(args))
    except CommandError as error:
        status = text.failed(error)
    except SystemExit as end:  # argparse, after --help
        status = int(end.code or 0)
    except KeyboardInterrupt:
        status = Exit.SIGNALLED + 2
    except Exception as error:
        if os.environ.get("PTSS_MP_DEBUG"):
            raise
        status = _unexpected(error)
    try:
        text.emit("")  # what is still buffered fails here, not in the interpreter's last breath
    except OSError as error:
        if status != Exit.IO_ERROR:  # else that was said
            text.say(f"ptss-mp: cannot write to stdout: {error.strerror or error}", "ERROR")
        status = status or Exit.IO_ERROR
    _drop_unwritten()
    return status


def _drop_unwritten() -> None:
    """Let the interpreter's last flush succeed: what cannot be written stays unwritten, or the status would be 120."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError):
            with contextlib.suppress(OSError, ValueError):
                nothing = os.open(os.devnull, os.O_WRONLY)
                os.dup2(nothing, stream.fileno())
                os.close(nothing)


def _unexpected(error: Exception) -> int:
    """Say what nobody reckoned with: the machine is full, or we are to blame; return the exit status."""
    what = f"{type(error).__name__}: {error}"
    full = isinstance(error, MemoryError) or (isinstance(error, OSError) and error.errno in SHORTAGES)
    full = full or (isinstance(error, SyntaxError) and not _is_written_wrong(error))
    if full or any(words in what for words in SHORTAGE_WORDS):
        text.say(f"ptss-mp: this machine has no room for it: {what}", "ERROR")
        return Exit.CANNOT_CREATE
    how = "please report it, with what PTSS_MP_DEBUG=1 in the environment shows"
    text.say(f"ptss-mp: our own fault: {what}; {how}", "CRITICAL")
    return Exit.OUR_FAULT


def _is_written_wrong(error: SyntaxError) -> bool:
    """Return False if the file is as it should be: it was compiled where memory ended, which is told so too (3.11)."""
    try:
        with open(error.filename or "", "rb") as file:
            compile(file.read(), error.filename or "", "exec")
    except SyntaxError as again:
        return (again.msg, again.lineno) == (error.msg, error.lineno)  # else memory is still short
    except OSError:  # it is none: a text that we have made
        return True
    except MemoryError:
        pass
    return False


def _dispatch(args: argparse.Namespace) -> int:
    if args.command == "check":
        from .check import check

        return check(args)
    if args.command == "doctor":
        from .doctor import doctor

        return doctor(args)
    from .run import run

    return run(args)


def _open_streams() -> None:
    """Make the three standard descriptors stand, so that no file of ours gets their numbers."""
    while (fd := os.open(os.devnull, os.O_RDWR)) <= 2:
        os.set_inheritable(fd, True)
    os.close(fd)
    for name, number in (("stdout", 1), ("stderr", 2)):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, open(number, "w", closefd=False))  # noqa: SIM115 - for good
        elif hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")


def _parser() -> Parser:
    parser = Parser(
        prog="ptss-mp",
        allow_abbrev=False,
        description="Run jobs in supervised worker processes, earliest deadline first.",
        epilog=STATUSES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action=Version, nargs=0, help="show the version and exit")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    _add_run(commands)
    check = commands.add_parser(
        "check",
        allow_abbrev=False,
        help="say what a run would do",
        description="Print the tasks of a jobs file in order, each with what it needs; start none.",
    )
    check.add_argument("jobs", metavar="jobs.py", help="the jobs file")
    doctor = commands.add_parser(
        "doctor",
        allow_abbrev=False,
        help="say what this machine can do",
        description="Look at this machine, and try each promise; exit status 1 if one does not hold here.",
    )
    doctor.add_argument("--json", action="store_true", help="the findings as JSON on stdout")
    return parser


def _add_run(commands: argparse._SubParsersAction[Parser]) -> None:
    run = commands.add_parser(
        "run",
        allow_abbrev=False,
        help="run a jobs file",
        description="Run all tasks of a jobs file; what succeeded jobs print goes to stdout.",
        epilog=STATUSES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    run.add_argument("jobs", metavar="jobs.py", help="the jobs file")
    run.add_argument("--workers", type=_workers, metavar="N", help="worker processes (default: usable CPUs)")
    run.add_argument(
        "--memfree", type=_size, metavar="SIZE",
        help="start no job while less memory is available, such as 2GiB; what runs goes on",
    )  # fmt: skip
    run.add_argument("--max-tasks", type=_max_tasks, metavar="N", help="most jobs held at once")
    run.add_argument(
        "--log-level",
        type=str.upper,
        default="WARNING",
        choices=("DEBUG", "INFO", "WARNING", "ERROR"),
        help="what is logged to stderr; DEBUG shows each transition of each job",
    )
    run.add_argument("--log-json", action="store_true", help="each line on stderr is a JSON object")
    run.add_argument(
        "--execution-log", metavar="F", help="add a line of JSON for each attempt there, failed ones included"
    )
    run.add_argument("--report", metavar="F.json", help="write all outcomes there at the end")
    run.add_argument(
        "--grace", type=_grace, default=30.0, metavar="TIME",
        help="what running jobs have after the first Ctrl-C: seconds, or text like 1m30s (default: 30)",
    )  # fmt: skip
    run.add_argument(
        "--only", nargs="+", action="extend", default=[], metavar="NAME",
        help="run these tasks, and all that they come after",
    )  # fmt: skip
    run.add_argument(
        "--state", metavar="F",
        help="write what a stopped run has left there; take it up if the file is there",
    )  # fmt: skip
    ends = run.add_mutually_exclusive_group()
    ends.add_argument(
        "--until", type=_instant, metavar="T",
        help="with recurring tasks: end then, such as 18:30, 2030-01-31T18:30 (local time) or 2030-01-31T18:30Z",
    )  # fmt: skip
    ends.add_argument(
        "--for", type=_lasts, dest="lasts", metavar="D", help="with recurring tasks: end after so long, such as 8h"
    )
    run.add_argument("--journal", metavar="F", help="keep there what was accepted and how it ended (docs/journal.md)")
    again = run.add_mutually_exclusive_group()
    again.add_argument("--resume", action="store_true", help="do not run what the journal has settled")
    again.add_argument("--resume-failed", action="store_true", help="do not run what succeeded by the journal")
    run.add_argument("--dry-run", action="store_true", help="print what would run, in order; start no job")
    run.add_argument("--no-progress", action="store_true", help="no progress lines on stderr")


def _workers(given: str) -> int:
    return _whole(given, WORKERS_MAX)


def _max_tasks(given: str) -> int:
    return _whole(given, TASKS_MAX)


def _whole(given: str, most: int) -> int:
    if not (given.isascii() and given.isdigit() and len(given) <= 12 and 1 <= int(given) <= most):
        raise argparse.ArgumentTypeError(f"must be a whole number within 1 and {most}, not {given[:40]!r}")
    return int(given)


def _size(given: str) -> int:
    from ..errors import InvalidOption
    from ..units import size_bytes

    try:
        return size_bytes(given, "it", bare_strings=True)
    except InvalidOption as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _instant(given: str) -> datetime:
    """Read an instant: a date with a time, or a time within the next day; of the machine's zone if it names none."""
    from ..timetable import zone

    try:
        if "T" in given or " " in given or "-" in given:
            at = datetime.fromisoformat(given)
            return at if at.tzinfo else at.replace(tzinfo=zone(None))
        now = datetime.now(zone(None))
        at = datetime.combine(now.date(), clock_time.fromisoformat(given), now.tzinfo)
        return at if at > now else at + timedelta(days=1)
    except ValueError:
        raise argparse.ArgumentTypeError(f"must look like 18:30 or 2030-01-31T18:30, not {given[:40]!r}") from None


def _lasts(given: str) -> int:
    from ..errors import InvalidOption
    from ..units import duration_ns

    try:
        return duration_ns(given, "it", bare_strings=True)
    except InvalidOption as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _grace(given: str) -> float:
    from ..errors import InvalidOption
    from ..units import SECOND_NS, duration_ns

    if given in ("0", "0s"):
        return 0.0
    try:
        return duration_ns(given, "it", bare_strings=True) / SECOND_NS
    except InvalidOption as error:
        raise argparse.ArgumentTypeError(str(error)) from None
