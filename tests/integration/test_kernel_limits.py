"""`open_files` and `file_size`: the job's own OSError, and nothing of it for the next job of that worker."""

from __future__ import annotations

import errno
import os
import resource

import ordinary
import pytest
from limit_deeds import (
    crash_late,
    leak,
    leak_until_refused,
    limits,
    lower_hard,
    move,
    open_many,
    opened_by_a_child,
    opened_in_threads,
    talk,
    talk_by_a_program,
    told,
    write,
    written_by_a_program,
    written_in_threads,
)
from support import CAP_S

CONTEXTS = pytest.mark.parametrize("context", [None, "spawn"])


# ---- open_files


@CONTEXTS
@pytest.mark.parametrize("count", [1, 7, 100])
def test_so_many_more_descriptors_and_no_more(pool, context, count):
    ex = pool(1, context, spares=0)
    pid, before = ex.submit(limits).result(CAP_S)
    view = ex.options(open_files=count)
    assert view.submit(open_many, count + 50).result(CAP_S) == (count, errno.EMFILE)
    assert view.submit(open_many, count).result(CAP_S) == (count, 0)
    assert ex.submit(limits).result(CAP_S) == (pid, before), "set back, in the same worker"
    assert ex.submit(open_many, count + 50).result(CAP_S) == (count + 50, 0)


def test_what_an_earlier_job_left_open_does_not_count(pool):
    ex = pool(1, spares=0)
    pid = ex.submit(leak, 30).result(CAP_S)
    assert ex.options(open_files=5).submit(open_many, 50).result(CAP_S) == (5, errno.EMFILE)
    assert ex.submit(os.getpid).result(CAP_S) == pid


def test_refused_descriptors_are_the_jobs_own_error_told_in_full(pool):
    ex = pool(1, spares=0)
    pid = ex.submit(os.getpid).result(CAP_S)
    future = ex.options(open_files=20).submit(leak_until_refused)
    with pytest.raises(OSError, match="Too many open files") as raised:
        future.result(CAP_S)
    assert raised.value.errno == errno.EMFILE
    outcome = future.outcome()
    assert outcome.status == "failed"
    assert 'held.append(open("/dev/null"))' in outcome.stack, "the traceback has its source lines"
    assert ex.submit(os.getpid).result(CAP_S) == pid


def test_three_threads_share_the_descriptors(pool):
    ex = pool(1, spares=0)
    count, errors = ex.options(open_files=30).submit(opened_in_threads, 3, 50).result(CAP_S)
    assert count == 30
    assert errors == [errno.EMFILE] * 3


def test_a_child_inherits_the_limit(pool):
    """A pipe of two descriptors is open in it."""
    ex = pool(1, spares=0)
    assert ex.options(open_files=12).submit(opened_by_a_child, 100).result(CAP_S) == repr((10, errno.EMFILE))


def test_more_than_the_soft_limit_is_granted_within_the_hard_one(pool):
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < 1_500:
        pytest.skip(f"needs 1500 open files; the hard limit of this process (ulimit -Hn) is {hard}")
    resource.setrlimit(resource.RLIMIT_NOFILE, (1_000, hard))
    try:
        ex = pool(1, spares=0)
        assert ex.submit(open_many, 1_200).result(CAP_S)[1] == errno.EMFILE
        assert ex.options(open_files=1_200).submit(open_many, 1_300).result(CAP_S) == (1_200, errno.EMFILE)
        assert ex.submit(open_many, 1_200).result(CAP_S)[1] == errno.EMFILE
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


# ---- file_size


@CONTEXTS
def test_a_file_may_become_so_long_and_no_longer(pool, context, tmp_path):
    ex = pool(1, context, spares=0)
    pid, before = ex.submit(limits).result(CAP_S)
    view = ex.options(file_size="100KiB")
    future = view.submit(write, str(tmp_path / "long"), 200_000)
    with pytest.raises(OSError, match="File too large") as raised:
        future.result(CAP_S)
    assert raised.value.errno == errno.EFBIG
    assert future.outcome().status == "failed"
    assert (tmp_path / "long").stat().st_size == 100 << 10
    assert view.submit(write, str(tmp_path / "just"), 100 << 10).result(CAP_S) == 100 << 10
    assert ex.submit(limits).result(CAP_S) == (pid, before)
    assert ex.submit(write, str(tmp_path / "next"), 200_000).result(CAP_S) == 200_000


def test_three_threads_write_files_that_are_too_long(pool, tmp_path):
    ex = pool(1, spares=0)
    assert ex.options(file_size=1_000).submit(written_in_threads, str(tmp_path), 5_000).result(CAP_S) == [27] * 3
    assert [file.stat().st_size for file in tmp_path.iterdir() if file.name in "012"] == [1_000] * 3


def test_a_program_inherits_the_limit_and_dies_of_it(pool, tmp_path):
    """subprocess gives it back the default action of SIGXFSZ; the job lives on."""
    ex = pool(1, spares=0)
    path = tmp_path / "file"
    limit, _ = ex.options(file_size=1_000).submit(written_by_a_program, str(path)).result(CAP_S)
    assert limit == 1_000
    assert path.stat().st_size == 1_000


@CONTEXTS
def test_what_a_job_prints_and_logs_is_no_file_of_its_own(pool, context, caplog):
    ex = pool(1, context, spares=0, capture=True)
    view = ex.options(file_size=1_000)
    for size in (3_000, 5_000, 500):
        caplog.clear()
        outcome = view.submit(talk, size).outcome(CAP_S)
        assert outcome.ok, outcome.error
        assert outcome.stdout == "o" * size + "\n"
        assert outcome.stderr == "e" * size + "\n"
        assert ex.drain(CAP_S)
        assert [r.message for r in caplog.records if r.name == "kernel.limits"] == ["l" * size]


def test_programs_print_as_much_as_a_file_may_be_long(pool):
    """However much was printed in that worker before."""
    ex = pool(1, spares=0, capture=True)
    assert len(ex.submit(talk, 50_000).outcome(CAP_S).stdout) == 50_001
    outcome = ex.options(file_size=1_000).submit(talk_by_a_program, 900).outcome(CAP_S)
    assert outcome.result() == 0
    assert outcome.stdout == f"{'x':>900}"
    outcome = ex.options(file_size=1_000).submit(talk_by_a_program, 3_000).outcome(CAP_S)
    assert outcome.result() != 0
    assert len(outcome.stdout) == 1_000
    assert ex.submit(talk, 100).outcome(CAP_S).stdout == "o" * 100 + "\n"


def test_the_last_words_of_a_crash_are_kept(pool, tmp_path):
    ex = pool(1, spares=0, capture=True)
    assert ex.submit(talk, 10_000).outcome(CAP_S).ok
    outcome = ex.options(file_size="64KiB").submit(crash_late, str(tmp_path / "file")).outcome(CAP_S)
    assert outcome.status == "crashed"
    assert outcome.stdout == "last words\n"
    assert "in crash_late" in outcome.stack


# ---- both


def test_a_job_that_moves_its_limits_itself_moves_only_its_own(pool):
    ex = pool(1, spares=0)
    pid, before = ex.submit(limits).result(CAP_S)
    view = ex.options(open_files=50, file_size="1MiB")
    for soft in (20, 200):
        assert view.submit(move, {resource.RLIMIT_NOFILE: soft, resource.RLIMIT_FSIZE: soft}).result(CAP_S) == pid
        assert ex.submit(limits).result(CAP_S) == (pid, before)


def test_a_hard_limit_that_a_job_lowers_is_not_the_next_jobs(pool):
    ex = pool(1, spares=0)
    _, before = ex.submit(limits).result(CAP_S)
    ex.options(open_files=50).submit(lower_hard, resource.RLIMIT_NOFILE, 40).result(CAP_S)
    assert ex.submit(limits).result(CAP_S)[1] == before, "set back, or another worker"


def test_current_tells_the_same_under_limits(pool):
    ex = pool(1, spares=0)
    name, attempt, left = ex.options(open_files=50, timeout=20, name="limited").submit(told).result(CAP_S)
    assert (name, attempt) == ("limited", 1)
    assert 10 < left <= 20


def test_jobs_with_and_without_limits_take_turns(pool):
    ex = pool(2)
    view = ex.options(open_files=9)
    jobs = [(view if i % 3 else ex).submit(open_many, 20) for i in range(300)]
    assert [job.result(CAP_S) for job in jobs] == [(9, errno.EMFILE) if i % 3 else (20, 0) for i in range(300)]


PROGRAM = """
import errno, sys
sys.path[:0] = [{package!r}, {here!r}]
from ptss_mp import Executor
import limit_deeds as jobs
if __name__ == "__main__":
    with Executor(1, spares=0) as ex:
        print(ex.options(open_files=7).submit(jobs.open_many, 20).result(30) == (7, errno.EMFILE))
        try:
            ex.options(file_size=1_000).submit(jobs.write, {path!r}, 5_000).result(30)
        except OSError as error:
            print(error.errno == errno.EFBIG)
        print(ex.submit(jobs.open_many, 20).result(30) == (20, 0))
"""


def test_an_ordinary_user_has_the_same_limits():
    """Root may do what others may not: so this is tried as `nobody`."""
    with ordinary.home() as folder:
        source = PROGRAM.format(package=ordinary.PACKAGE, here=ordinary.HERE, path=f"{folder}/file")
        done = ordinary.run(source, folder)
        assert done.stdout.split() == ["True"] * 3, done.stderr
