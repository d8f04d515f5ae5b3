"""Which tasks of a plan cannot meet their deadlines, or may not, as far as that shows before anything runs.

Nobody knows how long a job will take; what is known are start times, deadlines, and timeouts that were declared.  So
there are two kinds of findings.  **Certain**: a job can start no earlier than the latest start time of all that it
waits for, and its deadline has passed by then, whatever the machine (a necessary condition).  **Possible**: jobs that
run as long as their timeouts allow would end too late, along a chain of prerequisites, or because so many workers
cannot do so much in that time (the processor demand of Baruah, Rosier and Howell, 1990).  A timeout is no estimate, so
that is a warning of the worst case, and its absence is no proof: tasks without timeouts count as nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from .core.job import NEVER
from .jobsfile import Plan, Planned
from .rules import Rules, rules
from .submission import instants
from .units import shown_duration


class Finding(NamedTuple):
    """A task whose deadline cannot be met, or may not.

    Attributes:
        task: its name.
        certain: it cannot, however fast everything is.
        text: by which bound, in words.
    """

    task: str
    certain: bool
    text: str


@dataclass(slots=True)
class _Times:
    """Of one task, ns.

    Attributes:
        release, due: as of a job submitted now; NEVER: no deadline.
        starts: no job of it can start earlier.
        gate: the task whose start time that is; "" its own.
        ends: if it and all before it ran as long as their timeouts allow, it would end then; at least.
        chain: the tasks that decide that, the first one first.
    """

    task: Planned
    rules: Rules
    release: int
    due: int
    starts: int
    gate: str
    ends: int
    chain: tuple[str, ...]


def findings(plan: Plan, now: int, workers: int) -> list[Finding]:
    """Return what can be said of a plan that is submitted now, in the order of its tasks.

    Args:
        now: instant of the monotonic clock.
        workers: how many jobs may run at once.
    """
    times = _times(plan, now, workers)
    found = [*filter(None, map(_alone, times.values()))]
    named = {finding.task for finding in found}
    found += [finding for finding in _together(list(times.values()), workers) if finding.task not in named]
    order = {task.name: i for i, task in enumerate(plan.tasks)}
    return sorted(found, key=lambda finding: order[finding.task])


def _times(plan: Plan, now: int, workers: int) -> dict[str, _Times]:
    times: dict[str, _Times] = {}
    for task in plan.tasks:  # each after what it needs
        ruled = rules(task.options)
        release, due = instants(task.options, ruled.deadline_ns, now)
        at = times[task.name] = _Times(task, ruled, release, due, max(release, now), "", 0, ())
        late = at.starts
        for before in (times[name] for name in task.needs if times[name].task.jobs):
            if before.starts > at.starts and ruled.run_if == "success":  # else it may go on when that one has failed
                at.starts, at.gate = before.starts, before.gate or before.task.name
            if before.ends > late:
                late, at.chain = before.ends, before.chain
        rounds = -(-task.jobs // workers)  # of a batch, if all workers are there for it
        at.ends = max(late, at.starts) + ruled.timeout_ns * rounds
        at.chain = (*at.chain, task.name) if ruled.timeout_ns else at.chain
    return times


def _alone(at: _Times) -> Finding | None:
    """Return what stands against a task, if all workers were there for it and what it waits for."""
    name, due = at.task.name, at.due
    if due == NEVER or not at.task.jobs:
        return None
    ending = "it would end `deadline` without having run" if at.rules.kill_at_deadline else "it would be late"
    if at.starts >= due:
        whose = f"the start time of {at.gate!r}, which it comes after," if at.gate else "its own start time"
        text = f"cannot meet its deadline: {whose} is {_behind(at.starts - due)} the deadline; {ending}"
        return Finding(name, True, text)
    if at.ends > due and at.chain:
        what = " -> ".join(at.chain) if len(at.chain) <= 6 else f"{at.chain[0]} -> … -> {at.chain[-1]}"
        over = shown_duration(at.ends - due)
        return Finding(name, False, f"may miss its deadline: with every timeout used up, {what} ends {over} after it")
    return None


def _behind(ns: int) -> str:
    return f"{shown_duration(ns)} after" if ns else "no earlier than"


def _together(times: list[_Times], workers: int) -> Iterator[Finding]:
    """Yield the first deadline by which so many workers could not have done all that is due by then."""
    due = sorted((at for at in times if at.due != NEVER and at.task.jobs), key=lambda at: at.due)
    if not due:
        return
    begin, work = min(at.starts for at in due), 0
    for at in due:
        work += at.rules.timeout_ns * at.task.jobs
        room = (at.due - begin) * workers
        if work > room > 0:
            asked, there = shown_duration(work), shown_duration(room)
            what = f"with every timeout used up, what is due by then takes {asked}"
            text = f"may miss its deadline: {what}, and {workers} workers have {there} together"
            yield Finding(at.task.name, False, text)
            return
