"""The Executor of the command line: what it needs beyond what programs do."""

from __future__ import annotations

import contextlib
import signal
from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ..core.crew import WorkerState
from ..executor import Executor
from ..future import Future
from ..observe.progress import report_text
from ..outcome import Outcome
from ..shell.clock import monotonic_ns
from ..shell.memfree import MemoryGate

if TYPE_CHECKING:
    from ..future import Future
    from ..journal.writer import Journal
    from ..recurring import Recurring


class RunExecutor(Executor):
    """An Executor whose workers are born with a jobs file, and that can be stopped without waiting."""

    def preload_jobs(self, path: str) -> None:
        """Let the warden import a jobs file that was harmless in a worker; before the start."""
        self._pool.warm("ptss_mp.jobsimport", "load_silently", path)

    def preload_function(self, module: str, name: str, folder: str) -> None:
        """Let the warden import a function's module that was harmless in a worker; before the start."""
        self._pool.warm("ptss_mp.cli.functions", "load_silently", module, name, folder)

    def begin_end(self) -> None:
        """Accept nothing more and start nothing more; what runs may end.  Does not wait."""
        self._pool.close_down(True)

    def cancel_all(self) -> None:
        """Cancel all that is not settled; what runs is killed."""
        self.begin_end()
        for future in self.unsettled():
            future.cancel()

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

    def send_signal(self, future: Future[Any], number: int) -> bool:
        """Send a signal to the worker of a job; return False if none has it."""
        for channel in list(self._pool.channels.values()):
            if channel.pid and channel.pid == future.worker_pid:
                try:
                    signal.pidfd_send_signal(channel.pidfd, number)
                except OSError:
                    return False  # it has ended
                return True
        return False

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

    def running_jobs(self) -> list[tuple[Future[Any], int, float, str]]:
        """Return what runs now: its Future, the worker's pid, for how many seconds, what it tells of itself."""
        pool, found, now = self._pool, [], monotonic_ns()
        for channel in list(pool.channels.values()):
            with contextlib.suppress(ValueError):  # the page was let go of in this moment
                job, began = channel.marked()
                future, told = pool.futures.get(job), channel.progress()
                if future and future.worker_pid == channel.pid:
                    said = report_text(told) if told else ""
                    found.append((future, channel.pid, max(0, now - began) / 1e9, said))
        return found

    def worker_states(self) -> dict[str, int]:
        """Return how many workers stand where."""
        core = self._pool.core
        states = Counter(core.state_of_worker(number) for number in list(core.workers))
        return {state.value: states[state] for state in WorkerState if states[state] and state is not WorkerState.GONE}

    def unsettled(self) -> list[Future[Any]]:
        """Return the Futures of all jobs that are not settled."""
        return list(self._pool.futures.values())

    def recurring(self) -> list[Recurring]:
        """Return the tasks that recur by themselves; what hangs on them comes with them."""
        found = []
        for task in list(self.tasks.values()):
            entry = task._entry
            if entry.root and entry.root.entries[0] is entry and not entry.ended:
                found.append(task)
        return found

    def end_recurrence(self, name: str) -> bool:
        """Release a task no more, and kill what runs of it; return False if there is none that recurs."""
        task = self.tasks.get(name)
        if task is None or task._entry.root is None or task._entry.ended or task._entry.root.ended:
            return False
        task.cancel(kill=True)
        return True

    @property
    def journal(self) -> Journal | None:
        """Its journal, if it has one."""
        return self._pool.journal

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
