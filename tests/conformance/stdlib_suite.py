"""CPython's own executor tests, against our Executor.  Run as `python -m tests.conformance.stdlib_suite`.

A program of its own, because the suite changes warnings and counts the threads of its process.
"""

from __future__ import annotations

import functools
import sys
import unittest
from pathlib import Path
from typing import Any

import ptss_mp

ROOT = str(Path(__file__).resolve().parents[2])
STARTS = {"Warden": "forkserver", "Spawn": "spawn"}

# Test -> why it is not ours to pass.  At most twelve (a test counts).
EXCLUDED = {
    "ExecutorDeadlockTest.test_exit_during_func_exec_on_worker": "a job's SystemExit arrives as TaskRaised (API 3)",
    "ExecutorDeadlockTest.test_exit_during_result_pickle_on_worker": "as the one above",
    "ExecutorDeadlockTest.test_error_during_result_unpickle_in_result_handler":
        "the parent decodes no result: the worker finds that it cannot be rebuilt (ResultNotPicklable)",
    "ExecutorDeadlockTest.test_exit_during_result_unpickle_in_result_handler": "as the one above",
    "ExecutorDeadlockTest.test_shutdown_deadlock_pickle": "reads the private _executor_manager_thread",
    "FailingInitializerMixin.test_initializer": "hands a multiprocessing.Queue to the initializer; it does not pickle",
    "ExecutorShutdownTest.test_cancel_futures":
        "wants one of 50 jobs to survive cancel_futures although no worker was there yet; ours had not started",
}


def suite() -> unittest.TestSuite:
    """Return all public mixins, with the warden and with spawn.

    Raises:
        ModuleNotFoundError: this interpreter ships no test package.
    """
    from test import support
    from test.test_concurrent_futures import executor as executor_tests
    from test.test_concurrent_futures import (
        test_as_completed,
        test_deadlock,
        test_init,
        test_shutdown,
        test_wait,
        util,
    )

    support.use_resources = None
    _redirect(test_shutdown)
    mixins = [
        executor_tests.ExecutorTest,
        test_shutdown.ExecutorShutdownTest,
        test_wait.WaitTests,
        test_as_completed.AsCompletedTests,
        test_init.InitializerMixin,
        test_init.FailingInitializerMixin,
        test_deadlock.ExecutorDeadlockTest,
    ]
    found = unittest.TestSuite()
    for start, context in STARTS.items():
        members = {"executor_type": ptss_mp.Executor, "ctx": context, "get_context": _context}
        ours = type(start, (util.ExecutorMixin,), members)
        for mixin in mixins:
            name = f"{start}{mixin.__name__}"
            case = type(name, (mixin, ours, util.BaseTestCase), {"__module__": __name__})
            globals()[name] = case
            for test in unittest.defaultTestLoader.loadTestsFromTestCase(case):
                method = test._testMethodName
                if f"{mixin.__name__}.{method}" not in EXCLUDED:
                    found.addTest(test)
    return found


def _context(self: Any) -> Any:
    import multiprocessing

    return multiprocessing.get_context(self.ctx)


def _redirect(test_shutdown: Any) -> None:
    """Let the suite's scripts import our Executor where they import the standard library's."""
    original = test_shutdown.assert_python_ok

    @functools.wraps(original)
    def run(*args: str, **kwargs: Any) -> Any:
        path = f"import sys, multiprocessing; sys.path[:0] = [{ROOT!r}]; from ptss_mp import Executor"
        args = tuple(a.replace("from concurrent.futures import Executor", path) for a in args)
        return original(*args, **kwargs)

    test_shutdown.assert_python_ok = run


if __name__ == "__main__":
    from tests.conformance import stdlib_suite  # under its importable name, for the workers

    tests = stdlib_suite.suite()
    result = unittest.TextTestRunner(verbosity=2).run(tests)
    print(f"ran {result.testsRun}, skipped {len(result.skipped)}, excluded {len(EXCLUDED)}")
    sys.exit(not result.wasSuccessful())
