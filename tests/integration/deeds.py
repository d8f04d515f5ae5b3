"""What the jobs of these tests do.  Imported in every worker, so it imports little."""

from __future__ import annotations

import contextlib
import ctypes
import dataclasses
import mmap
import os
import pickle
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any, NoReturn

from ptss_mp import current, task

holding = ctypes.PyDLL(None)  # calls into it keep the interpreter lock
HANG = 1_000  # seconds that a hanging job would take


# ---- ordinary work


def double(x: Any) -> Any:
    return 2 * x


def add(x: Any, y: Any) -> Any:
    return x + y


def same(x: Any) -> Any:
    return x


def total(*numbers: Any, **named: Any) -> Any:
    return sum(numbers) + sum(named.values())


def deep(holder: dict[str, list[Any]]) -> Any:
    return [type(x).__name__ for x in holder["inner"]], holder["inner"][-1]


def pid() -> int:
    return os.getpid()


def fail(text: str = "no") -> NoReturn:
    raise ValueError(text)


def nap(seconds: float) -> float:
    time.sleep(seconds)
    return seconds


def nap_at(n: int, slow: int, seconds: float) -> int:
    """Return `n`; the slow one takes its time."""
    if n == slow:
        time.sleep(seconds)
    return n


def nap_noted(log: str, seconds: float) -> None:
    note(log, os.getpid())
    time.sleep(seconds)
    note(log, "awake")


def note(path: str, text: Any) -> Any:
    """Append one line in one write: whole, whoever else appends."""
    with open(path, "ab", buffering=0) as f:
        f.write(f"{text}\n".encode())
    return text


def fail_until(path: str, attempt: int) -> int:
    """Fail in every attempt before the given one (from 1); attempts are counted in a file."""
    note(path, os.getpid())
    made = len(Path(path).read_text().splitlines())
    if made < attempt:
        raise ValueError(f"attempt {made}")
    return made


def gate(path: str) -> None:
    """Wait until somebody writes into the fifo."""
    with open(path, "rb", buffering=0) as f:
        f.read(1)


def gated(log: str, fifo: str, text: Any) -> Any:
    """Tell that it runs, wait at the gate, tell that it ended."""
    note(log, f"begin {text} {os.getpid()}")
    gate(fifo)
    time.sleep(0.005)  # known as a long job from its first run on: none is queued behind another
    note(log, f"end {text} {os.getpid()}")
    return text


def logged(log: str, number: int, seconds: float = 0.0) -> int:
    """Tell begin and end of a run, with the pid."""
    note(log, f"begin {number} {os.getpid()}")
    time.sleep(seconds)
    note(log, f"end {number} {os.getpid()}")
    return number


def sized(size: int) -> bytes:
    return b"x" * size


def sized_pid(size: int) -> bytes:
    return b"%8d" % os.getpid() + b"x" * size


def check_size(data: Any) -> tuple[int, bytes]:
    return len(data), bytes(data[-3:])


# ---- crashes: each tells its last words first


def _say(kind: str) -> None:
    print(f"stdout before {kind}")
    print(f"stderr before {kind}", file=sys.stderr)


def crash(kind: str) -> Any:
    _say(kind)
    return CRASHES[kind]()


def _bus() -> None:
    with tempfile.TemporaryFile() as f:
        f.truncate(mmap.PAGESIZE)
        page = mmap.mmap(f.fileno(), mmap.PAGESIZE)
        f.truncate(0)
        page[0]


def _overflow() -> None:
    chain: Any = iter(())
    for _ in range(1_000_000):
        chain = filter(None, chain)
    next(chain)


def _everything_closed() -> None:
    os.closerange(3, 1 << 16)


def _random_bytes() -> None:
    noise = random.Random(1).randbytes(4096)
    for fd in range(3, 64):
        with contextlib.suppress(OSError):
            os.write(fd, noise)


def dies_while_sending(size: int) -> bytes:
    """Return a large result, and die once the first bytes of it are under way."""
    import gc

    loop = next(o for o in gc.get_objects() if type(o).__name__ == "Loop" and hasattr(o, "words"))
    from ptss_mp.marker import SENDING

    def watch() -> None:
        while not loop.words[SENDING]:
            time.sleep(0)
        os.kill(os.getpid(), signal.SIGKILL)

    threading.Thread(target=watch, daemon=True).start()
    return b"x" * size


CRASHES: dict[str, Any] = {
    "segv": lambda: ctypes.string_at(0),
    "abort": os.abort,
    "fpe": lambda: signal.raise_signal(signal.SIGFPE),
    "bus": _bus,
    "term": lambda: os.kill(os.getpid(), signal.SIGTERM),
    "kill": lambda: os.kill(os.getpid(), signal.SIGKILL),
    "exit 0": lambda: os._exit(0),
    "exit 3": lambda: os._exit(3),
    "overflow": _overflow,
    "closed": _everything_closed,
    "noise": _random_bytes,
}


def leave(status: Any) -> NoReturn:
    print("leaving")
    sys.exit(status)


def stop_all(kind: str) -> NoReturn:
    raise {"keyboard": KeyboardInterrupt, "generator": GeneratorExit}[kind]()


class Stubborn(Exception):
    """Cannot be rebuilt: nothing carries a lock to another process."""

    def __init__(self, one: str, two: str) -> None:
        super().__init__(f"{one} and {two}")
        self.lock = threading.Lock()


def stubborn() -> NoReturn:
    raise Stubborn("this", "that")


def lock() -> Any:
    return threading.Lock()


def fork_and_fall_through(log: str) -> str:
    child = os.fork()
    note(log, os.getpid())
    if child:
        os.waitpid(child, 0)
        return "parent"
    return "child"


def kill(pid_to_kill: int) -> str:
    os.kill(pid_to_kill, signal.SIGKILL)
    return "killed"


def _rebuild(how: str) -> Any:
    _say(how)
    return REBUILDS[how]()


REBUILDS: dict[str, Any] = {"raises": fail, **CRASHES}


class Bad:
    """Misbehaves when it is unpickled."""

    def __init__(self, how: str) -> None:
        self.how = how

    def __reduce__(self) -> Any:
        return _rebuild, (self.how,)


def bad_result(how: str) -> Bad:
    return Bad(how)


class Unready:
    """Misbehaves when it is pickled, in a worker."""

    def __init__(self, how: str) -> None:
        self.how = how

    def __reduce__(self) -> Any:
        return _rebuild(self.how)


def unready_result(how: str) -> Unready:
    return Unready(how)


# ---- hangs: each begins by telling its pid and the clock


def hang(kind: str, log: str) -> None:
    note(log, f"{os.getpid()} {time.monotonic()}")
    print(f"hangs: {kind}")
    HANGS[kind]()


def hang_in_threads(log: str) -> None:
    threading.Thread(target=_nap_in_a_thread, daemon=True).start()
    hang("loop", log)


def _nap_in_a_thread() -> None:
    time.sleep(HANG)


def _loop() -> None:
    while True:
        pass


def _blocked() -> None:
    signal.pthread_sigmask(signal.SIG_BLOCK, set(signal.Signals) - {signal.SIGKILL, signal.SIGSTOP})
    _loop()


def _all_blocked() -> None:
    """Real-time signals too: one of them asks for the stack."""
    signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    _loop()


def _stopped() -> None:
    while True:
        os.kill(os.getpid(), signal.SIGSTOP)


def _deaf() -> None:
    for number in set(signal.Signals) - {signal.SIGKILL, signal.SIGSTOP}:
        with contextlib.suppress(OSError, ValueError):
            signal.signal(number, signal.SIG_IGN)
    time.sleep(HANG)


SPIN = {"x86_64": b"\xeb\xfe", "aarch64": b"\x00\x00\x00\x14"}  # a jump to itself
_spun: list[Any] = []  # the page of a thread that runs in it


def spin_natively(log: str) -> None:
    """Wait for a thread of which Python knows nothing, and which never ends."""
    page = mmap.mmap(-1, mmap.PAGESIZE, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    page.write(SPIN[os.uname().machine])
    at = ctypes.c_char.from_buffer(page)
    _spun.append((page, at))
    thread = ctypes.c_ulong()
    libc = ctypes.CDLL(None)
    libc.pthread_create(ctypes.byref(thread), None, ctypes.c_void_p(ctypes.addressof(at)), None)
    libc.pthread_setname_np(thread, b"sp\x1bi\nner")
    note(log, os.getpid())
    threading.Event().wait()


HANGS: dict[str, Any] = {
    "sleep": lambda: time.sleep(HANG),
    "loop": _loop,
    "native": lambda: holding.sleep(HANG),
    "blocked": _blocked,
    "all blocked": _all_blocked,
    "stopped": _stopped,
    "deaf": _deaf,
}


# ---- trees: each notes the pids of what it starts


def grow(shape: str, log: str) -> None:
    """Start processes and note their pids."""
    TREES[shape](log)


def _sleeper(log: str) -> NoReturn:
    note(log, os.getpid())
    time.sleep(HANG)
    os._exit(0)


def _child(log: str) -> None:
    if os.fork() == 0:
        _sleeper(log)


def _session(log: str) -> None:
    if os.fork() == 0:
        os.setsid()
        _sleeper(log)


def _daemon(log: str) -> None:
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            _sleeper(log)
        os._exit(0)


def _chain(log: str) -> None:
    if os.fork() == 0:
        for _ in range(5):
            if os.fork():
                _sleeper(log)
            os.setsid()
        _sleeper(log)


def _program(log: str) -> None:
    sleeper = subprocess.Popen(["sleep", str(HANG)], stdin=subprocess.DEVNULL, start_new_session=True)
    note(log, sleeper.pid)


TREES: dict[str, Any] = {
    "child": _child, "session": _session, "daemon": _daemon, "chain": _chain, "program": _program,
}  # fmt: skip
TREE_SIZES = {"child": 1, "session": 1, "daemon": 1, "chain": 6, "program": 1}


def grow_and(shape: str, log: str, then: str, gate_log: str) -> None:
    """Start processes; once all have told their pids, hang, crash or go on."""
    grow(shape, log)
    while len(Path(log).read_text().splitlines() if Path(log).exists() else ()) < TREE_SIZES[shape]:
        time.sleep(0.001)
    note(gate_log, os.getpid())
    if then == "hang":
        time.sleep(HANG)
    elif then == "crash":
        os.abort()


# ---- what a job leaves behind


def spoil(what: str, folder: str) -> str:
    if what == "cwd":
        os.chdir(folder)
    elif what == "env":
        os.environ["LEFT_BY_A_JOB"] = "1"
        del os.environ["PATH"]
    elif what == "umask":
        os.umask(0o777)
    elif what == "mask":
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    elif what == "timer":
        signal.setitimer(signal.ITIMER_REAL, HANG)
    return facts()  # as it sees them itself


def facts() -> str:
    """Return what `spoil` spoils, in one line."""
    umask = os.umask(0o22)
    os.umask(umask)
    return repr(
        (
            os.getcwd(),
            os.environ.get("LEFT_BY_A_JOB"),
            "PATH" in os.environ,
            umask,
            sorted(signal.pthread_sigmask(signal.SIG_BLOCK, ())),
            signal.getitimer(signal.ITIMER_REAL)[0] > 0,
        )
    )


# ---- a look at the worker


def descriptors() -> dict[int, str]:
    listed = {int(name): name for name in os.listdir("/proc/self/fd")}
    found = {}
    for fd in listed:
        with contextlib.suppress(OSError):  # the listing's own is gone
            found[fd] = os.readlink(f"/proc/self/fd/{fd}")
    return found


def maps() -> list[str]:
    return Path("/proc/self/maps").read_text().splitlines()


# ---- initializers

state: list[Any] = []


def remember(what: Any) -> None:
    state.append(what)


def remembered() -> list[Any]:
    return list(state)


def refuse(text: str) -> NoReturn:
    raise RuntimeError(text)


def die_at_start() -> NoReturn:
    os._exit(9)


# ---- of the Executor's tests


def stamped(number: int) -> int:
    return number << 22 | os.getpid()


def statuses(outcomes: list[Any]) -> list[str]:
    return [str(outcome.status) for outcome in outcomes]


def is_imported(name: str) -> bool:
    return name in sys.modules


def leave_removed_directory(path: str) -> None:
    os.chdir(path)
    os.rmdir(path)


def speaks_at(number: int, when: int) -> None:
    if number == when:
        print(number)


def signals_itself(number: int) -> str:
    os.kill(os.getpid(), number)
    return "alive"


def _only_elsewhere(pid_of_the_program: int) -> str:
    if os.getpid() == pid_of_the_program:
        raise ValueError("not here")
    return "decoded"


class OnlyElsewhere:
    """Cannot be decoded in the program."""

    def __init__(self, pid_of_the_program: int) -> None:
        self.pid = pid_of_the_program

    def __reduce__(self) -> Any:
        return _only_elsewhere, (self.pid,)


def bad_result_here(pid_of_the_program: int) -> OnlyElsewhere:
    return OnlyElsewhere(pid_of_the_program)


@task
def declared(x: int) -> int:
    return 2 * x


@task(timeout=0.1)
def hangs_by_declaration() -> None:
    time.sleep(HANG)


# ---- forged answers: a job may write to the pipe what it likes


def forge(kind: str) -> str:
    """Answer for itself with nonsense, then wait for what comes of it."""
    import gc

    from ptss_mp import marker, worker
    from ptss_mp.wire import ANSWERS, COSTS, FACT, INT, NONE, STR, VALUE, WITH_COSTS

    loop = next(o for o in gc.get_objects() if type(o).__name__ == "Loop" and hasattr(o, "words"))
    job, now, huge = loop.words[marker.RUNNING], time.monotonic_ns(), (1 << 64) - 1
    end, started, duration, value, blob = 0, now, 1, VALUE.pack(NONE, 0), b""
    if kind == "end":
        end = 99
    elif kind == "job":
        job = huge
    elif kind == "instants":
        started = duration = huge
    elif kind == "value":
        value = VALUE.pack(200, 0)
    elif kind == "huge value":
        value = VALUE.pack(huge, 0)
    elif kind == "offset":
        value, blob = VALUE.pack(STR, 1 << 50 | 10), b"0123456789"
    elif kind == "negative":
        value, blob = VALUE.pack(STR, -1), b"0123456789"
    elif kind == "short costs":
        value, blob = VALUE.pack(WITH_COSTS | INT, 10), b"0123456789"
    elif kind == "output":
        blob = COSTS.pack(0, huge, huge - 5, huge, huge, huge) + VALUE.pack(NONE, 0)
        value = VALUE.pack(WITH_COSTS | NONE, len(blob))
    elif kind == "output 2":
        blob = COSTS.pack(1 << 62, 1 << 63, 0, 1 << 40, 0, 0) + VALUE.pack(NONE, 0)
        value = VALUE.pack(WITH_COSTS | NONE, len(blob))
    elif kind == "failed without a cause":
        end = 1
    elif kind == "count":
        os.write(worker.ANSWERS_FD, ANSWERS.pack(marker.ANSWERS_MAX + 1, 0))
    elif kind == "frame without an end":
        os.write(worker.ANSWERS_FD, ANSWERS.pack(marker.ANSWERS_MAX, 0))
    elif kind == "frame without an end behind an answer":
        os.write(worker.ANSWERS_FD, ANSWERS.pack(1, 0) + FACT.pack(job, end, started, duration) + value)
        os.write(worker.ANSWERS_FD, ANSWERS.pack(marker.ANSWERS_MAX, 0))
    elif kind == "large frame without an end":
        os.write(worker.ANSWERS_FD, ANSWERS.pack(1, 1 << 35))
    elif kind == "size":
        os.write(worker.ANSWERS_FD, ANSWERS.pack(1, huge))
    os.write(worker.ANSWERS_FD, ANSWERS.pack(1, len(blob)) + FACT.pack(job, end, started, duration) + value + blob)
    time.sleep(0.05)
    return "went on"


FORGERIES = (
    "end", "job", "instants", "value", "huge value", "offset", "negative", "short costs", "output", "output 2",
    "failed without a cause", "count", "frame without an end",
    "frame without an end behind an answer", "large frame without an end", "size", "none",
)  # fmt: skip


def forge_and_answer_late(pause_s: float) -> None:
    """Answer for itself once it has ended, and let the worker say so only when the next job is on its way."""
    import gc

    from ptss_mp import marker, worker
    from ptss_mp.wire import ANSWERS, FACT, INT, VALUE

    loop = next(o for o in gc.get_objects() if type(o).__name__ == "Loop" and hasattr(o, "words"))
    flush = loop.flush

    def late() -> None:
        loop.flush = flush
        os.write(worker.ANSWERS_FD, ANSWERS.pack(1, 0) + row)
        time.sleep(pause_s)
        flush()

    loop.flush = late
    now = time.monotonic_ns()
    row = FACT.pack(loop.words[marker.RUNNING], 0, now, 1) + VALUE.pack(INT, 666)
    loop.flushed_at = 1 << 62  # not before the next round


def forge_failure(last: bool) -> str:
    """Say what only a worker says that cannot import the main module."""
    from ptss_mp import worker
    from ptss_mp.wire import ANSWERS

    os.write(worker.ANSWERS_FD, ANSWERS.pack(0, 40) + bytes(40))
    if last:
        os._exit(3)
    time.sleep(0.05)
    return "went on"


def forge_failure_late() -> None:
    """As `forge_failure`, after a while, and die of it."""
    time.sleep(0.1)
    forge_failure(True)


def revoke_without_end() -> None:
    """Claim on this worker's page that more jobs are revoked than there is room for."""
    from ptss_mp import attempt, marker

    assert attempt._loop
    attempt._loop.words[marker.REVOKED] = (1 << 64) - 1


def scribble(log: str) -> None:
    """Empty the page on which this worker tells what it does, and die."""
    import gc

    note(log, os.getpid())
    words = next(o for o in gc.get_objects() if type(o).__name__ == "Loop" and hasattr(o, "words")).words
    for i in range(len(words)):
        words[i] = 0
    os.abort()


def descriptors_of_a_program() -> list[str]:
    listing = (
        "import os; print(*sorted(f for f in os.listdir('/proc/self/fd') if os.path.exists('/proc/self/fd/' + f)))"
    )
    done = subprocess.run([sys.executable, "-S", "-c", listing], capture_output=True, text=True, check=True)
    return done.stdout.split()


def signals() -> tuple[list[str], list[int]]:
    ignored = [s.name for s in signal.Signals if signal.getsignal(s) is signal.SIG_IGN]
    return ignored, list(signal.pthread_sigmask(signal.SIG_BLOCK, ()))


def random_number() -> float:
    return random.random()


def gate_or_not(path: str | None) -> None:
    if path:
        gate(path)


def leave_slowly(seconds: float) -> None:
    """Let this worker take its time once its work is done."""
    from multiprocessing import util

    util.Finalize(None, time.sleep, (seconds,), exitpriority=1)


def blob(data: bytes, fifo: str | None) -> bytes:
    """Return a part of a large argument, after a wait if there is a fifo."""
    if fifo:
        gate(fifo)
    return bytes(data[:1])


def leave_with(code: int) -> None:
    sys.exit(code)


def answer_for(job: int) -> None:
    """Answer for a job that this worker was not given."""
    from ptss_mp.wire import ANSWERS, FACT, INT, VALUE
    from ptss_mp.worker import ANSWERS_FD

    now = time.monotonic_ns()
    os.write(ANSWERS_FD, ANSWERS.pack(1, 0) + FACT.pack(job, 0, now, 1) + VALUE.pack(INT, 666))
    time.sleep(HANG)


def exit_later(seconds: float) -> int:
    """Leave a thread behind that ends the process; 0: one that only waits."""

    def run() -> None:
        time.sleep(seconds or HANG)
        os._exit(9)

    threading.Thread(target=run, daemon=True).start()
    return os.getpid()


def exit_later_in_call(seconds: float) -> None:
    time.sleep(seconds)
    os._exit(9)


def use_threads(count: int) -> int:
    """Use threads as one should."""
    threads = [threading.Thread(target=time.sleep, args=(0.001,)) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return os.getpid()


def forked_noise(seconds: float) -> int:
    """Leave a fork behind that writes to the pipe of answers."""
    pid = os.fork()
    if not pid:
        time.sleep(seconds)
        os.write(4, b"\xff" * 100)
        os._exit(0)
    return pid


def append_with_noise(n: int, noisy: int, path: str) -> int:
    """Write `n` down; one of them writes to the pipe of answers too."""
    fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(fd, b"%d\n" % n)
    os.close(fd)
    if n == noisy:
        os.write(4, b"\xff" * 100)
    return n


def leave_running(command: list[str]) -> int:
    return subprocess.Popen(command).pid


def replace_environ() -> None:
    os.environ = {"PATH": "nowhere"}  # type: ignore[assignment]


def turn_away(fd: int) -> str:
    os.dup2(0, fd)
    return "nobody hears this"


def _page() -> Any:
    import gc

    return next(o for o in gc.get_objects() if type(o).__name__ == "Loop" and hasattr(o, "words")).words


def forge_for(job: int) -> None:
    """Answer in another's place."""
    from ptss_mp.wire import ANSWERS, FACT, INT, VALUE

    os.write(4, ANSWERS.pack(1, 0) + FACT.pack(job, 0, time.monotonic_ns(), 1) + VALUE.pack(INT, 666))
    time.sleep(HANG)


def answer_and_go_on(log: str, size: int = 0) -> None:
    """Answer for itself, truly but for the value (666, or so many bytes), and go on."""
    from ptss_mp import marker
    from ptss_mp.wire import ANSWERS, BYTES, FACT, INT, VALUE

    job = _page()[marker.RUNNING]
    note(log, os.getpid())
    fact = FACT.pack(job, 0, time.monotonic_ns(), 1)
    value = VALUE.pack(BYTES, size) + bytes(size) if size else VALUE.pack(INT, 666)
    os.write(4, ANSWERS.pack(1, size) + fact + value)
    time.sleep(HANG)


def answer_at(n: int, bad: int, log: str, size: int = 0) -> int:
    """Return `n`; the bad one answers for itself and goes on."""
    if n == bad:
        answer_and_go_on(log, size)
    return n


def hide_and_hang(log: str, how: str) -> None:
    """Look idle, look done with everything, or look as if a result was on its way."""
    from ptss_mp import marker

    note(log, how)
    words = _page()
    if how == "sending":
        words[marker.SENDING] = 1
    else:
        words[marker.RUNNING] = 0
        words[marker.COMPLETED] = 1 << 62 if how == "done" else words[marker.NUMBER] + 1
    time.sleep(HANG)


def wipe_and_die() -> None:
    from ptss_mp import marker

    words = _page()
    words[marker.RUNNING] = words[marker.READY] = 0
    os._exit(3)


def log_and_nap(log: str, what: Any, seconds: float) -> bytes:
    note(log, what)
    print("x" * 1_000)
    time.sleep(seconds)
    return b"x" * 100_000


@dataclasses.dataclass(frozen=True)
class Frozen(Exception):
    """Refuses attributes."""


def raise_frozen() -> None:
    raise Frozen()


class _Nameless(type):
    def __getattribute__(cls, name: str) -> Any:
        if name == "__qualname__" and sys._getframe(1).f_code.co_name == "describe":
            raise RuntimeError(name)
        return type.__getattribute__(cls, name)


class _Text(str):
    def encode(self, *_: Any) -> bytes:  # type: ignore[override]
        raise RuntimeError("encode")


class NamelessError(Exception, metaclass=_Nameless):
    def __reduce__(self) -> Any:
        raise RuntimeError("reduce")


class TextlessError(Exception):
    def __str__(self) -> str:
        return _Text("text")

    def __reduce__(self) -> Any:
        raise RuntimeError("reduce")


def raise_hostile(kind: str) -> None:
    raise NamelessError() if kind == "name" else TextlessError()


# ---- of tests of programs


def run_true() -> int:
    return subprocess.run(["true"], check=False).returncode


def flags() -> tuple[Any, ...]:
    """Return what `-S`, `-O` and their kin come to here."""
    chosen = ("optimize", "no_site", "isolated", "dev_mode", "no_user_site", "ignore_environment", "safe_path")
    return tuple(getattr(sys.flags, name) for name in chosen)


# ---- of the cancel races

_records: dict[str, int] = {}


def record(log: str, number: int, seconds: float) -> int:
    """Note begin and end of a run in one write each, as cheaply as can be."""
    fd = _records.get(log)
    if fd is None:
        fd = _records[log] = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
    os.write(fd, number.to_bytes(4, "little") + b"\0\0\0\0")
    if seconds:
        time.sleep(seconds)
    os.write(fd, number.to_bytes(4, "little") + b"\1\0\0\0")
    return number


# ---- items of maps


def call(call: tuple[Any, tuple[Any, ...]]) -> Any:
    """Call what the item says."""
    function, args = call
    return function(*args)


def maybe_crash(item: tuple[int, str | None]) -> int:
    number, kind = item
    if kind:
        crash(kind)
    return number


def note_pid(_: Any) -> int:
    time.sleep(0.0005)
    return os.getpid()


class Weak:
    """A value that weak references can follow."""

    def __init__(self, number: int) -> None:
        self.number = number

    def shout(self) -> int:
        return self.number


# ---- what a job knows of itself


def about_me() -> dict[str, Any]:
    me = current()
    assert me is not None
    return {
        "name": me.name, "key": me.key, "attempt": me.attempt, "deadline": me.deadline,
        "remaining": me.remaining(), "state": dict(me.state),
    }  # fmt: skip


def named_twice(n: int) -> tuple[str, str, int]:
    me = current()
    return me.name, me.key, me.attempt


def third_time() -> int:
    """Succeed in the third attempt: the first raises, the second crashes."""
    attempt = current().attempt
    if attempt == 1:
        raise ValueError("first")
    if attempt == 2:
        os.abort()
    return attempt


def put(key: str, value: Any) -> int:
    current().state[key] = value
    return os.getpid()


def found(key: str) -> tuple[int, Any]:
    return os.getpid(), current().state.get(key)


def setting_up(key: str, value: Any) -> None:
    """Be an initializer that finds `.state` and nothing else."""
    me = current()
    me.state[key] = value
    for name in ("name", "key", "attempt", "deadline", "remaining", "progress"):
        try:
            getattr(me, name)() if name == "remaining" else getattr(me, name)
        except AttributeError as error:
            me.state[name] = str(error)


def remaining_twice(seconds: float) -> tuple[Any, Any]:
    first = current().remaining()
    time.sleep(seconds)
    return first, current().remaining()


def elsewhere() -> tuple[Any, Any, Any]:
    """Ask in a thread of the job's, in a fork of it, and while arguments are decoded."""
    told: list[Any] = []
    thread = threading.Thread(target=lambda: told.append(current().name))
    thread.start()
    thread.join()
    ours, theirs = os.pipe()
    child = os.fork()
    if not child:
        os.write(theirs, repr(current()).encode())
        os._exit(0)
    os.waitpid(child, 0)
    forked = os.read(ours, 100).decode()
    os.close(ours)
    os.close(theirs)
    return told[0], forked, current().attempt


class AsksWhileDecoded:
    def __reduce__(self) -> Any:
        return _name_now, ()


def _name_now() -> str:
    return current().name


def reporting(fifo: str, *reports: tuple[Any, ...]) -> None:
    """Tell how far it is, and wait at the gate after each report."""
    for report in reports:
        current().progress(*report)
        gate(fifo)


def reports_much(count: int) -> float:
    me = current()
    begin = time.perf_counter()
    for n in range(count):
        me.progress(n, count, "x" * 1_000_000 if n == 7 else "é\ud800\x1b[2J")
    return time.perf_counter() - begin


def scribbles_progress(fifo: str) -> None:
    """Report truly, wait at the gate, write noise where reports stand, and wait again."""
    import gc

    from ptss_mp import marker

    current().progress(1)
    gate(fifo)
    page = next(o for o in gc.get_objects() if type(o).__name__ == "Loop" and hasattr(o, "words")).page
    rng = random.Random(5)
    for _ in range(2_000):
        noise = rng.randbytes(marker.PROGRESS.size + marker.TEXT_BYTES)
        page[marker.PROGRESS_AT : marker.PROGRESS_AT + 8 + len(noise)] = bytes(8) + noise
        job = marker.PROGRESS.pack(page[24:32] and int.from_bytes(page[24:32], "little"), float("nan"), -1, 1 << 60)
        page[marker.PROGRESS_AT + 8 : marker.PROGRESS_AT + 8 + len(job)] = job
    gate(fifo)


def answer(request: bytes) -> bytes:
    """Serve one request: double it; hang; or tell the pid in a file and hang."""
    if request == b"hang":
        time.sleep(HANG)
    if request.startswith(b"log "):
        note(request[4:].decode(), os.getpid())
        time.sleep(HANG)
    return request + request


# ---- tokens and environments


def hold(folder: str, what: str = "return", bell: str = "", heavy: bool = False) -> dict[str, Any]:
    """Lock a file for each unit held, as long as this process lives, and do something; fail if one is locked."""
    import fcntl

    tokens = current().tokens
    files = [open(Path(folder, unit), "a") for units in tokens.values() for unit in units]  # noqa: SIM115 - till death
    for file in files:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    weight = bytearray(b"x") * (200 << 20 if heavy else 1)  # takes the kernel 40 ms to take away
    if bell:
        with open(bell, "a") as out:
            out.write(f"{os.getpid()} {tokens}\n")
    if what == "hang":
        time.sleep(HANG)
    elif what == "abort":
        os.abort()
    elif what == "exit":
        os._exit(0)
    elif what == "raise":
        raise ValueError(len(weight))
    time.sleep(0.002)
    for file in files:
        file.close()
    return tokens


HOLDER = """
import fcntl, sys, time
file = open(sys.argv[1], "a")
fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
weight = bytearray(b"x") * (400 << 20)
print("here", flush=True)
time.sleep(1000)
"""


def hold_by_child(folder: str, what: str, bell: str) -> None:
    """Let a heavy child lock the file of the unit held, then end in some way, or hang."""
    unit = current().tokens["gpu"][0]
    child = subprocess.Popen([sys.executable, "-c", HOLDER, str(Path(folder, unit))], stdout=subprocess.PIPE)
    assert child.stdout
    assert child.stdout.readline()
    with open(bell, "a") as out:
        out.write(f"{child.pid}\n")
    if what == "hang":
        time.sleep(HANG)
    os.abort()


def variable(name: str, change: str = "") -> tuple[int, str | None, str | None]:
    """Return (pid, the variable as it is, as the initializer `note_variable` found it); change it."""
    was = os.environ.get(name)
    if change:
        os.environ[name] = change
    return os.getpid(), was, current().state.get("noted")


def note_variable(name: str) -> None:
    current().state["noted"] = os.environ.get(name)


def child_variable(name: str) -> str:
    """Return a variable as a process started by the job finds it."""
    return subprocess.run(["sh", "-c", f'echo "${name}"'], check=True, capture_output=True, text=True).stdout.strip()


def what_i_hold() -> dict[str, Any]:
    return current().tokens


def watch_writes() -> None:
    """Note, at each plain write to the pipe of answers from now on, whether the page tells that one is being sent."""
    from ptss_mp import attempt, marker, pipes

    write, loop, noted = os.write, attempt._loop, attempt._state.setdefault("writes", [])

    def noting(fd: int, data: bytes) -> int:
        if fd == pipes.ANSWERS_FD:
            noted.append(loop.words[marker.SENDING])
        return write(fd, data)

    os.write = noting


def writes() -> list[int]:
    """Return what `watch_writes` has noted."""
    from ptss_mp import attempt

    return attempt._state["writes"]


def text_of(size: int) -> str:
    """Return a text of so many letters."""
    return "x" * size


# ---- items of maps in chunks


def value_of(kind: str, i: int) -> object:
    """Return a value of some kind."""
    return {
        "int": i,
        "big": (1 << 70) + i,
        "negative": -i,
        "float": i / 7,
        "bool": i % 2 == 0,
        "none": None,
        "text": f"äöü{i}",
        "dict": {"i": i, "list": [i] * 3},
        "mixed": [i, str(i), 1 << 90, None][i % 4],
        "large": "x" * (20_000 if i % 100 == 17 else 10),
    }[kind]


def fails_at(i: int, at: int) -> int:
    """Raise at one item."""
    if i == at:
        raise KeyError(i)
    return i


def exits_at(i: int, at: int) -> int:
    """Leave at one item."""
    if i == at:
        sys.exit(3)
    return i


def unpicklable_at(i: int, at: int) -> object:
    """Return what cannot be pickled at one item."""
    return threading.Lock() if i == at else i


class Homesick:
    """Loads in the process that made it alone."""

    def __init__(self, pid: int) -> None:
        if pid != os.getpid():
            raise RuntimeError("not here")
        self.pid = pid

    def __reduce__(self) -> tuple[object, ...]:
        return Homesick, (self.pid,)


def unloadable_here_at(i: int, at: int) -> object:
    """Return what cannot be loaded elsewhere at one item."""
    return Homesick(os.getpid()) if i == at else i


def dies_at(kind: str, i: int, at: int, log: str) -> object:
    """End the process at one item."""
    if i == at:
        os._exit(7)
    note(log, str(i))
    return value_of(kind, i)


def hangs_at(i: int, at: int, log: str) -> int:
    """Hang at one item, and note when that began."""
    if i == at:
        note(log, str(time.time()))
        time.sleep(60)
    return i


def slow_from(i: int, at: int, took: float, log: str = "") -> int:
    """Take time from one item on."""
    if log:
        note(log, str(i))
    if i >= at:
        time.sleep(took)
    return i


def fails_once(folder: str, i: int) -> int:
    """Raise when an item is made for the first time."""
    path = os.path.join(folder, str(i))
    if not os.path.exists(path):
        note(path, "")
        raise ValueError(i)
    return i


def forks_at(kind: str, i: int, at: int, log: str) -> object:
    """At one item fork a child that comes back; to fork takes longer than a chunk otherwise may."""
    from ptss_mp import chunk

    chunk.CHUNK_NS = 10**11
    note(log, str(i))
    if i == at:
        child = os.fork()
        if child:
            os.waitpid(child, 0)
    return value_of(kind, i)


def prints(i: int) -> int:
    """Print the item."""
    print(i)
    return i


def cwd_then_leave(_: int) -> str:
    """Return the current folder, and go elsewhere."""
    found = os.getcwd()
    os.chdir("/")
    return found


def name_of_current(_: int) -> str:
    """Return the name of the job that runs here."""
    import ptss_mp

    return ptss_mp.current().name


def unfinished() -> None:
    """Say what a chunk says that is to be gone on with."""
    from ptss_mp import chunk, wire

    raise chunk.Ended(wire.UNFINISHED, wire.BYTES, 0, chunk.Part(True, 1, bytes(8)).pack())


def says_unfinished(how: str, i: int = 60) -> int:
    """In the one item say UNFINISHED with what no chunk ever has."""
    from ptss_mp import marker, wire

    if i != 60:
        return i
    job, now = _page()[marker.RUNNING], time.monotonic_ns()
    value, blob = wire.VALUE.pack(wire.INT, 7), b""
    if how == "costs":
        blob = wire.COSTS.pack(*[0] * 8) + wire.VALUE.pack(wire.NONE, 0)
        value = wire.VALUE.pack(wire.NONE | wire.WITH_COSTS, len(blob))
    elif how == "parcel":
        blob = wire.numbers([2, -32, 32]) + bytes(64)
        value = wire.VALUE.pack(wire.PICKLE | wire.PARCEL, len(blob))
    elif how == "part":
        blob = bytes(64)
        value = wire.VALUE.pack(wire.BYTES, len(blob))
    row = wire.FACT.pack(job, wire.UNFINISHED, now, 1) + value
    copies = 2 if how == "twice" else 1
    os.write(4, wire.ANSWERS.pack(copies, len(blob)) + row[: wire.FACT.size] * copies + value * copies + blob)
    time.sleep(0.05)
    return i


def notes_too_much(i: int) -> int:
    """In the one item, claim that more were done than there are, and die."""
    from ptss_mp import marker

    if i == 60:
        _page()[marker.CHUNK_DONE] = 2_000
        os._exit(3)
    return i


def forges_part(what: str, i: int) -> int:
    """From one item on say nonsense of whole chunks."""
    from ptss_mp import chunk, wire

    if i == 60:
        part = {
            "nothing": chunk.Part(True, 0, b"").pack(),
            "noise": b"noise" * 10,
            "too many": chunk.Part(True, 2_000, bytes(16_000)).pack(),
            "back": chunk.Part(True, 1, bytes(8)).pack(),
        }[what]

        def call(*_: object) -> None:
            raise chunk.Ended(wire.UNFINISHED, wire.BYTES, 0, part)

        chunk.Chunk.__call__ = call
    return i
# ---- large values


class Block:
    """Shows its bytes as a buffer, as an array does."""

    def __init__(self, data: Any) -> None:
        self.data = data

    def __reduce_ex__(self, protocol: int) -> Any:
        return Block, (pickle.PickleBuffer(self.data),)


def echo(value: Any) -> Any:
    return value


def write_into(block: Block) -> Block:
    """Write into the argument, and give it back."""
    block.data[:3] = b"job"
    return block


def first_bytes(block: Block) -> bytes:
    return bytes(block.data[:3])


def make(kind: Any, size: int) -> Any:
    return kind(bytearray(size))


def give(size: int) -> bytes:
    return b"x" * size


def give_block(size: int) -> Block:
    return Block(bytearray(b"x" * size))


def fail_at_length(size: int) -> None:
    raise ValueError("x" * size)


def undump() -> None:
    """Let no process without the capability look into this one (PR_SET_DUMPABLE)."""
    ctypes.CDLL(None).prctl(4, 0, 0, 0, 0)


def offer_what_is_nowhere(size: int) -> int:
    """Offer memory that this process has not; then end as if nothing was."""
    from ptss_mp import marker
    from ptss_mp.wire import ANSWERS, BYTES, FACT, LENT, VALUE, table

    words = _page()
    body = table(1 << 40, [1 << 46], [-size])
    head = FACT.pack(words[marker.RUNNING], 0, time.monotonic_ns(), 1) + VALUE.pack(BYTES | LENT, len(body))
    os.write(4, ANSWERS.pack(1, len(body)) + head + body)
    while words[marker.TICKET] | 1 != 1 << 40 | 1:
        time.sleep(0.001)
    return words[marker.TICKET] & 1


def claim_by_pipe(size: int) -> None:
    """Begin an answer of so many bytes, and say no more."""
    from ptss_mp import marker
    from ptss_mp.wire import ANSWERS, BYTES, FACT, VALUE

    fact = FACT.pack(_page()[marker.RUNNING], 0, time.monotonic_ns(), 1)
    os.write(4, ANSWERS.pack(1, size) + fact + VALUE.pack(BYTES, size) + bytes(100))
    time.sleep(HANG)


def ask_for(job: int, size: int) -> None:
    """Ask for another job's call."""
    from ptss_mp.wire import ANSWERS, ASK, numbers, table

    place = bytearray(size)
    at = ctypes.addressof(ctypes.c_char.from_buffer(place))
    body = numbers([job]) + table(1 << 40, [at], [size])
    os.write(4, ANSWERS.pack(ASK, len(body)) + body)
    time.sleep(HANG)


def grown(held: list[int], _: Any = None) -> int:
    """Append to a list; return how long it was."""
    held.append(0)
    return len(held) - 1


# ---- of the tests of recurrence


def counted(path: str) -> int:
    """Add a line to a file; return how many there are."""
    note(path, os.getpid())
    return len(Path(path).read_text().splitlines())


def moody(path: str) -> int:
    """Go wrong in another way each time, then well."""
    number = counted(path)
    if number == 1:
        raise ValueError("first")
    if number == 2:
        os.abort()
    if number == 3:
        time.sleep(HANG)
    if number == 4:
        sys.exit(4)
    return number


def described(what: Any, *_: Any) -> str:
    """Tell how an Outcome ended, or the value."""
    return str(getattr(what, "status", what))


@task(timeout="1h", priority=3, args=(20,), interval="50ms", max_runs=2)
def twice_doubled(x: int) -> int:
    return 2 * x


@task
def plain_task(*values: int) -> int:
    return sum(values)
