"""What the jobs of the tests of kernel limits do: for an ordinary user's Python too, with nothing but ours."""

from __future__ import annotations

import contextlib
import logging
import os
import resource
import subprocess
import sys
import threading
import time
from typing import Any

from ptss_mp import current

CAP_S = 30.0
LIMITS = (resource.RLIMIT_NOFILE, resource.RLIMIT_FSIZE)


def limits() -> tuple[int, list[Any]]:
    return os.getpid(), [resource.getrlimit(limit) for limit in LIMITS]


def open_many(most: int) -> tuple[int, int]:
    """Return how many descriptors could be opened, and the error that stopped it; they are closed again."""
    held: list[int] = []
    try:
        while len(held) < most:
            held.append(os.open("/dev/null", os.O_RDONLY))
        return len(held), 0
    except OSError as error:
        return len(held), error.errno or 0
    finally:
        for fd in held:
            os.close(fd)


def leak(count: int) -> int:
    for _ in range(count):
        os.open("/dev/null", os.O_RDONLY)
    return os.getpid()


def leak_until_refused() -> None:
    held = []
    while True:
        held.append(open("/dev/null"))  # noqa: SIM115 - they stay open


def opened_by_a_child(most: int) -> Any:
    out, into = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.write(into, repr(open_many(most)).encode())
        os._exit(0)
    os.waitpid(pid, 0)
    told = os.read(out, 100).decode()
    os.close(out)
    os.close(into)
    return told


def opened_in_threads(threads: int, most: int) -> tuple[int, list[int]]:
    """Return how many descriptors all threads could open together, and the error of each."""
    held: list[int] = []
    errors: list[int] = []

    def run() -> None:
        try:
            while len(held) < most:
                held.append(os.open("/dev/null", os.O_RDONLY))
        except OSError as error:
            errors.append(error.errno or 0)

    running = [threading.Thread(target=run) for _ in range(threads)]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join()
    count = len(held)
    for fd in held:
        os.close(fd)
    return count, errors


def write(path: str, size: int) -> int:
    with open(path, "wb", buffering=0) as file:
        done = 0
        while done < size:
            done += file.write(b"x" * (size - done))
    return done


def written_in_threads(folder: str, size: int) -> list[int]:
    errors: list[int] = []

    def run(number: int) -> None:
        try:
            write(f"{folder}/{number}", size)
        except OSError as error:
            errors.append(error.errno or 0)

    running = [threading.Thread(target=run, args=(i,)) for i in range(3)]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join()
    return errors


def written_by_a_program(path: str) -> tuple[int, str]:
    code = f"import resource; print(resource.getrlimit(1)[0]); open({path!r}, 'wb').write(b'x' * 5_000)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=CAP_S)
    return int(done.stdout), done.stderr


def talk(size: int) -> None:
    print("o" * size)
    print("e" * size, file=sys.stderr)
    logging.getLogger("kernel.limits").warning("l" * size)


def talk_by_a_program(size: int) -> int:
    return subprocess.run(["/bin/sh", "-c", f"printf %{size}s x"], timeout=CAP_S).returncode


def move(soft: dict[int, int]) -> int:
    for limit, value in soft.items():
        resource.setrlimit(limit, (value, resource.getrlimit(limit)[1]))
    return os.getpid()


def lower_hard(limit: int, value: int) -> int:
    resource.setrlimit(limit, (value, value))
    return os.getpid()


def told() -> Any:
    attempt = current()
    assert attempt
    return attempt.name, attempt.attempt, attempt.remaining()


def crash_late(path: str) -> None:
    with contextlib.suppress(OSError):
        write(path, 100_000)
    print("last words")
    os.abort()


# ---- processes


def family(children: int, seconds: float, log: str = "") -> int:
    """Have so many children for so long; tell their pids, and wait for them."""
    pids = []
    for _ in range(children):
        pid = os.fork()
        if pid == 0:
            time.sleep(seconds)
            os._exit(0)
        pids.append(pid)
        note(log, pid)
    for pid in pids:
        os.waitpid(pid, 0)
    return os.getpid()


def chain(length: int, log: str) -> None:
    """Each has one child, in a session of its own; the last ones stay."""
    for _ in range(length):
        if os.fork():
            break
        os.setsid()
        note(log, os.getpid())
    time.sleep(1_000)


def one_after_the_other(count: int) -> int:
    for _ in range(count):
        subprocess.run(["/bin/true"], timeout=CAP_S, check=True)
    return os.getpid()


def zombies(count: int, seconds: float) -> int:
    """Have so many children that have ended, and are waited for only after a while."""
    pids = []
    for _ in range(count):
        pid = os.fork()
        if pid == 0:
            os._exit(0)
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
        pids.append(pid)
    time.sleep(seconds)
    for pid in pids:
        os.waitpid(pid, 0)
    return os.getpid()


def many_threads(count: int, seconds: float) -> int:
    threads = [threading.Thread(target=time.sleep, args=(seconds,)) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return os.getpid()


def leave_children(count: int, log: str) -> int:
    for _ in range(count):
        note(log, subprocess.Popen(["/bin/sleep", "1000"], stdin=subprocess.DEVNULL).pid)
    return os.getpid()


def bomb(tokens: int, log: str) -> None:
    """Double again and again: who has drawn a token from the pipe may fork."""
    out, into = os.pipe()
    os.write(into, b"." * tokens)
    os.set_blocking(out, False)
    while True:
        try:
            drawn = os.read(out, 1)
        except BlockingIOError:
            time.sleep(1_000)
        if drawn and os.fork() == 0:
            os.setsid()
            note(log, os.getpid())


def hide_and_fork(children: int, log: str) -> None:
    """Scribble into the page that no job runs, then fork."""
    import gc

    from ptss_mp import marker

    loop = next(o for o in gc.get_objects() if type(o).__name__ == "Loop" and hasattr(o, "words"))
    loop.words[marker.RUNNING] = 0
    family(children, 1_000, log)


def note(log: str, number: int) -> None:
    if log:
        with open(log, "ab", buffering=0) as file:
            file.write(f"{number}\n".encode())
