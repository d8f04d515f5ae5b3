"""One small class per pool, all with the same interface.

A pool is started with its own defaults and the start method "fork" where it has a choice, which is the fastest that
each of them has.  `offers` says what it can do at all:

    start     a pool, its first job and its end
    futures   single jobs and their results
    map       many items in one call, several of them in a message
    timeout   a job that takes too long is ended, and its worker with it
    urgent    a job may be more important than those that wait
    crash     there is a way on after the death of a worker
    fresh     a process of its own for a job, with modules imported before
"""

import concurrent.futures
import functools
import importlib.util
import multiprocessing

CAP_S = 100  # no wait for a result takes longer


class Peer:
    """A pool whose futures are those of `concurrent.futures`."""

    name = ""
    module = ""  # to be importable, for this peer to be there
    install = ""  # the command that brings it
    offers = frozenset({"start", "futures", "map", "crash"})

    @classmethod
    def installed(cls):
        return importlib.util.find_spec(cls.module) is not None

    def __init__(self, workers):
        self.workers = workers
        self.start()

    def start(self):
        raise NotImplementedError

    def submit(self, fn, *args, timeout=None, urgent=False):
        """Accept one job; `timeout` and `urgent` mean nothing to who does not offer them."""
        return self.pool.submit(fn, *args)

    def result(self, future):
        return future.result(CAP_S)

    def map(self, fn, items):
        return list(self.pool.map(fn, items, chunksize=self.chunk(items)))

    def chunk(self, items):
        """Four chunks a worker, as mp.Pool takes them; one by one would be unfair to all that do not batch."""
        return max(1, len(items) // (4 * self.workers))

    def again(self):
        """Go on after a crash that cost other jobs than its own; most pools have healed by themselves."""

    def close(self):
        self.pool.shutdown(cancel_futures=True)


class PtssMp(Peer):
    """The checkout beside this script, installed or not."""

    name, module = "ptss_mp", "ptss_mp"
    offers = frozenset({"start", "futures", "map", "timeout", "urgent", "crash", "fresh"})

    @classmethod
    def installed(cls):
        return True

    def __init__(self, workers, *, executor=None, options=None):
        self.executor, self.given = executor or {}, options or {}
        super().__init__(workers)

    def start(self):
        from ptss_mp import Executor

        self.whole = Executor(self.workers, **self.executor)
        self.pool = self.whole.options(**self.given) if self.given else self.whole
        self.view = functools.cache(lambda timeout, urgent: self.pool.options(timeout=timeout, priority=10 * urgent))

    def submit(self, fn, *args, timeout=None, urgent=False):
        view = self.view(timeout, urgent) if timeout or urgent else self.pool
        return view.submit(fn, *args)

    def map(self, fn, items):
        return list(self.pool.map(fn, items, chunksize=None))

    def close(self):
        self.whole.shutdown(cancel_futures=True)


class ProcessPool(Peer):
    name, module = "ProcessPoolExecutor", "concurrent.futures"

    def start(self):
        self.pool = concurrent.futures.ProcessPoolExecutor(self.workers, multiprocessing.get_context("fork"))

    def again(self):
        self.pool.shutdown(wait=False)
        self.start()


class MpPool(Peer):
    name, module = "mp.Pool", "multiprocessing"

    def start(self):
        self.pool = multiprocessing.get_context("fork").Pool(self.workers)

    def submit(self, fn, *args, timeout=None, urgent=False):
        return self.pool.apply_async(fn, args)

    def result(self, future):
        return future.get(CAP_S)

    def map(self, fn, items):
        return self.pool.map(fn, items)

    def close(self):
        self.pool.terminate()
        self.pool.join()


class Pebble(Peer):
    name, module, install = "Pebble", "pebble", "pip install pebble"
    offers = frozenset({"start", "futures", "map", "timeout", "crash"})

    def start(self):
        from pebble import ProcessPool as Pool

        self.pool = Pool(self.workers, context=multiprocessing.get_context("fork"))

    def submit(self, fn, *args, timeout=None, urgent=False):
        return self.pool.schedule(fn, args=args, timeout=timeout)

    def map(self, fn, items):
        return list(self.pool.map(fn, items, chunksize=self.chunk(items)).result())

    def close(self):
        self.pool.stop()
        self.pool.join()


class Loky(ProcessPool):
    name, module, install = "loky", "loky", "pip install loky"

    def start(self):
        from loky import get_reusable_executor

        self.pool = get_reusable_executor(self.workers)

    def close(self):
        self.pool.shutdown(kill_workers=True)


class Billiard(MpPool):
    name, module, install = "billiard", "billiard", "pip install billiard"
    offers = frozenset({"start", "futures", "map", "timeout", "crash"})

    def start(self):
        from billiard.pool import Pool

        self.pool = Pool(self.workers, enable_timeouts=True)

    def submit(self, fn, *args, timeout=None, urgent=False):
        return self.pool.apply_async(fn, args, timeout=timeout)


class Mpire(MpPool):
    name, module, install = "mpire", "mpire", "pip install mpire"
    offers = frozenset({"start", "futures", "map", "timeout"})

    def start(self):
        from mpire import WorkerPool

        self.pool = WorkerPool(self.workers, start_method="fork")

    def submit(self, fn, *args, timeout=None, urgent=False):
        return self.pool.apply_async(fn, args, task_timeout=timeout)

    def map(self, fn, items):
        return self.pool.map(fn, items, chunk_size=self.chunk(items))

    def close(self):
        self.pool.terminate()


class Deadpool(Peer):
    name, module, install = "Deadpool", "deadpool", "pip install deadpool-executor"
    offers = frozenset({"start", "futures", "timeout", "urgent", "crash"})  # its map takes item by item

    def start(self):
        from deadpool import Deadpool as Pool

        self.pool = Pool(max_workers=self.workers, max_backlog=10_000_000)

    def submit(self, fn, *args, timeout=None, urgent=False):
        how = {"deadpool_timeout": timeout} if timeout else {}
        return self.pool.submit(fn, *args, deadpool_priority=0 if urgent else 1, **how)


class Joblib(Peer):
    name, module, install = "joblib", "joblib", "pip install joblib"
    offers = frozenset({"start", "map"})

    def start(self):
        from joblib import Parallel

        self.pool = Parallel(n_jobs=self.workers, pre_dispatch="all")
        self.pool.__enter__()

    def map(self, fn, items):
        from joblib import delayed

        self.pool.batch_size = self.chunk(items)
        return self.pool(delayed(fn)(item) for item in items)

    def close(self):
        self.pool.__exit__(None, None, None)


OURS = PtssMp.name
PEERS = {
    peer.name: peer
    for peer in (PtssMp, ProcessPool, MpPool, Pebble, Loky, Billiard, Mpire, Deadpool, Joblib)
}  # fmt: skip
