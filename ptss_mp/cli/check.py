"""`check jobs.py`: what a run would do, in order, and which deadlines cannot be met; nothing is started."""

from __future__ import annotations

import argparse

from . import logs, text
from .exits import Exit
from .plan import check_path, read
from .schedule import recurrence
from .signals import Interrupts


def check(args: argparse.Namespace) -> int:
    """Describe and compile the file, print its tasks, warn of deadlines; return the exit status."""
    from ..feasibility import findings
    from ..pool import cpus
    from ..shell.clock import monotonic_ns

    check_path(args.jobs)
    with logs.to_stderr(ours=False), Interrupts(grace=0) as interrupts:
        plan = read(args.jobs, interrupts)
    text.emit_all("".join(text.planned(task) + "\n" + recurrence(task) for task in plan.tasks))
    for finding in findings(plan, monotonic_ns(), cpus()):
        told = f"{args.jobs}: warning: {finding.task} {finding.text}"
        text.say(told, "WARNING", task=finding.task, certain=finding.certain)
    if plan.tasks:
        tasks, jobs = text.count(len(plan.tasks), "task"), text.count(plan.jobs, "job")
        text.say(f"{args.jobs}: {tasks}, {jobs}; none was started")
    else:
        text.say(f"{args.jobs}: no tasks; decorate a function with @task")
    return Exit.OK
