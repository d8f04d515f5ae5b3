"""The public class: a `concurrent.futures.Executor` over the supervisor.

An `ExecutorView` is the same pool under other options; the `Executor` itself is
the view without any, and the only one with the pool's own verbs.
"""

from __future__ import annotations

import concurrent.futures as cf
import contextlib
import os
import pickle
import sys
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime
from enum import StrEnum
from itertools import count
from multiprocessing import spawn
from typing import Any, NamedTuple, Self, TypeVar

from . import wire
from .core import events as on
from .core.job import NEVER
from .core.scheduler import Scheduler
from .core.story import Line
from .declare import DECLARED_ONLY, UNSET, Options, Task, duration_ns, nearest, rules, whole
from .declare import options as make_options
from .errors import ExecutorClosed, InvalidOption, InvalidType, NotPicklable, PoolBroken, QueueFull
from .future import Extra, Future, submitting
from .outcome import brief
from .shell.clock import monotonic, monotonic_ns
from .shell.hire import python
from .shell.report import Report
from .shell.supervisor import Supervisor
from .shell.use import Function, Use, by_reference, pickled_reference

T = TypeVar("T")

WORKERS_MAX = 1_000  # each costs the parent eight descriptors
PENDING_MAX = 1 << 39  # the core's ids have 40 bits
_SCALARS = frozenset((int, float, bool, type(None)))
_TEXTS = frozenset((str, bytes))
_numbers = count(1)

NO_GUARD = """\
a worker is importing this program's main module, and that started an Executor.
Put what must run only once under these two lines:
    if __name__ == "__main__":
        main()"""


class State(StrEnum):
    """Of an executor.  Only RUNNING starts jobs; the first three accept them."""

    INITIALIZED = "initialized"
    RUNNING = "running"
    PAUSED = "paused"
    SHUTTING_DOWN = "shutting_down"
    STOPPED = "stopped"


class Snapshot(NamedTuple):
    """Numbers of one moment.  `workers` counts ready and starting ones, spares included."""

    state: State
    waiting: int
    delayed: int
    ready: int
    running: int
    unsettled: int
    workers: int
    spares: int


class Event(NamedTuple):
    """One thing that happened to a job, for `story` and `subscribe`."""

    at: datetime
    job: int
    name: str
    what: str
    detail: str


class Subscription:
    """Ends with `close()`, or at the end of a `with`."""

    def __init__(self, close: Callable[[], None]) -> None:
        self.close = close

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Pool(Supervisor):
    """The supervisor, and what all views of an executor share beside it."""

    def __init__(self, *args: Any, max_pending: int | None) -> None:
        super().__init__(*args)
        self.lock = threading.RLock()  # of starting and of the tables below; held for microseconds
        self.state = State.INITIALIZED
        self.functions: dict[Any, Function] = {}
        self.value_numbers: dict[str, int] = {}
        self.names: weakref.WeakValueDictionary[str, Future[Any]] = weakref.WeakValueDictionary()
        self.max_pending = max_pending
        self.pid = 0
        if max_pending is not None:
            self.room = threading.Condition()

    def estimate_of(self, name: str) -> int:
        """Return the number under which the run time of functions sent by value is learnt."""
        with self.lock:
            return self.value_numbers.setdefault(name, -2 - len(self.value_numbers))

    def function(self, fn: Any) -> Function:
        """Return how a function gets to the workers.

        Raises:
            Exception: whatever pickling it raised.
        """
        if not by_reference(fn):
            return Function(fn, wire.BY_VALUE, b"")
        with self.lock:
            found = self.functions.get(fn)
            if found is None:
                found = Function(fn, len(self.functions), pickled_reference(fn))
                self.functions[fn] = found
                self.notice_main(found.pickled)
            return found

    def notice_main(self, pickled: bytes) -> None:
        """If a call refers to `__main__`, let warden and workers import it (once)."""
        if self.main_data or b"__main__" not in pickled:
            return
        data = spawn.get_preparation_data("ptss_mp")
        data["authkey"] = bytes(data["authkey"])
        self.main_data = pickle.dumps(data)
        self.control(self._tell_main)

    def _tell_main(self, _now: int) -> None:
        if self.warden and not self.main_told:
            self.main_told = True
            self.warden.prepare_main(self.main_data)

    def open(self) -> None:
        """Start if that has not happened; refuse if nothing more is accepted.

        Raises:
            ExecutorClosed, PoolBroken, RuntimeError: the pool's state, or a fork's child.
        """
        if self.pid and self.pid != os.getpid():
            raise RuntimeError("this executor was started by the process before its fork; make another one here")
        if self.broken:
            raise PoolBroken(str(self.broken))
        if self.state in (State.SHUTTING_DOWN, State.STOPPED):
            raise ExecutorClosed("cannot schedule new futures after shutdown")
        if self.state is not State.INITIALIZED or self.pid:
            return
        if wire.importing_main:
            raise RuntimeError(NO_GUARD)
        with self.lock:
            if self.pid:
                return
            self.pid = os.getpid()
            if self.state is State.INITIALIZED:
                self.state = State.RUNNING
            _live.add(self)
            self.start()

    def wait_for_room(self) -> None:
        """Block while `max_pending` jobs are held.

        Raises:
            QueueFull: blocking here would freeze an event loop or the callbacks.
        """
        assert self.room is not None
        if len(self.futures) < (self.max_pending or 0):
            return
        if self.callbacks.here or _in_event_loop():
            raise QueueFull(f"{len(self.futures)} jobs are held, allowed are {self.max_pending} (max_pending)")
        with self.room:
            while len(self.futures) >= (self.max_pending or 0) and not self.finished.is_set():
                self.room.wait(1.0)

    def close_down(self, drop: bool) -> None:
        """Accept nothing more; end when all is settled."""
        with self.lock:
            started = self.pid == os.getpid()
            if self.state is not State.STOPPED:
                self.state = State.SHUTTING_DOWN if started else State.STOPPED
        if started:
            self.control(lambda now: on.Closed(now, drop))

    def join(self, timeout: float | None = None) -> bool:
        """Wait until loop and callbacks have ended; from a callback, until the loop has."""
        if self.pid != os.getpid():
            return True
        until = None if timeout is None else time.monotonic() + timeout
        for thread in (self.thread, self.callbacks.thread):
            if thread is threading.current_thread():
                continue
            thread.join(None if until is None else max(0.0, until - time.monotonic()))
            if thread.is_alive():
                return False
        self.state = State.STOPPED
        return True


_live: weakref.WeakSet[Pool] = weakref.WeakSet()


def _at_exit() -> None:
    """Interpreter exit finishes the work, as the standard library's executors do."""
    for pool in list(_live):
        pool.close_down(False)
    for pool in list(_live):
        pool.join()


def _after_fork() -> None:
    """A fork of the program does nothing with the pool, and holds none of its descriptors."""
    for pool in list(_live):
        _live.discard(pool)
        fds = [pool.epoll.fileno() if not pool.epoll.closed else -1, pool.timer_fd]
        if pool.warden:
            fds += [pool.warden.sock.fileno(), pool.warden.pidfd, pool.warden.nudge_fd]
        for channel in list(pool.channels.values()):
            fds += [channel.pidfd, channel.answers_fd, channel.calls_fd, channel.out_fd, channel.err_fd, channel.fault_fd]
        if not pool.finished.is_set():
            for fd in fds:
                with contextlib.suppress(OSError):
                    os.close(fd)


os.register_at_fork(after_in_child=_after_fork)
threading._register_atexit(_at_exit)  # type: ignore[attr-defined]


def _in_event_loop() -> bool:
    asyncio = sys.modules.get("asyncio")
    if asyncio is None:
        return False
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


class ExecutorView(cf.Executor):
    """The pool under options of its own; made by `options(...)`."""

    def __init__(self, pool: Pool, options: Options, parent: ExecutorView | None) -> None:
        self._pool = pool
        self._options = options
        self._parent = parent
        self._closed = False
        self._uses: dict[Any, Use] = {}
        self._rules = rules(options)
        self._special = any(
            options.get(field) is not None for field in ("start_time", "after", "name")
        ) or isinstance(options.get("deadline"), datetime)

    # ---- jobs

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        """Accept a job; return its Future.  Arguments are pickled here and now.

        If they cannot be pickled, the Future is settled `not_picklable` already, the part named.

        Raises:
            ExecutorClosed: after `shutdown` or `stop`.
            PoolBroken: no worker can be had; the text says why.
            InvalidType: `fn` is not callable, or a Future of another executor is among the arguments.
            QueueFull: `max_pending` is reached where blocking would freeze the caller.
        """
        pool = self._pool
        try:
            use = self._uses[fn]
        except (KeyError, TypeError):
            use = self._use(fn)
        if pool.state is not State.RUNNING or pool.pid != _getpid() or self._closed or pool.broken:
            self._open()
        if pool.max_pending is not None:
            pool.wait_for_room()
        call: Any = args
        if kwargs or use.function.number < 0:
            call = None
        else:
            for arg in args:
                kind = type(arg)
                if kind not in _SCALARS and (kind not in _TEXTS or len(arg) > wire.INLINE_BYTES):
                    call = None
                    break
        now = monotonic_ns()
        if call is None or use.special:
            return self._submit_specially(use, call, args, kwargs, now)
        due = now + use.deadline_ns if use.deadline_ns else NEVER
        job = next(pool.ids)
        future: Future[T] = Future(job, call, use, now, now, due)
        pool.enqueue(future, (job, use.spec, due, now, None))
        return future

    def _open(self) -> None:
        if self._closed:
            raise ExecutorClosed("cannot schedule new futures after shutdown of this view")
        self._pool.open()

    def _use(self, fn: Any) -> Use:
        """Return what the jobs of `fn` share under this view's options."""
        if not callable(fn):
            raise InvalidType(f"a job needs a function, not {type(fn).__name__}")
        pool, view = self._pool, self
        given = self._options
        if isinstance(fn, Task):
            if fn.items is not None:
                raise InvalidType(f"{fn.name!r} is a batch; a jobs file runs it, submit takes single tasks")
            given = fn.options | self._options
            view = ExecutorView(pool, given, self)
        name = given.get("name") or (fn.name if isinstance(fn, Task) else _name_of(fn))
        try:
            function = pool.function(fn)
        except Exception:
            function = Function(fn, wire.BY_VALUE, b"")  # `_submit_specially` will say which part failed
        use = Use(pool, view, fn, function, view._rules, name)
        use.special = view._special or isinstance(fn, Task)
        if function.number >= 0:
            self._uses[fn] = use
        return use

    def _submit_specially(self, use: Use, call: Any, args: Any, kwargs: Any, now: int) -> Future[Any]:
        """Submit what needs pickling, has prerequisites, absolute instants, or a name to be known by."""
        pool, given = self._pool, use.view._options
        if isinstance(use.fn, Task):
            args = (*(given.get("args") or ()), *args)
            kwargs = {**(given.get("kwargs") or {}), **kwargs}
            call = None
        needs: list[Future[Any]] = []
        job = next(pool.ids)
        release, due = _instants(given, use, now)
        if call is None:
            try:
                call = _pickled(use, args, kwargs, needs)
            except BaseException as error:
                if isinstance(error, KeyboardInterrupt):
                    raise
                return _born_failed(Future(job, None, use, now, release, due), use, args, kwargs, error)
            pool.notice_main(call)
        after = self._prerequisites(given, needs)
        future: Future[Any] = Future(job, call, use, now, release, due)
        if after:
            future._extra = Extra(tuple(needs), after)
            pool.linked = True
        if given.get("name") or isinstance(use.fn, Task):
            pool.names[use.name] = future
        pool.enqueue(future, (job, use.spec, due, release, after or None))
        return future

    def _prerequisites(self, given: Options, needs: list[Future[Any]]) -> tuple[Future[Any], ...]:
        """Return all Futures that the job waits for, each once."""
        found = dict.fromkeys(needs)
        named = given.get("after")
        many = named is not None and not isinstance(named, str | Task | cf.Future)
        for item in (list(named) if many else [named]) if named is not None else ():
            key = item.name if isinstance(item, Task) else item
            if isinstance(key, str):
                future = self._pool.names.get(key)
                if future is None:
                    hint = nearest(key, list(self._pool.names))
                    raise InvalidOption(f"after: no job named {key!r} is known here{hint}")
                found[future] = None
            elif isinstance(key, cf.Future):
                found[key] = None  # type: ignore[index]
            else:
                raise InvalidType(f"after takes Futures, Tasks and names, not {type(item).__name__}")
        for future in found:
            if not isinstance(future, Future) or future._use.pool is not self._pool:
                raise InvalidType("a prerequisite must be a Future of this executor; this one is of another")
        return tuple(found)

    def map(  # type: ignore[override]
        self,
        fn: Callable[..., T],
        *iterables: Iterable[Any],
        timeout: float | None = None,
        chunksize: int | None = 1,
        buffersize: int | None = None,
    ) -> Iterator[T]:
        """Return an iterator over `fn` of the items, in input order, as the standard library's `map`.

        Every option holds per item.  Leaving the iterator early cancels only what has not started.

        Args:
            timeout: seconds from now within which each result must be had.
            chunksize: accepted for the standard library's sake; short jobs travel in batches anyway.
            buffersize: at most so many jobs submitted and not yet yielded; None: all at once.

        Raises:
            InvalidOption: chunksize or buffersize below 1.
            TimeoutError: while iterating.
        """
        if chunksize is not None:
            whole(chunksize, "chunksize", 1, PENDING_MAX)
        if buffersize is not None:
            whole(buffersize, "buffersize", 1, PENDING_MAX)
        until = None if timeout is None else time.monotonic() + timeout
        items = zip(*map(iter, iterables), strict=False)  # type: ignore[arg-type]
        waiting: deque[Future[T]] = deque()
        for item in items:
            waiting.append(self.submit(fn, *item))
            if buffersize is not None and len(waiting) == buffersize:
                break
        return self._results(fn, items, waiting, until)

    def _results(self, fn: Any, items: Iterator[Any], waiting: deque[Future[T]], until: float | None) -> Iterator[T]:
        try:
            while waiting:
                left = None if until is None else until - time.monotonic()
                value = waiting[0].result(left)
                waiting.popleft()
                for item in items:
                    waiting.append(self.submit(fn, *item))
                    break
                yield value
                del value  # the iterator does not keep what it has given out
        finally:
            for future in waiting:
                if not future.running():
                    future.cancel()

    def options(self, **options: Any) -> ExecutorView:
        """Return the same pool under further options (`declare.Options`); the later win.

        Raises:
            InvalidOption, InvalidType: as `Options`.
        """
        given = make_options(**options)
        for field in DECLARED_ONLY:
            if getattr(given, field) is not UNSET:
                raise InvalidOption(f"{field} belongs to a task; submit takes arguments as they are")
        return ExecutorView(self._pool, self._options | given, self)

    # ---- life

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """End this view: it accepts nothing more; what was submitted through it may finish.

        Args:
            wait: return only when that is settled.
            cancel_futures: cancel what has not started.
        """
        self._closed = True
        mine = [f for f in list(self._pool.futures.values()) if self._owns(f)]
        for future in mine:
            if cancel_futures and not future.running():
                future.cancel()
        if wait and not self._pool.callbacks.here:
            cf.wait(mine)

    def _owns(self, future: Future[Any]) -> bool:
        view: ExecutorView | None = future._use.view
        while view is not None and view is not self:
            view = view._parent
        return view is self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> bool | None:
        if kind is not None and not issubclass(kind, Exception):
            self._abandon()
        self.shutdown(wait=True)
        return False

    def _abandon(self) -> None:
        """A KeyboardInterrupt or SystemExit left the `with`: cancel and kill what is ours."""
        for future in [f for f in list(self._pool.futures.values()) if self._owns(f)]:
            future.cancel()

    @property
    def state(self) -> State:
        """Where the pool stands."""
        pool = self._pool
        if pool.finished.is_set():
            return State.STOPPED
        return pool.state

    def status(self) -> Snapshot:
        """Return the numbers of this moment."""
        pool, core = self._pool, self._pool.core
        running = sum(len(worker.queue) for worker in list(core.workers.values()))
        waiting, delayed = len(core.graph.waiting), len(core.delayed)
        ready = max(0, len(core.jobs) - waiting - delayed - running) + len(pool.inbox)
        return Snapshot(self.state, waiting, delayed, ready, running, len(pool.futures), core.staff, len(core.spares))

    def story(self, future: Future[Any]) -> list[Event]:
        """Return what is remembered of a job's life, oldest first (the last 10,000 jobs or so)."""
        from .observe.story import events_of

        return events_of(self._pool, future)

    def subscribe(self, fn: Callable[[Event], Any]) -> Subscription:
        """Call `fn` with each Event from now on, on the callback thread, in order."""
        from .observe.story import Narrator

        narrator = Narrator(self._pool, fn)
        self._pool.observers = [*self._pool.observers, narrator]

        def close() -> None:
            self._pool.observers = [o for o in self._pool.observers if o is not narrator]

        return Subscription(close)

    # what neighbours read
    @property
    def _max_workers(self) -> int:
        return self._pool.core.max_workers

    @property
    def _broken(self) -> Any:
        return self._pool.broken or False

    def __getattr__(self, name: str) -> Any:
        if name in POOL_VERBS:
            raise TypeError(f"{name}() concerns the whole pool: call it on the Executor itself, not on a view")
        raise AttributeError(f"{type(self).__name__!r} has no attribute {name!r}")


POOL_VERBS = frozenset(
    ("start", "pause", "resume", "drain", "join", "stop", "terminate_workers", "kill_workers")
)  # fmt: skip


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
        max_pending: `submit` blocks while so many jobs are held.
        spares: warm idle workers beyond `max_workers`; default 1, with an initializer 0.
        start_timeout: seconds within which a worker must be ready.
        capture: "tee", True or False (API, Output).
        restart_intensity: (n, seconds): more than n unexplained deaths in that time break the pool.
        name: of threads and logs.

    Raises:
        InvalidOption, InvalidType: an argument that can never be right.
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
        max_pending: int | None = None,
        spares: int | None = None,
        start_timeout: float | str | None = None,
        capture: bool | str = "tee",
        restart_intensity: tuple[int, float] = (10, 10.0),
        name: str | None = None,
    ) -> None:
        workers = cpus() if max_workers is None else whole(max_workers, "max_workers", 1, WORKERS_MAX)
        if initializer is not None and not callable(initializer):
            raise InvalidType("initializer must be callable")
        if spares is None:
            spares = 0 if initializer else 1
        whole(spares, "spares", 0, WORKERS_MAX)
        tasks = whole(max_tasks_per_child, "max_tasks_per_child", 1, PENDING_MAX) if max_tasks_per_child is not None else 0
        if max_pending is not None:
            whole(max_pending, "max_pending", 1, PENDING_MAX)
        if capture not in ("tee", True, False):
            raise InvalidOption(f"capture must be 'tee', True or False, not {capture!r}")
        if not isinstance(options, Options):
            raise InvalidType(f"options must be Options(...), not {type(options).__name__}")
        if isinstance(preload, str):
            raise InvalidType("preload must be a list of module names, not one text")
        try:
            intensity, period = restart_intensity
        except (TypeError, ValueError):
            raise InvalidType("restart_intensity must be (number of deaths, seconds)") from None
        spawned = _spawned(mp_context)
        config: dict[str, Any] = {
            "options": {
                "capture": capture is not False,
                "dump": True,
                "spawn": spawned,
                "main": False,
                "workers": workers,
                "initializer": pickle.dumps((initializer, tuple(initargs))) if initializer else b"",
                "say_ready": spawned or initializer is not None,
            },
            "preload": tuple(preload),
        }
        core = Scheduler(
            workers,
            spares,
            tasks,
            whole(intensity, "restart_intensity", 0, PENDING_MAX),
            duration_ns(period, "restart_intensity"),
            0 if start_timeout is None else duration_ns(start_timeout, "start_timeout"),
        )
        slots = 2 * (workers + spares) + 16  # the dying keep theirs until they are reaped
        title = name or f"ptss_mp-{next(_numbers)}"
        pool = Pool(core, config, slots, capture == "tee", title, max_pending=max_pending)
        pool.notice_main(config["options"]["initializer"])
        super().__init__(pool, Options(fresh=True) | options if fresh else options, None)
        weakref.finalize(self, pool.close_down, False).atexit = False

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
        """Start no further job; what runs goes on, what is submitted waits."""
        self._pool.open()
        with self._pool.lock:
            if self._pool.state is State.RUNNING:
                self._pool.state = State.PAUSED
                self._pool.control(on.Paused)

    def resume(self) -> None:
        """Start jobs again."""
        self._pool.open()
        with self._pool.lock:
            if self._pool.state is State.PAUSED:
                self._pool.state = State.RUNNING
                self._pool.control(on.Resumed)

    def drain(self, timeout: float | None = None) -> bool:
        """Wait until no released job is unsettled and no done-callback is running or due.

        Args:
            timeout: seconds.

        Returns:
            False if it took longer.

        Raises:
            RuntimeError: called from a done-callback, which would wait for itself.
        """
        pool = self._pool
        if pool.callbacks.here:
            raise RuntimeError("drain() inside a done-callback would wait for that callback")
        if not pool.pid or not pool.callbacks.thread.is_alive():
            return True
        drained = threading.Event()

        def enlist(_now: int) -> None:
            pool.drainers.append(drained)

        pool.control(enlist)
        until = None if timeout is None else time.monotonic() + timeout
        while not drained.wait(0.2 if until is None else max(0.0, min(0.2, until - time.monotonic()))):
            if not pool.callbacks.thread.is_alive():
                return True  # it ended meanwhile, and with it every callback
            if until is not None and time.monotonic() >= until:
                return False
        return True

    def stop(self, grace: float = 30.0) -> None:
        """Accept nothing more; what has not started is cancelled; what runs has `grace` seconds, then is killed.

        Returns when all has ended; what was killed is `interrupted`.

        Args:
            grace: seconds; 0 kills at once.
        """
        if isinstance(grace, bool) or not isinstance(grace, int | float) or not 0 <= grace < 1e9:
            raise InvalidOption(f"grace must be seconds from 0 on, not {grace!r}")
        self._stop(round(grace * 1e9))
        self._pool.join()

    def _stop(self, grace_ns: int) -> None:
        pool = self._pool
        pool.close_down(False)
        if pool.pid == os.getpid():
            pool.control(lambda now: on.Stopped(now, grace_ns))

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Accept nothing more; finish what was accepted, then end workers and threads.

        Args:
            wait: return only when all has ended and every callback has run (from a callback: when all has ended).
            cancel_futures: cancel what has not started; what runs goes on.
        """
        self._closed = True
        self._pool.close_down(cancel_futures)
        if wait:
            self._pool.join()

    def kill_workers(self) -> None:
        """Kill everything that runs, and end; running jobs are `interrupted`."""
        self._stop(0)

    terminate_workers = kill_workers  # SIGTERM would let a job go on; the promise is that none does

    def _abandon(self) -> None:
        self._stop(0)


def cpus() -> int:
    """Return how many CPUs this process may use: affinity, cgroup quota, and its share inside a worker."""
    usable = len(os.sched_getaffinity(0))
    with contextlib.suppress(OSError, ValueError):
        with open("/sys/fs/cgroup/cpu.max") as f:
            quota, period = f.read().split()
        if quota != "max":
            usable = min(usable, -(-int(quota) // int(period)))
    return max(1, min(WORKERS_MAX, usable // wire.outer_workers))


def _spawned(context: Any) -> bool:
    """Return True for a new interpreter per worker, False for forks of the warden."""
    method = context if isinstance(context, str) or context is None else context.get_start_method()
    if method == "fork":
        raise InvalidOption(
            "mp_context='fork' is refused: forking a program that has threads hands every lock they hold to the "
            "worker, locked for ever; None (forks of a warden process) is as fast and safe, 'spawn' the slow way"
        )
    if method not in (None, "forkserver", "spawn"):
        raise InvalidOption(f"mp_context must be None, 'forkserver' or 'spawn', not {method!r}")
    return method == "spawn"


def _name_of(fn: Any) -> str:
    inner = getattr(fn, "func", None)  # functools.partial
    return getattr(fn, "__qualname__", None) or (_name_of(inner) if inner else type(fn).__qualname__)


def _instants(given: Options, use: Use, now: int) -> tuple[int, int]:
    """Return (release, deadline) of a job submitted now, as instants of the monotonic clock."""
    start, deadline = given.get("start_time"), given.get("deadline")
    release = now
    if isinstance(start, datetime):
        release = monotonic(start)
    elif start is not None:
        release = now + duration_ns(start, "start_time")
    if isinstance(deadline, datetime):
        return release, monotonic(deadline)
    return release, release + use.deadline_ns if use.deadline_ns else NEVER


def _pickled(use: Use, args: Any, kwargs: Any, needs: list[Future[Any]]) -> bytes:
    """Pickle a call; Futures met on the way are noted in `needs`."""
    outer, submitting.needs = submitting.needs, needs
    try:
        if use.function.number < 0:
            return pickle.dumps((use.fn, args, kwargs), 5)
        return pickle.dumps((args, kwargs), 5)
    finally:
        submitting.needs = outer


def _born_failed(future: Future[Any], use: Use, args: Any, kwargs: Any, error: BaseException) -> Future[Any]:
    """Return a Future that is settled: a part of its call cannot be pickled."""
    parts: list[tuple[str, Any]] = [("function", use.fn)] if use.function.number < 0 else []
    parts += [(f"argument {i}", arg) for i, arg in enumerate(args, 1)]
    parts += [(f"keyword {name}", value) for name, value in kwargs.items()]
    guilty = "call"
    for part, value in parts:
        submitting.needs = []
        try:
            pickle.dumps(value, 5)
        except BaseException:
            guilty = part
            break
        finally:
            submitting.needs = None
    text = f"job {use.name!r}: its {guilty} cannot be pickled: {brief(error)}"
    cause = NotPicklable(text, part=guilty)
    cause.__cause__ = error if isinstance(error, Exception) else None
    report = Report("not_picklable", monotonic_ns())
    report.error, report.cause = f"its {guilty} cannot be pickled: {brief(error)}", cause
    future._report = report
    future._end("FINISHED")
    return future


_getpid = os.getpid
