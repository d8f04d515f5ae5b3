"""The warden: one thread; forks, watches, kills and reaps.

Theory of operation.  Started by exec with five descriptors: control socket,
pidfd of the parent, nudge eventfd, memfds of limits and configuration.  It is
the one kill clock: it reads marker and limits at every tick and from there on a
timer at the exact instant, so that no limit waits for the parent's interpreter
lock.  It is a sub-reaper, so what a worker leaves behind comes here: an unknown
child of the warden belongs to a dead or dying worker.  It ends everything when
the control socket closes or the pidfd of the parent fires, whichever is first:
a fork of the user's program may hold the socket.

Order that matters: a verdict is in its cell before the signal is sent; a pidfd
is opened before its process can be reaped, and only this process reaps.
"""

from __future__ import annotations

import array
import contextlib
import errno
import gc
import importlib
import os
import pickle
import select
import signal
import socket
import sys
import time
from typing import Any, NoReturn

from .. import marker
from ..codec import own_part
from ..mainmodule import import_main, tried
from . import child, kernel, proc, protocol
from .clock import Limits, Watched
from .protocol import DUMP_NS, EXITED, FORK, FORKED, KILL, READY, TICK_MAX_NS, VERDICT

SWEEP_NS = 500_000  # while somebody dies, look again so often
SWEEP_AGAIN_NS = (10_000_000, 100_000_000)  # and so long after a death: a chain of forks may just have been passing
AWAKE_NS = 300_000_000  # stay awake so long after the last job: falling asleep and being nudged costs more
TRIM_NS = 100_000_000  # a job that prints 1 GiB/s holds 100 MiB for a moment
TRIM_KEEP_BYTES = 1 << 20  # as much as tee writes of one attempt; the outcome keeps 64 KiB of it
END_NS = 5_000_000_000  # how long the last sweep may take


def main(control: int, parent: int, nudge: int, limits: int, told: int) -> NoReturn:
    """Run the warden; ends the process."""
    prepare_process(parent)
    sock = socket.socket(fileno=control)
    with open(told, "rb") as file:
        file.seek(0)
        config: dict[str, Any] = pickle.load(file)
    warden = Warden(sock, parent, nudge, limits, config)
    error = tried(lambda: import_all(config, warden.options))
    if error:
        warden.give_up(error)
    warden.run()


def prepare_process(parent: int) -> None:
    """Put signals, death signal and low descriptors in order; the program may have left anything."""
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    for number in (signal.SIGCHLD, signal.SIGQUIT, signal.SIGALRM, signal.SIGUSR1, signal.SIGUSR2, signal.SIGXCPU):
        signal.signal(number, signal.SIG_DFL)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    kernel.prctl(kernel.PR_SET_PDEATHSIG, signal.SIGKILL)  # while a preload may hang: die with the loop thread
    poll = select.poll()  # select(2) takes no descriptor beyond 1023, and the program may have more
    poll.register(parent, select.POLLIN)
    if poll.poll(0):
        os._exit(0)
    kernel.prctl(kernel.PR_SET_CHILD_SUBREAPER, 1)
    kernel.prefer_latency()
    while os.open("/dev/null", os.O_RDWR | os.O_CLOEXEC) < 16:
        pass  # burnt: low numbers are a worker's fixed places (child.place)


def import_all(config: dict[str, Any], options: dict[str, Any]) -> None:
    """Import what the workers shall find imported."""
    if options["spawn"]:
        return
    for name in config["preload"]:
        __import__(name)
    for module, function, args in config["calls"]:
        with contextlib.suppress(Exception, SystemExit):  # each worker will try by itself, and its job will say why
            getattr(importlib.import_module(module), function)(*args)
    if config["main"]:
        import_main(config["main"])
        options["main"] = True


class Warden:
    """State and duties; see the module's docstring."""

    def __init__(self, sock: socket.socket, parent: int, nudge: int, limits: int, config: dict[str, Any]) -> None:
        self.sock, self.parent, self.nudge = sock, parent, nudge
        sock.setblocking(False)
        self.options: dict[str, Any] = config["options"]
        self.config = config
        self.pid = os.getpid()
        self.limits = Limits(limits)
        self.workers: dict[int, Watched] = {}
        self.by_pid: dict[int, Watched] = {}
        self.dying: dict[int, Watched] = {}  # by pid: condemned or dead, not reaped yet
        self.shot: set[int] = set()  # strays that were sent SIGKILL and are not reaped yet
        self.kept: set[int] = set()  # what a preload started is nobody's stray
        self.backlog: list[tuple[bytes, tuple[int, ...]]] = []
        self.sweep_at: list[int] = []
        self.dirty = self.mute = False
        self.armed_at = self.awake_until = 0
        self.base_bytes = 0
        self.timer = kernel.timerfd()
        self.epoll = select.epoll()

    # ---- the parent

    def say(self, data: bytes, fds: tuple[int, ...] = ()) -> None:
        """Tell the parent; never block, for it may be stopped."""
        if self.mute:
            return
        self.backlog.append((data, fds))
        self.drain()

    def drain(self) -> None:
        """Send what is due; what does not fit waits for EPOLLOUT."""
        while self.backlog:
            data, fds = self.backlog[0]
            rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))] if fds else []
            try:
                self.sock.sendmsg([data], rights, socket.MSG_DONTWAIT)
            except BlockingIOError:
                break
            except OSError:
                self.end()
            self.backlog.pop(0)
            for fd in fds:
                os.close(fd)
        with contextlib.suppress(OSError, ValueError):
            self.epoll.modify(self.sock, select.EPOLLIN | (select.EPOLLOUT if self.backlog else 0))

    def hear(self) -> None:
        """Obey what the parent has sent."""
        self.drain()
        while True:
            try:
                data = self.sock.recv(protocol.MESSAGE_MAX, socket.MSG_DONTWAIT)
            except BlockingIOError:
                return
            except OSError:
                self.end()
            if not data or data[:1] == b"Q":
                self.end()
            elif data[:1] == b"F":
                self.fork(*FORK.unpack(data)[1:])
            elif data[:1] == b"K":
                _, number, job, why = KILL.unpack(data)
                worker = self.workers.get(number)
                if worker:
                    with contextlib.suppress(ProcessLookupError):  # the parent sends it too, if it has the pidfd yet
                        signal.pidfd_send_signal(worker.pidfd, signal.SIGKILL)
                    self.limits.write_verdict(worker, why, time.monotonic_ns(), 0, job)
                    self.doom(worker)
            elif data[:1] == b"M" and not self.config["main"]:
                self.config["main"] = pickle.loads(data[1:])
                if not self.options["spawn"]:
                    self.import_main()

    def import_main(self) -> None:
        """Import the program's main module, for the workers forked from now on."""
        kernel.prctl(kernel.PR_SET_PDEATHSIG, signal.SIGKILL)  # as at the start: it may hang
        error = tried(lambda: import_main(self.config["main"]))
        if error:
            self.give_up(error)
        self.options["main"] = True
        kernel.prctl(kernel.PR_SET_PDEATHSIG, 0)
        gc.collect()
        gc.freeze()

    def give_up(self, error: BaseException) -> NoReturn:
        """The program's modules cannot be imported: say so, and end."""
        import traceback

        lines = traceback.format_exception(type(error), error, own_part(error.__traceback__))
        text = "".join(lines).encode("utf-8", "backslashreplace")
        self.sock.setblocking(True)
        with contextlib.suppress(OSError):
            self.sock.send(b"B" + text[-60_000:])
        self.end()

    # ---- forks

    def fork(self, number: int, slot: int) -> None:
        """Make a worker and hand its ends to the parent; or tell why there is none: nobody else may suffer."""
        made: list[int] = []
        pid = 0
        try:
            made += os.pipe()
            made += os.pipe()
            made.append(marker.seal_page("ptss_mp-page"))
            made += (os.memfd_create(f"ptss_mp-{name}", os.MFD_CLOEXEC) for name in ("out", "err", "log", "fault"))
            calls_out, calls_in, answers_out, answers_in, page, out, err, log, fault = made
            pid = os.fork()
            if pid == 0:
                self._become_worker((calls_out, answers_in, fault, page, out, err, log))
            made.append(os.pidfd_open(pid))  # only this process reaps: the pid is still that child
            made.append(os.dup(made[-1]))
            worker = Watched(number, slot, pid, made[-1], page, (out, err, log))
        except OSError as error:  # no descriptor, process or memory is left
            if pid:
                os.kill(pid, signal.SIGKILL)
            for fd in made:
                os.close(fd)
            self.say(EXITED.pack(b"X", number, 0, -(error.errno or errno.EAGAIN), 0, 0))
            return
        self.workers[number] = self.by_pid[pid] = worker
        self.epoll.register(worker.pidfd, select.EPOLLIN)
        base = 0 if self.options["spawn"] else self.base_bytes
        self.say(
            FORKED.pack(b"P", number, pid, base, bool(self.config["main"])),
            (made[-2], answers_out, calls_in, page, fault, out, err, log),
        )
        os.close(calls_out)
        os.close(answers_in)

    def _become_worker(self, ends: tuple[int, ...]) -> NoReturn:
        try:
            if not self.options["spawn"]:
                child.forked(ends, self.pid, self.options)
            boot = os.memfd_create("ptss_mp-boot")
            facts = {name: self.config[name] for name in ("options", "preload", "main")} | {"warden": self.pid}
            os.write(boot, pickle.dumps(facts))
            child.place((*ends, boot), inheritable=True)
            path = list(self.config["path"])
            code = f"import sys; sys.path[:] = {path!r}; from ptss_mp.warden.child import spawned; spawned()"
            command = [*self.config["python"], "-c", code]
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            signal.signal(signal.SIGHUP, signal.SIG_DFL)
            os.execv(command[0], command)
        except BaseException:
            sys.excepthook(*sys.exc_info())
        finally:
            os._exit(1)

    # ---- kills

    def condemn(self, worker: Watched, why: int, at: int, observed: int) -> None:
        """Verdict, signal, word, sweep: in this order."""
        job = worker.job
        facts = proc.status(worker.pid)
        if worker.marked() != (job, *worker.looked_at):
            return  # it ended in this very moment, and the next one is innocent
        self.limits.write_verdict(worker, why, at, observed, job)
        dump = facts.can_dump and self.options["dump"]
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(worker.pidfd, kernel.DUMP_SIGNAL if dump else signal.SIGKILL)
        cpu = worker.cpu_ns()
        self.say(VERDICT.pack(b"V", worker.number, job, why, at, observed, facts.peak_bytes, cpu, bool(dump)))
        worker.backstop_at = time.monotonic_ns() + DUMP_NS if dump else 0
        self.doom(worker)

    def doom(self, worker: Watched) -> None:
        """It was sent its last signal: it forks nothing more, and while it is dying its children are listed."""
        worker.doomed = True
        self.dying[worker.pid] = worker
        self.sweep()

    def sweep(self) -> None:
        """Kill what dead and dying workers have left."""
        fresh = 0
        for pid in proc.children("self"):
            if pid not in self.by_pid and pid not in self.kept:
                fresh += self.fell(pid, 0)
        for pid in self.dying:
            for below in proc.children(pid):
                fresh += self.fell(below, pid)
        self.dirty = bool(fresh)

    def fell(self, pid: int, parent: int) -> int:
        """Kill a stray and all below it; return how many were new.  Iterative: a chain may be deep."""
        fresh, todo = 0, [(pid, parent)]
        while todo:
            pid, parent = todo.pop()
            if pid not in self.shot:
                fresh += self._shoot(pid, parent)
            todo += [(below, pid) for below in proc.children(pid)]
        return fresh

    def _shoot(self, pid: int, parent: int) -> bool:
        """SIGKILL by pidfd, after a look that it still is what was listed; never by a remembered number."""
        try:
            fd = os.pidfd_open(pid)
        except OSError:
            return False
        try:
            if proc.parent(pid) not in (parent, self.pid) or pid in self.by_pid:
                return False
            signal.pidfd_send_signal(fd, signal.SIGKILL)
            self.shot.add(pid)
            return True
        except OSError:
            return False
        finally:
            os.close(fd)

    def reap(self) -> None:
        """Collect the dead, and tell the parent of workers."""
        while True:
            try:
                pid, status, usage = os.wait4(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if not pid:
                return
            self.dirty = True
            self.shot.discard(pid)
            worker = self.by_pid.pop(pid, None)
            if worker is None:
                continue
            now = time.monotonic_ns()
            self.sweep_at = [now + pause for pause in SWEEP_AGAIN_NS]
            self.dying.pop(pid, None)
            self.workers.pop(worker.number, None)
            self.epoll.unregister(worker.pidfd)
            worker.close()
            cpu = round((usage.ru_utime + usage.ru_stime) * 1e9)
            self.say(EXITED.pack(b"X", worker.number, pid, status, usage.ru_maxrss << 10, cpu))

    def end(self) -> NoReturn:
        """Kill everything, reap it, and go."""
        for worker in self.workers.values():
            with contextlib.suppress(OSError):
                signal.pidfd_send_signal(worker.pidfd, signal.SIGKILL)
            self.dying[worker.pid] = worker
        self.kept.clear()
        self.mute = True
        until = time.monotonic_ns() + END_NS
        while time.monotonic_ns() < until:
            self.sweep()
            self.reap()
            if not proc.children("self"):
                os._exit(0)
            time.sleep(0.0002)  # nothing else is left to do here; SIGCHLD would wake it too
        os._exit(1)

    # ---- the loop

    def run(self) -> NoReturn:
        """Watch until the parent is gone or says so."""
        wake = self._settle_down()
        threads = len(os.listdir("/proc/self/task"))
        if threads > 1:  # 3.12 and later warn at each fork; it is said once, to the parent
            import warnings

            warnings.filterwarnings("ignore", category=DeprecationWarning, message=".*multi-threaded.*fork")
        self.say(READY.pack(b"R", threads))
        kernel.prctl(kernel.PR_SET_PDEATHSIG, 0)  # from here on the parent's pidfd tells, and trees are swept
        asleep = False
        while True:
            for fd, _ in self.epoll.poll():
                if fd == self.parent:
                    self.end()
                elif fd == self.sock.fileno():
                    self.hear()
                elif fd in (wake, self.nudge, self.timer):
                    with contextlib.suppress(BlockingIOError):
                        os.read(fd, 4096)
                    self.armed_at = 0 if fd == self.timer else self.armed_at
            if asleep:
                asleep = False
                self.limits.asleep(False)
            self.reap()
            if self.dirty or self.dying or self.sweep_at:
                self.sweep()
                self.reap()
            at = self.tick()
            if not at and not self.dying and not self.dirty and not self.sweep_at:
                self.limits.asleep(True)
                at = self.tick()  # a dispatch may have come between the look and the flag
                asleep = not at
                if at:
                    self.limits.asleep(False)
            if at and at != self.armed_at:
                self.armed_at = at
                kernel.set_timer(self.timer, at)

    def _settle_down(self) -> int:
        """Freeze what is imported and start listening; return the descriptor that tells of SIGCHLD."""
        self.kept = set(proc.children("self"))
        gc.collect()
        gc.freeze()
        gc.disable()
        wake, wake_in = os.pipe()
        os.set_blocking(wake, False)
        os.set_blocking(wake_in, False)
        signal.set_wakeup_fd(wake_in, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        for fd in (self.sock.fileno(), self.parent, self.nudge, wake, self.timer):
            self.epoll.register(fd, select.EPOLLIN)
        self.base_bytes = proc.resident_bytes()
        return wake

    def tick(self) -> int:
        """Look at each worker; return the instant of the next look, 0 if nothing is to be watched."""
        now = time.monotonic_ns()
        busy, at = False, 1 << 62
        for worker in list(self.workers.values()):
            if worker.doomed:
                if worker.backstop_at and now >= worker.backstop_at:
                    worker.backstop_at = 0
                    with contextlib.suppress(ProcessLookupError):
                        signal.pidfd_send_signal(worker.pidfd, signal.SIGKILL)
                at = min(at, worker.backstop_at or at)
                continue
            due, why = self.limits.look(worker, now)
            if why:
                self.condemn(worker, why, due, now - worker.began)
            elif due:
                busy, at = True, min(at, due)
            if self.trim(worker, now):
                at = min(at, now + TRIM_NS)
        if self.dying or self.dirty:
            at = min(at, now + SWEEP_NS)
        self.sweep_at = [again for again in self.sweep_at if again > now]
        at = min([at, *self.sweep_at])
        if busy:
            self.awake_until = now + AWAKE_NS
        elif now > self.awake_until:
            if self.options["capture"] and any(proc.children(pid) for pid in self.by_pid):
                at = min(at, now + TRIM_NS)  # what a job left running may print for ever
            return 0 if at == 1 << 62 else at
        return min(at, now + (self.limits.tick_ns or TICK_MAX_NS))

    def trim(self, worker: Watched, now: int) -> bool:
        """Give back the older part of what a talkative job has printed; return True if it is talkative."""
        if self.options["capture"] and now >= worker.trim_at:
            worker.trim_at = now + TRIM_NS
            worker.talks = worker.trim(TRIM_KEEP_BYTES)
        return worker.talks
