"""`run jobs.py`: submit a plan, follow it, sum it up."""

from __future__ import annotations

import argparse
import contextlib
import os
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from ..units import shown_size
from . import attempts, files, logs, report, state, text
from .exits import CommandError, Exit
from .plan import IMPORT_S_MAX, check_path, read
from .select import check_names, left, only
from .signals import Interrupts

if TYPE_CHECKING:
    from ..future import Future
    from ..jobsfile import Plan, Planned
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
    _check_distinct(args)
    _check_memfree(args.memfree)
    if args.report is not None:
        report.check(args.report)
    if args.execution_log is not None:
        attempts.check(args.execution_log)
    if args.state is None:
        return None
    before = state.read(args.state, os.path.abspath(args.jobs))
    files.check(args.state, state.WHAT)
    return before


def _check_distinct(args: argparse.Namespace) -> None:
    """Refuse to write one file over another."""
    seen = {os.path.realpath(args.jobs): "the jobs file"}
    for option in ("report", "execution_log", "state"):
        path, flag = getattr(args, option), "--" + option.replace("_", "-")
        other = flag if path is None else seen.setdefault(os.path.realpath(path), flag)
        if other != flag:
            raise CommandError(Exit.USAGE, f"{flag} {path!r} is {other} as well; each needs a file of its own")


def _check_memfree(least_bytes: int | None) -> None:
    """Refuse to wait for more memory than there is."""
    if least_bytes is None:
        return
    from ..shell.memfree import most_bytes

    most = most_bytes()
    if least_bytes > most:
        told = f"this machine (or the container) has {shown_size(most)}: no job could ever start"
        raise CommandError(Exit.USAGE, f"--memfree {shown_size(least_bytes)}: {told}")


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
    pool = RunExecutor(
        max_workers=args.workers, max_pending=args.max_tasks, capture=True, start_timeout=2 * IMPORT_S_MAX
    )
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
            quiet=args.no_progress,
        )  # fmt: skip
        try:
            interrupts.turn_to(pool)
            _submit(pool, plan, following)
            following.wait()
            pool.shutdown()
        except BaseException:
            pool.kill_workers()
            pool.shutdown()
            raise
        interrupts.turn_to(None)
    return _close(args, plan, before, following, started, interrupts)


# ---- Submitting.


def _submit(pool: RunExecutor, plan: Plan, following: Following) -> None:
    """Submit all jobs of a plan, in its order; ends early if the pool takes no more."""
    from ..errors import ExecutorClosed, PoolBroken

    wanted = {name for task in plan.tasks for name in task.needs}
    values: dict[str, Any] = {}  # of the wanted: its Future, of a batch the list of its Futures
    try:
        for task in plan.tasks:
            futures = []
            for future in _jobs_of(pool, task, values):
                following.accepted += 1
                pool.tell_settled(future, following.settled)
                following.show_progress()
                if task.name in wanted:
                    futures.append(future)
            if task.name in wanted:
                values[task.name] = futures[0] if task.items is None else futures
    except (ExecutorClosed, PoolBroken) as error:
        following.refusal = str(error)  # a signal came, or no worker can be started
    following.no_more()


def _jobs_of(pool: RunExecutor, task: Planned, values: Mapping[str, Any]) -> Iterator[Future[Any]]:
    """Submit the jobs of one task; yield their Futures."""
    first = [values[name] for _, name, positional in task.takes if positional]
    named = {parameter: values[name] for parameter, name, positional in task.takes if not positional}
    given = {name: getattr(task.options, name) for name in task.options.given()}
    if task.after:
        given["after"] = list(_flat(values[name] for name in task.after))
    view = pool.options(**given)
    for number in task.numbers:
        args = task.args if task.items is None else task.items[number]
        yield view.options(name=task.job_name(number)).submit(task.ref, *args, *first, **task.kwargs, **named)


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
            text.say(text.failure(outcome), "ERROR", job=outcome.name, status=outcome.status.value)
    number = interrupts.number  # once: what is printed, written and returned shall agree
    why = following.pool.why_broken or following.refusal
    if why and number is None:
        text.say(f"ptss-mp: {why}", "ERROR")
    if following.unwritten:
        text.say(f"ptss-mp: output of jobs was lost: {following.unwritten}", "ERROR")
    if following.lost_attempts:
        text.say(f"ptss-mp: the execution log lacks attempts: {following.lost_attempts}", "ERROR")
    for line in text.late(following.pool.status().late):
        text.say(line, "WARNING")
    never = following.total - following.accepted
    told = text.totals(following.counts, took) + (f" | {text.count(never, 'job')} never submitted" if never else "")
    status = following.exit_status() if number is None else Exit.SIGNALLED + number
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
    names = before.names if before else tuple(t.job_name(n) for t in plan.tasks for n in t.numbers)
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
        report.write(args.report, counts | summary | instants, following.facts or [])
    except CommandError as error:
        return text.failed(error)
    return 0
