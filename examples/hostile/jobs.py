"""Thousands of honest jobs, and beside them every way to ruin a process.

    ptss-mp run examples/hostile/jobs.py

The honest ones parse each file of this interpreter's own standard library;
`totals` waits for all of them and prints what they found.  The zoo crashes,
hangs and lies: each of its jobs fails with its own cause (`EXPECTED`), no
honest job is touched, and the run ends with exit status 1.

HOSTILE_LIMIT=40 in the environment takes only so many files.
"""

import ast
import contextlib
import ctypes
import mmap
import os
import re
import runpy
import signal
import sysconfig
import tempfile
import threading
import time
import warnings
from collections import Counter
from pathlib import Path

from ptss_mp import task

# What becomes of the zoo: status, and the signal or exit status that ended the process.
EXPECTED = {
    "null_read": ("crashed", "SIGSEGV"),
    "division": ("crashed", "SIGFPE"),
    "short_file": ("crashed", "SIGBUS"),
    "abort": ("crashed", "SIGABRT"),
    "exit_0": ("crashed", 0),
    "exit_3": ("crashed", 3),
    "backtracking": ("timeout", None),
    "deaf": ("timeout", None),
    "stopped": ("timeout", None),
    "glutton": ("memory", None),
    "glutton_by_proxy": ("memory", None),
    "busy": ("cpu", None),
    "two_arguments": ("failed", None),
    "lock": ("not_picklable", None),
    "booby_trap": ("not_picklable", None),
}


# ---- The zoo.


@task
def null_read():
    """Read address 0 through ctypes.  Crashed: SIGSEGV, with the Python stack."""
    return ctypes.string_at(0)


@task
def division():
    """Divide by zero in C.  Crashed: SIGFPE."""
    ctypes.CDLL(None).div(1, 0)  # traps on x86; elsewhere the processor lets it pass
    signal.raise_signal(signal.SIGFPE)


@task
def short_file():
    """Read mapped memory beyond the end of its file.  Crashed: SIGBUS."""
    with tempfile.TemporaryFile() as file:
        file.truncate(mmap.PAGESIZE)
        mapped = mmap.mmap(file.fileno(), mmap.PAGESIZE)
        file.truncate(0)
        return mapped[0]


@task
def abort():
    """Call abort(), as a failed assertion in C++ does.  Crashed: SIGABRT."""
    os.abort()


@task
def exit_0():
    """Leave without a word, and say that all is well.  Crashed: exit status 0, for there is no result."""
    os._exit(0)


@task
def exit_3():
    """Leave without a word.  Crashed: exit status 3."""
    os._exit(3)


@task(timeout="2s")
def backtracking():
    """Match a regex that backtracks for years, holding the GIL.  Timeout."""
    return re.match(r"(a+)+$", "a" * 64 + "b")


@task(timeout="1s")
def deaf():
    """Block every signal and loop.  Timeout: SIGKILL cannot be blocked."""
    signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    while True:
        pass


@task(timeout="1s")
def stopped():
    """Stop the own process.  Timeout: who is stopped can still be killed."""
    os.kill(os.getpid(), signal.SIGSTOP)
    time.sleep(60)


@task(memory="200MiB")
def glutton():
    """Take memory without end, and shrug at MemoryError.  Memory: killed at its limit."""
    eaten = []
    while True:
        with contextlib.suppress(MemoryError):
            eaten.append(bytearray(os.urandom(1) * (1 << 20)))


@task(memory="200MiB")
def glutton_by_proxy():
    """Let a child do it.  Memory: what a job has started counts."""
    child = os.fork()
    if not child:
        glutton()
    os.waitpid(child, 0)


@task(cpu_time="1s")
def busy():
    """Use the processor without end.  CPU."""
    while True:
        pass


class TwoArguments(Exception):
    """Cannot be rebuilt from its pickle: that keeps one argument."""

    def __init__(self, what, why):
        super().__init__(f"{what}: {why}")


@task
def two_arguments():
    """Raise an exception that no pickle brings back.  Failed, with its text and traceback."""
    raise TwoArguments("no luck", "it was Monday")


@task
def lock():
    """Return a lock.  Not picklable."""
    return threading.Lock()


class BoobyTrap:
    """Pickles well, and raises in whoever unpickles it."""

    def __reduce__(self):
        return _spring, ()


def _spring():
    raise RuntimeError("unpickled")


@task
def booby_trap():
    """Return something that raises where it is unpickled.  Not picklable; the parent never tries."""
    return BoobyTrap()


# ---- CPython's own crashers, where the interpreter ships them: reported as seen.

STDLIB = Path(sysconfig.get_path("stdlib"))


def run_script(path):
    """Run a script as the interpreter would."""
    runpy.run_path(path, run_name="__main__")


for _script in sorted(STDLIB.glob("test/crashers/*.py")):
    task(name=f"crasher_{_script.stem}", args=(str(_script),), timeout="5s", memory="1GiB", fresh=True)(run_script)


# ---- The honest jobs.


def count_nodes(path):
    """Return how many nodes of each kind a file's syntax tree has; None if it does not parse."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the test suite holds odd escapes on purpose
        try:
            tree = ast.parse(Path(path).read_bytes())
        except (SyntaxError, ValueError, RecursionError):
            return None
    return dict(Counter(type(node).__name__ for node in ast.walk(tree)))


def files():
    """Return the library's files; every worker imports this file, so it looks at no more than it must."""
    found = []
    for folder, folders, names in os.walk(STDLIB):
        folders[:] = sorted(set(folders) - {"site-packages", "__pycache__"})
        found += [os.path.join(folder, name) for name in sorted(names) if name.endswith(".py")]
    return found[: int(os.environ.get("HOSTILE_LIMIT", len(found)))]


library = task(timeout="60s").map(count_nodes, files())


@task
def totals(library):
    """Sum up what all files hold."""
    kinds = Counter()
    for counts in library:
        kinds.update(counts or {})
    unparsed = sum(counts is None for counts in library)
    print(f"{len(library)} files, {unparsed} of them do not parse, {kinds.total()} nodes")
    for kind, number in kinds.most_common(5):
        print(f"{number:>9} {kind}")
