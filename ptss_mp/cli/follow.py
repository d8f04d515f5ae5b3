"""Following a run: what has settled, what it printed, how it goes."""

from __future__ import annotations

import threading
import time
from collections import Counter, deque
from collections.abc import Callable
from concurrent.futures import Future as AnyFuture
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from . import journal, text
from .exits import Exit, together, weight

if TYPE_CHECKING:
    from ..outcome import Outcome
    from .attempts import ExecutionLog
    from .halt import Halt
    from .pool import RunExecutor

REPORTS = 4  # jobs whose own words stand in the line of progress
FACTS_MAX = 10_000  # outcomes of recurring tasks for a report, the last ones: 20 MB; such a run may last for years
PROGRESS_S = 1.0  # a line of progress at most so often
CUT_OFF = ("cancelled", "interrupted")  # here it is a stop that cancels: such a job has not run


class Following:
    """Counts what settles, lets succeeded jobs speak, shows progress.

    `settled` runs on the pool's callback thread, the rest in the main thread.

    Args:
        pool: where the jobs run.
        total: how many jobs there will be.
        keep_facts: keep every outcome as data, for a report.
        keep_ends: keep how each job ended, for a state.
        log: of attempts, if one is written.
        halt: how many failures end the run, if any do.
        quiet: show no progress.
        recurs: jobs come again and again: nobody knows how many there will be.

    Attributes:
        accepted: jobs that were submitted; of recurring tasks they are not counted.
        counts: settled jobs by status.
        failed: outcomes that are neither succeeded nor skipped, the last one of each name.
        times: how often a name is among these.
        weights: what the others count in the exit status.
        facts: outcomes as data, if they are kept.
        resumed: of the settled jobs those that an earlier run has settled.
        refusal: why the pool took no more jobs, or "".
        stopped: somebody has asked for the end (`ptss-mp stop`).
        unwritten: why the output of jobs could not be written, or "".
    """

    def __init__(
        self,
        pool: RunExecutor,
        total: int,
        *,
        keep_facts: bool = False,
        keep_ends: bool = False,
        log: ExecutionLog | None = None,
        halt: Halt | None = None,
        quiet: bool = False,
        recurs: bool = False,
    ) -> None:
        self.pool = pool
        self.total = total
        self.accepted = 0
        self.counts: dict[str, int] = {}
        self.failed: dict[str, Outcome[Any]] = {}
        self.times: Counter[str] = Counter()
        self.weights: set[int] = set()
        self.facts: deque[dict[str, Any]] | None = deque(maxlen=FACTS_MAX if recurs else None) if keep_facts else None
        self.resumed = 0
        self.refusal = ""
        self.stopped = False
        self.unwritten = ""
        self._good_ends: dict[str, str] | None = {} if keep_ends else None
        self._log, self._halt = log, halt
        self._quiet, self._recurs = quiet, recurs
        self._done = 0
        self._expected: int | None = None
        self._all_settled = threading.Event()
        self._shown = (0, time.monotonic())
        self._told = (0, 0, "")  # what the last line said

    def settled(self, future: AnyFuture[Any]) -> None:
        """Take one settled job into account (a done-callback)."""
        try:
            self._take(future.outcome(0))  # type: ignore[attr-defined]
        finally:
            self._done += 1  # last: who sees it may read the rest
            if self._done == self._expected:
                self._all_settled.set()

    def _take(self, outcome: Outcome[Any]) -> None:
        status = outcome.status.value
        self.resumed += outcome.resumed
        if self._log and not outcome.resumed:
            self._log.ended(outcome)
        self.counts[status] = self.counts.get(status, 0) + 1
        if self.facts is not None:
            self.facts.append(outcome.as_dict())
        if outcome.ok or status == "skipped":
            self.weights.add(weight(outcome, {}))
            if self._good_ends is not None:
                self._good_ends[outcome.name] = status
        else:
            self.failed[outcome.name] = outcome
            self.times[outcome.name] += 1
        if outcome.ok and outcome.stdout and not outcome.resumed:  # else the run that made it has said it
            try:
                text.emit(outcome.stdout)
            except OSError as error:
                self.unwritten = str(error)
        if self._halt and not outcome.resumed:  # else a run that it has ended could not be resumed
            self._halt.settled(outcome, self.pool)

    def ends(self) -> dict[str, str]:
        """Return how the jobs ended that did run, by name; needs `keep_ends`."""
        bad = ((name, outcome) for name, outcome in self.failed.items() if not self.left(outcome))
        return (self._good_ends or {}) | {name: outcome.status.value for name, outcome in bad}

    def left(self, outcome: Outcome[Any]) -> bool:
        """Return True for a job that was cut off, so it has not run, or could not run for the sake of such a one."""
        root = self.failed.get(outcome.root or "")
        return _cut_off(outcome) or (root is not None and _cut_off(root))

    def stranded(self, outcome: Outcome[Any]) -> bool:
        """Return True for a job of which there is nothing to say but why the pool broke."""
        return bool(self.pool.why_broken) and self.left(outcome)

    def no_more(self) -> None:
        """All jobs that will be accepted have been."""
        self._expected = self.accepted
        if self._done >= self._expected:
            self._all_settled.set()

    def wait(self) -> None:
        """Wait until all accepted jobs are settled; show progress meanwhile.

        Raises:
            InternalError: the pool has ended, and left jobs unsettled.
        """
        while not self._all_settled.wait(PROGRESS_S):
            self.show_progress()
            self.pool.leave_if_stuck()
            if self.pool.state == "stopped":
                self.pool.shutdown()  # returns after the last callback
                if not self._all_settled.is_set():
                    from ..errors import InternalError

                    left = text.count(self.accepted - self._done, "job")
                    raise InternalError(f"the pool has ended, but {left} of {self.accepted} never settled")

    def wait_until(self, end: datetime | None, pool_ends: Callable[[], None]) -> None:
        """Wait until nothing recurs any more, or until `end`, and then for what runs; show progress meanwhile.

        Args:
            pool_ends: lets the pool release nothing more, at `end`.
        """
        ending = False
        while True:
            left = PROGRESS_S if end is None or ending else (end - datetime.now(UTC)).total_seconds()
            if not ending and left <= 0:
                ending = True
                text.say("its time is over: nothing new starts, running jobs may end")
                pool_ends()
            if self.pool.join(max(0.0, min(PROGRESS_S, left)) if not ending else PROGRESS_S):
                return
            self.show_progress()

    def show_progress(self) -> None:
        """Show a line if the last one is a second old and something has changed."""
        done, now = self._done, time.monotonic()
        before, at = self._shown
        if self._quiet or now - at < PROGRESS_S:
            return
        reported, again = _reported(self.pool), self.pool.pausing
        last, self._told = self._told, (done, again, reported)
        self._shown = done, now
        if last == self._told:
            return
        rate = (done - before) / (now - at)
        running, cut = self.pool.status().running, sum(self.counts.get(status, 0) for status in CUT_OFF)
        failed = self.times.total() - cut
        told = f"{done} done, " if self._recurs else f"{done}/{self.total} done, "
        told += f"{failed} failed, " + (f"{cut} cut off, " if cut else "")
        told += f"{running} running, " + (f"{again} to be tried again, " if again else "")
        told += f"{rate:.0f} jobs/s{reported}"
        text.say(told, done=done, total=self.total, failed=failed, cut_off=cut, running=running, pausing=again)

    @property
    def halted(self) -> bool:
        """True if too much has failed (`--halt`)."""
        return self._halt is not None and bool(self._halt.told)

    @property
    def lost_attempts(self) -> str:
        """Why lines of the execution log could not be written, or ""."""
        return self._log.lost if self._log else ""

    @property
    def journal_fault(self) -> str:
        """Why the journal does not hold all that was done, or ""."""
        return journal.fault(self.pool)

    def exit_status(self) -> int:
        """Return what the outcomes come to; if no worker could be had, and no job failed before that, CANNOT_CREATE."""
        if self.journal_fault:
            return Exit.IO_ERROR
        bad = [outcome for outcome in self.failed.values() if not self.stranded(outcome)]
        found = together(self.weights | {weight(outcome, self.failed) for outcome in bad})
        if self.pool.why_broken and found != Exit.FAILED:
            return Exit.CANNOT_CREATE
        if self.accepted < self.total:
            return Exit.FAILED
        return found or (Exit.IO_ERROR if self.unwritten or self.lost_attempts else Exit.OK)


def _cut_off(outcome: Outcome[Any]) -> bool:
    """Return True for a job that did not run because the run was stopped, or no worker could be had."""
    from ..errors import PoolBroken

    return outcome.status.value in CUT_OFF or isinstance(outcome._cause, PoolBroken)


def _reported(pool: RunExecutor) -> str:
    """Return what the first few running jobs tell of themselves (`current().progress`)."""
    from ..observe.progress import report_text

    told = [f" | {future._use.name}: {report_text(report)}" for future, report in pool._pool.progress()]
    return "".join(told[:REPORTS]) + (f" | {len(told) - REPORTS} more" if len(told) > REPORTS else "")
