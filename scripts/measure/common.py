"""What these measurements share: processes seen from outside, percentiles, hogs."""

import contextlib
import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
MARK = "PTSS_MP_MEASURED"  # in the environment of all that a measurement starts


def run(script, *args, mark="", **kwargs):
    """Start the product's side of a measurement: this checkout, in a process of its own."""
    env = os.environ | {"PYTHONPATH": str(ROOT), MARK: mark or str(os.getpid())}
    return subprocess.Popen([sys.executable, script, "pool", *map(str, args)], env=env, cwd=HERE, **kwargs)


def marked(mark):
    """Return the live processes that carry a mark."""
    entry, found = f"{MARK}={mark}".encode(), []
    for name in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError), open(f"/proc/{name}/environ", "rb") as file:
            if entry in file.read().split(b"\0") and state(int(name)) not in "XZ":
                found.append(int(name))
    return found


def stat(pid):
    """Return (state, parent) of a process, ("X", 0) if it is gone."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
        return fields[0], int(fields[1])
    except (OSError, IndexError):
        return "X", 0


def state(pid):
    """Return the one-letter state of a process."""
    return stat(pid)[0]


def children(pid):
    """Return the children of a process, whichever thread made them."""
    found = []
    try:
        for thread in os.listdir(f"/proc/{pid}/task"):
            found += map(int, Path(f"/proc/{pid}/task/{thread}/children").read_text().split())
    except OSError:
        pass
    return [child for child in found if stat(child)[0] not in "XZ"]


def command(pid):
    """Return the command line of a process, for a report."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")[:80]
    return "?"


def kill(pid, number=signal.SIGKILL):
    """Signal a process by pidfd; return True if it was there."""
    try:
        fd = os.pidfd_open(pid)
    except ProcessLookupError:
        return False
    try:
        signal.pidfd_send_signal(fd, number)
    except ProcessLookupError:
        return False
    finally:
        os.close(fd)
    return True


def wait(true, seconds, pause=0.001):
    """Wait until a call returns something true, at most so long; return what it returned last."""
    end = time.monotonic() + seconds
    while not (found := true()) and time.monotonic() < end:
        time.sleep(pause)
    return found


def deaths(pids, seconds, meanwhile=None):
    """Return pid -> instant (ns) at which its pidfd told its death, 0: it was dead before; those that live are missing.

    Args:
        meanwhile: called about each millisecond.
    """
    poll, fds, gone = select.poll(), {}, {}
    for pid in pids:
        try:
            fds[os.pidfd_open(pid)] = pid
        except ProcessLookupError:
            gone[pid] = 0
    for fd in fds:
        poll.register(fd, select.POLLIN)
    for fd, _ in poll.poll(0):
        gone[fds[fd]] = 0
        poll.unregister(fd)
    end = time.monotonic() + seconds
    while len(gone) < len(pids) and time.monotonic() < end:
        for fd, _ in poll.poll(1 if meanwhile else 1000):
            gone[fds[fd]] = time.monotonic_ns()
            poll.unregister(fd)
        if meanwhile:
            meanwhile()
    for fd in fds:
        os.close(fd)
    return gone


def percentile(values, share):
    """Return the value below which this share lies (nearest rank)."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]


def ms(values):
    """Return "p50 / p90 / p99 / max" of nanoseconds, in milliseconds."""
    return " / ".join(f"{percentile(values, share) / 1e6:7.2f}" for share in (0.5, 0.9, 0.99, 1))


@contextlib.contextmanager
def hogs(count):
    """Let so many processes burn a core each meanwhile."""
    made = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        yield
    finally:
        for hog in made:
            hog.kill()
            hog.wait()


def load():
    """Return the machine's load, for the report."""
    return f"load {os.getloadavg()[0]:.1f}, {os.cpu_count()} cores, {time.strftime('%H:%M')}"
