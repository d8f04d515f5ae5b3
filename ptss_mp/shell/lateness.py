"""Deadlines as people hear of them: warnings that do not flood, and how late the jobs of each task were."""

from __future__ import annotations

from collections.abc import Sequence
from logging import INFO, WARNING
from typing import TYPE_CHECKING, Any, NamedTuple

from ..core import commands as do
from ..core.job import NEVER
from ..core.nearing import CRITICAL, CRITICAL_PERCENT, EXCEEDED, SOON, SOON_PERCENT
from ..core.story import until

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ..future import Future
    from .callbacks import Callbacks

LINES = 10  # of each status in a period are logged one by one, as many as a person reads
PERIOD_NS = 1_000_000_000  # then what came beyond them is summed up
NAMES_MAX = 10_000  # tasks whose tardiness is kept apart; a program with more has made names of something else
OTHERS = "(others)"
LITTLE = {
    SOON: f"{SOON_PERCENT} % or less of its time is left",
    CRITICAL: f"{CRITICAL_PERCENT} % or less of its time is left",
    EXCEEDED: "its time is over",
}


class Tardiness(NamedTuple):
    """How late the jobs of a task were that ended after their deadlines.

    Attributes:
        jobs: how many did.
        total, worst: seconds after the deadline, of all together and of the latest.
    """

    jobs: int
    total: float
    worst: float


def task_of(name: str) -> str:
    """Return the task of a job, by its name: that of "pages[7]" is "pages"."""
    task, bracket, number = name.removesuffix("]").rpartition("[")
    return task if bracket and task and number.isdecimal() and name.endswith("]") else name


class Lateness:
    """Of one pool; the loop thread's, but for `tasks`, which anybody may read.

    Args:
        pool: its name.

    Attributes:
        wanted: some job may succeed after its deadline: the desk looks closer.
        sum_at: when what was not logged one by one is to be summed up.
    """

    def __init__(self, pool: str, callbacks: Callbacks) -> None:
        self.wanted = False
        self.sum_at = NEVER
        self._pool, self._callbacks = pool, callbacks
        self._told: dict[str, int] = {}  # status -> how many in this period
        self._first: dict[str, str] = {}  # status -> the name of the first that was not logged by itself
        self._late: dict[str, list[int]] = {}  # task -> [jobs, total ns, worst ns]

    # ---- warnings

    def tell(self, command: do.TellDeadline, futures: Mapping[int, Future[Any]], now: int) -> None:
        """Log whose deadlines are near, the first few by name."""
        status = command.status
        if self.sum_at == NEVER:
            self.sum_at = now + PERIOD_NS
        before = self._told.get(status, 0)
        self._told[status] = before + len(command.ids)
        for job, due in zip(command.ids[: max(0, LINES - before)], command.dues, strict=False):
            future = futures.get(job)
            if future is not None:  # else it was cancelled just now
                doing = "runs" if future.running() else "waits"
                words = f"{LITTLE[status]}: {until(due, now)}, and it still {doing}"
                self._log(status, "job %r: %s", future._use.name, words)
        if before + len(command.ids) > LINES and status not in self._first:
            self._first[status] = self._name(command.ids[max(0, LINES - before) :], futures)

    @staticmethod
    def _name(ids: Sequence[int], futures: Mapping[int, Future[Any]]) -> str:
        future = next(filter(None, map(futures.get, ids)), None)
        return future._use.name if future is not None else "?"

    def sum_up(self) -> None:
        """Log how many more there were in the period that is over."""
        self.sum_at = NEVER
        told, first, self._told, self._first = self._told, self._first, {}, {}
        for status, count in told.items():
            if count > LINES:
                text = "%s: of %d more jobs, %r the first of them: %s"
                self._log(status, text, self._pool, count - LINES, first[status], LITTLE[status])

    def _log(self, status: str, text: str, *facts: Any) -> None:
        self._callbacks.log(INFO if status == EXCEEDED else WARNING, text, *facts)

    # ---- tardiness

    def note(self, name: str, late_ns: int) -> None:
        """Count a job that ended so long after its deadline."""
        late = self._late
        task = task_of(name)
        if task not in late and len(late) >= NAMES_MAX:
            task = OTHERS
        found = late.setdefault(task, [0, 0, 0])
        found[0] += 1
        found[1] += late_ns
        found[2] = max(found[2], late_ns)

    @property
    def tasks(self) -> dict[str, Tardiness]:
        """What is known so far, by task."""
        late = [(task, tuple(found)) for task, found in self._late.copy().items()]  # each one C call
        return {task: Tardiness(jobs, total / 1e9, worst / 1e9) for task, (jobs, total, worst) in late}
