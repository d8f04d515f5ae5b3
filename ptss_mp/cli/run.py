"""`run jobs.py`: submit a plan, follow it, sum it up."""

from __future__ import annotations

import argparse
import os
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import Future as AnyFuture
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from . import report, text
from .exits import Exit, together, weight
from .plan import IMPORT_S_MAX, check_path, read
from .signals import Interrupts

if TYPE_CHECKING:
    from ..executor import Executor
    from ..future import Future
    from ..jobsfile import Plan, Planned
    from ..outcome import Outcome

REPORTS = 4  # jobs whose own words stand in the line of progress
PROGRESS_S = 1.0  # a line of progress at most so often


def run(args: argparse.Namespace) -> int:
    """Run all tasks of a jobs file; return the exit status."""
    check_path(args.jobs)
    if args.report is not None:
        report.check(args.report)
    _start_logging(args.log_level)
    started = datetime.now(UTC)
    from ..executor import Executor

    pool = Executor(
        max_workers=args.workers, max_pending=args.max_tasks, capture=True, start_timeout=2 * IMPORT_S_MAX
    )
    try:
        with Interrupts(args.grace) as interrupts:
            plan = read(args.jobs, interrupts)
            # It was harmless in a worker: so the warden may import it too, and each worker is born with it.
            pool._pool.warm("ptss_mp.jobsimport", "load", os.path.abspath(args.jobs))
            interrupts.turn_to(pool)
            if args.log_level == "DEBUG":
                _show_transitions(pool)
            quiet = args.no_progress
            following = Following(pool, plan.jobs, keep_all=args.report is not None, quiet=quiet)
            _submit(pool, plan, following)
            following.wait()
            pool.shutdown()
    except BaseException:
        pool.kill_workers()
        pool.shutdown()
        raise
    if not plan.tasks:
        text.say(f"{args.jobs}: no tasks, so nothing was run; decorate a function with @task")
    return _close(args, following, started, interrupts.number)


def _start_logging(level: str) -> None:
    import logging

    logging.basicConfig(level=level, format="%(asctime)s %(levelname)s %(name)s: %(message)s")


def _show_transitions(pool: Executor) -> None:
    """Print each transition of each job (`--log-level DEBUG`)."""

    def show(entry: Any) -> None:
        text.say(f"{entry.at} {entry.what} {entry.name} {entry.detail}".rstrip())

    pool.subscribe(show)


# ---- Submitting.


def _submit(pool: Executor, plan: Plan, following: Following) -> None:
    """Submit all jobs of a plan, in its order; ends early if the pool takes no more."""
    from ..errors import ExecutorClosed, PoolBroken

    wanted = {name for task in plan.tasks for name in task.needs}
    values: dict[str, Any] = {}  # of the wanted: its Future, of a batch the list of its Futures
    try:
        for task in plan.tasks:
            futures = []
            for future in _jobs_of(pool, task, values):
                following.accepted += 1
                future.add_done_callback(following.settled)
                following.show_progress()
                if task.name in wanted:
                    futures.append(future)
            if task.name in wanted:
                values[task.name] = futures[0] if task.items is None else futures
    except (ExecutorClosed, PoolBroken) as error:
        following.refusal = str(error)  # a signal came, or no worker can be started
    following.no_more()


def _jobs_of(pool: Executor, task: Planned, values: Mapping[str, Any]) -> Iterator[Future[Any]]:
    """Submit the jobs of one task; yield their Futures."""
    first = [values[name] for _, name, positional in task.takes if positional]
    named = {parameter: values[name] for parameter, name, positional in task.takes if not positional}
    given = {name: getattr(task.options, name) for name in task.options.given()}
    if task.after:
        given["after"] = list(_flat(values[name] for name in task.after))
    view = pool.options(**given)
    if task.items is None:
        yield view.options(name=task.name).submit(task.ref, *task.args, *first, **task.kwargs, **named)
        return
    for number, item in enumerate(task.items):
        yield view.options(name=f"{task.name}[{number}]").submit(task.ref, *item, *first, **named)


def _flat(values: Iterable[Any]) -> Iterator[Any]:
    for value in values:
        if isinstance(value, list):
            yield from value
        else:
            yield value


# ---- Following.


class Following:
    """Counts what settles, lets succeeded jobs speak, shows progress.

    `settled` runs on the pool's callback thread, the rest in the main thread.

    Args:
        pool: where the jobs run.
        total: how many jobs there will be.
        keep_all: keep every outcome as data, for a report; else the failed ones only.
        quiet: show no progress.

    Attributes:
        accepted: jobs that were submitted.
        counts: settled jobs by status.
        failed: outcomes that are neither succeeded nor skipped, by name.
        weights: what the others count in the exit status.
        facts: outcomes as data, if they are kept.
        refusal: why the pool took no more jobs, or "".
        unwritten: why the output of jobs could not be written, or "".
    """

    def __init__(self, pool: Executor, total: int, *, keep_all: bool, quiet: bool) -> None:
        self.pool = pool
        self.total = total
        self.accepted = 0
        self.counts: dict[str, int] = {}
        self.failed: dict[str, Outcome[Any]] = {}
        self.weights: set[int] = set()
        self.facts: list[dict[str, Any]] | None = [] if keep_all else None
        self.refusal = ""
        self.unwritten = ""
        self._quiet = quiet
        self._done = 0
        self._expected: int | None = None
        self._all_settled = threading.Event()
        self._shown = (0, time.monotonic())
        self._reported = ""

    def settled(self, future: AnyFuture[Any]) -> None:
        """Take one settled job into account (a done-callback)."""
        try:
            self._take(future.outcome(0))  # type: ignore[attr-defined]
        finally:
            self._done += 1  # last: who sees it may read the rest
            if self._done == self._expected:
                self._all_settled.set()

    def _take(self, outcome: Outcome[Any]) -> None:
        status = outcome.status.value
        self.counts[status] = self.counts.get(status, 0) + 1
        if self.facts is not None:
            self.facts.append(outcome.as_dict())
        if outcome.ok or status == "skipped":
            self.weights.add(weight(outcome, {}))
        else:
            self.failed[outcome.name] = outcome
        if outcome.ok and outcome.stdout:
            try:
                text.emit(outcome.stdout)
            except OSError as error:
                self.unwritten = str(error)

    def no_more(self) -> None:
        """All jobs that will be accepted have been."""
        self._expected = self.accepted
        if self._done >= self._expected:
            self._all_settled.set()

    def wait(self) -> None:
        """Wait until all accepted jobs are settled; show progress meanwhile.

        Raises:
            InternalError: the pool has ended, and left jobs unsettled.
        """
        while not self._all_settled.wait(PROGRESS_S):
            self.show_progress()
            if self.pool.state == "stopped":
                self.pool.shutdown()  # returns after the last callback
                if not self._all_settled.is_set():
                    from ..errors import InternalError

                    left = text.count(self.accepted - self._done, "job")
                    raise InternalError(f"the pool has ended, but {left} of {self.accepted} never settled")

    def show_progress(self) -> None:
        """Show a line if the last one is a second old and something has changed."""
        done, now = self._done, time.monotonic()
        before, at = self._shown
        if self._quiet or now - at < PROGRESS_S:
            return
        reported = _reported(self.pool)
        changed = done != before or reported != self._reported
        self._shown, self._reported = (done, now), reported
        if not changed:
            return
        rate = (done - before) / (now - at)
        running = _running(self.pool)
        text.say(f"{done}/{self.total} done, {len(self.failed)} failed, {running} running, {rate:.0f} jobs/s{reported}")

    def exit_status(self) -> int:
        """Return what the outcomes come to."""
        weights = self.weights | {weight(outcome, self.failed) for outcome in self.failed.values()}
        if self.accepted < self.total:
            weights.add(Exit.FAILED)
        return together(weights) or (Exit.IO_ERROR if self.unwritten else Exit.OK)


def _running(pool: Executor) -> int:
    return pool.status().running


def _reported(pool: Executor) -> str:
    """Return what the first few running jobs tell of themselves (`current().progress`)."""
    from ..observe.progress import report_text

    told = [f" | {future._use.name}: {report_text(report)}" for future, report in pool._pool.progress()]
    return "".join(told[:REPORTS]) + (f" | {len(told) - REPORTS} more" if len(told) > REPORTS else "")


# ---- Closing.


def _close(args: argparse.Namespace, following: Following, started: datetime, number: int | None) -> int:
    """Print the summary, write the report; return the exit status."""
    finished = datetime.now(UTC)
    took = (finished - started).total_seconds()
    for outcome in following.failed.values():
        text.say(text.failure(outcome))
    if following.refusal and number is None:
        text.say(f"ptss-mp: {following.refusal}")
    if following.unwritten:
        text.say(f"ptss-mp: output of jobs was lost: {following.unwritten}")
    left = following.total - following.accepted
    told = text.totals(following.counts, took)
    text.say(told + (f" | {text.count(left, 'job')} never submitted" if left else ""))
    status = following.exit_status() if number is None else Exit.SIGNALLED + number
    if args.report is not None:
        from ..outcome import Status, instant_text

        summary = {name.value: following.counts.get(name.value, 0) for name in Status} | {
            "file": args.jobs,
            "total": following.total,
            "never_submitted": left,
            "started": instant_text(started),
            "finished": instant_text(finished),
            "seconds": took,
            "signal": number,
            "exit_status": int(status),
        }
        report.write(args.report, summary, following.facts or [])
    return status


