"""Initializers that fail, each in its own way, and preloads that do (as source)."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import threading
import time
from typing import NoReturn

import deeds

from ptss_mp import current
from ptss_mp.pipes import ANSWERS_FD


def refuse() -> NoReturn:
    print("looking for the model")
    raise RuntimeError("no model here")


def refuse_slowly(seconds: float) -> NoReturn:
    time.sleep(seconds)
    refuse()


def segfault() -> None:
    print("about to load the model")
    ctypes.string_at(0)


def hang() -> None:
    print("waiting for the licence")
    _wait_for_ever()


def _wait_for_ever() -> None:
    time.sleep(deeds.HANG)


def hang_deaf() -> None:
    signal.pthread_sigmask(signal.SIG_BLOCK, range(1, signal.NSIG))
    _wait_for_ever()


def stop() -> None:
    os.kill(os.getpid(), signal.SIGSTOP)


def noise() -> None:
    os.write(ANSWERS_FD, b"\xff" * 64)
    _wait_for_ever()


def close_everything() -> None:
    os.closerange(3, 1 << 10)


def end_the_warden() -> None:
    os.kill(os.getppid(), signal.SIGKILL)
    _wait_for_ever()


def child_goes_on() -> None:
    current().state["me"] = os.getpid()  # type: ignore[union-attr]
    os.fork()


def child_raises() -> None:
    if os.fork() == 0:
        raise RuntimeError("only the child's trouble")


def is_its_own() -> bool:
    return current().state["me"] == os.getpid()  # type: ignore[union-attr]


def thread() -> None:
    threading.Thread(target=_wait_for_ever, daemon=True).start()


def every_other(flag: str) -> None:
    try:
        os.mkdir(flag)
    except FileExistsError:
        os.rmdir(flag)
        raise RuntimeError("not my turn") from None


def only_the_first(flag: str) -> None:
    try:
        os.mkdir(flag)
    except FileExistsError:
        raise RuntimeError("one is enough") from None


class NotThere:
    """Can be pickled, and loaded by nobody."""

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return _not_there, (f"made by {os.getpid()}",)


def _not_there(text: str) -> NoReturn:
    raise LookupError(f"cannot be rebuilt, {text}")


FAILING = {
    "raise": (refuse, (), ("it raised RuntimeError: no model here", "in refuse")),
    "sys.exit(0)": (sys.exit, (0,), ("it raised SystemExit: 0",)),
    "sys.exit(text)": (sys.exit, ("no licence",), ("it raised SystemExit: no licence",)),
    "os._exit(0)": (os._exit, (0,), ("it exited with status 0; call the initializer in a program of its own",)),
    "os._exit(7)": (os._exit, (7,), ("it exited with status 7",)),
    "abort": (os.abort, (), ("it was killed by SIGABRT",)),
    "segfault": (segfault, (), ("it was killed by SIGSEGV", "about to load the model", "in segfault")),
    "noise": (noise, (), ("it sent a frame that claims",)),
    "closed": (close_everything, (), ("it exited with status 1", "Bad file descriptor")),
    "argument": (print, (NotThere(),), ("it raised LookupError: cannot be rebuilt, made by",)),
    "warden": (end_the_warden, (), ("the warden died again and again", "it ended by SIGKILL")),
}
LATE = {
    "hang": (hang, ("waiting for the licence", "in _wait_for_ever", "in hang")),
    "deaf": (hang_deaf, ()),
    "stopped": (stop, ()),
}

PRELOADS = {
    "raises": ("raise RuntimeError('no library')", ("RuntimeError: no library", "bad_preload.py")),
    "exits": ("import sys; sys.exit(0)", ("SystemExit: 0", "bad_preload.py")),
    "interrupts": ("raise KeyboardInterrupt", ("KeyboardInterrupt",)),
    "leaves": ("import os; os._exit(0)", ("status 0",)),
    "aborts": ("import os; os.abort()", ("SIGABRT",)),
    "syntax": ("def f(:", ("SyntaxError",)),
}
