"""Every promise that the core makes about itself, as assertions.

`check` is called after each step in tests and in the simulator.  It knows the
scheduler's insides; the simulator's auditor, which shares no code with the
core, re-derives the promises to users from events and commands alone.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from .crew import WORKER_TRANSITIONS, WorkerState
from .graph import Graph
from .job import DUE_SHIFT, ID_MASK, NEVER, TRANSITIONS, State
from .restart import Retries
from .scheduler import BUDGET_NS, DEPTH, Scheduler


def check(scheduler: Scheduler) -> None:
    """Assert that the scheduler's state is complete and consistent.

    Raises:
        AssertionError: with the fact that is broken.
    """
    _check_jobs(scheduler)
    _check_workers(scheduler)
    _check_tokens(scheduler)
    _check_graph(scheduler, scheduler.graph)


def states(s: Scheduler) -> dict[int, State]:
    """Return `state_of` for all unsettled jobs, in one pass."""
    found = dict.fromkeys(s.jobs, State.READY)
    found.update(dict.fromkeys(s.graph.waiting, State.WAITING))
    found.update(dict.fromkeys(s.delayed, State.DELAYED))
    for worker in s.workers.values():
        found.update((job, State.SENT) for job in worker.queue if job in s.jobs)
    return found


def check_moves(before: dict[int, State], after: dict[int, State]) -> None:
    """Assert that each job's move from one step to the next is in the table of transitions."""
    for job, state in before.items():
        now = after.get(job, State.SETTLED)
        assert now is state or now in TRANSITIONS[state], f"job {job} went from {state} to {now}"


def worker_states(s: Scheduler) -> dict[int, WorkerState]:
    """Return `state_of_worker` for all workers that are there."""
    return {number: s.state_of_worker(number) for number in s.workers}


def check_worker_moves(before: dict[int, WorkerState], after: dict[int, WorkerState]) -> None:
    """Assert that each worker's move from one step to the next is in its table of transitions."""
    for worker, state in before.items():
        now = after.get(worker, WorkerState.GONE)
        assert now is state or now in WORKER_TRANSITIONS[state], f"worker {worker} went from {state} to {now}"


def _check_jobs(s: Scheduler) -> None:
    sent = [job for worker in s.workers.values() for job in worker.queue if job in s.jobs]
    assert len(sent) == len(set(sent)), "a job is in two workers' queues"
    ready = [key & ID_MASK for key in set(s.ready.valid_keys())]  # a key may stand twice: pop takes both
    assert len(ready) == len(set(ready)), "a job is ready under two keys"
    places = [set(s.graph.waiting), set(s.delayed), set(ready), set(sent)]
    assert sum(map(len, places)) == len(s.jobs), f"{len(s.jobs)} jobs, {list(map(len, places))} in containers"
    assert set().union(*places) == set(s.jobs), "a job is in no container, or a settled one in some"
    sparse: dict[str, dict[int, Any]] = {
        "soft": s.soft, "tries": s.tries, "spent": s.spent, "current": s.ready.current, "heirs": s.graph.heirs,
        "moved": s.moved,
    }  # fmt: skip
    for name, column in sparse.items():
        assert set(column) <= set(s.jobs), f"{name} remembers settled jobs"
    for job, tries in s.tries.items():
        _check_budget(job, tries, s.spent.get(job, {}), s.jobs[job].retries)
    for key in s.ready.valid_keys():
        job = key & ID_MASK
        assert s.behind or key >> DUE_SHIFT > s.now or job in s.soft, f"job {job} has expired and is still ready"
    for job, key in s.delayed.items():
        assert s.behind or s._kills_at(job, key) > s.now, f"job {job} has expired and is still delayed"
    assert s.behind or s.nearing.next_at > s.now, "a deadline is near, and nobody was told"
    assert s.behind or s.releases.next_at > s.now < s.ready.expires_at, "time has passed, and not all is done about it"


def _check_budget(job: int, tries: int, spent: dict[str, int], retries: Retries) -> None:
    assert tries > 0, f"job {job} has failed {tries} times"
    if retries.together:
        assert tries <= retries.together, f"job {job} failed {tries} times of {retries.together}"
        assert not spent, f"job {job} has one budget, and its causes are counted"
        return
    assert sum(spent.values()) == tries, f"job {job} failed {tries} times, by cause {spent}"
    for status, times in spent.items():
        assert times <= retries.budget(status), f"job {job}: {status} {times} times, allowed are {retries}"


def _check_workers(s: Scheduler) -> None:
    assert len(s.active) <= s.max_workers, "too many active workers"
    assert s.staff == sum(1 for w in s.workers.values() if not w.leaving), "the staff is miscounted"
    assert s.staff <= s.max_workers + s.spare_workers, "too many workers"
    for worker in s.workers.values():
        place = (worker.id in s.active) + (worker in s.spares)
        assert place == (worker.ready and not worker.leaving), f"worker {worker.id} is at {place} places"
        assert len(worker.queue) <= DEPTH, f"worker {worker.id} holds {len(worker.queue)} jobs"
        assert len(worker.queue) <= 1 or worker.load <= 2 * BUDGET_NS, f"worker {worker.id} is overloaded"
        assert not worker.used_up or not worker.queue or not s.max_tasks or worker.given <= s.max_tasks
    for spare in s.spares:
        assert not spare.queue, f"spare {spare.id} has jobs"
    if not s.behind and s.ready.head() and not (s.paused or s.short or s.halted or s.broken):
        spec = s.jobs[s.ready.head() & ID_MASK]
        idle = [w.id for w in s.active.values() if s._fits(w, spec, s.tokens) is not None]
        assert not idle, f"workers {idle} idle while jobs are ready"
        idle = [w.id for w in s.active.values() if not w.queue and not w.used_up]
        usable = [w.id for w in s.spares if s._fits(w, spec, s.tokens) is not None]
        assert not idle or not usable, f"spares {usable} are kept from their job by the idle {idle}"
        assert s.staff > 0 or s.hire_at > s.now, "jobs are ready and nobody is asked to run them"


def _check_tokens(s: Scheduler) -> None:
    holdings = [*s.held.values(), *(holding for dying in s.dying.values() for holding in dying)]
    for name, there in s.tokens.all.items():
        held = [holding[name] for holding in holdings if name in holding]
        if isinstance(there, int):
            assert sum(map(int, held)) + s.tokens.left(name) == there, f"{name} is miscounted"  # type: ignore[arg-type]
            assert s.tokens.left(name) >= 0, f"more of {name} is held than exists"
            continue
        units = [unit for what in held for unit in what]  # type: ignore[union-attr]
        assert len(units) == len(set(units)), f"a unit of {name} is held twice: {units}"
        assert sorted([*units, *s.tokens.units(name)]) == sorted(there), f"units of {name} are lost"
    for job in s.held:
        assert [1 for w in s.workers.values() if list(w.queue) == [job]], f"job {job} holds tokens and is not alone"


def _check_graph(s: Scheduler, graph: Graph) -> None:
    untold = Counter(job for _, _, below in s.telling for job in below)
    lent = not (s.urging or s.marking or s.dirty)
    doomed = set(s.doomed)  # they will be told nothing more, nor start
    for job, waiting in graph.waiting.items():
        if job in doomed:
            continue
        open_now = sum(1 for edge in waiting.after if edge.id in s.jobs) + untold[job] + waiting.more
        assert waiting.open == open_now > 0, f"job {job} waits for {waiting.open}, of which {open_now} live"
        for edge in waiting.after:
            if edge.id in s.jobs:
                assert job in graph.successors[edge.id], f"job {edge.id} does not know that {job} waits"
                if lent:
                    _check_inheritance(s, edge.id, waiting.key >> DUE_SHIFT)
    for job in graph.successors:
        assert job in s.jobs, f"settled job {job} still has successors"


def _check_inheritance(s: Scheduler, job: int, due: int) -> None:
    state = s.state_of(job)
    if state is State.SENT or due == NEVER:
        return
    if state is State.WAITING:
        key = s.graph.waiting[job].key
    elif state is State.DELAYED:
        key = s.delayed[job]
    else:
        key = next(k for k in s.ready.valid_keys() if k & ID_MASK == job)
    assert key >> DUE_SHIFT <= due, f"job {job} is due after one that waits for it"
