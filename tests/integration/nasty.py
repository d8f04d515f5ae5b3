"""Nasty jobs beyond those of `deeds`.  Imported in every worker, so it imports little."""

from __future__ import annotations

import atexit
import ctypes
import gc
import os
import signal
import subprocess
import sys
import threading
import time
from typing import Any, NoReturn

import deeds


def crash_now() -> None:
    ctypes.string_at(0)


class Sore:
    """Crashes when it is finalised."""

    def __init__(self, in_a_cycle: bool = False) -> None:
        self.me = self if in_a_cycle else None

    def __del__(self) -> None:
        crash_now()


def drop_sore() -> str:
    """Crash as the locals go, when the value is there already."""
    sore = Sore()
    return "returned" if sore else ""


def collect_sore() -> str:
    Sore(in_a_cycle=True)
    gc.collect()
    return "returned"


def leave_sore() -> str:
    """Leave garbage behind that only the collector finds."""
    Sore(in_a_cycle=True)
    return "returned"


def return_sore() -> Any:
    return Sore


class SoreValue:
    """A result that is pickled well, and crashes when it is finalised in the worker."""

    def __init__(self) -> None:
        self.pid = os.getpid()

    def __reduce__(self) -> Any:
        return str, ("rebuilt",)

    def __del__(self) -> None:
        if self.pid == os.getpid():
            crash_now()


def sore_value() -> Any:
    return SoreValue()


def crash_at_exit(how: str) -> int:
    """Let this worker crash while it leaves."""
    from multiprocessing import util

    if how == "atexit":
        atexit.register(crash_now)
    elif how == "finalizer":
        util.Finalize(None, crash_now, exitpriority=1)
    else:
        deeds.state.append(Sore())  # a module's global: the interpreter would finalise it last
    return os.getpid()


def crash_later(seconds: float) -> str:
    """Leave a thread behind that crashes."""

    def run() -> None:
        time.sleep(seconds)
        crash_now()

    threading.Thread(target=run, daemon=True).start()
    return "returned"


def crash_in_thread() -> None:
    thread = threading.Thread(target=crash_now)
    thread.start()
    thread.join()


def return_lambda() -> Any:
    return lambda: None


class Picky(Exception):
    """Its constructor raises when it is rebuilt from its text."""

    def __init__(self, code: int) -> None:
        if not isinstance(code, int):
            raise TypeError("code must be an int")
        super().__init__(f"code {code}")


def raise_picky() -> NoReturn:
    raise Picky(7)


class Fatal(Exception):
    """Crashes whoever rebuilds it."""

    def __reduce__(self) -> Any:
        return crash_now, ()


def raise_fatal() -> NoReturn:
    raise Fatal("never rebuilt")


def raise_group() -> NoReturn:
    raise BaseExceptionGroup("several", [KeyboardInterrupt(), SystemExit(3)])


def stop_itself() -> None:
    os.kill(os.getpid(), signal.SIGSTOP)


def fork_and_exit_in_both() -> None:
    os.fork()
    os._exit(5)


def fork_and_raise_in_both() -> None:
    child = os.fork()
    if child:
        os.waitpid(child, 0)
    raise ValueError("both")


def hang_with_child(log: str) -> None:
    child = subprocess.Popen(["sleep", str(deeds.HANG)], stdin=subprocess.DEVNULL, start_new_session=True)
    deeds.note(log, child.pid)
    time.sleep(deeds.HANG)


def kill_group() -> None:
    os.killpg(0, signal.SIGKILL)


def kill_parent_and_go_on() -> str:
    """Send the warden what it ignores."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        os.kill(os.getppid(), number)
    return "sent"


def exhaust_descriptors() -> int:
    held = []
    try:
        while True:
            held.append(os.open(os.devnull, os.O_RDONLY))
    except OSError:
        return len(held)  # and they stay open


def spoil_streams(how: str) -> str:
    """Leave the standard streams so that nobody could use them."""
    if how == "closed":
        sys.stdout.close()
        sys.stderr.close()
    elif how == "replaced":
        sys.stdout = sys.stderr = None  # type: ignore[assignment]
    elif how == "redirected":
        os.dup2(0, 1)
        time.sleep(0.002)  # after shorter runs nobody looks
    else:
        for fd in (0, 1, 2):
            os.close(fd)
    return how


def speak(text: str) -> str:
    print(text)
    return sys.stdin.read()


def turn_into(program: str) -> None:
    os.execlp(program, program)


def swallow_everything() -> str:
    """Answer every exception with another round, as a careless `except:` does."""
    while True:
        try:
            time.sleep(deeds.HANG)
        except BaseException:
            continue
