"""`memory`: what an attempt and all it started may hold, measured here by a clock and a /proc of our own."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import hogs
import ordinary
import pytest
from support import CAP_S, beside_healthy, children_of, lines, until, wait_gone

from ptss_mp import MemoryLimitExceeded, TaskFailed

MIB = 1 << 20
LIMIT_BYTES = 256 * MIB
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


def resident(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * PAGE_BYTES
    except (FileNotFoundError, ProcessLookupError, IndexError):
        return 0


def tree(pid: int) -> list[int]:
    found = [pid]
    for one in found:
        found += children_of(one)
    return found


class Scale:
    """Weighs the process whose pid stands in a log, and all below it, as often as it can."""

    def __init__(self, log: Path) -> None:
        self.log, self.most_bytes, self.base_bytes, self._over = log, 0, 0, threading.Event()
        self.pids: set[int] = set()

    @contextlib.contextmanager
    def weighing(self) -> Iterator[None]:
        thread = threading.Thread(target=self._run)
        thread.start()
        try:
            yield
        finally:
            self._over.set()
            thread.join()

    def _run(self) -> None:
        while not self._over.wait(0.0005):
            told = lines(self.log)
            if not told:
                continue
            if not self.base_bytes:
                status = Path(f"/proc/{told[0]}/status").read_text()
                warden = int(next(line for line in status.splitlines() if line.startswith("PPid")).split()[1])
                self.base_bytes = resident(warden)
            pids = tree(int(told[0]))
            self.pids |= set(pids)
            self.most_bytes = max(self.most_bytes, sum(map(resident, pids)) - self.base_bytes)


@pytest.fixture(scope="session")
def ungrouped() -> str:
    """Why no control group of memory is to be had here, as the product itself finds out; "" if one is.

    That it finds one where it should is shown by test_cgroup.py.
    """
    code = (
        "from ptss_mp.warden import cgroup, means; offered = means.offer(cgroup.MEMORY); "
        "print('' if isinstance(offered, cgroup.Place) else offered)"
    )
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip()


@pytest.mark.parametrize("kind", hogs.HOGS)
def test_a_hog_is_killed_at_its_limit(pool, kind, ungrouped, tmp_path):
    if kind == "memfd" and ungrouped:
        pytest.skip(f"only a control group of memory tells of files in memory, and here is none: {ungrouped}")
    if kind == "numpy" and not importlib.util.find_spec("numpy"):
        pytest.skip("numpy, which comes with scikit-learn, is not installed: pip install 'ptss_mp[neighbours]'")
    ex = pool(2, preload=["hogs", "deeds"])
    scale = Scale(tmp_path / "log")
    with scale.weighing():
        view = ex.options(memory=LIMIT_BYTES)
        future, outcome = beside_healthy(ex, lambda: view.submit(hogs.hog, kind, str(scale.log)))
    assert outcome.status == "memory", outcome
    assert outcome.limit == LIMIT_BYTES < outcome.observed
    assert outcome.max_rss >= outcome.observed
    assert "allowed are 256.0 MiB (memory)" in outcome.error
    error = future.exception()
    assert isinstance(error, MemoryLimitExceeded)
    assert isinstance(error, MemoryError)
    assert isinstance(error, TaskFailed)
    assert (error.limit, error.observed) == (outcome.limit, outcome.observed)
    wait_gone(scale.pids, 5)
    print(f"{kind}: observed {outcome.observed / MIB:.1f}, from outside {scale.most_bytes / MIB:.1f} MiB")
    assert scale.most_bytes < LIMIT_BYTES * 1.1
    assert outcome.observed < LIMIT_BYTES * 1.1


def test_whoever_leaves_the_control_group_is_weighed_all_the_same(pool, ungrouped, tmp_path):
    """Regression: its group, which was asked, held nothing any more."""
    if ungrouped:
        pytest.skip(f"no control group of memory is to be had here: {ungrouped}")
    ex = pool(1, spares=0, preload=["hogs"])
    view = ex.options(memory="128MiB")
    first = view.submit(hogs.hold, 1)
    assert first.result(CAP_S) == 1
    assert view.submit(hogs.leave_group).result(CAP_S) == first.worker_pid
    future = view.submit(hogs.hog, "blocks", str(tmp_path / "log"))
    assert future.outcome(CAP_S).status == "memory"
    assert future.worker_pid == first.worker_pid


def test_a_hog_under_spawn(pool, tmp_path):
    ex = pool(1, "spawn", preload=["hogs"])
    outcome = ex.options(memory="128MiB").submit(hogs.hog, "blocks", str(tmp_path / "log")).outcome(CAP_S)
    assert outcome.status == "memory"
    assert 128 * MIB < outcome.observed < 150 * MIB


def test_the_stack_says_where_it_was(pool, tmp_path):
    ex = pool(1, preload=["hogs"])
    outcome = ex.options(memory=LIMIT_BYTES).submit(hogs.hog, "blocks", str(tmp_path / "log")).outcome(CAP_S)
    assert "_blocks" in outcome.stack


WITHOUT_GROUPS = """
import sys
sys.path[:0] = [{package!r}, {here!r}]
import hogs
from ptss_mp import Executor

with Executor(max_workers=2, preload=["hogs"]) as ex:
    limited = ex.options(memory="128MiB")
    for kind in ("blocks", "8 threads", "shared mmap", "forked child", "program"):
        out = limited.submit(hogs.hog, kind, "log").outcome(30)
        print(kind, out.status, int(out.observed or 0) >> 20, sep=": ")
    print(limited.submit(hogs.share_with_children, 70, 4).outcome(30).status)
    print(limited.submit(hogs.hold, 100).result(30))
"""


def test_an_ordinary_users_jobs_are_weighed_by_proc():
    """No control group is this user's to write to."""
    with ordinary.home() as folder:
        ended = ordinary.run(WITHOUT_GROUPS.format(package=ordinary.PACKAGE, here=ordinary.HERE), folder)
    assert ended.returncode == 0, ended
    *kinds, shared, held = ended.stdout.splitlines()
    for line in kinds:
        kind, status, observed = line.split(": ")
        assert status == "memory", ended
        assert 128 <= int(observed) < 128 + 16, f"{kind}: {observed} MiB"
    assert (shared, held) == ("succeeded", "100"), ended


def test_address_space_is_not_memory(pool):
    ex = pool(1, preload=["hogs"])
    assert ex.options(memory=LIMIT_BYTES).submit(hogs.reserve, 6).result(CAP_S) == 1


def test_what_children_share_counts_once(pool):
    ex = pool(1, preload=["hogs"])
    outcome = ex.options(memory=LIMIT_BYTES).submit(hogs.share_with_children, 150, 4).outcome(CAP_S)
    assert outcome.ok, outcome


def test_preloads_are_free(pool):
    """A warden of 300 MiB: neither what its forks share with it, nor their children's part of it, counts."""
    ex = pool(2, preload=["hogs", "heavy"])
    limited = ex.options(memory=LIMIT_BYTES)
    assert limited.submit(hogs.hold, 150).result(CAP_S) == 150
    assert limited.submit(hogs.share_with_children, 100, 4).result(CAP_S) == "passed"


def test_preloads_hide_no_hog(pool, tmp_path):
    ex = pool(2, preload=["hogs", "heavy"])
    for kind in ("blocks", "forked child"):
        log = tmp_path / kind
        outcome = ex.options(memory=LIMIT_BYTES).submit(hogs.hog, kind, str(log)).outcome(CAP_S)
        assert outcome.status == "memory"
        assert LIMIT_BYTES < outcome.observed < 1.1 * LIMIT_BYTES


def test_a_job_within_its_limit_is_left_alone(pool):
    ex = pool(2, preload=["hogs"])
    limited = ex.options(memory="100MiB")
    assert [f.result(CAP_S) for f in [limited.submit(hogs.hold, 60) for _ in range(20)]] == [60] * 20


def test_a_worker_that_is_full_at_rest_is_replaced_before_the_next_job(pool):
    ex = pool(1, preload=["hogs"])
    first = ex.submit(hogs.keep, 60).result(CAP_S)
    assert ex.submit(os.getpid).result(CAP_S) == first, "without a limit it goes on"
    outcome = ex.options(memory="100MiB").submit(hogs.hold, 60).outcome(CAP_S)
    assert outcome.ok, outcome
    assert outcome.attempts == 1
    assert outcome.worker_pid != first
    wait_gone([first], 5)


def test_files_in_memory_of_earlier_jobs_are_not_the_next_ones(pool):
    ex = pool(1, preload=["hogs"])
    limited = ex.options(memory="100MiB")
    pids = {limited.submit(hogs.write_memfd, 60).result(CAP_S) for _ in range(4)}
    assert len(pids) == 1


def test_a_little_at_rest_is_no_reason(pool):
    ex = pool(1, preload=["hogs"])
    limited = ex.options(memory="400MiB")
    assert len({limited.submit(hogs.keep, 1).result(CAP_S) for _ in range(5)}) == 1


def test_a_fresh_worker_that_holds_too_much_fails_the_job(pool):
    ex = pool(1, preload=["hogs"], initializer=hogs.keep, initargs=(80,))
    future = ex.options(memory="64MiB").submit(hogs.hold, 1)
    outcome = future.outcome(CAP_S)
    assert (outcome.status, outcome.attempts, outcome.limit) == ("memory", 0, 64 * MIB)
    assert 70 * MIB <= outcome.observed < 120 * MIB  # pages of files that both map are not its own yet
    assert isinstance(future.exception(), MemoryLimitExceeded)
    assert "before it started" in outcome.error
    assert ex.options(memory="1GiB").submit(hogs.hold, 1).result(CAP_S) == 1
    assert ex.options(memory="64MiB", retries=2).submit(hogs.hold, 1).outcome(CAP_S).status == "memory"


def test_children_that_a_job_left_are_not_the_next_ones(pool):
    ex = pool(1, preload=["hogs"])
    left = ex.submit(hogs.leave_burning, 600).result(CAP_S)
    first = ex.submit(os.getpid).result(CAP_S)
    assert ex.options(memory="200MiB").submit(os.getpid).result(CAP_S) != first
    wait_gone([left, first], 5)


def test_a_memory_limit_is_retried_if_asked_for(pool, tmp_path):
    ex = pool(1, preload=["hogs"])
    outcome = ex.options(memory="64MiB", retries=1).submit(hogs.hog, "blocks", str(tmp_path / "log")).outcome(CAP_S)
    assert (outcome.status, outcome.attempts) == ("memory", 2)
    assert len(lines(tmp_path / "log")) == 2


def test_a_stopped_warden_frees_no_hog(pool, gate, tmp_path):
    ex = pool(1, preload=["hogs"])
    ex.submit(os.getpid).result(CAP_S)
    warden = ex._pool.warden.process.pid
    limited = ex.options(memory="64MiB")
    future = limited.submit(hogs.hold_then_hog, gate.path, str(tmp_path / "log"))
    until(lambda: lines(tmp_path / "log"), "its start")
    os.kill(warden, signal.SIGSTOP)
    gate.open()
    outcome = future.outcome(CAP_S)
    assert outcome.status == "memory"
    assert outcome.wall_time < 5


@pytest.fixture
def little_memory() -> Iterator[Path]:
    """A control group of 64 MiB."""
    group = Path("/sys/fs/cgroup/memory", f"ptss_mp-test-{os.getpid()}")
    try:
        group.mkdir()
    except OSError as error:
        pytest.skip(f"needs a memory hierarchy of version 1 that this process may write to: {error}")
    try:
        (group / "memory.limit_in_bytes").write_text(str(64 * MIB))
        yield group
    finally:
        until(lambda: not (group / "cgroup.procs").read_text(), "the end of its processes")
        group.rmdir()


def test_the_kernel_kills_for_lack_of_memory(pool, gate, little_memory, tmp_path):
    ex = pool(1, preload=["hogs"])
    log = tmp_path / "log"
    future = ex.submit(hogs.hold_then_hog, gate.path, str(log))
    pid = until(lambda: lines(log), "its start")[0]
    (little_memory / "cgroup.procs").write_text(pid)
    gate.open()
    outcome = future.outcome(CAP_S)
    assert (outcome.status, outcome.signal) == ("crashed", signal.SIGKILL)
    assert "as the kernel killed 1 for lack of memory" in outcome.error
    assert ex.submit(hogs.hold, 1).result(CAP_S) == 1
    other = ex.submit(hogs.hold_then_hog, gate.path, str(tmp_path / "other"))
    os.kill(int(until(lambda: lines(tmp_path / "other"), "its start")[0]), signal.SIGKILL)
    assert "lack of memory" not in other.outcome(CAP_S).error


def test_workers_are_the_first_to_go_when_the_kernel_needs_memory(pool):
    def score(pid: int) -> int:
        return int(Path(f"/proc/{pid}/oom_score_adj").read_text())

    ex = pool(1)
    worker = ex.submit(os.getpid).result(CAP_S)
    assert score(worker) == min(1000, score(os.getpid()) + 500)
    until(lambda: ex.status().workers, "workers")
