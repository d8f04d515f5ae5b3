"""`run jobs.py`: submit a plan, follow it, sum it up."""

from __future__ import annotations

import argparse
import contextlib
import os
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

from . import attempts, files, journal, logs, report, state, text
from .control import Control, Live
from .exits import CommandError, Exit
from .halt import Halt
from .limits import check_memfree
from .plan import IMPORT_S_MAX, check_path, read
from .select import check_names, left, only
from .signals import Interrupts

if TYPE_CHECKING:
    from ..future import Future
    from ..jobsfile import Plan, Planned
    from ..recurring import Recurring
    from .follow import Following
    from .pool import RunExecutor


def run(args: argparse.Namespace) -> int:
    """Run all tasks of a jobs file, or those that were asked for; return the exit status."""
    text.speak_json(args.log_json)
    before = _check(args)
    with Interrupts(args.grace) as interrupts:
        with logs.to_stderr(args.log_level, args.log_json, ours=False):
            found = read(args.jobs, interrupts)
        plan = _selected(args, found, before)
        if not args.dry_run:
            with logs.to_stderr(args.log_level, args.log_json):
                return _run(args, plan, before, interrupts)
    return _rehearse(args, plan)


def _check(args: argparse.Namespace) -> state.Left | None:
    """Refuse what can be refused before anything runs; return what an earlier run has left, if one has."""
    check_path(args.jobs)
    journal.check(args)
    files.check_distinct(
        {"the jobs file": args.jobs, "--report": args.report, "--execution-log": args.execution_log,
         "--state": args.state, "--journal": args.journal}
    )  # fmt: skip
    check_memfree(args.memfree)
    if args.report is not None:
        report.check(args.report)
    if args.execution_log is not None:
        attempts.check(args.execution_log)
    if args.state is None:
        return None
    before = state.read(args.state, os.path.abspath(args.jobs))
    files.check(args.state, state.WHAT)
    return before


def _selected(args: argparse.Namespace, plan: Plan, before: state.Left | None) -> Plan:
    """Return what shall run of a file: what was left, what `--only` names."""
    there = {task.job_name(number) for task in plan.tasks for number in task.numbers} if before else set()
    check_names(plan, args.only, args.jobs)
    if before:
        state.check_names(args.state, before, there)
        plan = left(plan, before.names, before.ended)
    return only(plan, args.only) if args.only else plan


def _rehearse(args: argparse.Namespace, plan: Plan) -> int:
    """Print what would run, in order (`--dry-run`)."""
    from .rehearsal import rehearse

    planned, refused = rehearse(plan)
    text.emit_all("".join(text.planned(task) + "\n" for task in planned))
    for task, status in refused:
        text.say(f"{task.name}: would not run: {status}")
    would = sum(task.jobs for task in planned)
    text.say(f"{args.jobs}: {text.count(would, 'job')} would run, in this order; none was started")
    return Exit.OK


def _run(args: argparse.Namespace, plan: Plan, before: state.Left | None, interrupts: Interrupts) -> int:
    from .follow import Following
    from .pool import RunExecutor

    started = datetime.now(UTC)
    end = _end(args, started)
    pool = RunExecutor(
        max_workers=args.workers, max_pending=args.max_tasks, capture=True, start_timeout=2 * IMPORT_S_MAX,
        **journal.given(args),
    )  # fmt: skip
    with contextlib.ExitStack() as stack:
        log = None
        if args.execution_log is not None:
            log = stack.enter_context(contextlib.closing(attempts.ExecutionLog(args.execution_log)))
            pool.tell_failed_attempts(log.failed)
        # It was harmless in a worker: so the warden may import it too, and each worker is born with it.
        pool.preload_jobs(os.path.abspath(args.jobs))
        if args.memfree is not None:
            pool.start_only_with(args.memfree)
        if args.log_level == "DEBUG":
            logs.show_transitions(pool)
        following = Following(
            pool, plan.jobs, keep_facts=args.report is not None, keep_ends=args.state is not None, log=log,
            halt=Halt(args.halt) if args.halt else None, quiet=args.no_progress, recurs=plan.recurs,
        )  # fmt: skip
        try:
            interrupts.turn_to(pool)
            journal.begin(pool, args.jobs)
            live = Live(
                pool, os.path.abspath(args.jobs), args.grace, lambda: following.counts, partial(_named, pool),
                lambda future: str(future._use.name), None if plan.recurs else plan.jobs, end,
            )  # fmt: skip
            with Control(live):
                _submit(pool, plan, following)
                if plan.recurs:
                    following.wait_until(end, pool.release_no_more)
                else:
                    following.wait()
            pool.shutdown()
            following.stopped = live.stopped
        except BaseException:
            pool.kill_workers()
            pool.shutdown()
            raise
        interrupts.turn_to(None)
    return _close(args, plan, before, following, started, interrupts)


def _end(args: argparse.Namespace, started: datetime) -> datetime | None:
    """Return when a run with recurring tasks shall end, None: when it is told to."""
    until: datetime | None = args.until
    return until if args.lasts is None else started + timedelta(seconds=args.lasts)


# ---- Submitting.


def _submit(pool: RunExecutor, plan: Plan, following: Following) -> None:
    """Submit all jobs of a plan, in its order; ends early if the pool takes no more."""
    from ..errors import ExecutorClosed, InvalidOption, JournalError, PoolBroken

    wanted = {name for task in plan.tasks for name in task.needs}
    values: dict[str, Any] = {}  # of the wanted: its Future, of a batch the list of its Futures; or its Recurring
    try:
        if plan.recurs:
            pool.start()  # `add` does not
        for task in plan.tasks:
            if task.root:
                values[task.name] = recurring = _added(pool, task, values)
                recurring.add_done_callback(following.settled)
                continue
            futures = []
            for future in _jobs_of(pool, task, values):
                following.accepted += 1
                pool.tell_settled(future, following.settled)
                following.show_progress()
                if task.name in wanted:
                    futures.append(future)
            if task.name in wanted:
                values[task.name] = futures[0] if task.items is None else futures
    except (ExecutorClosed, PoolBroken, JournalError) as error:
        following.refusal = str(error)  # a signal came, or no worker can be started
    except InvalidOption as error:
        raise CommandError(Exit.BAD_FILE, str(error)) from None  # a key that cannot be made, or was given before
    following.no_more()


def _given(task: Planned, values: Mapping[str, Any]) -> tuple[list[Any], dict[str, Any], dict[str, Any]]:
    """Return what a task is given from others, by position and by name, and its options."""
    first = [values[name] for _, name, positional in task.takes if positional]
    named = {parameter: values[name] for parameter, name, positional in task.takes if not positional}
    given = {name: getattr(task.options, name) for name in task.options.given()}
    if task.after:
        given["after"] = list(_flat(values[name] for name in task.after))
    return first, named, given


def _added(pool: RunExecutor, task: Planned, values: Mapping[str, Any]) -> Recurring:
    """Add a task that recurs, or hangs on one that does."""
    first, named, given = _given(task, values)
    if task.keys:
        given["key"] = task.keys[0]
    return pool.add(task.ref, task.name, args=(*task.args, *first), kwargs={**task.kwargs, **named}, **given)


def _jobs_of(pool: RunExecutor, task: Planned, values: Mapping[str, Any]) -> Iterator[Future[Any]]:
    """Submit the jobs of one task; yield their Futures."""
    first, named, given = _given(task, values)
    view = pool.options(**given)
    for number in task.numbers:
        args = task.args if task.items is None else task.items[number]
        own = {"name": task.job_name(number)} | ({"key": task.keys[number]} if task.keys else {})
        yield view.options(**own).submit(task.ref, *args, *first, **task.kwargs, **named)


def _named(pool: RunExecutor, name: str) -> list[Future[Any]]:
    """Return the unsettled jobs of a name: one, or those of a batch."""
    return [f for f in pool.unsettled() if f._use.name == name or f._use.name.startswith(f"{name}[")]


def _flat(values: Iterable[Any]) -> Iterator[Any]:
    for value in values:
        if isinstance(value, list):
            yield from value
        else:
            yield value


# ---- Closing.


def _close(
    args: argparse.Namespace,
    plan: Plan,
    before: state.Left | None,
    following: Following,
    started: datetime,
    interrupts: Interrupts,
) -> int:
    """Print the summary, write what was asked for; return the exit status."""
    finished = datetime.now(UTC)
    took = (finished - started).total_seconds()
    for outcome in following.failed.values():
        if not following.stranded(outcome):
            times = following.times[outcome.name]
            told = text.failure(outcome) + (f" (the last of {times})" if times > 1 else "")
            text.say(told, "ERROR", job=outcome.name, status=outcome.status.value)
    number = interrupts.number  # once: what is printed, written and returned shall agree
    why = following.pool.why_broken or ("" if following.halted or following.stopped else following.refusal)
    if why and number is None:
        text.say(f"ptss-mp: {why}", "ERROR")
    if following.unwritten:
        text.say(f"ptss-mp: output of jobs was lost: {following.unwritten}", "ERROR")
    if following.lost_attempts:
        text.say(f"ptss-mp: the execution log lacks attempts: {following.lost_attempts}", "ERROR")
    for line in text.late(following.pool.status().late):
        text.say(line, "WARNING")
    never = following.total - following.accepted
    told = text.totals(following.counts, took)
    told += f" | {following.resumed} of them by an earlier run" if following.resumed else ""
    told += f" | {text.count(never, 'job')} never submitted" if never else ""
    if following.journal_fault:
        text.say(f"ptss-mp: {following.journal_fault}", "ERROR")
    settled = following.exit_status()
    status = settled if number is None or following.journal_fault else Exit.SIGNALLED + number
    if plan.tasks:
        text.say(told, exit_status=int(status), seconds=took, counts=following.counts)
    else:
        what = "nothing was left to run" if before else "no tasks, so nothing was run; decorate a function with @task"
        text.say(f"{args.jobs}: {what}")
    unmade = _write_state(args, plan, before, following, number)
    summary = {
        "file": args.jobs,
        "total": following.total,
        "never_submitted": never,
        "seconds": took,
        "signal": number,
        "exit_status": int(unmade or status),
    }
    return _write_report(args, summary, following, started, finished) or unmade or status


def _write_state(
    args: argparse.Namespace, plan: Plan, before: state.Left | None, following: Following, number: int | None
) -> int:
    """Write what is left for the next run; return the exit status of a failure, or 0."""
    if args.state is None:
        return 0
    ended = {**(before.ended if before else {}), **following.ends()}
    names = before.names if before else tuple(t.job_name(n) for t in plan.tasks for n in t.numbers if not t.root)
    still = tuple(name for name in names if name not in ended)
    try:
        state.write(args.state, os.path.abspath(args.jobs), still, ended, number)
    except CommandError as error:
        return text.failed(error)
    if still:
        text.say(f"{text.count(len(still), 'job')} left for the next run with --state {args.state}")
    return 0


def _write_report(
    args: argparse.Namespace, summary: dict[str, Any], following: Following, started: datetime, finished: datetime
) -> int:
    """Write the report, if one was asked for; return the exit status of a failure, or 0."""
    from ..outcome import Status, instant_text

    if args.report is None:
        return 0
    counts = {name.value: following.counts.get(name.value, 0) for name in Status}
    instants = {"started": instant_text(started), "finished": instant_text(finished)}
    try:
        report.write(args.report, counts | summary | instants, list(following.facts or ()))
    except CommandError as error:
        return text.failed(error)
    return 0
