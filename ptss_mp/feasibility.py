"""Which tasks of a plan cannot meet their deadlines, or may not, as far as that shows before anything runs.

Nobody knows how long a job will take; what is known are start times, deadlines, and timeouts that were declared.  So
there are two kinds of findings.  **Certain**: a job can start no earlier than the latest start time of all that it
waits for, and its deadline has passed by then, whatever the machine (a necessary condition).  **Possible**: jobs that
run as long as their timeouts allow would end too late, along a chain of prerequisites, or because so many workers
cannot do so much in that time (the processor demand of Baruah, Rosier and Howell, 1990).  A timeout is no estimate, so
that is a warning of the worst case, and its absence is no proof: tasks without timeouts count as nothing.

Of tasks that recur each run is looked at by itself, for deadlines count from each release, and prerequisites that run
once are behind the first few.  Together they may ask for more than the workers have in the long run (the utilization of
Liu and Layland, 1973), and a run that outlasts its interval leaves out the next: both are possible, never certain.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from .core.job import NEVER
from .jobsfile import Plan, Planned
from .rules import Rules, rules
from .submission import instants
from .units import duration_ns, shown_duration


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
    """Of one task, ns; of one that recurs, of a run that is released at `release`.

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
    once = [at for at in times.values() if not at.task.root]
    found += [finding for finding in _together(once, workers) if finding.task not in named]
    found += _recurring([at for at in times.values() if at.task.root], workers)
    order = {task.name: i for i, task in enumerate(plan.tasks)}
    return sorted(found, key=lambda finding: order[finding.task])


def first_instants(task: Planned, root_release: int | None, now: int) -> tuple[int, int]:
    """Return (release, deadline) of a task that is submitted now; of one that recurs, those of its first run.

    Args:
        root_release: of the task with which it recurs; None: by itself, if it does.
    """
    ruled = rules(task.options)
    release, due = instants(task.options, ruled.deadline_ns, now)
    if task.root:  # a past start time is where the slots are counted from
        release = max(release, now) if root_release is None else root_release
        due = min(release + ruled.deadline_ns, NEVER) if ruled.deadline_ns else NEVER
    return release, due


def _times(plan: Plan, now: int, workers: int) -> dict[str, _Times]:
    times: dict[str, _Times] = {}
    for task in plan.tasks:  # each after what it needs
        ruled, root = rules(task.options), times.get(task.root)
        release, due = first_instants(task, root.release if root else None, now)
        at = times[task.name] = _Times(task, ruled, release, due, max(release, now), "", 0, ())
        late = at.starts
        for before in (times[name] for name in task.needs if times[name].task.jobs):
            if before.task.root != task.root:
                continue  # it runs once, and this again and again
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


def _recurring(times: list[_Times], workers: int) -> Iterator[Finding]:
    """Yield the tasks of which runs may be left out, and that all that recurs at intervals may be too much."""
    share = 0.0
    roots = [at.task for at in times if at.task.root == at.task.name and at.task.options.get("interval") is not None]
    for root in roots:
        run = [at for at in times if at.task.root == root.name]
        every = duration_ns(root.options.get("interval"), "interval")
        longest = max(at.ends - at.release for at in run)
        overlap = root.options.get("overlap", "skip")
        if longest > every and overlap in ("skip", "queue") and root.options.get("max_runs") != 1:
            text = f"may leave runs out: with every timeout used up, one takes {shown_duration(longest)}"
            yield Finding(root.name, False, f"{text}, and the next is due {shown_duration(every)} after it began")
        share += sum(at.rules.timeout_ns for at in run) / (every if overlap == "allow" else max(every, longest))
    if share > workers:
        text = f"may be late, as all that recurs: with every timeout used up, it takes {share:.1f} workers at any time"
        yield Finding(roots[-1].name, False, f"{text}, and there are {workers}")
