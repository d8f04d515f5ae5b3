"""The Executor of the command line: what it needs beyond what programs do."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ..executor import Executor
from ..outcome import Outcome
from ..shell.clock import monotonic_ns
from ..shell.memfree import MemoryGate

if TYPE_CHECKING:
    from ..future import Future
    from ..journal.writer import Journal


class RunExecutor(Executor):
    """An Executor whose workers are born with a jobs file, and that can be stopped without waiting."""

    def preload_jobs(self, path: str) -> None:
        """Let the warden import a jobs file that was harmless in a worker; before the start."""
        self._pool.warm("ptss_mp.jobsimport", "load_silently", path)

    def begin_stop(self, grace: float) -> None:
        """As `stop`, without its wait.

        Args:
            grace: seconds; 0 kills at once.
        """
        self._stop(round(grace * 1e9))

    def release_no_more(self) -> None:
        """Let recurring tasks have no further run, and cancel what has a start time still to come."""
        if self._pool.releases:
            self._pool.releases.close()
        self._pool.cancel_unsent(f for f in list(self._pool.futures.values()) if f._release > monotonic_ns())

    def tell_failed_attempts(self, told: Callable[[Outcome[Any]], None]) -> None:
        """Call `told`, on the callback thread, with the facts of each attempt that another one follows."""
        self._pool.attempt_failed = told

    def start_only_with(self, least_bytes: int) -> None:
        """Start no job while less memory is available; before the start."""
        self._pool.gate = MemoryGate(least_bytes)

    @property
    def journal(self) -> Journal | None:
        """Its journal, if it has one."""
        return self._pool.journal

    def when_settled(self, future: Future[Any], told: Callable[[Any], None]) -> None:
        """Call `told` on the callback thread, though the job may be settled by now."""
        callbacks = self._pool.callbacks

        def tell(future: Any) -> None:
            told(future) if callbacks.here else callbacks.put(lambda: told(future))

        future.add_done_callback(tell)

    def leave_if_stuck(self) -> None:
        """Cancel what has not started if the journal could not be written for long: nothing could start."""
        if self.journal and self.journal.is_stuck and not self._pool.core.dropping:
            self._pool.close_down(True)

    @property
    def pausing(self) -> int:
        """How many jobs are in the pause between two attempts."""
        core = self._pool.core
        return len(core.tries.keys() & core.delayed.keys())

    @property
    def why_broken(self) -> str:
        """Why no worker can be had, or ""."""
        return str(self._broken or "")
