"""By what means limits are held here: tried, not assumed."""

from __future__ import annotations

import os
import resource
import time

import ordinary
import pytest
from support import children_of

from ptss_mp.warden import cgroup, means


def test_what_the_kernel_holds_and_what_is_counted():
    before = [resource.getrlimit(limit) for limit in (resource.RLIMIT_NOFILE, resource.RLIMIT_FSIZE)]
    assert means.open_files().how == "kernel"
    assert means.file_size().how == "kernel"
    assert means.processes().how == "polled"
    assert before == [resource.getrlimit(limit) for limit in (resource.RLIMIT_NOFILE, resource.RLIMIT_FSIZE)]


def test_a_trial_that_hangs_is_ended(monkeypatch):
    monkeypatch.setattr(means, "TRIAL_S", 0.1)
    before = children_of(os.getpid())
    assert "no answer within 0.1 s" in means.in_fork(lambda: time.sleep(1_000) or "")
    assert children_of(os.getpid()) == before


@pytest.mark.parametrize("raised", [OSError(1, "Operation not permitted"), SystemExit("out")])
def test_a_trial_that_raises_says_what(raised):
    def fail() -> str:
        raise raised

    assert means.in_fork(fail) == f"{type(raised).__name__}: {raised}"


def test_a_limit_that_does_not_work_is_not_believed_in(monkeypatch):
    monkeypatch.setattr(means.rlimits, "lower", lambda *_: None)
    assert means.open_files() == ("absent", "a second descriptor was opened, beyond the limit")
    monkeypatch.setattr(means.proc, "children", lambda _pid: [])
    assert means.processes().how == "absent"


def test_a_group_that_cannot_be_made_is_said(monkeypatch, tmp_path):
    monkeypatch.setattr(means, "find", lambda _: cgroup.Place(1, str(tmp_path)))
    assert "No such file" in str(means.offer(cgroup.PIDS)), "a folder is no control group"
    assert list(tmp_path.iterdir()) == []
    assert "no pids cgroup" in means.processes().why


PROGRAM = """
import sys
sys.path[:0] = [{package!r}]
from ptss_mp.warden import means
for tried in means.open_files(), means.file_size(), means.processes():
    print(tried.how, "|", tried.why)
"""


def test_an_ordinary_user_learns_what_is_not_for_it():
    with ordinary.home() as folder:
        done = ordinary.run(PROGRAM.format(package=ordinary.PACKAGE), folder)
        files, sizes, processes = done.stdout.splitlines()
        assert files.startswith("kernel"), done.stderr
        assert sizes.startswith("kernel")
        assert processes.startswith("polled")
        offered = means.offer(cgroup.PIDS)
        if isinstance(offered, cgroup.Place) and os.stat(offered.folder).st_uid == 0:
            assert "not writable for this user" in processes
