"""A backend of joblib: `Parallel`, and all of scikit-learn, over supervised workers.

    import ptss_mp.joblib
    from joblib import parallel_config

    ptss_mp.joblib.register()
    with parallel_config("ptss_mp", n_jobs=4):
        search.fit(X, y)

A batch that crashes, or passes a limit, fails its `Parallel` call with the cause; the workers of other
batches and the next call are as before.  Options go beside the name: `parallel_config("ptss_mp",
timeout="10m", retries=1)` bounds each task; tasks then travel one by one, for options hold per job.

Nested `Parallel` calls run as threads of their worker, as under joblib's own processes; n_jobs=1 runs in
the program itself, as everywhere in joblib.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

try:
    from joblib import register_parallel_backend
    from joblib.parallel import AutoBatchingMixin, FallbackToBackend, ParallelBackendBase, SequentialBackend
except ImportError as error:
    raise ImportError("ptss_mp.joblib needs joblib 1.3 or newer: pip install 'ptss_mp[joblib]'") from error

from .declare import options as make_options
from .errors import InvalidOption
from .executor import Executor
from .future import Future
from .pool import WORKERS_MAX, cpus
from .view import ExecutorView

JOBLIBS_OWN = ("max_nbytes", "temp_folder", "mmap_mode", "prefer", "require", "verbose", "context")


class Backend(AutoBatchingMixin, ParallelBackendBase):  # type: ignore[misc]
    """What joblib calls.  Its pool lives as long as the backend: through all calls under one `parallel_config`.

    Args:
        nesting_level, inner_max_num_threads: joblib's.
        options: of each task; see `ptss_mp.Options`.
    """

    supports_retrieve_callback = True
    supports_inner_max_num_threads = True
    uses_threads = False
    supports_sharedmem = False

    def __init__(
        self, nesting_level: int | None = None, inner_max_num_threads: int | None = None, **options: Any
    ) -> None:
        super().__init__(nesting_level=nesting_level, inner_max_num_threads=inner_max_num_threads)
        make_options(**options)  # a wrong one is refused here
        self._options = options
        self._one_by_one = False  # tasks are not put into batches: options hold for each
        self._executor: Executor | None = None
        self._view: ExecutorView | None = None
        self._out: dict[Future[Any], Any] = {}  # unsettled batches, with joblib's callbacks

    def effective_n_jobs(self, n_jobs: int | None) -> int:
        """Return how many workers that means; negative ones count down from the CPUs this process may use."""
        if n_jobs == 0:
            raise InvalidOption("n_jobs must not be 0; -1 means all CPUs")
        if n_jobs is None:
            return 1
        return min(n_jobs, WORKERS_MAX) if n_jobs > 0 else max(cpus() + 1 + n_jobs, 1)

    def configure(self, n_jobs: int = 1, parallel: Any = None, **given: Any) -> int:
        """Have a pool of so many workers; the last one serves again if its size is right."""
        workers = self.effective_n_jobs(n_jobs)
        if workers == 1:
            raise FallbackToBackend(SequentialBackend(nesting_level=self.nesting_level))
        self.parallel = weakref.proxy(parallel)  # no cycle: the pool ends when the backend is dropped
        executor = self._executor
        if executor is None or executor._max_workers != workers or executor._broken:
            if executor is not None:
                executor.shutdown(wait=False)
            executor = self._executor = Executor(workers, preload=["joblib"], name="joblib")
            executor._pool.environ = self._prepare_worker_env(n_jobs=workers)
        options = self._options | {name: value for name, value in given.items() if name not in JOBLIBS_OWN}
        self._one_by_one = bool(options)
        self._view = executor.options(**options)
        return workers

    def compute_batch_size(self) -> int:
        """Return 1 where options hold for each task; else what joblib has learnt."""
        return 1 if self._one_by_one else int(super().compute_batch_size())

    def submit(self, func: Callable[[], Any], callback: Callable[[Any], Any] | None = None) -> Future[Any]:
        """Submit a batch; joblib's callback runs on the pool's callback thread, and submits the next ones there."""
        assert self._view is not None
        future = self._view.submit(func)
        self._out[future] = callback
        future.add_done_callback(self._settled)
        if callback is not None:
            future.add_done_callback(callback)
        return future

    apply_async = submit  # its name before joblib 1.5

    def _settled(self, future: Future[Any]) -> None:
        self._out.pop(future, None)

    def retrieve_result_callback(self, out: Future[Any]) -> Any:
        """Return a batch's results, or raise what it came to."""
        return out.result()

    def abort_everything(self, ensure_ready: bool = True) -> None:
        """Cancel the batches of the calls that are aborted; what runs is killed, and the pool is as ready as before."""
        for future, callback in list(self._out.items()):
            if getattr(getattr(callback, "parallel", None), "_aborting", True):
                future.cancel()

    def terminate(self) -> None:
        """End a call; the workers stay for the next one."""
        self.reset_batch_stats()


def register(name: str = "ptss_mp", make_default: bool = False) -> None:
    """Make the backend known to joblib under a name.

    Args:
        make_default: use it wherever no backend is named.
    """
    register_parallel_backend(name, Backend, make_default=make_default)
