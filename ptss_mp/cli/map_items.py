"""`map module:function ITEM...`: one job per item, one JSON object per item on stdout."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import time
from typing import TYPE_CHECKING, Any

from .. import wire
from . import appended, files, joblog, journal, logs, text
from .control import Control, Live
from .exits import CommandError, Exit
from .functions import AS_JSON, FunctionRef, describe
from .halt import Halt
from .items import Items, open_items
from .limits import check_memfree, task_options
from .plan import IMPORT_S_MAX, imported, tell_import
from .results import Results
from .signals import Interrupts

if TYPE_CHECKING:
    from ..outcome import Outcome
    from .feed import Feed, Job
    from .pool import RunExecutor

_NO_JSON = re.compile(r"[^ -\x7f]")  # nothing that `json.dumps` writes has such a character


def map_items(args: argparse.Namespace) -> int:
    """Call a function with each item; return the exit status."""
    text.speak_json(args.log_json)
    options = task_options(args)
    journal.check(args)
    files.check_distinct(
        {"the file of the items": args.from_file, "--joblog": args.joblog, "--results": args.results,
         "--journal": args.journal}
    )  # fmt: skip
    check_memfree(args.memfree)
    if args.joblog is not None:
        appended.check(args.joblog, joblog.WHAT)
    ref = _ref(args.function)
    items = open_items(args.items, args.behind, args.from_file, b"\0" if args.null else b"\n")
    with contextlib.closing(items), Interrupts(args.grace) as interrupts:
        with logs.to_stderr(args.log_level, args.log_json, ours=False):
            _look_for(ref, interrupts)
        with logs.to_stderr(args.log_level, args.log_json), contextlib.ExitStack() as stack:
            return Mapped(args, ref, interrupts, stack).run(options, items)


def _ref(given: str) -> FunctionRef:
    module, colon, name = given.partition(":")
    if not colon or not all(part.isidentifier() for part in (*module.split("."), *name.split("."))):
        raise CommandError(Exit.USAGE, f"a function looks like module:function, {given!r} does not")
    try:
        return FunctionRef(module, name, os.getcwd())
    except OSError as error:
        raise CommandError(Exit.MISSING, f"the current folder: {error.strerror}") from None


def _look_for(ref: FunctionRef, interrupts: Interrupts) -> None:
    """Refuse a function that is not there, before any item is taken.

    Raises:
        CommandError: bad file, missing.
    """
    outcome = imported(interrupts, ref.module, ref.module, describe, ref.module, ref.name, ref.folder)
    found = outcome.result()
    if found:
        raise CommandError(Exit.MISSING if found["missing"] else Exit.BAD_FILE, found["error"])
    tell_import(outcome)


class Mapped:
    """One run of a function over items.

    Args:
        stack: closes what is opened.
    """

    def __init__(
        self, args: argparse.Namespace, ref: FunctionRef, interrupts: Interrupts, stack: contextlib.ExitStack
    ) -> None:
        self._args, self._ref, self._interrupts, self._stack = args, ref, interrupts, stack
        self._what = f"{ref.module}:{ref.name}"
        self._results: Results | None = None
        self._log: joblog.JobLog | None = None
        self._resumed = 0
        self._halt = Halt(args.halt) if args.halt else None
        self._live: Live | None = None
        self._read_by_nobody = False  # stdout
        self._unwritten = ""

    def run(self, options: dict[str, Any], items: Items) -> int:
        """Take all items, tell of all, sum it up; return the exit status."""
        from .feed import Feed
        from .tally import Tally

        began, pool = time.monotonic(), self._pool()
        tally = Tally(pool, self._args.no_progress)
        feed = Feed(pool.options(**options), self._ref, items, self._args.keep_order, self._ended)
        grace = self._args.grace
        live = self._live = Live(pool, self._what, grace, lambda: tally.counts, feed.named, feed.title, total=None)
        with contextlib.closing(feed):
            try:
                self._interrupts.turn_to(pool)
                journal.begin_map(pool, self._what)
                self._open_files()
                with Control(live):
                    for job in feed:
                        if job:
                            self._settled(pool, tally, job)
                        else:
                            pool.leave_if_stuck()
                        tally.show_progress()
                pool.shutdown()
            except BaseException:
                pool.kill_workers()
                pool.shutdown()
                raise
        self._interrupts.turn_to(None)
        return self._close(pool, tally, feed, time.monotonic() - began)

    def _open_files(self) -> None:
        """Open what is written for each item: once nothing can be refused any more."""
        if self._args.results is not None:
            self._results = Results(self._args.results)
        if self._args.joblog is not None:
            self._log = self._stack.enter_context(contextlib.closing(joblog.JobLog(self._args.joblog)))

    def _pool(self) -> RunExecutor:
        from .pool import RunExecutor

        pool = RunExecutor(
            max_workers=self._args.workers, capture=True, start_timeout=2 * IMPORT_S_MAX, **journal.given(self._args)
        )
        # It was harmless in a worker: so the warden may import it too, and each worker is born with it.
        pool.preload_function(self._ref.module, self._ref.name, self._ref.folder)
        if self._args.memfree is not None:
            pool.start_only_with(self._args.memfree)
        if self._args.log_level == "DEBUG":
            logs.show_transitions(pool)
        return pool

    def _ended(self) -> bool:
        """Return True if no more items shall be taken."""
        halted = self._halt is not None and bool(self._halt.told)
        unread = self._read_by_nobody or bool(self._unwritten)
        return (
            self._interrupts.number is not None or halted or unread or (self._live is not None and self._live.stopped)
        )

    def _settled(self, pool: RunExecutor, tally: Any, job: Job) -> None:
        """Tell of one item: whoever asked for it, the files, the halt."""
        from ..errors import PoolBroken

        outcome = job.future.outcome()
        line = json_line(job.item, outcome)
        self._resumed += outcome.resumed
        if self._log and not outcome.resumed:
            self._log.ended(job.number, f"{self._what} {job.item}", outcome)
        if self._results:
            self._results.ended(job.item, outcome, line)
        nobody = self._read_by_nobody or bool(self._unwritten)
        tally.settled(
            job.item, outcome,
            cut_off=isinstance(outcome._cause, PoolBroken) or (nobody and outcome.status.value == "cancelled"),
        )  # fmt: skip
        if self._halt and not outcome.resumed:
            self._halt.settled(outcome, pool)
        if not nobody:
            self._tell(line, pool)

    def _tell(self, line: str, pool: RunExecutor) -> None:
        try:
            self._read_by_nobody = not text.emit(line + "\n")
        except OSError as error:
            self._unwritten = error.strerror or str(error)
        if self._read_by_nobody or self._unwritten:
            pool.begin_end()  # nobody would hear of what starts now

    def _close(self, pool: RunExecutor, tally: Any, feed: Feed, took: float) -> int:
        number, fault = self._interrupts.number, journal.fault(pool)
        status = tally.exit_status() if number is None else Exit.SIGNALLED + number
        status = status or (Exit.OK if self._ended() else feed.refused)
        status = Exit.IO_ERROR if fault else status
        why = pool.why_broken or ("" if self._ended() or fault else feed.refusal)
        if fault or (why and number is None):
            text.say(f"ptss-mp: {fault or why}", "ERROR")
        lost = {
            "stdout": self._unwritten,
            joblog.WHAT: self._log.lost if self._log else "",
            "some results": self._results.lost if self._results else "",
        }
        for what, why in lost.items():
            if why:
                text.say(f"ptss-mp: cannot write {what}: {why}", "ERROR")
                status = status or Exit.IO_ERROR
        if not self._read_by_nobody:
            told = text.totals(tally.counts, took, "item")
            told += f" | {self._resumed} of them by an earlier run" if self._resumed else ""
            text.say(told, exit_status=int(status), seconds=took, counts=tally.counts)
        return status


def json_line(item: str, outcome: Outcome[Any]) -> str:
    """Return what is told of an item: the item, its value as JSON or else as text, the facts of its outcome."""
    parts = [f'"item": {json.dumps(item)}']
    if outcome.ok and outcome._value[0] == wire.STR:  # what a worker sent otherwise is none of ours, and not decoded
        shown = str(outcome.result())
        if shown[:1] == AS_JSON and not _NO_JSON.search(shown):
            parts.append(f'"value": {shown[1:]}')
        else:
            parts.append(f'"repr": {json.dumps(shown[1:])}')
    line = "{" + ", ".join([*parts, json.dumps(outcome.as_dict())[1:]])
    return line.replace("\x7f", "\\u007f")  # the one control character that JSON lets through
