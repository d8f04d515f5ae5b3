"""The supervisor: one loop thread that tells the core what happened and does what it says.

A turn: wait (poller.py); turn what is there into events, the warden's word first, then answers, deaths,
the clock, for a list of ready descriptors is as old as the wait for the interpreter lock was long; let the
core step; obey.  What callers' threads touch is the desk's (desk.py); all else belongs to the loop thread.
"""

from __future__ import annotations

import os
import pickle
import select
import threading
from collections.abc import Callable
from functools import partial
from logging import CRITICAL, INFO, WARNING
from typing import TYPE_CHECKING, Any

from ..core import commands as do
from ..core import events as on
from ..core.job import NEVER
from ..core.scheduler import Scheduler
from ..core.watch import MS
from ..warden import kernel
from ..warden.protocol import EXITED, FORKED, GONE, VERDICT, WHYS
from .answers import STALL_NS, Answer, Row
from .channel import Channel
from .clock import monotonic_ns
from .desk import Desk
from .dispatch import dispatch
from .fitness import is_worn, too_small
from .hire import Warden, await_deaths, surroundings, sweep
from .poller import ANSWERS_RANK, CLOCK_RANK, DEATH_RANK, WARDEN_RANK, WRITE_RANK, Poller
from .records import levels
from .report import Report
from .unready import last_words, too_late
from .verdicts import explain, judge, lost

if TYPE_CHECKING:
    from ..future import Future

STATUS_NS = 1_000 * MS  # how long to wait for the warden's word on how a worker died: it may be starved, not only dead
DEATHS_NS = 100 * MS  # how long to wait for workers that were sent SIGKILL when their warden was gone
MEASURE_NS = 200 * MS  # a warden that somebody has stopped measures nothing for so long
QUIT_NS = 1_000 * MS  # what idle workers have for their exit handlers when the pool ends


class Supervisor(Desk):
    """The pool behind an Executor.

    Args:
        core: what decides.
        config: the warden's configuration (hire.Warden).
        slots: bound on workers alive at once, dying ones included.
        tee: write captured output through when an attempt ends.
        name: of threads and logs.
    """

    def __init__(self, core: Scheduler, config: dict[str, Any], slots: int, tee: bool, name: str) -> None:
        super().__init__(core, tee, name)
        self.config, self.slots = config, slots
        self.captures: bool = config["options"]["capture"]
        # the loop's
        self.warden: Warden | None = None
        self.wardens = 0
        self.mourned: set[int] = set()  # workers that are reaped, and of which something may be left
        self.main_told = False
        self.measure_at = self.stuck_at = NEVER  # when to see to it that the warden measures; whether a frame goes on
        self.quit_at = self.warden_by = NEVER  # until then: idle workers leave; the warden is ready
        self.unexplained = 0
        self.why = ""  # the last worker or warden that was asked for did not come
        self.tag = ""
        self.thread = threading.Thread()  # until `start`

    def start(self) -> None:
        """Start both threads; the warden is started by the loop thread, never by a user's."""
        self.tag = f"{os.getpid()}-{os.urandom(6).hex()}"
        self.config |= surroundings()
        self.config["options"]["levels"] = levels()
        self.poller = Poller(self._clock)
        self.callbacks.start(self.rested)
        self.thread = threading.Thread(target=self._run, name=f"{self.name}-loop", daemon=True)
        self.thread.start()

    # ------------------------------------------------------------------ the loop

    def _run(self) -> None:
        try:
            kernel.prefer_latency()  # this thread's: it sleeps most of the time, and workers wait for it
            self._hire()
            while not self.ended:
                self._turn()
        except MemoryError:
            self._break("the program has no memory left")
        except BaseException as error:
            self.callbacks.log(CRITICAL, "the loop of %s failed: please report this", self.name, error=error)
            self._break(f"the supervisor itself failed: {error!r}")
        finally:
            self._close()

    def _turn(self) -> None:
        at = min(self.core.wake_at, self.unexplained or NEVER, self.quit_at, self.warden_by)
        at = min(at, self.measure_at, self.stuck_at, self.looks_at())
        for _, handle, what in self.poller.ready(at, self.busy, self.core.releases.next_at):
            handle(what)
        if self.halted:
            self.refuse()
        if self.landed:
            self._unload()
        if self.releases:
            self.releases.turn()
        self.events += self.taken()
        if self.dates.look_at != NEVER:
            self.events[:0] = self.dates.look(self.core)
        if self.events and not self.broken:
            events, self.events = self.events, []  # what obeying brings about is told in the next turn
            commands = self.core.step(events)
            observers = self.naming(events)
            for command in commands:
                _DO[type(command)](self, command)
            self.tell(observers, events, commands)
        if self.drainers and not self.ended:
            self.tell_drainers()
        if self.halted and (not self.channels or monotonic_ns() >= self.quit_at):
            self.ended = True

    # ------------------------------------------------------------------ events: the warden

    def _hire(self) -> None:
        self.wardens += 1
        told = self.main_data  # as it is now: a caller may set it while the warden is being started
        config = self.config | {"main": pickle.loads(told) if told else None}
        config["environ"] = config["environ"] | self.environ
        try:
            warden = self.warden = Warden(config, f"{self.tag}.{self.wardens}", self.slots)
        except OSError as error:
            self._break(f"no warden can be started: {error}")
            return
        self.main_told = bool(told)
        if self.core.start_timeout_ns:
            self.warden_by = monotonic_ns() + self.core.start_timeout_ns
        self.poller.watch(warden.sock.fileno(), WARDEN_RANK, self._hear, None)
        self.poller.watch(warden.pidfd, CLOCK_RANK, self._warden_died, None)

    def _hear(self, _: Any) -> None:
        assert self.warden
        for data, fds in self.warden.messages():
            letter = data[:1]
            if letter == b"P":
                _, number, pid, base, main = FORKED.unpack(data)
                self._enlist(number, pid, base, bool(main), fds)
            elif letter == b"V":
                self._sentenced(data[VERDICT.size :], *VERDICT.unpack_from(data)[1:])
            elif letter == b"X":
                _, number, _, status, peak, cpu = EXITED.unpack(data)
                channel = self.channels.get(number)
                if channel:
                    self.warden.note_exit(channel, status, peak, cpu)
                    self.mourned.add(number)
                    self._forget(channel)
                elif status < 0:
                    self._unborn(number, f"a worker cannot be forked: {os.strerror(-status)}")
                self.warden.release(number)
            elif letter == b"G":
                self._gone(GONE.unpack(data)[1])
            elif letter == b"R":
                self.warden.ready, self.warden_by = True, NEVER
            elif letter == b"B":
                self._break(f"the warden cannot import what it must:\n{data[1:].decode('utf-8', 'replace')}")

    def _enlist(self, number: int, pid: int, base: int, main: bool, fds: list[int]) -> None:
        assert self.warden
        slot = self.warden.slots[number]
        try:
            channel = Channel(number, slot, pid, base, main, fds, self.warden.limits)
        except OSError as error:  # no descriptor is left; some were lost on the way
            self.warden.killed(number, 0, "crashed")
            self._unborn(number, f"a worker's descriptors find no room here (ulimit -n): {error}")
            return
        channel.given = self.core.workers[number].queue
        channel.land = partial(self.arrived, channel)
        self.channels[number] = channel
        self.poller.watch(channel.answers_fd, ANSWERS_RANK, self._readable, channel)
        self.poller.watch(channel.pidfd, DEATH_RANK, self._pidfd_fired, channel)
        if self.halted:
            self._retire(do.RetireWorker(number))
        elif not self.config["options"]["say_ready"]:
            channel.ready = True
            self.events.append(on.WorkerReady(monotonic_ns(), number))

    def _unborn(self, number: int, why: str) -> None:
        self._note(why)
        self.events.append(on.WorkerDied(monotonic_ns(), number, 0, "crashed", False))

    def _note(self, why: str) -> None:
        """Remember why a worker did not come; say it, unless it is what was said last."""
        if self.why != why:
            self.why = why
            self.callbacks.log(WARNING, "%s cannot have another worker at the moment: %s", self.name, why)

    def _sentenced(
        self, threads: bytes, number: int, job: int, why: int, at: int, observed: int, peak: int, cpu: int, dumping: int
    ) -> None:
        """The warden has sent the signal: the worker gets nothing more; settle now, or when the stack is written."""
        channel = self.channels.get(number)
        if channel is None or channel.buried or channel.verdict:
            return
        channel.verdict, channel.observed = (job, WHYS[why]), (at, observed)
        channel.peak_bytes, channel.cpu_ns, channel.threads = peak, cpu, threads.decode()
        self.events.append(on.Condemned(monotonic_ns(), number, job, WHYS[why], at))
        if not dumping:
            self._bury(channel)

    def _warden_died(self, _: Any) -> None:
        """Workers die with it (PDEATHSIG); what their jobs started is found by its environment; then another one."""
        warden = self.warden
        assert warden
        self._hear(None)
        self.warden = None
        for fd in (warden.pidfd, warden.sock.fileno()):
            self.poller.unwatch(fd)
        how = warden.exit_text()
        for channel in self.channels.values():
            channel.kill()
        await_deaths([channel.pidfd for channel in self.channels.values()], DEATHS_NS)
        self.events.append(on.WardenDied(monotonic_ns()))  # before its workers' deaths: it explains them
        for channel in list(self.channels.values()):
            self._forget(channel)
        started = {*warden.slots, *warden.unforked}
        warden.close()  # before the sweep, which needs a descriptor: there may be no other
        sweep(warden.tag)
        for number in list(self.mourned):
            self._gone(number)
        if self.halted or self.broken:
            return
        if not warden.ready:
            self._break(f"the warden ended {how} before it was ready; its standard error may say why")
            return
        self.why = f"it ended {how}; a job that kills its parent can do that, and the kernel's OOM killer (dmesg)"
        self.callbacks.log(WARNING, "the warden of %s ended %s; its jobs failed, another is started", self.name, how)
        self.events += [on.WorkerDied(monotonic_ns(), worker, 0, "crashed", True) for worker in sorted(started)]
        self._hire()

    # ------------------------------------------------------------------ events: workers

    def _readable(self, channel: Channel) -> None:
        if channel.buried or channel.answers_fd < 0:
            return
        was_ready = channel.ready
        found: dict[int, Answer] = {}
        rows = channel.read(found)
        self._answered(channel, rows or [], found)
        if rows is None:  # it is dying, or it closed its pipe and can never answer
            self.poller.unwatch(channel.answers_fd)
            self._expect_word(channel)
        if channel.partial:
            self.stuck_at = min(self.stuck_at, monotonic_ns() + STALL_NS)
        if channel.violation:
            self._expel(channel)
        elif channel.ready and not was_ready:
            self.events.append(on.WorkerReady(monotonic_ns(), channel.number))

    def _unload(self) -> None:
        """Take large answers that are here by now; let workers go on whose calls are there."""
        while self.landed:
            channel, move = self.landed.popleft()
            if not channel.buried:
                found: dict[int, Answer] = {}
                self._answered(channel, channel.landed(move, found), found)
                if channel.violation:
                    self._expel(channel)

    def _expel(self, channel: Channel) -> None:
        self.callbacks.log(INFO, "worker %d sent %s", channel.pid, channel.violation or "nothing, and closed its pipe")
        self._kill(do.KillWorker(channel.number, "protocol", 0))

    def _answered(self, channel: Channel, rows: list[Row], found: dict[int, Answer]) -> None:
        if not rows:
            return
        if channel.unfinished:
            rows, channel.unfinished = self.carry_on(rows, found), False
        self.answers.update(found)
        self.events.append(on.Answered(monotonic_ns(), channel.number, rows))
        for row in rows:
            answer = found.get(row[0])  # of a job that was taken back none is kept
            if answer and type(answer[2]) is Report:
                self.pass_on(answer[2], row[0])
        for job in found:
            if job not in self.futures:  # cancelled meanwhile: nobody will ask
                del self.answers[job]

    def _writable(self, channel: Channel) -> None:
        if channel.calls_fd >= 0 and not channel.write():
            self.poller.unwatch(channel.calls_fd)

    def _pidfd_fired(self, channel: Channel) -> None:
        """It is dead; the warden's word on how comes within a moment."""
        self.poller.unwatch(channel.pidfd)
        self._expect_word(channel)

    def _expect_word(self, channel: Channel) -> None:
        channel.died_at = monotonic_ns()
        self.unexplained = self.unexplained or channel.died_at + STATUS_NS

    def _bury(self, channel: Channel, late: str = "") -> None:
        """Nothing of the worker can run any more: take its last answers, judge, tell the core.

        Args:
            late: it was killed for it was not ready in time, in words.
        """
        if channel.buried:
            return
        found: dict[int, Answer] = {}
        self._answered(channel, channel.drain(found), found)
        channel.buried = True
        for fd in (channel.answers_fd, channel.calls_fd):
            self.poller.unwatch(fd)
        job, why = judge(channel)
        if why == "protocol":
            queue = self.core.workers[channel.number].queue if channel.number in self.core.workers else {}
            gone = lost(channel, [job for job in queue if job not in self.answers])
            job = job or next(iter(gone), 0)
            rows = [(other, on.LOST, 0, 0) for other in gone if other != job]
            self.reports.update((other, gone[other]) for other, _, _, _ in rows if other in self.futures)
            if rows:
                self.events.append(on.Answered(monotonic_ns(), channel.number, rows))
        now = monotonic_ns()
        report = explain(channel, self.futures.get(job), why, now) if job else channel.last_report(why, now)
        if job in self.futures:  # else nobody will ask
            self.reports[job] = report
        self.pass_on(report, job)  # also what no answer has told
        if channel.failure and channel.greeted:
            self._break(f"a worker cannot import the program's main module:\n{channel.failure.traceback}")
        elif not (job or channel.greeted or self.halted) and self.warden:
            self._note(last_words(channel, report, late, bool(self.config["options"]["initializer"])))
        elif channel.dismissed and why == "crashed" and not job:
            why = "left"
        ready = bool(job) or channel.greeted  # else it died before it could take a job
        self.events.append(on.WorkerDied(monotonic_ns(), channel.number, job, why, ready))
        channel.close_pipes()

    def _forget(self, channel: Channel) -> None:
        """The worker is reaped, or its death will never be explained."""
        self._bury(channel)
        self.poller.unwatch(channel.pidfd)
        del self.channels[channel.number]
        channel.close()
        if channel.number not in self.mourned:
            self._gone(channel.number)  # nobody is there who could say so

    def _gone(self, number: int) -> None:
        self.mourned.discard(number)
        self.events.append(on.Reaped(monotonic_ns(), number))

    def _clock(self, _: Any) -> None:
        self.poller.timer_fired()
        if self.warden:
            self._hear(None)
        now = monotonic_ns()
        if now >= self.warden_by:
            limit = f"{self.core.start_timeout_ns / 1e9:g} s (start_timeout)"
            self._break(f"the warden is not ready after {limit}: what it preloads hangs, or needs longer")
        self.look_around(now)
        if now >= self.measure_at:
            self._keep_measuring(now)
        if now >= self.stuck_at:
            self._unstick()
        if now < self.core.wake_at and not self.unexplained:
            return
        marks: dict[int, tuple[int, int]] = {}
        watched = self.unexplained or any(worker.watch <= now for worker in self.core.workers.values())
        for channel in list(self.channels.values()) if watched else ():  # a start time alone needs no look at them
            if channel.died_at and now - channel.died_at >= STATUS_NS:
                channel.died_at = 0
                self._forget(channel) if await_deaths([channel.pidfd], MS) else self._expel(channel)
            elif not channel.buried:
                self._readable(channel)
                marks[channel.number] = (on.SENDING, 0) if channel.receiving else channel.marked()
        waiting = [c.died_at for c in self.channels.values() if c.died_at]
        self.unexplained = min(waiting) + STATUS_NS if waiting else 0
        self.events.append(on.Fired(monotonic_ns(), marks))

    def _keep_measuring(self, now: int) -> None:
        """Somebody may have stopped the warden: let it go on, as long as there is something to measure."""
        first = (self.futures.get(next(iter(channel.given), 0)) for channel in self.channels.values())
        if self.warden and any(future and future._use.spec.metered for future in first):
            self.warden.wake_up()
            self.measure_at = now + MEASURE_NS
        else:
            self.measure_at = NEVER

    def _unstick(self) -> None:
        """End those that wrote the beginning of a frame which swallows their answers, and would for ever."""
        self.stuck_at = NEVER
        for channel in list(self.channels.values()):
            if channel.partial and not channel.buried:
                rests = channel.rests()
                self._readable(channel)
                if channel.swallows(rests):
                    self._expel(channel)

    # ------------------------------------------------------------------ commands

    def _start_worker(self, command: do.StartWorker) -> None:
        assert self.warden  # without one the pool is broken, and obeys no more
        self.warden.groups = sum(self.groups)
        self.warden.fork(command.worker, command.env)

    def _dispatch(self, command: do.Dispatch) -> None:
        channel = self.channels.get(command.worker)
        if channel is None or channel.buried or channel.verdict or channel.calls_fd < 0:
            return  # its end is on its way, and the core takes the jobs back
        assert self.warden
        now, mine = monotonic_ns(), []
        for job in command.ids:
            future = self.futures.get(job)
            if future is not None:
                mine.append(future)
            else:  # cancelled just now: as if it had been sent, and had not begun
                self.events.append(on.Cancelled(now, [job]))
                self.events.append(on.Answered(now, channel.number, [(job, on.REVOKED, now, 0)]))
        if mine and mine[0]._use.spec.metered:
            if not self._fits(channel, mine[0], now):
                return
            self.measure_at = min(self.measure_at, now + MEASURE_NS)
        if self.journal and mine and not self.journal.begin(mine, now):
            back = [(future._id, on.REVOKED, now, 0) for future in mine]
            self.events.append(on.Answered(now, channel.number, back))
            return
        if dispatch(channel, mine, self.warden, self.main_data, now, command.tokens):
            self.poller.watch(channel.calls_fd, WRITE_RANK, self._writable, channel, select.EPOLLOUT)
        if channel.violation:
            self._expel(channel)

    def _fits(self, channel: Channel, future: Future[Any], now: int) -> bool:
        hopeless = too_small(channel, future, now)
        if hopeless:
            self.reports[future._id] = hopeless
        elif not is_worn(channel, future._use.spec.memory_bytes):
            return True
        self.events.append(on.Unfit(now, channel.number, future._id, bool(hopeless)))
        return False

    def _kill(self, command: do.KillWorker) -> None:
        channel = self.channels.get(command.worker)
        if channel is None:
            if self.warden and self.warden.unfork(command.worker):
                self._unborn(command.worker, "those who leave are not reaped in time")
            else:
                self._note("the warden has not forked it in time (start_timeout): an import may hang there")
            return
        if channel.verdict or channel.buried:
            return
        late = not (channel.greeted or self.halted) and command.why == "crashed" and self.core.start_timeout_ns
        told = too_late(channel, late) if late else ""
        if not channel.kill(command.job):
            self._retire(do.RetireWorker(command.worker))  # what runs there now is innocent: it leaves once it is done
            return
        channel.verdict = (command.job, command.why)
        if self.warden:
            self.warden.killed(channel.number, command.job, command.why)
        self._bury(channel, told)

    def _revoke(self, command: do.Revoke) -> None:
        channel = self.channels.get(command.worker)
        if channel is None or channel.buried or channel.verdict:
            return
        queue = self.core.workers[command.worker].queue
        if command.job not in queue or command.job in self._unheard(channel):
            return  # it was not even sent (_dispatch), or has ended
        if not channel.revoke(command.job):
            return
        # It runs.  It may end before the signal comes: what is behind it must not begin, and die in its place.
        self._recall(do.Recall(command.worker, [j for j in queue if j in self.core.jobs and j not in channel.revoked]))
        if channel.marked()[0] == command.job:
            now = monotonic_ns()
            self.events.append(on.Condemned(now, command.worker, command.job, "cancelled", now))
            self._kill(do.KillWorker(command.worker, "cancelled", command.job))

    def _peek(self, command: do.Peek) -> None:
        channel = self.channels.get(command.worker)
        if channel and not channel.buried:
            found: dict[int, Answer] = {}
            self._answered(channel, channel.peek(found), found)
            if channel.violation:
                self._expel(channel)

    def _unheard(self, channel: Channel) -> set[int]:
        """Return the jobs that have answered, which the core hears next: their ids would stand in the page for ever."""
        told = [event for event in self.events if type(event) is on.Answered and event.worker == channel.number]
        return {row[0] for event in told for row in event.rows}

    def _recall(self, command: do.Recall) -> None:
        channel = self.channels.get(command.worker)
        if channel and not channel.buried and not channel.verdict:
            found: dict[int, Answer] = {}
            unheard = self._unheard(channel)
            rows, back = channel.recall([job for job in command.ids if job not in unheard], found)
            self._answered(channel, rows, found)
            self.events.append(on.Recalled(monotonic_ns(), command.worker, back))
            if channel.violation:
                self._expel(channel)

    def _retire(self, command: do.RetireWorker) -> None:
        channel = self.channels.get(command.worker)
        if channel and channel.calls_fd >= 0:
            self.poller.unwatch(channel.calls_fd)
            channel.close_calls()

    def _halt(self, command: do.Halt) -> None:
        if command.broken:
            self._break(command.broken + (f"; the last time: {self.why}" if self.why else ""))
            return
        self.halted = True
        self.quit_at = monotonic_ns() + QUIT_NS
        for number in list(self.channels):
            self._retire(do.RetireWorker(number))

    # ------------------------------------------------------------------ the end

    def _close(self) -> None:
        """End what is left, settle what came too late, let go of everything."""
        self.ended = True
        warden, self.warden = self.warden, None
        try:
            for channel in self.channels.values():
                channel.close()
            if warden:
                warden.end(swept=bool(self.broken))
        finally:  # nobody waits for ever, whatever went wrong
            self.settle_all()
            self.callbacks.finish()
            self.poller.close()


_DO: dict[type, Callable[[Supervisor, Any], None]] = {
    do.StartWorker: Supervisor._start_worker,
    do.Dispatch: Supervisor._dispatch,
    do.Waits: lambda _self, _command: None,
    do.TellDeadline: Supervisor.tell_deadline,
    do.Settle: Supervisor.settle,
    do.Postpone: Supervisor.postpone,
    do.Revoke: Supervisor._revoke,
    do.Peek: Supervisor._peek,
    do.Recall: Supervisor._recall,
    do.KillWorker: Supervisor._kill,
    do.RetireWorker: Supervisor._retire,
    do.Halt: Supervisor._halt,
}
