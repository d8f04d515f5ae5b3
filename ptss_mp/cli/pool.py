"""The Executor of the command line: what it needs beyond what programs do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..executor import Executor
from ..future import Future
from ..outcome import Outcome
from ..shell.memfree import MemoryGate


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

    def tell_failed_attempts(self, told: Callable[[Outcome[Any]], None]) -> None:
        """Call `told`, on the callback thread, with the facts of each attempt that another one follows."""
        self._pool.attempt_failed = told

    def tell_settled(self, future: Future[Any], told: Callable[[Future[Any]], None]) -> None:
        """Call `told` on the callback thread once the job is settled, also if it is by now.

        What is told may write to a pipe that nobody reads; jobs that are still to be submitted do not wait for that.
        """
        callbacks = self._pool.callbacks

        def tell(settled: Future[Any]) -> None:
            if callbacks.here or not callbacks.thread.is_alive():
                told(settled)
            else:
                callbacks.put(lambda: told(settled))

        future.add_done_callback(tell)

    def start_only_with(self, least_bytes: int) -> None:
        """Start no job while less memory is available; before the start."""
        self._pool.gate = MemoryGate(least_bytes)

    @property
    def pausing(self) -> int:
        """How many jobs are in the pause between two attempts."""
        core = self._pool.core
        return len(core.tries.keys() & core.delayed.keys())

    @property
    def why_broken(self) -> str:
        """Why no worker can be had, or ""."""
        return str(self._broken or "")
