"""What can be asked of the program: its commands and their options.  Imports little, so that `--help` is quick."""

from __future__ import annotations

import argparse
from typing import NoReturn

from . import text
from .exits import CommandError, Exit

WORKERS_MAX = 1000  # as pool.WORKERS_MAX (a test compares), which would have to be imported for --help
TASKS_MAX = 100_000_000
STATUSES = """\
exit status:
  0 all succeeded or were skipped   1 some job failed
  2 usage                           3 only deadlines were missed
  65 bad jobs file                  66 missing file
  70 our own fault                  73 cannot create
  74 cannot write                   77 no permission
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


def make_parser() -> Parser:
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


def _grace(given: str) -> float:
    from ..errors import InvalidOption
    from ..units import SECOND_NS, duration_ns

    if given in ("0", "0s"):
        return 0.0
    try:
        return duration_ns(given, "it", bare_strings=True) / SECOND_NS
    except InvalidOption as error:
        raise argparse.ArgumentTypeError(str(error)) from None
