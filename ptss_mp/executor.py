"""The public class: a `concurrent.futures.Executor` over the supervisor.

It is the view without options of its own (view.py), and the only one with the pool's own verbs.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal, Self

from .declare import Options
from .making import base_options, checked_journal, make_pool
from .pool import State
from .rules import rules
from .saving import Saving
from .units import duration_ns
from .view import ExecutorView


class Executor(ExecutorView):
    """Runs jobs in supervised worker processes, earliest deadline first.

    Constructing checks everything and starts no process or thread.

    Args:
        max_workers: 1..1000; default: the CPUs that this process may use.
        mp_context: None or "forkserver": workers are forks of a warden process; "spawn": a
            new interpreter per worker.  "fork" is refused: a fork of a threaded program
            inherits locks that nobody will release.
        initializer, initargs: called in each worker before its first job.
        max_tasks_per_child: attempts after which a worker is replaced.
        preload: names of modules that workers shall find imported.
        options: for all jobs.
        fresh: a process of its own for each attempt.
        resources: tokens that jobs may hold (`Options.resources`): {"gpu": 2} has the units "0" and "1",
            {"gpu": ["0", "3"]} these, {"memory": "8GiB"} is an amount.
        max_pending: `submit` blocks while so many jobs are held.
        spares: warm idle workers beyond `max_workers`; default 1, with an initializer 0.
        start_timeout: seconds within which a worker must be ready, and the warden; default: they may take any time.
        journal: a file that keeps what was accepted and how it ended: an outcome is told when it is on disk
            (docs/journal.md). It is opened at the start.
        resume: False: the journal must hold no outcomes; True: a job whose key is settled there is not run, its Future
            is settled from it; "failed": all that did not succeed run again.
        on_interrupted: what becomes of jobs that ran when an earlier run died: "fail": they are `interrupted`;
            "rerun": they run again.
        capture: what jobs print: "tee": kept for the outcome (the last 64 KiB of each stream), and written through
            the program's own streams when the attempt ends; True: kept only; False: the program's, as it comes.
        restart_intensity: (n, seconds): more than n deaths that no job explains (workers that were never ready, the
            warden) in that time break the pool, or more than n in a row, whatever time they take.
        name: of threads and logs.
        backend: whose processes; "local": those of this machine.

    Raises:
        InvalidOption, InvalidType: an argument that can never be right.
        JournalError: at the start: the journal cannot be used; `reason` says of what kind that is.
    """

    def __init__(
        self,
        max_workers: int | None = None,
        mp_context: Any = None,
        initializer: Callable[..., Any] | None = None,
        initargs: tuple[Any, ...] = (),
        *,
        max_tasks_per_child: int | None = None,
        preload: Iterable[str] = (),
        options: Options = Options(),  # noqa: B008 - frozen
        fresh: bool = False,
        resources: Mapping[str, int | str | Sequence[str]] | None = None,
        max_pending: int | None = None,
        spares: int | None = None,
        start_timeout: float | str | None = None,
        journal: str | os.PathLike[str] | None = None,
        resume: bool | Literal["failed"] = False,
        on_interrupted: Literal["fail", "rerun"] = "fail",
        capture: bool | str = "tee",
        restart_intensity: tuple[int, float] = (10, 10.0),
        name: str | None = None,
        backend: str = "local",
    ) -> None:
        base = base_options(options, fresh)
        pool = make_pool(
            max_workers, mp_context, initializer, initargs, max_tasks_per_child, preload, max_pending, spares,
            start_timeout, capture, restart_intensity, name, backend, resources,
        )  # fmt: skip
        pool.keep_journal(checked_journal(journal, resume, on_interrupted))
        pool.base = base
        super().__init__(pool, Options(), base, rules(base), None)
        pool.dropped = weakref.finalize(self, pool.close_down, False)
        pool.dropped.atexit = False

    def __repr__(self) -> str:
        return f"<Executor {self._pool.name}, {self.state}, {self._max_workers} workers>"

    def start(self) -> Self:
        """Start threads and warden; never blocks, may be called again.

        Raises:
            ExecutorClosed: it has been shut down.
        """
        self._pool.open()
        return self

    def __enter__(self) -> Self:
        return self.start()

    def pause(self) -> None:
        """Start no further job; what runs goes on, what is submitted waits.

        Before the start it starts nothing itself: the pool will be paused from its start on.

        Raises:
            ExecutorClosed: it has been shut down.
        """
        self._pool.pause()

    def stop(self, grace: float = 30.0, save: str | os.PathLike[str] | None = None) -> None:
        """Accept nothing more; what has not started is cancelled; what runs has `grace` seconds, then is killed.

        Returns when all has ended, in a signal handler at once; what was killed is `interrupted`.

        Args:
            grace: seconds; 0 kills at once.
            save: a file for what has not run, as JSON (docs/stopping.md); it is there when all has ended, whole or
                not at all.  Of a pool that has ended already there is nothing to save, and no file is written.

        Raises:
            InvalidOption: `grace` is no duration, or `save` cannot be created; nothing was stopped.
            JournalError: the file could not be written in the end.  Where nobody waits (a done-callback, a signal
                handler) that is logged alone.
        """
        grace_ns = 0 if grace == 0 else duration_ns(grace, "grace")
        saving = None if save is None else Saving(save, self._pool.name)
        unused = self.state is State.INITIALIZED
        self._pool.stop(grace_ns, saving)
        self._pool.join()
        if saving and unused:
            saving.write()  # nobody else does: nothing was ever started
        if saving and saving.error:
            raise saving.error

    def _stop(self, grace_ns: int) -> None:
        self._pool.stop(grace_ns)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Accept nothing more; finish what was accepted, then end workers and threads.

        Args:
            wait: return only when all has ended and every callback has run (from a callback: when all has ended).
            cancel_futures: cancel what has not started; what runs goes on.
        """
        self._pool.close_down(cancel_futures)
        if wait:
            self._pool.join()

    def kill_workers(self) -> None:
        """Kill everything that runs, and end; running jobs are `interrupted`."""
        self._stop(0)

    terminate_workers = kill_workers  # SIGTERM would let a job go on; the promise is that none does

    def _abandon(self) -> None:
        self._stop(0)

