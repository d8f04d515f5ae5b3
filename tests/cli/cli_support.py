"""Running the command line as its users do: as a program, with a cap on every wait."""

from __future__ import annotations

import contextlib
import os
import pty
import select
import shutil
import signal
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

CAP_S = 60.0  # no test waits longer; nothing here takes a tenth of it
HEAD = "import os, signal, sys, time\nfrom ptss_mp import task\n"
REPOSITORY = Path(__file__).parents[2]  # what is tested is this, not what may be installed
PROGRAM = (sys.executable, "-m", "ptss_mp")


@dataclass(frozen=True)
class Ended:
    """A program that ended: its status and what it wrote."""

    status: int
    out: str
    err: str

    @property
    def lines(self) -> list[str]:
        """The lines on stderr."""
        return self.err.splitlines()


# A small disk of its own, for the program alone: mounted where the first argument says.
ON_A_SMALL_DISK = ["unshare", "-m", "sh", "-c", 'mount -t tmpfs -o size=16k none "$0" && exec "$@"']
# Not everywhere: it takes unshare(1) and the right to mount.
NO_SMALL_DISK = (
    shutil.which("unshare") is None
    or subprocess.run(["unshare", "-m", "true"], capture_output=True, check=False).returncode != 0
)
# An ordinary user may not read what its mode forbids; root is one, in this, without these capabilities.
WITHOUT_OVERRIDE = ["setpriv", "--bounding-set=-dac_override,-dac_read_search"] if os.geteuid() == 0 else []


def ptss_mp(*args: str | Path, cwd: Path | None = None, **env: str) -> Ended:
    """Run the program to its end."""
    with start(*args, cwd=cwd, **env) as program:
        return finish(program)


@contextlib.contextmanager
def start(
    *args: str | Path,
    cwd: Path | None = None,
    stdin: int = subprocess.DEVNULL,
    stdout: int = subprocess.PIPE,
    by: Sequence[str] = (),
    **env: str,
) -> Iterator[subprocess.Popen[str]]:
    """Start the program, `by` another one if given; kill it if the block is left while it runs."""
    program = subprocess.Popen(
        [*by, *PROGRAM, *map(str, args)],
        cwd=cwd,
        env=os.environ | {"PYTHONPATH": str(REPOSITORY)} | env,
        stdin=stdin,
        stdout=stdout,
        stderr=subprocess.PIPE,
        text=True,
        errors="surrogateescape",
    )
    try:
        yield program
    finally:
        if program.poll() is None:
            program.kill()
        program.communicate(timeout=CAP_S)


def on_a_terminal(*args: str | Path, columns: int = 80, cwd: Path | None = None) -> tuple[int, bytes]:
    """Run the program on a terminal of its own; return its status and the bytes that the terminal got."""
    terminal, side = pty.openpty()
    termios.tcsetwinsize(side, (24, columns))
    program = subprocess.Popen(
        [*PROGRAM, *map(str, args)], cwd=cwd, env=os.environ | {"PYTHONPATH": str(REPOSITORY)},
        stdin=side, stdout=side, stderr=side, start_new_session=True,
    )  # fmt: skip
    os.close(side)
    shown = b""
    try:
        while select.select([terminal], [], [], CAP_S)[0]:
            try:
                shown += os.read(terminal, 1 << 16)
            except OSError:  # EIO: nobody has the other side any more
                return program.wait(CAP_S), shown
        raise AssertionError(f"nothing more came: {shown!r}")
    finally:
        os.close(terminal)
        if program.poll() is None:
            program.kill()
            program.wait(CAP_S)


def finish(program: subprocess.Popen[str]) -> Ended:
    """Wait for the program's end."""
    out, err = program.communicate(timeout=CAP_S)
    return Ended(program.returncode, out or "", err)


class Bell:
    """A FIFO by which a job says that it is there; `wait` returns what it wrote."""

    def __init__(self, folder: Path, name: str = "bell") -> None:
        self.path = folder / name
        os.mkfifo(self.path)
        self.fd = os.open(self.path, os.O_RDWR)  # both: it never sees EOF, and opening does not block

    def ring(self, text: str) -> str:
        """Return the Python statement by which a job rings."""
        return f"open({str(self.path)!r}, 'w').write({text!r} + chr(10))"

    def wait(self) -> str:
        """Return the next lines; fail if none comes."""
        if not select.select([self.fd], [], [], CAP_S)[0]:
            raise AssertionError(f"no job rang {self.path}")
        return os.read(self.fd, 1 << 16).decode()

    def close(self) -> None:
        os.close(self.fd)


def jobs_file(folder: Path, source: str, name: str = "jobs.py") -> Path:
    """Write a jobs file and return its path."""
    path = folder / name
    path.write_text(HEAD + source)
    return path


def on_a_disk_that_fills(folder: Path, *args: str | Path) -> subprocess.CompletedProcess[str]:
    """Run the program where `disk` holds 600 kB; what is in it at the end is copied into the folder."""
    (folder / "disk").mkdir(0o700)
    script = 'mount -t tmpfs -o size=600k,mode=700 none "$0" && "$@"; status=$?; cp "$0"/* . ; exit $status'
    return subprocess.run(
        ["unshare", "-m", "sh", "-c", script, "disk", *PROGRAM, *map(str, args)], cwd=folder,
        env=os.environ | {"PYTHONPATH": str(REPOSITORY)}, capture_output=True, text=True, timeout=CAP_S, check=False,
    )  # fmt: skip


def send(program: subprocess.Popen[str], number: signal.Signals) -> None:
    program.send_signal(number)


def assert_one_line(ended: Ended, status: int, *words: str) -> None:
    """What bad input comes to: the status, one line on stderr that holds the words, nothing on stdout."""
    assert ended.status == status, ended
    assert ended.out == "", ended
    assert len(ended.lines) == 1, ended
    assert "Traceback" not in ended.err, ended
    missing = [word for word in words if word not in ended.err]
    assert not missing, (missing, ended)


def names(ended: Ended, candidates: Sequence[str]) -> list[str]:
    """Return which of the candidates stderr speaks of."""
    return [name for name in candidates if name in ended.err]


def until(true: Callable[[], object]) -> None:
    """Return once `true` says so; fail after the cap."""
    end = time.monotonic() + CAP_S
    while not true():
        assert time.monotonic() < end
        time.sleep(0.01)
