"""joblib and scikit-learn over our workers (`ptss_mp.joblib`)."""

from __future__ import annotations

import multiprocessing
import os
import threading
import time
from math import sqrt

import deeds
import pytest
from support import CAP_S, alive, lines, until, wait_gone

from ptss_mp import InvalidOption, NotPicklable, TaskTimeout, WorkerCrashed

joblib = pytest.importorskip("joblib", reason="joblib is not installed: pip install 'ptss_mp[neighbours]'")

import ptss_mp.joblib  # noqa: E402

Parallel, delayed = joblib.Parallel, joblib.delayed


@pytest.fixture
def backend():
    """Make backends; the pool of each ends when it is dropped, and here at the latest."""
    ptss_mp.joblib.register()
    made = []

    def make(**options):
        made.append(ptss_mp.joblib.Backend(**options))
        return made[-1]

    yield make
    while made:
        executor = made.pop()._executor
        if executor:
            executor.kill_workers()


def test_parallel_gives_what_it_always_does(backend):
    with joblib.parallel_config(backend(), n_jobs=2):
        assert Parallel()(delayed(sqrt)(n * n) for n in range(1_000)) == list(range(1_000))
        as_came = Parallel(return_as="generator")(delayed(sqrt)(n * n) for n in range(50))
        assert list(as_came) == list(range(50))
        as_settled = Parallel(return_as="generator_unordered")(delayed(deeds.nap)(n) for n in (0.5, 0.0))
        assert list(as_settled) == [0.0, 0.5]
        with Parallel() as parallel:  # one that is used again
            for _ in range(3):
                assert parallel(delayed(deeds.double)(n) for n in range(9)) == list(range(0, 18, 2))
        assert Parallel()(delayed(deeds.double)(n) for n in []) == []


def test_lambdas_and_closures_travel_as_under_joblibs_own(backend):
    pytest.importorskip("cloudpickle", reason="cloudpickle is not installed: pip install 'ptss_mp[closures]'")
    factor = 3
    with joblib.parallel_config(backend(), n_jobs=2):
        assert Parallel()(delayed(lambda n: factor * n)(n) for n in range(30)) == list(range(0, 90, 3))


def test_the_name_is_known_and_the_pool_ends_with_its_context(backend):
    with joblib.parallel_config("ptss_mp", n_jobs=2):
        assert Parallel()(delayed(sqrt)(n) for n in (4, 9)) == [2, 3]
        first = set(Parallel()(delayed(os.getpid)() for _ in range(20)))
        assert os.getpid() not in first
        assert first & set(Parallel()(delayed(os.getpid)() for _ in range(20)))  # workers serve on
    wait_gone(first, CAP_S)
    assert Parallel(n_jobs=2, backend="ptss_mp")(delayed(sqrt)(n) for n in (4, 9)) == [2, 3]
    until(lambda: not any(t.name.startswith("joblib-") for t in threading.enumerate()), "the end of the pool's threads")


@pytest.mark.parametrize(
    ("asked", "workers"), [(1, 1), (2, 2), (7, 7), (None, 1), (-1, None), (-10_000, 1), (100_000, 1_000)]
)
def test_n_jobs(backend, monkeypatch, asked, workers):
    assert backend().effective_n_jobs(asked) == (workers or len(os.sched_getaffinity(0)))


def test_n_jobs_of_1_is_the_program_itself_and_0_is_refused(backend):
    with joblib.parallel_config(backend()):
        assert Parallel(n_jobs=1)(delayed(os.getpid)() for _ in range(2)) == [os.getpid()] * 2
        with pytest.raises(ValueError, match="n_jobs"):
            Parallel(n_jobs=0)(delayed(os.getpid)() for _ in range(2))


def test_short_tasks_travel_in_batches_long_ones_alone(backend):
    ours = backend()
    with joblib.parallel_config(ours, n_jobs=2):
        parallel = Parallel()
        parallel(delayed(sqrt)(n) for n in range(5_000))
        assert parallel.n_dispatched_batches < 500
        ours.reset_batch_stats()
        parallel(delayed(deeds.nap)(0.25) for _ in range(6))
        assert parallel.n_dispatched_batches == 6


def test_a_crash_fails_the_call_and_not_the_pool(backend):
    ours = backend()
    with joblib.parallel_config(ours, n_jobs=2):
        assert Parallel()(delayed(deeds.double)(n) for n in range(20)) == list(range(0, 40, 2))
        executor = ours._executor
        for _ in range(3):
            with pytest.raises(WorkerCrashed, match="SIGABRT"):
                Parallel()(delayed(deeds.maybe_crash)((n, "abort" if n == 5 else None)) for n in range(10))
            assert Parallel()(delayed(deeds.double)(n) for n in range(20)) == list(range(0, 40, 2))
        assert ours._executor is executor
        with pytest.raises(ValueError, match="no"):
            Parallel()(delayed(deeds.fail)("no") for _ in range(10))
        with pytest.raises(NotPicklable):
            Parallel()(delayed(deeds.same)(threading.Lock()) for _ in range(10))
        assert Parallel()(delayed(deeds.double)(n) for n in range(20)) == list(range(0, 40, 2))


def test_a_call_that_is_aborted_kills_what_runs(backend, tmp_path):
    ours, log = backend(), tmp_path / "log"
    with joblib.parallel_config(ours, n_jobs=2):
        began = time.monotonic()
        with pytest.raises(multiprocessing.TimeoutError):
            Parallel(timeout=2)(delayed(deeds.logged)(str(log), n, 60) for n in range(9))
        assert time.monotonic() - began < 20
        begun = [int(line.split()[2]) for line in lines(log)]
        wait_gone(begun, CAP_S)
        assert 1 <= len(begun) <= 2
        assert Parallel()(delayed(deeds.double)(n) for n in range(20)) == list(range(0, 40, 2))
        assert not ours._out


def test_an_abort_concerns_its_own_call(backend, gate, tmp_path):
    ours = backend()
    with joblib.parallel_config(ours, n_jobs=2):
        other = Parallel(return_as="generator")(
            delayed(deeds.gated)(str(tmp_path / "log"), gate.path, n) for n in range(1)
        )
        with pytest.raises(ValueError, match="no"):
            Parallel()(delayed(deeds.fail)("no") for _ in range(3))
        gate.open()
        assert list(other) == [0]


def test_options_hold_for_each_task(backend, tmp_path):
    with joblib.parallel_config(backend(timeout=1), n_jobs=2):
        assert Parallel()(delayed(deeds.nap)(0.2) for _ in range(12)) == [0.2] * 12  # together longer than one may
        with pytest.raises(TaskTimeout, match=r"allowed are 1 s"):
            Parallel()(delayed(deeds.nap)(n) for n in (0.0, 60.0))
    flaky = [str(tmp_path / str(n)) for n in range(4)]
    with joblib.parallel_config("ptss_mp", n_jobs=2, retries=1):
        assert Parallel()(delayed(deeds.fail_until)(path, 2) for path in flaky) == [2] * 4
    with pytest.raises(InvalidOption, match="did you mean 'timeout'"):
        joblib.parallel_config("ptss_mp", timeot=1)


def test_nested_calls_are_threads_of_their_worker(backend):
    pytest.importorskip("sklearn", reason="scikit-learn is not installed: pip install 'ptss_mp[neighbours]'")
    import estimators

    with joblib.parallel_config(backend(), n_jobs=2):
        found = Parallel()(delayed(estimators.nested)(4) for _ in range(4))
    for pid, roots, pids in found:
        assert roots == [sqrt(n) for n in range(4)]
        assert pids == {pid}
        assert pid != os.getpid()


def test_native_thread_pools_share_the_machine(backend, monkeypatch):
    pytest.importorskip("sklearn", reason="scikit-learn is not installed: pip install 'ptss_mp[neighbours]'")
    import estimators

    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    with joblib.parallel_config(backend(), n_jobs=2):
        each = str(max(1, joblib.cpu_count() // 2))
        assert Parallel()(delayed(estimators.variable)("OMP_NUM_THREADS") for _ in range(2)) == [each] * 2
    with joblib.parallel_config("ptss_mp", n_jobs=2, inner_max_num_threads=3):
        assert Parallel()(delayed(estimators.variable)("OMP_NUM_THREADS") for _ in range(2)) == ["3"] * 2
    assert "OMP_NUM_THREADS" not in os.environ


def search(estimators, **grid):
    from sklearn.datasets import make_classification
    from sklearn.model_selection import GridSearchCV

    X, y = make_classification(120, random_state=0)
    return GridSearchCV(estimators.Fragile(), {"C": [0.01, 1.0], **grid}, cv=3, n_jobs=2).fit(X, y)


def test_a_grid_search_finds_what_it_finds_alone(backend):
    pytest.importorskip("sklearn", reason="scikit-learn is not installed: pip install 'ptss_mp[neighbours]'")
    import estimators

    with joblib.parallel_config("sequential"):
        alone = search(estimators)
    ours = backend()
    with joblib.parallel_config(ours):
        found = search(estimators)
        assert found.best_params_ == alone.best_params_
        assert found.best_score_ == alone.best_score_
        with pytest.raises(WorkerCrashed, match="SIGABRT"):  # it names the signal, and where
            search(estimators, crash=[False, True])
        again = search(estimators)
        assert again.best_score_ == alone.best_score_
    assert alive(os.getpid())
