"""A pool under options: what can be asked of an Executor and of its views alike."""

from __future__ import annotations

import concurrent.futures as cf
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures._base import FINISHED
from datetime import datetime, timedelta
from types import MappingProxyType
from typing import Any, NamedTuple, NoReturn, Self, TypeVar

from . import host, wire
from .adding import make_entry
from .chunk import Chunk
from .core.job import NEVER
from .declare import Options
from .declare import options as make_options
from .errors import ExecutorClosed, InvalidOption, InvalidType
from .future import Future
from .journaling import check_kept, keyed, take_back
from .keyed import Keyed
from .life import serve, wait_for_work
from .making import for_submit, for_tasks_only
from .mapping import Maps
from .observe.story import Event
from .parcel import parts_of
from .pool import Pool, State
from .recurring import Recurring, Releases
from .rules import RULED, Rules, rule_of, rules
from .shell.clock import monotonic_ns
from .shell.lateness import Tardiness
from .shell.report import Extra
from .shell.use import Function, Use
from .submission import born_failed, instants, name_of, pickled_call
from .tasks import Task
from .units import nearest

T = TypeVar("T")

COMPILED_MAX = 1_000  # sets of options kept ready for views that ask for the same again
_RUNNING = State.RUNNING  # on 3.11 a member of an enumeration is a descriptor: 0.1 µs
_SCALARS = frozenset((int, float, bool, type(None)))
_TEXTS = frozenset((str, bytes))
_NUMBERS = frozenset((int, float))
_OF_THE_CALL = Options(args=None, kwargs=None, after=None)  # pickled and looked up by `add`: nobody keeps the originals


class Snapshot(NamedTuple):
    """Numbers of one moment.  `workers` counts ready and starting ones, spares included.

    `late` tells of each task, by its name, how many of its jobs ended after their deadlines so far, and how late.
    """

    state: State
    waiting: int
    delayed: int
    ready: int
    running: int
    unsettled: int
    workers: int
    spares: int
    late: Mapping[str, Tardiness]


class Subscription:
    """Ends with `close()`, or at the end of a `with`."""

    def __init__(self, close: Callable[[], None]) -> None:
        self.close = close

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Scope:
    """A view's options, whose view it is of, and whether it was shut down.  Futures hold this, not the view.

    So an Executor that is dropped is gone at once, and ends, whoever keeps its Futures.
    """

    __slots__ = ("closed", "options", "parent")

    def __init__(self, options: Options, parent: Scope | None) -> None:
        self.options, self.parent, self.closed = options, parent, False


def _of_the_pool(name: str) -> Callable[..., Any]:
    """Return what a view has in the place of a verb that is the Executor's own."""

    def verb(_view: ExecutorView, *_: Any, **__: Any) -> NoReturn:
        raise TypeError(f"{name}() concerns the whole pool: call it on the Executor itself, not on a view")

    verb.__name__, verb.__qualname__ = name, f"ExecutorView.{name}"
    verb.__doc__ = f"Raise TypeError: `{name}` is the Executor's own."
    return verb


class ExecutorView(Maps):
    """The pool under options of its own; made by `options(...)`."""

    def __init__(
        self, pool: Pool, given: Options, options: Options, rules: Rules, parent: ExecutorView | None
    ) -> None:
        self._pool = pool
        self._given, self._options = given, options  # of the views alone; with the Executor's (or a Task's)
        self._parent = parent  # an Executor ends when it is dropped: a view of it is a reason to keep it
        self._scope: Scope = Scope(options, parent._scope if parent else None)
        self._uses: dict[Any, Use] = {}
        self._rules = rules
        self._special = any(
            options.get(field) is not None for field in ("start_time", "after", "name", "key")
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
        if pool.max_pending is not None:
            pool.wait_for_room()  # first: the pool may be stopped meanwhile
        if pool.state is not _RUNNING or pool.views_ended or pool.broken:
            self._open()
        call: Any = args
        if kwargs or use.function.number < 0:
            call = None
        else:
            for arg in args:
                kind = type(arg)
                if kind not in _SCALARS and (kind not in _TEXTS or len(arg) > wire.INLINE_BYTES):
                    call = None
                    break
            else:
                if len(args) == 1 and type(args[0]) in _NUMBERS:
                    call = args[0]  # bare: 48 bytes less for each of a million
        now = monotonic_ns()
        if call is None or use.special:
            return self._submit_specially(use, call, args, kwargs, now)
        due = now + use.deadline_ns if use.deadline_ns else NEVER
        job = next(pool.ids)
        future: Future[T] = Future(job, call, use, now, now, due)
        pool.enqueue(future)
        return future

    def add(
        self,
        fn: Callable[..., Any],
        name: str | None = None,
        start_time: datetime | timedelta | str | None = None,
        interval: float | timedelta | str | None = None,
        delay: float | timedelta | str | None = None,
        *,
        args: Iterable[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> Recurring:
        """Add a task: it is released at `start_time`, and again if it recurs; starts nothing by itself.

        What hangs on a recurring task (`after`, or its Recurring among the arguments) and does not recur itself is
        released with it: one job of each makes a run.

        Args:
            fn: a function or a Task.
            name: by which `tasks` and `after` have it; used once.  A Task brings one.
            start_time: an aware datetime, or a duration from now; default: now.
            interval: from each scheduled release to the next, anchored at `start_time`, also a past one.
            delay: from the end of a run to the next release.
            args, kwargs: of each call; pickled now.
            options: as `Options`: all of a job, and cron, tz, jitter, max_runs, until, overlap, misfire.

        Raises:
            InvalidOption, InvalidType: as `Options`; the name is taken; recurrences that do not go together.
            NotPicklable: the call cannot be pickled.
            ExecutorClosed, PoolBroken: as `submit`.
        """
        named = {"start_time": start_time, "interval": interval, "delay": delay, "kwargs": kwargs}
        given: dict[str, Any] = {field: value for field, value in named.items() if value is not None}
        if args:
            given["args"] = tuple(args)
        if name is None and not isinstance(fn, Task):
            raise InvalidType("add needs a name for what is no Task")
        return self._add(fn, make_options(**given, **options, **({} if name is None else {"name": name})))

    def _add(self, fn: Callable[..., Any], given: Options) -> Recurring:
        pool, declared = self._pool, Options()
        if isinstance(fn, Task):
            if fn.items is not None:
                raise InvalidType(f"{fn.name!r} is a batch; a jobs file runs it, add takes single tasks")
            declared = fn.options
        merged = pool.base | declared | self._given | given
        rule = rule_of(merged)
        self._check_scopes()
        pool.check()
        kept = self._given | given | _OF_THE_CALL
        use = ExecutorView(pool, kept, merged | _OF_THE_CALL, rules(merged), self)._use(fn)
        with pool.lock:
            if pool.releases is None:
                pool.releases = Releases(pool)
            releases: Releases = pool.releases
        releases.free(use.name)  # before the program's own code is run by pickling
        entry = make_entry(use, merged, rule, releases.tasks)
        with pool.lock:
            pool.check()  # it may have been closed meanwhile
            return releases.add(entry, rule, merged)

    @property
    def tasks(self) -> Mapping[str, Recurring]:
        """The tasks that were added to the pool, by name."""
        return MappingProxyType(self._pool.releases.tasks if self._pool.releases else {})

    def _check_scopes(self) -> None:
        scope: Scope | None = self._scope
        while scope is not None:
            if scope.closed:
                raise ExecutorClosed("cannot schedule new futures after shutdown of this view")
            scope = scope.parent

    def _open(self) -> None:
        self._check_scopes()
        self._pool.open()

    def _use(self, fn: Any) -> Use:
        """Return what the jobs of `fn` share under this view's options."""
        if not callable(fn):
            raise InvalidType(f"a job needs a function, not {type(fn).__name__}")
        pool, view = self._pool, self
        if isinstance(fn, Task):
            if fn.items is not None:
                raise InvalidType(f"{fn.name!r} is a batch; a jobs file runs it, submit takes single tasks")
            options = pool.base | fn.options | self._given
            view = ExecutorView(pool, self._given, options, rules(options), self)
        name = view._options.get("name") or (fn.name if isinstance(fn, Task) else name_of(fn))
        try:
            function = pool.function(fn)
        except Exception:
            function = Function(fn, wire.BY_VALUE, b"")  # `_submit_specially` will say which part failed
        use = Use(pool, view._scope, fn, function, view._rules, name)
        use.special = view._special or isinstance(fn, Task) or pool.journal is not None
        if not use.spec.kill_at_deadline:
            pool.lateness.wanted = True
        if function.number >= 0:
            self._uses[fn] = use
        return use

    def _submit_specially(self, use: Use, call: Any, args: Any, kwargs: Any, now: int) -> Future[Any]:
        """Submit what needs pickling, has prerequisites, absolute instants, or a name or key to be known by."""
        pool, given = self._pool, use.scope.options
        if isinstance(use.fn, Task):
            for_submit(use.fn)
            args = (*(given.get("args") or ()), *args)
            kwargs = {**(given.get("kwargs") or {}), **kwargs}
            call = None
        for value in (*args, *kwargs.values()):
            if isinstance(value, cf.Future) and not isinstance(value, Future):
                raise InvalidType(f"an argument of {use.name!r} is a Future of another executor; pass its value")
        known = bool(given.get("name")) or isinstance(use.fn, Task)
        times = now, *instants(given, use.deadline_ns, now)
        if pool.journal is None and given.get("key") is None:
            return self._submit_as(Future(next(pool.ids), call, use, *times), args, kwargs, known)
        future = keyed(Keyed(next(pool.ids), call, use, *times), args, kwargs)
        if future.done():  # an earlier run has settled it
            if known:
                pool.know(future)
                pool.remember(future, FINISHED)
            return future
        try:
            return self._submit_as(future, args, kwargs, known)
        except BaseException:
            take_back(future)
            raise

    def _submit_as(self, future: Future[Any], args: Any, kwargs: Any, known: bool) -> Future[Any]:
        """Submit a job; its call, if it has none yet, is pickled."""
        use, needs, pool = future._use, dict[Future[Any], int](), self._pool
        if future._result is None:
            try:
                future._result = pickled_call(use, args, kwargs, needs)
                check_kept(use, needs)
            except BaseException as error:
                if isinstance(error, KeyboardInterrupt):
                    raise
                try:
                    return born_failed(future, known, args, kwargs, error)
                finally:
                    del future  # no cycle: error, traceback, this frame, Future, its report, error
            pool.notice_main(parts_of(future._result)[0])
        after = self._prerequisites(use.scope.options, needs)
        start, deadline = use.scope.options.get("start_time"), use.scope.options.get("deadline")
        if isinstance(start, datetime) or isinstance(deadline, datetime):
            pool.dates.add(future, isinstance(start, datetime), isinstance(deadline, datetime))
        if after:
            future._extra = Extra(tuple(needs), after)
            pool.linked = True
        if isinstance(use.fn, Chunk):
            future._extra = Extra()
            future._extra.run = args[0]
        if known:
            pool.know(future)
        if pool.journal:
            pool.journal.accept(future)
        pool.enqueue(future)
        return future

    def _prerequisites(self, given: Options, needs: Iterable[Future[Any]]) -> tuple[Future[Any], ...]:
        """Return all Futures that the job waits for, each once."""
        found: dict[Any, None] = dict.fromkeys(needs)
        named = given.get("after")
        many = named is not None and not isinstance(named, str | Task | cf.Future)
        if many and not isinstance(named, Iterable):
            raise InvalidType(f"after takes Futures, Tasks and names, not {type(named).__name__}")
        for item in (list(named) if many else [named]) if named is not None else ():
            key = item.name if isinstance(item, Task) else item
            if isinstance(key, str):
                future = self._pool.named(key)
                if future is None:
                    hint = nearest(key, list(self._pool.names))
                    raise InvalidOption(f"after: no job named {key!r} is known here{hint}")
                found[future] = None
            elif isinstance(key, cf.Future):
                found[key] = None
            else:
                raise InvalidType(f"after takes Futures, Tasks and names, not {type(item).__name__}")
        for future in found:
            if isinstance(future, Recurring):
                what = "a Recurring is an argument of add alone; its last job is found by its name, in `after`"
                raise InvalidType(f"{what}: {future.name!r}")
            if not isinstance(future, Future) or future._use.pool is not self._pool:
                raise InvalidType("a prerequisite must be a Future of this executor; this one is of another")
        return tuple(found)

    def options(self, **options: Any) -> ExecutorView:
        """Return the same pool under further options (`declare.Options`); the later win.

        Raises:
            InvalidOption, InvalidType: as `Options`.
        """
        if not RULED.issuperset(options):  # names and prerequisites are of one job: not worth a place
            return ExecutorView(self._pool, *self._merged(options), self)
        compiled = self._pool.compiled
        key = (self._given, *((name, type(value), value) for name, value in options.items()))
        try:
            known = compiled.get(key)
        except TypeError:  # something in it has no hash
            return ExecutorView(self._pool, *self._merged(options), self)
        if known is None:
            known = self._merged(options)
            if len(compiled) < COMPILED_MAX:
                compiled[key] = known
        return ExecutorView(self._pool, *known, self)

    def _merged(self, options: dict[str, Any]) -> tuple[Options, Options, Rules]:
        given = make_options(**options)
        for_tasks_only(given)
        more = self._given | given
        merged = self._pool.base | more
        return more, merged, rules(merged) if RULED.intersection(options) else self._rules

    # ---- life

    start = _of_the_pool("start")
    pause = _of_the_pool("pause")
    stop = _of_the_pool("stop")
    terminate_workers = _of_the_pool("terminate_workers")
    kill_workers = _of_the_pool("kill_workers")

    def resume(self) -> None:
        """Let the pool start jobs again."""
        self._pool.resume()

    def drain(self, timeout: float | None = None) -> bool:
        """Wait until no released job of the pool is unsettled and no done-callback is running or due.

        Args:
            timeout: seconds.

        Returns:
            False if it took longer.

        Raises:
            RuntimeError: called from a done-callback, which would wait for itself; or in a fork of the program.
        """
        return wait_for_work(self._pool, timeout, False, "drain")

    def join(self, timeout: float | None = None) -> bool:
        """Wait until no job of the pool is unsettled, whatever its start time, and no done-callback is due.

        Closes nothing.  Arguments, result and errors are those of `drain`.
        """
        return wait_for_work(self._pool, timeout, True, "join")

    def serve(self, grace: float = 30.0) -> int:
        """Start, and wait as `join` does; meanwhile SIGINT, SIGTERM and SIGHUP end the pool.

        The first is `stop(grace)`, the second kills what still runs; an ignored SIGHUP (nohup) stays so.
        The handlers that were there before are there again when it returns.

        Args:
            grace: seconds that running jobs have after the first signal; 0 kills at once.

        Returns:
            130, 143 or 129 after SIGINT, SIGTERM, SIGHUP; else the exit status of all jobs of this pool so
            far: 0 all succeeded or were skipped, 3 only deadlines were missed, 1 anything else.

        Raises:
            RuntimeError: not in the main thread.
            InvalidOption: `grace` is no duration.
            ExecutorClosed, PoolBroken: as `submit`.
        """
        return serve(self._pool, grace)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """End this view: it accepts nothing more; what was submitted through it may finish.

        Args:
            wait: return only when that is settled.
            cancel_futures: cancel what has not started.
        """
        self._scope.closed = self._pool.views_ended = True
        pool = self._pool
        if pool.releases:
            pool.releases.close(self._owns_use)
        mine = [f for f in [*pool.futures.values(), *pool.uncommitted.values()] if self._owns(f)]
        if cancel_futures:
            pool.cancel_unsent(mine)
        if wait and not pool.callbacks.here:
            for future in mine:  # `cf.wait` would make a million conditions, and hold them all while it looks
                if not future.done():
                    future._wait(None)

    def _owns(self, future: Future[Any]) -> bool:
        return self._owns_use(future._use)

    def _owns_use(self, use: Use) -> bool:
        scope: Scope | None = use.scope
        while scope is not None and scope is not self._scope:
            scope = scope.parent
        return scope is self._scope

    def __exit__(self, kind: type[BaseException] | None, error: Any, trace: Any) -> None:
        if kind is not None and issubclass(kind, KeyboardInterrupt | SystemExit):
            self._abandon()
        self.shutdown(wait=True)

    def _abandon(self) -> None:
        """A KeyboardInterrupt or SystemExit left the `with`: cancel and kill what is ours."""
        if self._pool.releases:
            self._pool.releases.close(self._owns_use)  # first: so that nothing comes behind
        for future in [f for f in list(self._pool.futures.values()) if self._owns(f)]:
            future.cancel()

    def __repr__(self) -> str:
        return f"<view of {self._pool.name}, {self.state}, {self._given}>"

    @property
    def state(self) -> State:
        """Where the pool stands."""
        pool = self._pool
        if pool.ended:
            return State.STOPPED
        return pool.state

    def status(self) -> Snapshot:
        """Return the numbers of this moment."""
        pool, core = self._pool, self._pool.core
        running = sum(len(worker.queue) for worker in list(core.workers.values()))
        waiting, delayed = len(core.graph.waiting), len(core.delayed)
        ready = max(0, len(core.jobs) - waiting - delayed - running) + len(pool.inbox)
        waiting += len(pool.gathering)
        unsettled = len(pool.futures) + len(pool.uncommitted)
        jobs = waiting, delayed, ready, running, unsettled
        return Snapshot(self.state, *jobs, core.staff, len(core.spares), pool.lateness.tasks)

    def metrics(self) -> Mapping[str, float]:
        """Return the pool's counters since its start (`_total`) and gauges of this moment (`observe.metrics.METRICS`).

        Counting costs jobs nothing: a job is counted with its batch.
        """
        from .observe.metrics import metrics

        return metrics(self._pool, self.status())

    def capabilities(self) -> Mapping[str, str]:
        """Return how each limit is held on this machine: limit -> "kernel", "polled" or "absent" (`host.capabilities`).

        Tried for real each time, which takes a fifth of a second.
        """
        return host.capabilities()

    def story(self, future: Future[Any]) -> list[Event]:
        """Return what is remembered of a job's life, oldest first (the last 10,000 jobs or so)."""
        from .observe.story import events_of

        return events_of(self._pool, future)

    def subscribe(self, fn: Callable[[Event], Any]) -> Subscription:
        """Call `fn` with each Event from now on, on the callback thread, in order.

        What a running job reports (`current().progress`) is the Event "progress", twice a second at most.  A
        subscriber that is slower than the jobs misses Events once 50,000 wait for it; the Event "missed" (job 0)
        stands in their place and says how many.
        """
        from .observe.story import Narrator

        narrator = Narrator(self._pool, fn)
        self._pool.observers = [*self._pool.observers, narrator]
        self._pool.control(self._pool.look)

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
