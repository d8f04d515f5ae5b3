"""The warden: one thread; forks, watches, kills and reaps.

Theory of operation.  Started by exec with five descriptors: control socket,
pidfd of the parent, nudge eventfd, memfds of limits and configuration.  It is
the one kill clock: it reads marker and limits at every tick and from there on a
timer at the exact instant, so that no limit waits for the parent's interpreter
lock.  It is a sub-reaper, so what a worker leaves behind comes here (trees.py).
It ends everything when the control socket closes or the pidfd of the parent
fires, whichever is first: a fork of the user's program may hold the socket.

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
from . import child, fences, kernel, proc, protocol
from .census import Census
from .cgroup import Group
from .clock import Limits, Watched
from .protocol import CRASHED, DUMP_NS, EXITED, FORK, FORKED, GONE, KILL, READY, TICK_MAX_NS, VERDICT
from .trees import SWEEP_NS, Trees

# Not enough room in the kernel for a message; the first one: of this user's programs too many descriptors are on the
# way to processes that do not read (unix(7)), be it those of other pools that are stopped.
CROWDED = (errno.ETOOMANYREFS, errno.ENOBUFS, errno.ENOMEM)
CROWDED_NS = 5_000_000  # between two tries
GONE_NS = 10_000_000  # how often to look whether somebody has ended whom another one reaps
AWAKE_NS = 300_000_000  # stay awake so long after the last job: falling asleep and being nudged costs more
TRIM_NS = 100_000_000  # a job that prints 1 GiB/s holds 100 MiB for a moment
TRIM_KEEP_BYTES = 1 << 20  # as much as tee writes of one attempt; the outcome keeps 64 KiB of it
OOM_SCORE = 500  # of 1000: the kernel counts as if a worker held half of the machine's memory more than it does
STOPPED_NS = 1_000_000_000  # who slows processes down by stopping them (cpulimit) does so for 0.1 s at a time
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
        self.options["oom_score"] = b"%d" % min(1000, proc.oom_score() + OOM_SCORE)
        self.pid = os.getpid()
        self.limits, self.census, self.fences = Limits(limits), Census(), fences.Fences()
        self.workers: dict[int, Watched] = {}
        self.by_pid: dict[int, Watched] = {}
        self.trees = Trees(self.by_pid)
        self.backlog: list[tuple[bytes, tuple[int, ...]]] = []
        self.mute = self.crowded = False
        self.armed_at = self.awake_until = 0
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
        """Send what is due; what does not fit waits for EPOLLOUT, or for CROWDED_NS."""
        self.crowded = False
        while self.backlog:
            data, fds = self.backlog[0]
            rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))] if fds else []
            try:
                self.sock.sendmsg([data], rights, socket.MSG_DONTWAIT)
            except BlockingIOError:
                break
            except OSError as error:
                if error.errno not in CROWDED:
                    self.end()
                self.crowded = True
                break
            self.backlog.pop(0)
            for fd in fds:
                os.close(fd)
        with contextlib.suppress(OSError, ValueError):
            waits = self.backlog and not self.crowded
            self.epoll.modify(self.sock, select.EPOLLIN | (select.EPOLLOUT if waits else 0))

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
                env = data[FORK.size :]
                _, number, slot, groups = FORK.unpack_from(data)
                self.fork(number, slot, groups, pickle.loads(env) if env else {})
            elif data[:1] == b"K":
                _, number, job, why = KILL.unpack(data)
                worker = self.workers.get(number)
                if worker:
                    with contextlib.suppress(ProcessLookupError):  # the parent sends it too, if it has the pidfd yet
                        signal.pidfd_send_signal(worker.pidfd, signal.SIGKILL)
                    self.limits.write_verdict(worker, why, time.monotonic_ns(), 0, job)
                    self.trees.doom(worker)
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

    def fork(self, number: int, slot: int, groups: int, env: dict[str, str]) -> None:
        """Make a worker and hand its ends to the parent; or tell why there is none: nobody else may suffer."""
        made: list[int] = []
        pid = 0
        group = self.fences.around(number, groups)
        try:
            made += os.pipe()
            made += os.pipe()
            made.append(marker.seal_page("ptss_mp-page"))
            made += (os.memfd_create(f"ptss_mp-{name}", os.MFD_CLOEXEC) for name in ("out", "err", "log", "fault"))
            calls_out, calls_in, answers_out, answers_in, page, out, err, log, fault = made
            pid = os.fork()
            if pid == 0:
                self._become_worker((calls_out, answers_in, fault, page, out, err, log), group, env)
            made.append(os.pidfd_open(pid))  # only this process reaps: the pid is still that child
            made.append(os.dup(made[-1]))
            base = 0 if self.options["spawn"] else proc.resident_bytes()
            worker = Watched(number, slot, pid, made[-1], page, (out, err, log), base)
        except OSError as error:  # no descriptor, process or memory is left
            if pid:
                os.kill(pid, signal.SIGKILL)
            self.fences.leave(group)
            for fd in made:
                os.close(fd)
            self.say(EXITED.pack(b"X", number, 0, -(error.errno or errno.EAGAIN), 0, 0))
            return
        self.workers[number] = self.by_pid[pid] = worker
        worker.group = group
        self.epoll.register(worker.pidfd, select.EPOLLIN)
        self.say(
            FORKED.pack(b"P", number, pid, base, bool(self.config["main"])),
            (made[-2], answers_out, calls_in, page, fault, out, err, log),
        )
        os.close(calls_out)
        os.close(answers_in)

    def _become_worker(self, ends: tuple[int, ...], group: Group | None, env: dict[str, str]) -> NoReturn:
        try:
            if group:
                with contextlib.suppress(OSError):  # it does without
                    group.attach()
            os.environ.update(env)  # before the initializer, and before it is noted what a job must not change
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
        """Hold, last look, verdict, signal, word, sweep: in this order."""
        job = worker.job
        worker.hold(True)
        facts = proc.status(worker.pid)
        if worker.marked() != (job, *worker.looked_at):
            return worker.hold(False)  # it ended in this very moment, and the next one is innocent
        threads = b"" if facts.can_dump and facts.threads == 1 else proc.cpu_by_thread(worker.pid).encode()
        self.limits.write_verdict(worker, why, at, observed, job)
        dump = facts.can_dump and self.options["dump"]
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(worker.pidfd, kernel.DUMP_SIGNAL if dump else signal.SIGKILL)
        cpu = proc.clock_ns(worker.pid)
        word = VERDICT.pack(b"V", worker.number, job, why, at, observed, facts.peak_bytes, cpu, bool(dump))
        self.say(word + threads)
        worker.backstop_at = time.monotonic_ns() + DUMP_NS if dump else 0
        self.trees.doom(worker)

    def free_from_stopped(self, worker: Watched, now: int) -> None:
        """Kill a worker that somebody has stopped before it could begin what it was sent; that goes to another."""
        if worker.job or now - worker.seen_at < STOPPED_NS or proc.state(worker.pid) != "T":
            return
        worker.hold(True)
        if worker.marked() != (0, *worker.looked_at):
            return worker.hold(False)  # somebody has continued it just now
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(worker.pidfd, signal.SIGKILL)
        self.trees.doom(worker)

    def reap(self) -> None:
        """Collect the dead, and tell the parent of workers."""
        while True:
            try:
                pid, status, usage = os.wait4(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if not pid:
                return
            self.trees.reaped(pid)
            worker = self.by_pid.pop(pid, None)
            if worker is None:
                continue
            self.workers.pop(worker.number, None)
            self.epoll.unregister(worker.pidfd)
            worker.close()
            self.fences.leave(worker.group)
            cpu = round((usage.ru_utime + usage.ru_stime) * 1e9)
            self.say(EXITED.pack(b"X", worker.number, pid, status, usage.ru_maxrss << 10, cpu))
            self.trees.mourned[worker.number] = None

    def tell_gone(self) -> None:
        """Tell of reaped workers of which nothing is left."""
        for number in self.trees.gone():
            self.say(GONE.pack(b"G", number))

    def end(self) -> NoReturn:
        """Kill everything, reap it, and go."""
        for worker in self.workers.values():
            with contextlib.suppress(OSError):
                signal.pidfd_send_signal(worker.pidfd, signal.SIGKILL)
            self.trees.dying[worker.pid] = worker
        self.trees.kept.clear()
        self.mute = True
        until = time.monotonic_ns() + END_NS
        while time.monotonic_ns() < until:
            self.trees.sweep()
            self.reap()
            if not self.trees.left():
                self.fences.close()
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
            if self.crowded:
                self.drain()
            self.reap()
            if self.trees.busy:
                self.trees.sweep()
                self.reap()
                self.fences.tidy()
            if self.trees.mourned:
                self.tell_gone()
            at = self.tick()
            if not at and not self.trees.busy:
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
        self.trees.kept = set(proc.children("self"))
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
            due, why, observed = self.limits.look(worker, now, len(self.workers))
            if why:
                self.condemn(worker, why, due, observed)
            elif due:
                busy, at = True, min(at, due)
                self.free_from_stopped(worker, now)
            if self.trim(worker, now):
                at = min(at, now + TRIM_NS)
        for worker, count in self.census.over(self.workers.values(), now):
            self.condemn(worker, CRASHED, now, count)
        at = min(at, self.census.due_at)
        if self.trees.busy:
            at = min(at, now + SWEEP_NS)
        if self.trees.mourned:
            at = min(at, now + GONE_NS)
        if self.crowded:
            at = min(at, now + CROWDED_NS)
        if busy:
            self.awake_until = now + AWAKE_NS
        elif now > self.awake_until:
            if self.options["capture"] and self.trees.have_children(self.by_pid):
                at = min(at, now + TRIM_NS)  # what a job left running may print for ever
            return 0 if at == 1 << 62 else at
        return min(at, now + (self.limits.tick_ns or TICK_MAX_NS))

    def trim(self, worker: Watched, now: int) -> bool:
        """Give back the older part of what a talkative job has printed; return True if it is talkative."""
        if self.options["capture"] and now >= worker.trim_at:
            worker.trim_at = now + TRIM_NS
            worker.talks = worker.trim(TRIM_KEEP_BYTES)
        return worker.talks
