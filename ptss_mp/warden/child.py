"""The first lines of a worker: from a fork of the warden (or a new interpreter) to the loop.

A fork without exec keeps every descriptor, so close-on-exec protects nothing:
what the worker needs is moved to fixed places and all else is closed.
"""

from __future__ import annotations

import contextlib
import faulthandler
import gc
import mmap
import os
import pickle
import signal
import sys
from typing import Any

from .. import attempt, chunk, logs, wire
from ..mainmodule import import_main, tell, tried
from ..marker import PAGE_BYTES, READY, RESIDENT
from ..pipes import ANSWERS_FD, BOOT_FD, CALLS_FD, ERR_FD, FAULT_FD, LOG_FD, OUT_FD, PAGE_FD, Stream
from ..wire import ANSWERS
from ..worker import Loop
from . import proc
from .kernel import DUMP_SIGNAL, PR_SET_CHILD_SUBREAPER, PR_SET_PDEATHSIG, prctl


def forked(fds: tuple[int, ...], warden: int, options: dict[str, Any]) -> None:
    """Become a worker in a fork of the warden; never returns.

    Args:
        fds: calls, answers, fault, page, out, err, log; all above BOOT_FD.
        warden: its pid, to notice that it died before PR_SET_PDEATHSIG was in force.
        options: `capture`, `dump`, `main`, `initializer` (pickled or None), `say_ready`.
    """
    place(fds, inheritable=False)
    close_rest()
    begin(warden, options)


def spawned() -> None:
    """Become a worker in a new interpreter, which found its options behind BOOT_FD; never returns."""
    boot: dict[str, Any] = pickle.loads(os.pread(BOOT_FD, os.fstat(BOOT_FD).st_size, 0))
    close_rest()
    for fd in (CALLS_FD, ANSWERS_FD, FAULT_FD, PAGE_FD, OUT_FD, ERR_FD, LOG_FD):
        os.set_inheritable(fd, False)
    error = tried(lambda: [__import__(name) for name in boot["preload"]])
    if error:
        tell(error)
        os._exit(1)
    begin(boot["warden"], boot["options"], boot["main"])


def close_rest() -> None:
    """Close all descriptors that are not a worker's own.

    Up to the highest there is: to count to the end of all numbers takes minutes where
    close_range(2) is missing (before Linux 5.9, or unknown to the C library).
    """
    os.closerange(BOOT_FD, 1 + max(map(int, os.listdir("/proc/self/fd"))))


def place(fds: tuple[int, ...], inheritable: bool) -> None:
    """Move a worker's descriptors to their fixed places."""
    for number, fd in enumerate(fds, CALLS_FD):
        os.dup2(fd, number, inheritable=inheritable)


def begin(warden: int, options: dict[str, Any], main: dict[str, Any] | None = None) -> None:
    """Settle the process's own affairs, then take calls.

    Args:
        main: of a new interpreter: how to prepare `__main__`; a fork of the warden finds it imported.
    """
    if options["capture"]:
        os.dup2(OUT_FD, 1)
        os.dup2(ERR_FD, 2)
    signal.set_wakeup_fd(-1)
    prctl(PR_SET_PDEATHSIG, signal.SIGKILL)  # safe: the warden has one thread (prctl(2))
    if os.getppid() != warden:
        os._exit(1)
    prctl(PR_SET_CHILD_SUBREAPER, 1)  # a job's daemons stay children of its worker
    os.setsid()
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "wb", buffering=0) as file:
        file.write(options["oom_score"])  # proc(5): if the kernel must kill, a job's process before the program
    for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, _nothing)  # never SIG_IGN: what a job execs would inherit it
    faulthandler.enable(file=FAULT_FD, all_threads=True)
    if options["dump"]:  # chain: the dump is the last act, the signal's default action ends the process
        faulthandler.register(DUMP_SIGNAL, file=FAULT_FD, all_threads=True, chain=True)
    out, err = Stream(1), Stream(2)
    for name, stream in (("stdin", open(0, closefd=False)), ("stdout", out), ("stderr", err)):  # noqa: SIM115 - for ever
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)
    if "numpy.random" in sys.modules:  # `random` reseeds itself after a fork, numpy does not
        sys.modules["numpy.random"].seed()
    page = mmap.mmap(PAGE_FD, PAGE_BYTES)
    os.close(PAGE_FD)
    gc.enable()
    wire.outer_workers = options["workers"]
    attempt.begin()
    os.register_at_fork(after_in_child=_let_go)
    if (main and not _import_main(main, options)) or (options["initializer"] and not _initialize(options)):
        os._exit(1)
    words = memoryview(page).cast("Q")
    loop = Loop(page, words, options)
    out.told = err.told = loop.hear
    logs.forward(options["levels"], loop.hear)
    words[RESIDENT] = proc.resident_bytes()
    words[READY] = 1
    with contextlib.suppress(BrokenPipeError):  # it is wanted no more
        os.write(ANSWERS_FD, ANSWERS.pack(0, 0))  # whoever dies before this died of nothing that a job did
    loop.run()


def _let_go() -> None:
    """What is forked here by `os.fork` can neither answer for a job nor read the calls; the numbers stay taken."""
    chunk.let_go()
    with contextlib.suppress(OSError):
        try:
            nothing = os.open("/dev/null", os.O_RDWR | os.O_CLOEXEC)
        except OSError:  # `open_files` is used up
            nothing = 0
        for fd in (CALLS_FD, ANSWERS_FD):
            os.dup2(nothing, fd, inheritable=False)
        if nothing:
            os.close(nothing)


def _nothing(*_: Any) -> None:
    """SIGINT while a job has no handler of its own: Ctrl-C is the parent's to judge."""


def _import_main(main: dict[str, Any], options: dict[str, Any]) -> bool:
    """Import the program's main module; tell what that raised: behind the word of a worker that came so far."""
    error = tried(lambda: import_main(main))
    if error:  # no worker could do better: the pool ends, and says why
        os.write(ANSWERS_FD, ANSWERS.pack(0, 0))
        tell(error)
        return False
    options["main"] = True
    return True


def _initialize(options: dict[str, Any]) -> bool:
    """Run the pool's initializer; tell what it raised."""

    def initialize() -> None:
        function, args = pickle.loads(options["initializer"])
        function(*args)

    error = tried(initialize)
    if error:
        tell(error)
    return error is None
