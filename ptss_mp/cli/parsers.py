"""What can be asked of the program: its commands and their options.  Imports little, so that `--help` is quick."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import Any, NoReturn

from . import text, values
from .exits import CommandError, Exit

BEHIND = ("map", "exec")  # commands that take what stands behind "--" as it is
STATUSES = """\
exit status:
  0 all succeeded or were skipped   1 some job failed
  2 usage                           3 only deadlines were missed
  65 bad jobs file, module, journal 66 missing file, module, live run, job
  70 our own fault                  73 cannot create
  74 cannot write                   75 busy: journal in use, run silent
  77 no permission
  129, 130, 143 ended by SIGHUP, SIGINT (Ctrl-C), SIGTERM"""

EXEC_STATUSES = """\
exit status: the command's own, or
  124 timeout                       125 our fault
  126 it cannot be executed         127 it is not there
  137 memory, cpu time, processes   128 + n ended by signal n"""


class Parser(argparse.ArgumentParser):
    """An ArgumentParser whose errors are one line.

    Attributes:
        intermixed: options may stand between positional arguments: `map f --workers 2 a b`.
    """

    intermixed = False

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Parse; the standard library's way to intermix calls us again."""
        if not self.intermixed:
            return super().parse_known_args(args, namespace)
        self.intermixed = False
        return self.parse_known_intermixed_args(args, namespace)

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


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    """Return what was asked for; `behind` is what stands behind "--", for the commands that take it."""
    argv, behind = list(sys.argv[1:] if argv is None else argv), list[str]()
    if argv[:1] and argv[0] in BEHIND and "--" in argv:
        at = argv.index("--")
        argv, behind = argv[:at], argv[at + 1 :]
    args = _parser().parse_args(argv)
    args.behind = behind
    return args


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
    _add_rerun(commands)
    _add_map(commands)
    _add_exec(commands)
    check = commands.add_parser(
        "check",
        allow_abbrev=False,
        help="say what a run would do, and when",
        description="Print the tasks of a jobs file in order, each with what it needs and, if it recurs, its next "
        "times; warn of deadlines that cannot be met.  Nothing is started.",
    )
    check.add_argument("jobs", metavar="jobs.py", help="the jobs file")
    _add_live(commands)
    _add_journal(commands)
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
    run.add_argument(
        "--state", metavar="F",
        help="write what a stopped run has left there; take it up if the file is there",
    )  # fmt: skip
    _add_resume(run)
    run.add_argument("--dry-run", action="store_true", help="print what would run, in order; start no job")
    _add_tasks(run)


def _add_rerun(commands: argparse._SubParsersAction[Parser]) -> None:
    parser = commands.add_parser(
        "rerun",
        allow_abbrev=False,
        help="run a journal's jobs file again, but for what succeeded",
        usage="ptss-mp rerun --failed F [options]",
        description="Run the jobs file of a journal again, with that journal: what succeeded is not\nrun again.  "
        "It is `run jobs.py --journal F --resume-failed`, where you are.",
        epilog=STATUSES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--failed", required=True, dest="journal", metavar="F", help="the journal of an earlier run")
    _add_tasks(parser)
    parser.set_defaults(state=None, resume=False, resume_failed=True, dry_run=False)


def _add_tasks(run: Parser) -> None:
    """Add how the tasks of a jobs file are run."""
    run.add_argument("--max-tasks", type=values.max_tasks, metavar="N", help="most jobs held at once")
    _add_pool(run)
    _add_voice(run)
    run.add_argument(
        "--execution-log", metavar="F", help="add a line of JSON for each attempt there, failed ones included"
    )
    run.add_argument("--report", metavar="F.json", help="write all outcomes there at the end")
    run.add_argument(
        "--only", nargs="+", action="extend", default=[], metavar="NAME",
        help="run these tasks, and all that they come after",
    )  # fmt: skip
    ends = run.add_mutually_exclusive_group()
    ends.add_argument(
        "--until", type=values.instant, metavar="T",
        help="with recurring tasks: end then, such as 18:30, 2030-01-31T18:30 (local time) or 2030-01-31T18:30Z",
    )  # fmt: skip
    ends.add_argument(
        "--for",
        type=values.duration,
        dest="lasts",
        metavar="D",
        help="with recurring tasks: end after so long, such as 8h",
    )


def _add_map(commands: argparse._SubParsersAction[Parser]) -> None:
    parser = commands.add_parser(
        "map",
        allow_abbrev=False,
        help="call a function with each item, one job per item",
        usage="ptss-mp map module:function [options] (ITEM... | --from-file F | -)",
        description="Call a function with each item, a job per item; print one JSON object for each:\n"
        "the item, its value as JSON (else its repr), and the facts of its outcome.\n"
        "Items are read as there is room for them.  What stands behind -- are items,\nwhatever they look like.",
        epilog=STATUSES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.intermixed = True
    parser.add_argument("function", metavar="module:function", help="called with an item, which is text")
    parser.add_argument("items", metavar="ITEM", nargs="*", help="the items; - alone: the lines of stdin")
    parser.add_argument("--from-file", metavar="F", help="the lines of this file are the items")
    parser.add_argument("-0", "--null", action="store_true", help="items end with NUL, as find -print0 writes them")
    parser.add_argument("--keep-order", action="store_true", help="print in the order of the items, not as they end")
    parser.add_argument(
        "--results", metavar="DIR", help="write a folder for each item there: stdout, stderr, outcome.json"
    )
    parser.add_argument("--joblog", metavar="F", help="add a line for each item there, in GNU parallel's columns")
    _add_resume(parser)
    _add_limits(parser)
    parser.add_argument(
        "--deadline", type=values.duration, metavar="TIME", help="each item is killed so long after it was taken up"
    )
    parser.add_argument(
        "--retries", type=values.retries, metavar="N", help="how often an item is tried again that failed"
    )
    parser.add_argument("--fresh", action="store_true", default=None, help="a process of its own for each attempt")
    _add_pool(parser)
    _add_voice(parser)


def _add_exec(commands: argparse._SubParsersAction[Parser]) -> None:
    parser = commands.add_parser(
        "exec",
        allow_abbrev=False,
        help="run a command under limits",
        usage="ptss-mp exec [limits] [--json [F]] -- COMMAND...",
        description="Run a command as one job, on our own stdin, stdout and stderr.\n"
        "Limits hold for it and all that it starts; nothing of that is left when it ends.\n"
        "The first Ctrl-C goes to the command, the second kills.",
        epilog=EXEC_STATUSES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    _add_limits(parser)
    parser.add_argument(
        "--json", nargs="?", const="", metavar="F",
        help="write its outcome there as JSON: cause, seconds, memory (default: behind its own words, on stderr)",
    )  # fmt: skip


def _add_live(commands: argparse._SubParsersAction[Parser]) -> None:
    """Add what asks a live `run` or `map`."""
    for verb, does, more in (
        ("status", "say how live runs go", ""),
        ("pause", "let a live run start nothing new", "  What runs goes on."),
        ("resume", "let a paused run go on", ""),
        (
            "cancel",
            "cancel a job of a live run",
            "  If it runs, it is killed; a task that recurs is released no more, nor what comes after it.",
        ),
        ("stop", "stop a live run", "  Nothing new starts, what runs has the grace; ask again with --grace 0 to kill."),
    ):
        parser = commands.add_parser(verb, allow_abbrev=False, help=does, description=f"{does.capitalize()}.{more}")
        parser.intermixed = True
        default = "all" if verb == "status" else "the only one"
        if verb == "cancel":
            parser.add_argument("name", metavar="NAME", help="of a job or of a batch; of a map its item")
        parser.add_argument(
            "run",
            nargs="?",
            metavar="jobs.py",
            help=f"the run of this file, or of this module:function (default: {default})",
        )
        parser.add_argument("--pid", type=values.pid, metavar="N", help="the run with this process id")
        if verb == "status":
            parser.add_argument("--json", action="store_true", help="one JSON object per run on stdout")
        if verb == "stop":
            parser.add_argument(
                "--grace",
                type=values.grace,
                metavar="TIME",
                help="what running jobs have (default: the --grace of the run)",
            )


def _add_journal(commands: argparse._SubParsersAction[Parser]) -> None:
    """Add what reads a journal."""
    for verb, does, more in (
        (
            "failures",
            "list what failed, from a journal",
            "  Each job once, as it ended last; status 1 if there is any.",
        ),
        ("history", "list all runs and what they did, from a journal", ""),
        ("explain", "tell the story of one job, from a journal", "  The newest end of it first."),
    ):
        parser = commands.add_parser(
            verb, allow_abbrev=False, help=does, description=f"{does.capitalize()}.{more}  Nothing is written to it."
        )
        parser.intermixed = True
        parser.add_argument("journal", metavar="F", help="the journal")
        if verb == "explain":
            parser.add_argument("job", metavar="JOB", help="its key or its name")
        parser.add_argument("--json", action="store_true", help="one JSON object per job on stdout")


def _add_resume(parser: Parser) -> None:
    """Add where a run is kept, and what the next one does with it."""
    parser.add_argument(
        "--journal", metavar="F", help="keep there what was accepted and how it ended (docs/journal.md)"
    )
    again = parser.add_mutually_exclusive_group()
    again.add_argument("--resume", action="store_true", help="do only the rest: what the journal has no outcome of")
    again.add_argument("--resume-failed", action="store_true", help="the rest, and what failed or was interrupted")


def _add_limits(parser: Parser) -> None:
    """Add what bounds one attempt."""
    times, sizes = "seconds, or text like 1m30s", "bytes, or text like 512MiB"
    parser.add_argument("--timeout", type=values.duration, metavar="TIME", help=f"kill what runs longer: {times}")
    parser.add_argument(
        "--cpu-time", type=values.duration, metavar="TIME", help="kill what uses more of the processors"
    )
    parser.add_argument("--memory", type=values.size, metavar="SIZE", help=f"kill what holds more: {sizes}")
    parser.add_argument("--file-size", type=values.size, metavar="SIZE", help="let no file be written that is longer")
    parser.add_argument("--open-files", type=values.files, metavar="N", help="let no more files be open at once")
    parser.add_argument("--processes", type=values.processes, metavar="N", help="kill what is more processes at once")


def _add_pool(parser: Parser) -> None:
    """Add how a run works, and when it ends."""
    parser.add_argument(
        "-j", "--workers", type=values.workers, metavar="N", help="worker processes (default: usable CPUs)"
    )
    parser.add_argument(
        "--memfree", type=values.size, metavar="SIZE",
        help="start no job while less memory is available, such as 2GiB; what runs goes on",
    )  # fmt: skip
    parser.add_argument(
        "--halt", type=values.halt, metavar="WHEN",
        help="now,fail=1: kill what runs once a job has failed; soon,fail=3%%: start nothing more once 3%% have",
    )  # fmt: skip
    parser.add_argument(
        "--grace", type=values.grace, default=30.0, metavar="TIME",
        help="what running jobs have after the first Ctrl-C: seconds, or text like 1m30s (default: 30)",
    )  # fmt: skip


def _add_voice(parser: Parser) -> None:
    """Add what is said on stderr, and how."""
    parser.add_argument(
        "--log-level",
        type=str.upper,
        default="WARNING",
        choices=("DEBUG", "INFO", "WARNING", "ERROR"),
        help="what is logged to stderr; DEBUG shows each transition of each job",
    )
    parser.add_argument("--log-json", action="store_true", help="each line on stderr is a JSON object")
    parser.add_argument("--no-progress", action="store_true", help="no progress lines on stderr")
