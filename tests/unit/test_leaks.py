"""The leak check finds what it is there for (a canary for each kind)."""

import os
import signal
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

from tests import leaks


def test_nothing_happened_nothing_left():
    assert leaks.left_since(leaks.take()) == []


def test_a_child_is_found():
    before = leaks.take()
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    try:
        left = leaks.left_since(before, 0)
        assert any(line.startswith(f"processes: {child.pid} ") for line in left), left
        assert any(line.startswith("descriptors: ") for line in left), left
    finally:
        child.communicate(timeout=10)


def test_an_orphan_in_a_session_of_its_own_is_found():
    before = leaks.take()
    read, write = os.pipe()
    os.set_inheritable(write, True)
    subprocess.run([sys.executable, "-c", _ORPHAN, str(write)], pass_fds=[write], timeout=10, check=True)
    os.close(write)
    pid = int(os.read(read, 100))
    os.close(read)
    try:
        assert any(line.startswith(f"processes: {pid} ") for line in leaks.left_since(before, 0))
    finally:
        os.kill(pid, signal.SIGKILL)


_ORPHAN = """
import os, signal, sys
write = int(sys.argv[1])
if os.fork():
    os._exit(0)
os.setsid()
os.write(write, str(os.getpid()).encode())
os.close(write)
signal.pause()
"""


def test_a_thread_is_found():
    before = leaks.take()
    go = threading.Event()
    thread = threading.Thread(target=go.wait, args=(10,), name="forgotten")
    thread.start()
    try:
        assert any("forgotten" in line for line in leaks.left_since(before, 0))
    finally:
        go.set()
        thread.join(10)


def test_a_file_is_found():
    before = leaks.take()
    fd, name = tempfile.mkstemp()
    try:
        left = leaks.left_since(before, 0)
        assert f"files: {Path(name).name}" in left
        assert any(line.startswith(f"descriptors: {fd} ") for line in left)
    finally:
        os.close(fd)
        os.unlink(name)
