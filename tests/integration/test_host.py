"""`capabilities()`: how limits are held on this machine, as it was tried."""

from __future__ import annotations

import os
import subprocess
import sys

import ordinary
import pytest

from ptss_mp import Executor, capabilities, host
from ptss_mp.warden.means import Means

HELD = {
    "timeout": "kernel", "deadline": "kernel", "memory": "polled", "cpu_time": "polled", "processes": "polled",
    "open_files": "kernel", "file_size": "kernel",
}  # fmt: skip

REFUSED = 42  # status of a program that may not do what its test needs


def test_all_limits_are_held_here():
    assert capabilities() == HELD


def test_an_executor_tells_it_before_its_start():
    ex = Executor()
    assert ex.capabilities() == ex.options(timeout=5).capabilities() == HELD
    assert ex.state == "initialized"


def test_an_ordinary_user_is_told_what_is_not_seen():
    code = f"import sys; sys.path[:0] = [{ordinary.PACKAGE!r}]; from ptss_mp import host; print(host.means_of_limits())"
    with ordinary.home() as folder:
        ended = ordinary.run(code, folder)
    assert ended.returncode == 0, ended
    found = eval(ended.stdout, {"Means": Means})
    assert {limit: means.how for limit, means in found.items()} == HELD
    assert "blind to memfd and tmpfs" in found["memory"].why
    assert "no memory cgroup" in found["memory"].why


def test_what_cannot_be_tried_is_an_error(monkeypatch):
    def surroundings():
        return {"path": ["/nowhere"], "python": [sys.executable, "-S"]}

    monkeypatch.setattr("ptss_mp.shell.hire.surroundings", surroundings)
    with pytest.raises(OSError, match="cannot be tried"):
        host.capabilities()


def test_a_limit_that_does_not_work_is_absent():
    """In a process in which /proc shows nobody."""
    code = (
        "import ctypes, os; libc = ctypes.CDLL(None, use_errno=True)\n"
        "if (libc.unshare(0x20000) or libc.mount(b'none', b'/', None, 0x4000 | 0x40000, None)\n"
        "        or libc.mount(b'none', b'/proc', b'tmpfs', 0, None)):\n"
        f"    print(os.strerror(ctypes.get_errno())); os._exit({REFUSED})\n"
        "from ptss_mp.host import tell; tell()"
    )
    ended = subprocess.run([sys.executable, "-uc", code], capture_output=True, text=True, check=False)
    if ended.returncode == REFUSED:
        pytest.skip(f"the kernel lets this user (uid {os.getuid()}) hide no /proc: {ended.stdout.strip()}")
    assert ended.returncode == 0, ended
    assert '"memory": ["absent"' in ended.stdout
    assert '"processes": ["absent"' in ended.stdout
    assert '"timeout": ["kernel"' in ended.stdout
