"""Parts of a plan: `--only`, and what an earlier run has left (`--state`)."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from ..declare import Options
from ..jobsfile import Plan
from ..units import nearest
from .exits import CommandError, Exit

if TYPE_CHECKING:
    from ..jobsfile import Planned

_GOOD = "succeeded"
_NO_FAILURE = (_GOOD, "skipped")


def check_names(plan: Plan, names: Iterable[str], path: str) -> None:
    """Refuse a name that is neither a task's nor a job's of a batch.

    Raises:
        CommandError: usage.
    """
    tasks = {task.name: task for task in plan.tasks}
    for name in names:
        if name not in tasks and not _is_job(name, tasks):
            hint = nearest(name, tasks)
            raise CommandError(Exit.USAGE, f"--only: {path} has no task named {name!r}{hint}")


def _is_job(name: str, tasks: Mapping[str, Planned]) -> bool:
    """Return True for `pages[3]` if there is a batch with such a job."""
    batch, bracket, number = name.removesuffix("]").rpartition("[")
    task = tasks.get(batch)
    if not bracket or task is None or task.items is None or not number.isdecimal() or len(number) > 12:
        return False
    return int(number) < len(task.items) and task.job_name(int(number)) == name


def only(plan: Plan, names: Collection[str]) -> Plan:
    """Return these tasks, or jobs of batches, and all that come before them."""
    names, needed, kept = frozenset(names), set[str](), []
    for task in reversed(plan.tasks):
        if task.name in needed or task.name in names:
            chosen = task
        elif task.items is not None:
            chosen = replace(task, chosen=tuple(n for n in task.numbers if task.job_name(n) in names))
        else:
            continue
        if chosen.jobs or task.name in needed or task.name in names:
            kept.append(chosen)
            needed.update(task.needs)
    return Plan(tuple(reversed(kept)))


def left(plan: Plan, names: Collection[str], ended: Mapping[str, str]) -> Plan:
    """Return the jobs that an earlier run has left, and of what they need what must be made again.

    That is what they take a value from, for values are not kept, and a prerequisite
    that ended otherwise than they want.  Other prerequisites that have ended count as they ended.

    Args:
        names: of the jobs that were left.
        ended: how the others ended, by name; jobs that are in neither were not part of that run.
    """
    names, again, kept = frozenset(names), set[str](), list["Planned"]()
    ends = {task.name: [ended[n] for n in map(task.job_name, task.numbers) if n in ended] for task in plan.tasks}
    for task in reversed(plan.tasks):
        if task.name not in again and not task.root:  # what recurs is never over
            chosen = tuple(n for n in task.numbers if task.job_name(n) in names)
            if not chosen:
                continue
            task = replace(task, chosen=None if task.items is None else chosen)
        kept.append(task)
        again.update(name for _, name, _ in task.takes)
        if task.options.get("run_if", "success") == "success":
            again.update(name for name in task.after if any(end != _GOOD for end in ends[name]))
    running = {task.name for task in kept}
    settled = {name: what for name, what in ends.items() if name not in again}
    return Plan(tuple(_without(task, settled, running) for task in reversed(kept)))


def _without(task: Planned, settled: Mapping[str, list[str]], running: Collection[str]) -> Planned:
    """Return a task without the prerequisites that have ended already."""
    after = tuple(name for name in task.after if name in running)
    gone = [end for name in task.after for end in settled.get(name, ())]
    if task.options.get("run_if") == "failure" and any(end not in _NO_FAILURE for end in gone):
        task = replace(task, options=task.options | Options(run_if="done"))  # one has failed: the condition is true
    return replace(task, after=after)
