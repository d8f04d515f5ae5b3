"""`failures`, `history`, `explain`: what a journal tells of jobs that have run."""

from __future__ import annotations

import argparse
import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from ..units import shown_size
from . import text
from .exits import CommandError, Exit
from .ledger import Entry, Ledger, Run

STATES_SHOWN = 20  # of one job, the newest: all items of a map have one name


def failures(args: argparse.Namespace) -> int:
    """Print what has ended, and not well, each job once; return 1 if there is anything."""
    number = 0
    with Ledger(args.journal) as ledger:
        for entry in ledger.failures():
            number += 1
            _put(_as_json(entry) if args.json else text.failure_of(_facts(entry)))
    text.say(f"{args.journal}: {text.count(number, 'job')} failed")
    return Exit.FAILED if number else Exit.OK


def history(args: argparse.Namespace) -> int:
    """Print all runs, each with what it did."""
    counts = Counter[str]()
    with Ledger(args.journal) as ledger:
        runs = {run.number: run for run in ledger.runs()}
        for entry in ledger.jobs():
            counts[entry.status or "not settled"] += 1
            if args.json:
                _put(_as_json(entry))
                continue
            if entry.run in runs:
                _put(_run(runs.pop(entry.run)))
            _put(f"  {entry.settled or entry.accepted} {_line(entry)}")
        for run in () if args.json else runs.values():
            _put(_run(run))  # one that did nothing
    told = ", ".join(f"{number} {status}" for status, number in counts.items())
    text.say(f"{args.journal}: {text.count(counts.total(), 'job')}" + (f": {told}" if told else ""))
    return Exit.OK


def explain(args: argparse.Namespace) -> int:
    """Print the story of a job, the newest state first, each with its facts, its stack and its last words."""
    found = 0
    with Ledger(args.journal) as ledger:
        runs = {run.number: run for run in ledger.runs()}
        for entry in ledger.of(args.job):
            found += 1
            if found <= STATES_SHOWN:
                _put(_as_json(entry) if args.json else "\n".join(_story(entry, runs.get(entry.run))))
    if not found:
        raise CommandError(Exit.MISSING, f"{args.journal}: no job has the key or the name {args.job!r}")
    if found > STATES_SHOWN:
        text.say(f"{found - STATES_SHOWN} older ones are not shown; one of them may be asked for by its key")
    return Exit.OK


def _put(lines: str) -> None:
    """Write text to stdout that does nothing to a terminal, whoever wrote the journal."""
    text.emit_all(text.visible(lines, keep="\n") + "\n")


def _as_json(entry: Entry) -> str:
    return json.dumps(asdict(entry)).replace("\x7f", "\\u007f")


def _facts(entry: Entry) -> dict[str, Any]:
    return entry.facts | {"name": entry.name, "status": entry.status}


def _line(entry: Entry) -> str:
    """Return what became of a job in one line."""
    if entry.status is None:
        return f"{entry.name}: " + ("started, and not settled" if entry.started else "accepted, and not settled")
    if entry.status != "succeeded":
        return text.failure_of(_facts(entry))
    took = entry.facts["wall_time"]
    return f"{entry.name}: succeeded" + (f" | {text.seconds(took)}" if took is not None else "")


def _run(run: Run) -> str:
    until = f"to {run.ended}" if run.ended else "(its end is not noted: it runs, or was killed)"
    return f"run {run.number}: {run.started} {until}, pid {run.pid} on {run.host}: {run.program or '(no file)'}"


def _story(entry: Entry, run: Run | None) -> Iterator[str]:
    """Yield the lines of one state of a job."""
    facts = entry.facts
    yield f"{_line(entry)}"
    yield f"  key {entry.key}, run {entry.run}" + (f" of {run.program} on {run.host}" if run else "")
    yield f"  {entry.accepted} accepted"
    if entry.started:
        pid = facts["worker_pid"]
        yield f"  {entry.started} started" + (f", the last time by the worker with pid {pid}" if pid else "")
    if entry.settled:
        yield f"  {entry.settled} {entry.status}" + (
            f" after {facts['attempts']} attempts" if facts["attempts"] else ""
        )
    if facts["deadline"]:
        late = facts["tardiness"] or 0
        yield f"  {facts['deadline']} deadline" + (f", missed by {text.seconds(late)}" if late else "")
    if facts["root"]:
        yield f"  for the sake of {facts['root']}, which failed first"
    costs = {
        "cpu": facts["cpu_time"] is not None and text.seconds(facts["cpu_time"]),
        "peak": facts["max_rss"] is not None and shown_size(facts["max_rss"]),
        "limit": facts["limit"] is not None and f"{facts['limit']:g}",
        "observed": facts["observed"] is not None and f"{facts['observed']:g}",
    }
    if any(costs.values()):
        yield "  " + ", ".join(f"{what} {value}" for what, value in costs.items() if value)
    for what in ("stack", "stdout", "stderr"):
        if facts[what]:
            yield f"  --- {what} ---"
            yield from (f"  {line}" for line in facts[what].rstrip().splitlines())
