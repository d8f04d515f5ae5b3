"""`--dry-run`: the order of a run, found by the very scheduler that orders it.

One worker that takes no time makes every job at once, and all succeed; the
clock jumps to the next start time when nothing is ready.  A batch is one job
here: its jobs share every option, so they come one after another.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from ..core import commands as do
from ..core import events as on
from ..core.job import NEVER, Prerequisite, Row, Spec
from ..core.scheduler import BUDGET_NS, Scheduler
from ..feasibility import first_instants
from ..jobsfile import Plan
from ..rules import rules
from ..shell.clock import monotonic_ns

if TYPE_CHECKING:
    from ..jobsfile import Planned

_WORDS = MappingProxyType({
    "deadline": "its deadline passes before it can start",
    "skipped": "nothing that it comes after has failed",
    "dependency": "something that it comes after would not run",
})  # fmt: skip


def rehearse(plan: Plan) -> tuple[list[Planned], list[tuple[Planned, str]]]:
    """Return the tasks in the order in which one worker would start them, and those that would not run, with why."""
    now = monotonic_ns()
    core = Scheduler(max_workers=1, spares=0)
    tasks = dict(enumerate(plan.tasks, 1))
    begun: list[Planned] = []
    refused: list[tuple[Planned, str]] = []
    events: list[Any] = [on.Submitted(now, _rows(plan, now))]
    while events:
        commands, events = core.step(events), []
        for command in commands:
            if isinstance(command, do.StartWorker):
                events.append(on.WorkerReady(now, command.worker))
            elif isinstance(command, do.Dispatch):
                begun += [tasks[job] for job in command.ids]
                # it is told to have filled the queue, so that each choice is made when the last job has ended
                events.append(on.Answered(now, command.worker, [(job, on.OK, now, BUDGET_NS) for job in command.ids]))
            elif isinstance(command, do.Settle) and command.status != "succeeded":
                refused += [(tasks[job], _WORDS.get(command.status, command.status)) for job in command.ids]
        if not events and core.wake_at < NEVER:
            now = max(now, core.wake_at)
            events = [on.Fired(now, {})]
    return begun, refused + [(tasks[job], "its start time never comes") for job in core.jobs]


def _rows(plan: Plan, now: int) -> list[Row]:
    rows: dict[str, Row] = {}
    for number, task in enumerate(plan.tasks, 1):
        if not task.jobs:
            continue  # an empty batch: nobody waits for it
        ruled = rules(task.options)
        root = rows.get(task.root)
        release, due = first_instants(task, root.release if root else None, now)
        spec = Spec(number, ruled.priority, 0, ruled.kill_at_deadline, ruled.run_if)
        needs = [rows[name] for name in task.needs if name in rows]
        after = tuple(Prerequisite(row.id, "", row.release, row.due) for row in needs)
        rows[task.name] = Row(number, spec, due, release, after or None)
    return list(rows.values())
