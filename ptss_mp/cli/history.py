"""`failures`, `history`, `explain`: what a journal tells of jobs that have run."""

from __future__ import annotations

import argparse
import json
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from . import text
from .exits import CommandError, Exit
from .ledger import Entry, Ledger, Run

STATES_SHOWN = 20  # of one job, the newest: all items of a map have one name
KEY_CHARS_MAX = 200  # of a key beside a name
DEFAULT_KEY = re.compile(r"[^\s/:\\]+:[0-9a-f]{32}")  # keys.default_key; behind it stand a number, a release's instant


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
    told = text.by_status(counts)
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
    return entry.facts | {"name": _called(entry), "status": entry.status}


def _called(entry: Entry) -> str:
    """Return what tells a job from others of its name: a number, the instant of its release, a key it was given."""
    default = DEFAULT_KEY.match(entry.key)
    if default:
        return entry.name + entry.key[default.end() :]
    name, key = entry.name, entry.key.removeprefix(entry.name)
    told = key if key[:1] in ("", "@") else f" {entry.key}"
    return f"{name}{told[:KEY_CHARS_MAX]}"


def _line(entry: Entry) -> str:
    """Return what became of a job in one line."""
    if entry.status is None:
        return f"{_called(entry)}: " + ("started, and not settled" if entry.started else "accepted, and not settled")
    if entry.status != "succeeded":
        return text.failure_of(_facts(entry))
    took = entry.facts["wall_time"]
    return f"{_called(entry)}: succeeded" + (f" | {text.seconds(took)}" if took is not None else "")


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
        tries = f" after {text.count(facts['attempts'], 'attempt')}" if facts["attempts"] else ""
        yield f"  {entry.settled} {entry.status}{tries}"
    if facts["deadline"]:
        late = facts["tardiness"] or 0
        yield f"  {facts['deadline']} deadline" + (f", missed by {text.seconds(late)}" if late else "")
    if facts["root"]:
        yield f"  for the sake of {facts['root']}, which failed first"
    costs = {
        "cpu": facts["cpu_time"] is not None and text.seconds(facts["cpu_time"]),
        "peak": facts["max_rss"] is not None and text.memory(facts["max_rss"]),
        "limit": facts["limit"] is not None and _amount(entry.status, facts["limit"]),
        "observed": facts["observed"] is not None and _amount(entry.status, facts["observed"]),
    }
    if any(costs.values()):
        yield "  " + ", ".join(f"{what} {value}" for what, value in costs.items() if value)
    for what in ("stack", "stdout", "stderr"):
        if facts[what]:
            yield f"  --- {what} ---"
            yield from (f"  {line}" for line in facts[what].rstrip().splitlines())


def _amount(status: str | None, value: float) -> str:
    """Return a limit, or what was observed of it, by what the job ended for."""
    if status == "memory":
        return text.memory(round(value))
    return text.seconds(value) if status in ("timeout", "cpu", "deadline") else f"{value:g}"
