"""What all views of an executor share: the supervisor, the function table, the names, the state.

A pool is started at most once, by the process that made it or by one fork of
it; interpreter exit finishes its work, and a fork of the program holds none of
its descriptors.
"""

from __future__ import annotations

import os
import pickle
import sys
import threading
import time
import weakref
from collections import deque
from enum import StrEnum
from multiprocessing import spawn
from typing import TYPE_CHECKING, Any

from . import wire
from .core import events as on
from .declare import Options
from .errors import ExecutorClosed, PoolBroken, QueueFull
from .future import Future, remains
from .handlers import interrupting
from .pickling import main_is_importable, names_main
from .rules import Rules
from .shell import container
from .shell.dispatch import prepare_main
from .shell.supervisor import Supervisor
from .shell.use import Function, by_reference
from .shell.verdicts import extra_of

if TYPE_CHECKING:
    from .journal.writer import Journal
    from .saving import Saving

WORKERS_MAX = 1_000  # each costs the parent eight descriptors (warden.protocol.FDS)
NAMES_MAX = 10_000  # ended jobs that `after` finds by name; as many as `story` remembers
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


class Pool(Supervisor):
    """The supervisor, and what all views of an executor share beside it."""

    def __init__(self, *args: Any, max_pending: int | None) -> None:
        super().__init__(*args)
        self.lock = threading.RLock()  # of starting and of the tables below; held for microseconds
        self.state = State.INITIALIZED
        self.base = Options()  # the Executor's: a Task's come between them and a view's
        self.compiled: dict[Any, tuple[Options, Options, Rules]] = {}  # what `options(...)` gave so far
        self.functions: dict[Any, Function] = {}
        self.value_numbers: dict[str, int] = {}
        self.names: weakref.WeakValueDictionary[str, Future[Any]] = weakref.WeakValueDictionary()
        self.ended_names: dict[str, Future[Any]] = {}
        self.ended_order: deque[tuple[str, Future[Any]]] = deque()
        self.max_pending = max_pending
        self.pid = 0
        self.held = False  # paused, or to be from the start
        self.dropped: weakref.finalize[Any, Any] | None = None  # what ends a pool whose Executor nobody holds any more
        self.views_ended = False  # some view was shut down: `submit` looks closer
        if max_pending is not None:
            self.room = threading.Condition()

    def keep_journal(self, journal: Journal | None) -> None:
        """Keep a journal from the start on."""
        self.journal = journal
        self.exact = journal is not None and not journal.rerun

    def know(self, future: Future[Any]) -> None:
        """Let `after` find a job by its name, until another job takes it."""
        extra_of(future).named = True
        self.names[future._use.name] = future

    def named(self, name: str) -> Future[Any] | None:
        """Return the job of a name, or what is remembered of it."""
        return self.names.get(name) or self.ended_names.get(name)

    def remember(self, future: Future[Any], state: str) -> None:
        """Keep how a named job ends: whether `after` finds it must not hang on who still holds its Future."""
        name, run = future._use.name, future._extra.released if future._extra else None
        if run:
            self.releases.settled(run, future)
        if self.ended or self.names.get(name) is not future:
            return  # nobody can ask any more, or another one has taken the name
        kept = self.ended_names[name] = remains(future, state)
        self.ended_order.append((name, kept))
        if len(self.ended_order) > NAMES_MAX:
            oldest, kept = self.ended_order.popleft()
            if self.ended_names.get(oldest) is kept:
                del self.ended_names[oldest]

    def settle_all(self) -> None:
        """Settle what is left, and forget names: nobody can ask for one any more, and each leads back here."""
        super().settle_all()
        if self.releases:
            self.releases.end()
        self._forget_executor()
        self.ended_order.clear()
        self.ended_names.clear()

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
                pickled = pickle.dumps(fn, 5)
                if names_main(pickled) and not main_is_importable():
                    return Function(fn, wire.BY_VALUE, b"")
                found = Function(fn, len(self.functions), pickled)
                self.functions[fn] = found
                self.notice_main(found.pickled)
            return found

    def notice_main(self, pickled: bytes) -> None:
        """If a call refers to `__main__`, let warden and workers import it (once)."""
        if self.main_data or not names_main(pickled) or not main_is_importable():
            return
        data = spawn.get_preparation_data("ptss_mp")
        data["authkey"] = bytes(data["authkey"])
        self.main_data = pickle.dumps(data)
        self.control(self._tell_main)

    def warm(self, module: str, function: str, *args: Any) -> None:
        """Call a function in the warden before it forks anything, so that every worker is born with its effects.

        For what takes long and was seen to be harmless; not for a pool that has started.
        """
        self.config["calls"].append((module, function, args))

    def _tell_main(self, _now: int) -> None:
        if self.warden and not self.main_told:
            self.main_told = True
            self.warden.prepare_main(self.main_data)
        for channel in self.channels.values():
            if not (channel.main or channel.given) and channel.calls_fd >= 0:  # the busy: before their next job
                channel.send([prepare_main(channel, self.main_data)], [])

    def refuse_forks(self) -> None:
        """Raise RuntimeError in a fork of the program that started this pool."""
        if self.pid and self.pid != os.getpid():
            raise RuntimeError("this executor was started by the process before its fork; make another one here")

    def check(self) -> None:
        """Refuse if nothing more is accepted.

        Raises:
            ExecutorClosed, PoolBroken, RuntimeError: the pool's state, or a fork's child.
        """
        self.refuse_forks()
        if self.broken:
            raise PoolBroken(str(self.broken))
        if _exiting:
            raise RuntimeError("cannot schedule new futures after interpreter shutdown")
        if self.state in (State.SHUTTING_DOWN, State.STOPPED):
            raise ExecutorClosed("cannot schedule new futures after shutdown")

    def open(self) -> None:
        """Start if that has not happened; refuse if nothing more is accepted, as `check`."""
        self.check()
        if self.state is not State.INITIALIZED:
            return
        if wire.importing_main:
            raise RuntimeError(NO_GUARD)
        with self.lock:
            if self.state is State.INITIALIZED:
                if self.journal:
                    self.journal.open(self)
                self.pid = os.getpid()
                try:
                    self.start()
                except BaseException:
                    self._not_started()
                    raise
                _live.add(self)
                if self.held:
                    self.control(on.Paused)
                if self.state is State.INITIALIZED:  # last: other threads go on at this word
                    self.state = State.PAUSED if self.held else State.RUNNING
        self.check()  # a signal handler may have ended it meanwhile

    def pause(self) -> None:
        """Start no further job; before the start: none once it has started."""
        self.check()
        with self.lock:
            self.held = True
            if self.state is State.RUNNING:
                self.state = State.PAUSED
                self.control(on.Paused)

    def resume(self) -> None:
        """Take a pause back."""
        self.check()
        with self.lock:
            self.held = False
            if self.state is State.PAUSED:
                self.state = State.RUNNING
                self.control(on.Resumed)

    def _not_started(self) -> None:
        """Take a start back that failed half-way (no descriptors, no threads), so that it can be tried again."""
        self.pid = 0
        if self.journal:
            self.journal.finish()
        if self.callbacks.thread.is_alive():
            self.callbacks.finish()
            self.callbacks.thread.join()
        if hasattr(self, "poller"):
            self.poller.close()

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
            while len(self.futures) >= (self.max_pending or 0) and not self.ended:
                if self.state in (State.SHUTTING_DOWN, State.STOPPED):
                    return  # who asks next is refused
                self.room.wait(1.0)
        self.open()  # it may have been closed meanwhile

    def close_down(self, drop: bool) -> None:
        """Accept nothing more; end when all is settled."""
        with self.lock:
            started = self.pid == os.getpid()
            if self.state is not State.STOPPED:
                self.state = State.SHUTTING_DOWN if started else State.STOPPED
            if self.releases:
                self.releases.close()
        if started:
            self.control(lambda now: on.Closed(now, drop))
        else:
            self._forget_executor()

    def _forget_executor(self) -> None:
        """Drop what would end this pool: it holds the pool, and that holds what a task's callback refers to."""
        if self.dropped:
            self.dropped.detach()

    def stop(self, grace_ns: int, saving: Saving | None = None) -> None:
        """Accept nothing more; what runs has the grace; `saving` learns what has not run.  Does not wait."""
        if saving:
            self.savings.append(saving)  # first: so that it misses nothing
        self.close_down(True)  # nothing may start between the two
        if self.pid == os.getpid():
            self.control(lambda now: on.Stopped(now, grace_ns))

    def join(self, timeout: float | None = None) -> bool:
        """Wait until loop and callbacks have ended; from a callback, until the loop has.

        In a signal handler it waits for nothing: the thread it has interrupted may hold what the end needs (the
        standard library's `wait` holds the conditions of its Futures).
        """
        if self.pid != os.getpid():
            return True
        if interrupting():
            return False
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


_exiting = False  # the interpreter is: nothing can be started any more


def _at_exit() -> None:
    """Interpreter exit finishes the work, as the standard library's executors do."""
    global _exiting  # noqa: PLW0603 - a fact of the process
    _exiting = True
    for pool in list(_live):
        pool.close_down(False)
    for pool in list(_live):
        pool.join()


def _after_fork() -> None:
    """A fork of the program does nothing with the pool, and holds none of its descriptors."""
    for pool in list(_live):
        _live.discard(pool)
        pool.state = State.STOPPED  # so that the next `submit` here looks closer, and says why not
        for owner in (pool.poller, pool.warden, pool.journal, *pool.channels.values()):
            if owner:
                owner.abandon()


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


def cpus() -> int:
    """Return how many CPUs this process may use: affinity, cgroup quota, and its share inside a worker."""
    usable = len(os.sched_getaffinity(0))
    usable = min(usable, container.processors() or usable)
    return max(1, min(WORKERS_MAX, usable // wire.outer_workers))
