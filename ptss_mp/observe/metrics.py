"""Numbers of a pool, ready to be exported: names and units as Prometheus wants them.

Nothing is counted here, and nothing per job: the desk counts settled batches,
the core the attempts that answered, as it learns from them anyway.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..outcome import Status

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ..pool import Pool
    from ..view import Snapshot

# What `metrics` returns beside one `jobs_STATUS_total` for each status.
METRICS = {
    "jobs_submitted_total": "jobs accepted, those born failed included",
    "jobs_settled_total": "jobs that have their outcome",
    "retries_total": "failed attempts that were followed by another one",
    "attempts_answered_total": "attempts that ended in a worker that lived",
    "attempt_seconds_total": "run time of those",
    "workers_started_total": "worker processes asked for",
    "wardens_started_total": "warden processes started",
    "jobs_late_total": "jobs that ended after their deadlines",
    "tardiness_seconds_total": "how long after, all together",
    "jobs_unsettled": "accepted and not settled",
    "jobs_waiting": "of these: prerequisites are open",
    "jobs_delayed": "of these: start time, or the pause before a retry, is not over",
    "jobs_ready": "of these: may start as soon as a worker is free",
    "jobs_running": "of these: sent to a worker",
    "workers": "worker processes, ready and starting",
    "workers_spare": "of these: warm spares",
    "callbacks_due": "done-callbacks and events that wait for the callback thread",
}


def metrics(pool: Pool, now: Snapshot) -> Mapping[str, float]:
    """Return the numbers of this moment, by the names of METRICS and `jobs_STATUS_total`."""
    ends = dict(pool.ends)
    ends["cancelled"] = ends.get("cancelled", 0) + len(pool.gone)  # not heard of by the loop yet
    settled = sum(ends.values())
    numbers = {
        "jobs_submitted_total": settled + now.unsettled,
        "jobs_settled_total": settled,
        "retries_total": pool.retries,
        "attempts_answered_total": pool.core.estimates.runs,
        "attempt_seconds_total": pool.core.estimates.total_ns / 1e9,
        "workers_started_total": pool.core.hired,
        "wardens_started_total": pool.wardens,
        "jobs_late_total": sum(late.jobs for late in now.late.values()),
        "tardiness_seconds_total": sum(late.total for late in now.late.values()),
        "jobs_unsettled": now.unsettled,
        "jobs_waiting": now.waiting,
        "jobs_delayed": now.delayed,
        "jobs_ready": now.ready,
        "jobs_running": now.running,
        "workers": now.workers,
        "workers_spare": now.spares,
        "callbacks_due": len(pool.callbacks.due),
    }
    numbers |= {f"jobs_{status}_total": ends.get(status, 0) for status in Status}
    return {name: float(number) for name, number in numbers.items()}
