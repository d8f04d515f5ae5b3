"""What the jobs of these measurements do.  Imported in every worker."""

import ctypes
import mmap
import os
import signal
import time

BEATS = 32  # bytes of a job in the page of beats: pid, first instruction, last one so far, when it was asked for
SPIN_NS = 15_000_000  # how long before its limit a job begins to spin: at most two do at a time
HANG_S = 1_000

holding = ctypes.PyDLL(None)  # calls into it keep the interpreter lock


def beats(path, count):
    """Map the page of beats."""
    with open(path, "r+b") as file:
        return memoryview(mmap.mmap(file.fileno(), count * BEATS)).cast("Q")


def beat(path, count, slot, limit_ns):
    """Tell pid and start; shortly before the limit begin to stamp the clock, for ever."""
    clock = time.monotonic_ns
    started = clock()
    words, at = beats(path, count), 4 * slot
    words[at + 2] = words[at + 1] = started
    words[at] = os.getpid()  # last: it makes the record count
    time.sleep((limit_ns - SPIN_NS) / 1e9)
    while True:
        words[at + 2] = clock()


def log(path, text):
    """Append a line in one write."""
    with open(path, "ab", buffering=0) as file:
        file.write(f"{text}\n".encode())


def logged(path, number, seconds):
    """Tell begin and end of a run, with the pid."""
    log(path, f"begin {number} {os.getpid()}")
    time.sleep(seconds)
    log(path, f"end {number} {os.getpid()}")
    return number


# ---- hangs


def hang(kind, path):
    """Tell the pid, then never end."""
    log(path, os.getpid())
    while True:
        if kind == "sleep":
            time.sleep(HANG_S)
        elif kind == "native":
            holding.sleep(HANG_S)
        elif kind == "spin":
            pow(7, 10**6)  # keeps the interpreter lock, and a core
        else:
            os.kill(os.getpid(), signal.SIGSTOP)


# ---- trees: all that is started holds the writing end of a fifo, so its end of file tells that nobody is left


def tree(shape, fifo, then):
    """Start processes; once they are there say so, then hang or crash."""
    fd = os.open(fifo, os.O_WRONLY)
    os.set_inheritable(fd, True)
    SHAPES[shape](fd)
    if then == "crash":
        time.sleep(0.02)
        os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(HANG_S)


def _stay(fd):
    os.write(fd, b".")
    while True:
        time.sleep(HANG_S)


def _session(fd):
    if not os.fork():
        os.setsid()
        _stay(fd)


def _daemon(fd):
    if not os.fork():
        os.setsid()
        if not os.fork():
            _stay(fd)
        os._exit(0)


def _mover(fd):
    """Fork, leave the session, let the parent exit: again and again."""
    if os.fork():
        return
    os.write(fd, b".")
    while True:
        if os.fork():
            os._exit(0)
        os.setsid()


def _deaf(fd):
    if not os.fork():
        every = set(signal.Signals) - {signal.SIGKILL, signal.SIGSTOP}
        for number in every:
            signal.signal(number, signal.SIG_IGN)
        signal.pthread_sigmask(signal.SIG_BLOCK, every)
        os.setsid()
        if os.fork():
            _stay(fd)
        _stay(fd)


def _fifty(fd):
    for _ in range(50):
        if not os.fork():
            _stay(fd)


def _chain(fd):
    """Eight forks deep, a session of its own at the end."""
    for depth in range(8):
        if os.fork():
            if depth:
                _stay(fd)
            return
    os.setsid()
    _stay(fd)


SHAPES = {
    "session": _session, "daemon": _daemon, "mover": _mover, "deaf": _deaf, "fifty": _fifty, "chain": _chain,
}  # fmt: skip
SIZES = {"session": 1, "daemon": 1, "mover": 1, "deaf": 2, "fifty": 50, "chain": 8}


def burn():
    """Keep a core busy for ever."""
    while True:
        pass
