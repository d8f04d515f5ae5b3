"""The supervisor: one loop thread that tells the core what happened and does what it says.

Theory of operation.  A turn: wait (epoll on worker pipes, pidfds, the warden's
socket, an eventfd for callers, a timer); turn what is there into events; let
the core step; obey.  In this order within a turn: the warden's word, answers,
deaths, the clock, since a list of ready descriptors is as old as the wait for
the interpreter lock was long.

Callers' threads touch `futures`, `inbox`, `gone` and `asleep` only, each with
one atomic operation.  All else belongs to the loop thread.
"""

from __future__ import annotations

import contextlib
import logging
import os
import pickle
import select
import signal
import sys
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures._base import CANCELLED_AND_NOTIFIED, FINISHED
from itertools import count
from typing import Any

from .. import wire
from ..core import commands as do
from ..core import events as on
from ..core.job import NEVER, Prerequisite
from ..core.scheduler import MS, Scheduler
from ..errors import PoolBroken
from ..future import Future
from ..warden import kernel
from ..warden.protocol import EXITED, FORKED, TICK_MAX_NS, VERDICT, WHYS
from .callbacks import Callbacks
from .channel import Answer, Channel, Row, Violation
from .clock import monotonic_ns
from .hire import Warden, python, sweep
from .report import Report
from .rows import call_row
from .verdicts import explain, explain_end, extra_of

log = logging.getLogger("ptss_mp")

SLICE = 2_000  # submissions taken in one turn: about 3 ms, so that answers are never long unread
STATUS_NS = 100 * MS  # how long to wait for the warden's word on a death
QUIT_NS = 1_000 * MS  # what idle workers have for their exit handlers when the pool ends
WARDEN_RANK, ANSWERS_RANK, WRITE_RANK, DEATH_RANK, CLOCK_RANK = range(5)
_ONE = (1).to_bytes(8, sys.byteorder)
Handler = tuple[int, Callable[[Any], None], Any]


class Supervisor:
    """The pool behind an Executor.

    Args:
        core: what decides.
        config: the warden's configuration (hire.Warden).
        slots: bound on workers alive at once, dying ones included.
        tee: write captured output through when an attempt ends.
        name: of threads and logs.
    """

    never = NEVER

    def __init__(self, core: Scheduler, config: dict[str, Any], slots: int, tee: bool, name: str) -> None:
        self.core, self.config, self.slots, self.tee, self.name = core, config, slots, tee, name
        self.captures: bool = config["options"]["capture"]
        # shared with callers
        self.futures: dict[int, Future[Any]] = {}
        self.inbox: deque[tuple[Any, ...]] = deque()
        self.gone: deque[int] = deque()
        self.controls: deque[Callable[[int], on.Event | None]] = deque()
        self.ids = count(1)
        self.asleep = False
        self.linked = False  # some job had prerequisites
        self.finished = threading.Event()  # nothing more will be settled by the loop
        self.broken: PoolBroken | None = None
        self.main_data: bytes = b""
        self.room: threading.Condition | None = None  # of max_pending
        self.observers: list[Any] = []  # observe.story.Narrator
        self.drainers: list[threading.Event] = []
        # the loop's
        self.events: list[on.Event] = []
        self.answers: dict[int, Answer] = {}
        self.reports: dict[int, Report] = {}  # of attempts that died, until the core has judged
        self.channels: dict[int, Channel] = {}
        self.handlers: dict[int, Handler] = {}
        self.warden: Warden | None = None
        self.wardens = 0
        self.main_told = self.halted = False
        self.armed_at, self.quit_at, self.unexplained = NEVER, NEVER, 0
        self.tag = ""
        self.epoll: Any = None
        self.wake_fd = self.timer_fd = -1
        self.callbacks = Callbacks(name)
        self.thread = threading.Thread(target=self._run, name=f"{name}-loop", daemon=True)

    # ------------------------------------------------------------------ any thread

    def start(self) -> None:
        """Start both threads; the warden is started by the loop thread, never by a user's."""
        self.tag = f"{os.getpid()}-{os.urandom(6).hex()}"
        self.config |= {"path": list(sys.path), "python": python()}
        self.epoll = select.epoll()
        self.wake_fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self.timer_fd = kernel.timerfd()
        self.epoll.register(self.wake_fd, select.EPOLLIN)
        self.epoll.register(self.timer_fd, select.EPOLLIN)
        self.callbacks.start()
        self.thread.start()

    def enqueue(self, future: Future[Any], row: tuple[Any, ...]) -> None:
        """Hand a new job to the loop."""
        self.futures[future._id] = future
        self.inbox.append(row)
        if self.asleep:
            self.asleep = False
            os.write(self.wake_fd, _ONE)
        if self.finished.is_set():  # it ended between the caller's look and the append
            self.cancel(future)

    def control(self, make: Callable[[int], on.Event | None]) -> None:
        """Let the loop make an event, with its instant, once everything submitted before is in."""
        self.controls.append(make)
        self.wake()

    def wake(self) -> None:
        """End the loop's sleep."""
        with contextlib.suppress(OSError, ValueError):
            os.write(self.wake_fd, _ONE)

    def cancel(self, future: Future[Any]) -> bool:
        """Settle a Future as cancelled, if nobody else owns its end; the core is told."""
        if self.futures.pop(future._id, None) is None:
            return future.cancelled()
        future._report = Report("cancelled", monotonic_ns())
        future._report.attempts = (future._extra.tries if future._extra else 0) + (future._pid != 0)
        if future._end(CANCELLED_AND_NOTIFIED):
            self.callbacks.settled(future)
        self._free_room()
        self.gone.append(future._id)
        if not self.finished.is_set():
            self.wake()
        return True

    # ------------------------------------------------------------------ the loop

    def _run(self) -> None:
        try:
            self._hire()
            while not self.finished.is_set():
                self._turn()
        except BaseException as error:
            log.critical("the loop of %s failed: please report this", self.name, exc_info=True)
            self._break(f"the supervisor itself failed: {error!r}")
        finally:
            self._close()

    def _turn(self) -> None:
        self.events = []
        for _, handle, what in sorted(self._ready(), key=_rank):
            handle(what)
        taken = min(len(self.inbox), SLICE)
        if taken:
            rows = [self.inbox.popleft() for _ in range(taken)]
            if self.linked:
                rows = [self._link(row) if row[4] else row for row in rows]
            self.events.append(on.Submitted(monotonic_ns(), rows))
        if self.gone:
            ids = [self.gone.popleft() for _ in range(len(self.gone))]
            self.events.append(on.Cancelled(monotonic_ns(), ids))
        while self.controls and not self.inbox:
            event = self.controls.popleft()(monotonic_ns())
            if event is not None:
                self.events.append(event)
        while self.events:
            events, self.events = self.events, []
            commands = self.core.step(events)
            for command in commands:
                _DO[type(command)](self, command)
            for observer in self.observers:
                observer.names(events)
                self.callbacks.put(lambda o=observer, e=events, c=commands: o(e, c))  # type: ignore[misc]
        if self.drainers:
            self._tell_drainers()
        if self.halted and (not self.channels or monotonic_ns() >= self.quit_at):
            self.finished.set()

    def _ready(self) -> list[Handler]:
        """Wait until there is something to do; return who is to do it."""
        if self.inbox or self.gone or self.controls:
            ready = self.epoll.poll(0)
        else:
            at = min(self.core.wake_at, self.unexplained or NEVER, self.quit_at)
            if at < self.armed_at:
                self.armed_at = at
                kernel.set_timer(self.timer_fd, at)
            self.asleep = True
            ready = self.epoll.poll(0 if self.inbox or self.gone or self.controls else None)
            self.asleep = False
        found: list[Handler] = []
        for fd, _ in ready:
            if fd in self.handlers:
                found.append(self.handlers[fd])
            elif fd == self.timer_fd:
                found.append((CLOCK_RANK, self._clock, None))
            elif fd == self.wake_fd:
                with contextlib.suppress(BlockingIOError):
                    os.read(fd, 8)
        return found

    def _link(self, row: tuple[Any, ...]) -> tuple[Any, ...]:
        """Put ids and ends in the place of the Futures that a job waits for."""
        job, spec, due, release, after = row
        return job, spec, due, release, tuple(Prerequisite(f._id, f.status(), f._release, f._due) for f in after)

    def _watch(self, fd: int, rank: int, handle: Callable[[Any], None], what: Any, mask: int = select.EPOLLIN) -> None:
        self.handlers[fd] = (rank, handle, what)
        self.epoll.register(fd, mask)

    def _unwatch(self, fd: int) -> None:
        if self.handlers.pop(fd, None):
            self.epoll.unregister(fd)

    # ------------------------------------------------------------------ events: the warden

    def _hire(self) -> None:
        self.wardens += 1
        config = self.config | {"main": pickle.loads(self.main_data) if self.main_data else None}
        warden = self.warden = Warden(config, f"{self.tag}.{self.wardens}", self.slots)
        self.main_told = bool(self.main_data)
        self._watch(warden.sock.fileno(), WARDEN_RANK, self._hear, None)
        self._watch(warden.pidfd, CLOCK_RANK, self._warden_died, None)

    def _hear(self, _: Any) -> None:
        assert self.warden
        for data, fds in self.warden.messages():
            letter = data[:1]
            if letter == b"P":
                _, number, pid, base, main = FORKED.unpack(data)
                self._enlist(number, pid, base, bool(main), fds)
            elif letter == b"V":
                self._sentenced(*VERDICT.unpack(data)[1:])
            elif letter == b"X":
                _, number, _, status, peak, cpu = EXITED.unpack(data)
                channel = self.channels.get(number)
                if channel:
                    channel.status, channel.peak_bytes, channel.cpu_ns = status, peak, cpu
                    self._forget(channel)
                self.warden.release(number)
            elif letter == b"R":
                self.warden.ready = True
            elif letter == b"B":
                self._break(f"the warden cannot import what it must:\n{data[1:].decode('utf-8', 'replace')}")

    def _enlist(self, number: int, pid: int, base: int, main: bool, fds: list[int]) -> None:
        assert self.warden
        slot = self.warden.slots[number]
        channel = Channel(number, slot, pid, base, main, fds, self.warden.limits)
        self.channels[number] = channel
        self._watch(channel.answers_fd, ANSWERS_RANK, self._readable, channel)
        self._watch(channel.pidfd, DEATH_RANK, self._pidfd_fired, channel)
        if self.halted:
            self._retire(do.RetireWorker(number))
        elif not self.config["options"]["say_ready"]:
            channel.ready = True
            self.events.append(on.WorkerReady(monotonic_ns(), number))

    def _sentenced(
        self, number: int, job: int, why: int, at: int, observed: int, peak: int, cpu: int, dumping: int
    ) -> None:
        """The warden has sent the signal: the worker gets nothing more; settle now, or when the stack is written."""
        channel = self.channels.get(number)
        if channel is None or channel.buried or channel.verdict:
            return
        channel.verdict, channel.observed = (job, WHYS[why]), (at, observed)
        channel.peak_bytes, channel.cpu_ns = peak, cpu
        self.events.append(on.Condemned(monotonic_ns(), number, job, WHYS[why], at))
        if not dumping:
            self._bury(channel)

    def _warden_died(self, _: Any) -> None:
        """Workers die with it (PDEATHSIG); what their jobs started is found by its environment; then another one."""
        warden = self.warden
        assert warden
        self._hear(None)
        for fd in (warden.pidfd, warden.sock.fileno()):
            self._unwatch(fd)
        how = warden.exit_text()
        for channel in list(self.channels.values()):
            _signal(channel.pidfd)
        self._await_deaths()
        for channel in list(self.channels.values()):
            channel.ready = True  # its death is explained
            self._forget(channel)
        sweep(warden.tag)
        started = set(warden.slots)
        warden.close()
        self.warden = None
        if self.halted or self.broken:
            return
        if not warden.ready:
            self._break(f"the warden ended {how} before it was ready; its standard error may say why")
            return
        log.warning("the warden of %s ended %s; its jobs failed, another one is started", self.name, how)
        self.events += [on.WorkerDied(monotonic_ns(), worker, 0, "crashed", True) for worker in sorted(started)]
        self.events.append(on.WardenDied(monotonic_ns()))
        self._hire()

    def _await_deaths(self) -> None:
        """Wait until all workers are dead, at most STATUS_NS; they were sent SIGKILL."""
        poll, until = select.poll(), monotonic_ns() + STATUS_NS
        left = {channel.pidfd for channel in self.channels.values()}
        for fd in left:
            poll.register(fd, select.POLLIN)
        while left and monotonic_ns() < until:
            for fd, _ in poll.poll(max(1, (until - monotonic_ns()) // MS)):
                poll.unregister(fd)
                left.discard(fd)

    # ------------------------------------------------------------------ events: workers

    def _readable(self, channel: Channel) -> None:
        if channel.buried or channel.answers_fd < 0:
            return
        was_ready = channel.ready
        try:
            rows = channel.read(self.answers)
        except Violation as violation:
            log.info("worker %d sent %s", channel.pid, violation)
            self._kill(do.KillWorker(channel.number, "protocol", 0))
            return
        if rows is None:
            self._unwatch(channel.answers_fd)
        elif rows:
            self._answered(channel, rows)
        if channel.ready and not was_ready:
            self.events.append(on.WorkerReady(monotonic_ns(), channel.number))

    def _answered(self, channel: Channel, rows: list[Row]) -> None:
        self.events.append(on.Answered(monotonic_ns(), channel.number, rows))
        if self.tee:
            for row in rows:
                report = self.answers[row[0]][2]
                if type(report) is Report and (report.out or report.err):
                    self.callbacks.tee(report)

    def _writable(self, channel: Channel) -> None:
        if channel.calls_fd >= 0 and not channel.write():
            self._unwatch(channel.calls_fd)

    def _pidfd_fired(self, channel: Channel) -> None:
        """It is dead; the warden's word on how comes within a moment."""
        self._unwatch(channel.pidfd)
        channel.died_at = monotonic_ns()
        self.unexplained = self.unexplained or channel.died_at + STATUS_NS

    def _bury(self, channel: Channel) -> None:
        """Nothing of the worker can run any more: take its last answers, judge, tell the core."""
        if channel.buried:
            return
        with contextlib.suppress(Violation):
            while rows := channel.read(self.answers):
                self._answered(channel, rows)
            if rows := channel.peek(self.answers):
                self._answered(channel, rows)
        channel.buried = True
        for fd in (channel.answers_fd, channel.calls_fd):
            self._unwatch(fd)
        marked = channel.marked()[0]
        job, why = channel.verdict or (0, "")
        if not why:
            cell = channel.cell()
            job, why = (cell[3], WHYS[cell[0]]) if 0 < cell[0] < len(WHYS) else (marked, "crashed")
        job = job or (marked if why not in ("timeout", "deadline") else 0)
        if job:
            self.reports[job] = explain(channel, self.futures.get(job), why, monotonic_ns())
            if self.tee:
                self.callbacks.tee(self.reports[job])
        elif channel.failure:
            log.warning("an initializer raised %s: %s", channel.failure.type_name, channel.failure.text)
            self.config["why"] = f"{channel.failure.type_name}: {channel.failure.text}\n{channel.failure.traceback}"
        self.events.append(
            on.WorkerDied(monotonic_ns(), channel.number, job, why, channel.ready or bool(channel.words[wire.READY]))
        )
        channel.close_pipes()

    def _forget(self, channel: Channel) -> None:
        """The worker is reaped, or its death will never be explained."""
        self._bury(channel)
        self._unwatch(channel.pidfd)
        del self.channels[channel.number]
        channel.close()

    def _clock(self, _: Any) -> None:
        with contextlib.suppress(BlockingIOError):
            os.read(self.timer_fd, 8)
        self.armed_at = NEVER
        if self.warden:
            self._hear(None)
        now = monotonic_ns()
        marks = {}
        for channel in list(self.channels.values()):
            if channel.died_at and now - channel.died_at >= STATUS_NS:
                self._forget(channel)
            elif not channel.buried:
                self._readable(channel)
                marks[channel.number] = channel.marked()
        waiting = [c.died_at for c in self.channels.values() if c.died_at]
        self.unexplained = min(waiting) + STATUS_NS if waiting else 0
        self.events.append(on.Fired(monotonic_ns(), marks))

    # ------------------------------------------------------------------ commands

    def _start_worker(self, command: do.StartWorker) -> None:
        if self.warden and self.warden.free:
            self.warden.fork(command.worker)
        else:
            self.events.append(on.WorkerDied(monotonic_ns(), command.worker, 0, "crashed", False))

    def _dispatch(self, command: do.Dispatch) -> None:
        channel = self.channels.get(command.worker)
        if channel is None or channel.buried or channel.verdict:
            return  # its death is on its way, and the core takes the jobs back
        assert self.warden
        rows: list[tuple[Any, ...]] = []
        blobs: list[bytes] = []
        now, first, last, tick = monotonic_ns(), channel.sent, None, self.warden.words[0] or TICK_MAX_NS
        hurry = False
        if self.main_data and not channel.main:
            channel.main = True
            rows.append((0, wire.PREPARE_MAIN, 0, self.main_data, 0))
        for job in command.ids:
            future = self.futures.get(job)
            if future is None:  # cancelled just now: it counts as answered
                self.events.append(on.Answered(now, channel.number, [(job, on.REVOKED, now, 0)]))
                continue
            use = future._use
            due = future._due if use.rules.kill_at_deadline and future._due != NEVER else 0
            limits = (use.spec.timeout_ns, due)
            if limits != last:
                if last:
                    channel.limit(first, channel.sent - first, now, *last)
                first, last = channel.sent, limits
                hurry = hurry or bool(due and due - now < tick)
            channel.sent += 1
            future._pid = channel.pid
            function = use.function
            if function.number >= 0 and function.number not in channel.known:
                channel.known.add(function.number)
                rows.append((0, wire.DEFINE, function.number, function.pickled, 0))
            rows.append(call_row(future, due, blobs))
        if not last:
            return
        channel.limit(first, channel.sent - first, now, *last)
        channel.publish()
        if hurry:
            self.warden.nudge()
        else:
            self.warden.nudge_if_asleep()
        if channel.send(rows, blobs) and channel.calls_fd not in self.handlers:
            self._watch(channel.calls_fd, WRITE_RANK, self._writable, channel, select.EPOLLOUT)

    def _settle(self, command: do.Settle) -> None:
        take, answer_of = self.futures.pop, self.answers.pop
        if command.status == "succeeded":
            for job in command.ids:
                future, answer = take(job, None), answer_of(job, None)
                if future is None or answer is None:
                    continue
                future._kind, future._result, report = answer
                if future._extra and type(report) is Report:
                    report.attempts += future._extra.tries
                future._report = report
                if future._end(FINISHED):
                    self.callbacks.settled(future)
        else:
            for i, job in enumerate(command.ids):
                blame = command.blame[i] if command.blame else 0
                self._settle_badly(take(job, None), job, command.status, blame)
        if self.room:
            self._free_room()

    def _settle_badly(self, future: Future[Any] | None, job: int, status: str, blame: int) -> None:
        answer, report = self.answers.pop(job, None), self.reports.pop(job, None)
        if future is None:
            return
        future._report = explain_end(future, status, answer, report, blame, monotonic_ns())
        if future._end(CANCELLED_AND_NOTIFIED if status == "cancelled" else FINISHED):
            self.callbacks.settled(future)

    def _postpone(self, command: do.Postpone) -> None:
        future = self.futures.get(command.job)
        self.answers.pop(command.job, None)
        self.reports.pop(command.job, None)
        if future:
            extra_of(future).tries += 1

    def _kill(self, command: do.KillWorker) -> None:
        channel = self.channels.get(command.worker)
        if channel is None:
            if command.worker in (self.warden.slots if self.warden else ()):
                self.warden.killed(command.worker, 0, "crashed")  # type: ignore[union-attr]
            return
        if channel.verdict or channel.buried:
            return
        channel.verdict = (command.job, command.why)
        _signal(channel.pidfd)
        if self.warden:
            self.warden.killed(channel.number, command.job, command.why)
        self._bury(channel)

    def _revoke(self, command: do.Revoke) -> None:
        channel = self.channels.get(command.worker)
        if channel is None or channel.buried or channel.verdict:
            return
        in_flight = set(self.core.workers[command.worker].queue)
        if channel.revoke(command.job, in_flight):
            now = monotonic_ns()
            self.events.append(on.Condemned(now, command.worker, command.job, "cancelled", now))
            self._kill(do.KillWorker(command.worker, "cancelled", command.job))

    def _peek(self, command: do.Peek) -> None:
        channel = self.channels.get(command.worker)
        if channel and not channel.buried:
            with contextlib.suppress(Violation):
                rows = channel.peek(self.answers)
                if rows:
                    self._answered(channel, rows)

    def _retire(self, command: do.RetireWorker) -> None:
        channel = self.channels.get(command.worker)
        if channel and channel.calls_fd >= 0:
            self._unwatch(channel.calls_fd)
            os.close(channel.calls_fd)
            channel.calls_fd = -1

    def _halt(self, command: do.Halt) -> None:
        if command.broken:
            self._break(command.broken + (f"; the last one: {self.config['why']}" if "why" in self.config else ""))
            return
        self.halted = True
        self.quit_at = monotonic_ns() + QUIT_NS
        for number in list(self.channels):
            self._retire(do.RetireWorker(number))

    # ------------------------------------------------------------------ the end

    def _break(self, why: str) -> None:
        """No job can run any more: fail them all for that reason."""
        self.broken = PoolBroken(f"the pool cannot go on: {why}")
        self.halted = True
        self.finished.set()

    def _close(self) -> None:
        """End what is left, settle what came too late, let go of everything."""
        self.finished.set()
        with contextlib.suppress(BaseException):
            self._dismiss()
        now = monotonic_ns()
        for job in list(self.futures):
            future = self.futures.pop(job, None)
            if future is None:
                continue
            future._report = Report("crashed" if self.broken else "cancelled", now)
            future._report.error, future._report.cause = str(self.broken or "") or None, self.broken
            if future._end(FINISHED if self.broken else CANCELLED_AND_NOTIFIED):
                self.callbacks.settled(future)
        self._free_room()
        self._tell_drainers()
        self.callbacks.finish()
        self.handlers.clear()
        self.epoll.close()
        os.close(self.timer_fd)

    def _dismiss(self) -> None:
        """Let the warden kill and reap everything; it is given 5 s, as its own sweep is."""
        warden = self.warden
        if warden is None:
            return
        warden.quit()
        if not select.select([warden.pidfd], [], [], 6)[0]:
            warden.kill()
        for channel in list(self.channels.values()):
            channel.close()
        self.channels.clear()
        warden.close()
        if self.broken:
            sweep(warden.tag)

    def _free_room(self) -> None:
        if self.room:
            with self.room:
                self.room.notify_all()

    def _tell_drainers(self) -> None:
        core = self.core
        idle = not self.inbox and not self.futures
        if not idle and not self.inbox:
            idle = len(core.jobs) == sum(1 for job in core.delayed if job not in core.tries)
        if idle or self.finished.is_set():
            for drainer in self.drainers:
                self.callbacks.put(drainer.set)
            self.drainers = []

    def __del__(self) -> None:
        # Not closed with the rest: a caller between its look at `asleep` and its write would hit a reused number.
        with contextlib.suppress(OSError, AttributeError):
            os.close(self.wake_fd)


def _rank(handler: Handler) -> int:
    return handler[0]


def _signal(pidfd: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        signal.pidfd_send_signal(pidfd, signal.SIGKILL)


_DO: dict[type, Callable[[Supervisor, Any], None]] = {
    do.StartWorker: Supervisor._start_worker,
    do.Dispatch: Supervisor._dispatch,
    do.Settle: Supervisor._settle,
    do.Postpone: Supervisor._postpone,
    do.Revoke: Supervisor._revoke,
    do.Peek: Supervisor._peek,
    do.KillWorker: Supervisor._kill,
    do.RetireWorker: Supervisor._retire,
    do.Halt: Supervisor._halt,
}
