"""Jobs that start workers of their own.  Imported in every worker, so it imports little."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import deeds


def executor(context: Any) -> list[int]:
    from ptss_mp import Executor

    with Executor(2, context, preload=["deeds"]) as ex:
        crashed = ex.submit(deeds.crash, "exit 3")
        assert crashed.outcome(20).exit_code == 3
        return list(ex.map(deeds.double, range(4)))


def executor_in_executor(context: Any) -> list[int]:
    from ptss_mp import Executor

    with Executor(1, context, preload=["inner"]) as ex:
        return ex.submit(executor, context).result(25)


def chunks(depth: int) -> list[int]:
    """Map in chunks, in a pool in a job in a pool."""
    from ptss_mp import Executor

    with Executor(1, preload=["inner"]) as ex:
        if depth > 1:
            return ex.submit(chunks, depth - 1).result(25)
        return list(ex.map(deeds.double, range(3_000), chunksize=100))


def _context(name: Any) -> Any:
    import multiprocessing

    return multiprocessing.get_context(name)


def pool(context: Any) -> list[int]:
    with _context(context).Pool(2) as made:
        return made.map(deeds.double, range(4))


def process_pool(context: Any) -> list[int]:
    from concurrent.futures import ProcessPoolExecutor

    with ProcessPoolExecutor(2, mp_context=_context(context)) as ex:
        return list(ex.map(deeds.double, range(4)))


def thread_pool(_context: Any) -> list[int]:
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(2) as ex:
        return list(ex.map(deeds.double, range(4)))


def _put(queue: Any, value: Any) -> None:
    queue.put(2 * value)


def process_and_queue(context: Any) -> list[int]:
    made = _context(context)
    queue = made.Queue()
    processes = [made.Process(target=_put, args=(queue, i)) for i in range(4)]
    for process in processes:
        process.start()
    values = sorted(queue.get(timeout=20) for _ in processes)
    for process in processes:
        process.join(20)
        assert process.exitcode == 0
    return values


def manager(context: Any) -> list[int]:
    made = _context(context)
    with made.Manager() as shared:
        values = shared.list()
        process = made.Process(target=_extend, args=(values,))
        process.start()
        process.join(20)
        return list(values)


def _extend(values: Any) -> None:
    values.extend([0, 2, 4, 6])


def programs(_context: Any) -> list[int]:
    commands = [[sys.executable, "-S", "-c", f"print({2 * i})"] for i in range(4)]
    done = [subprocess.run(command, capture_output=True, text=True, check=True) for command in commands]
    shell = subprocess.run("cat | cat", shell=True, input="through", capture_output=True, text=True, check=True)
    assert shell.stdout == "through"
    return [int(d.stdout) for d in done]


KINDS = {
    f.__name__: f
    for f in (executor, executor_in_executor, pool, process_pool, thread_pool, process_and_queue, manager, programs)
}


def run(kind: str, context: Any) -> list[int]:
    return KINDS[kind](context)


def hang_with_workers(log: str, context: Any) -> None:
    """Start an Executor and a Pool whose workers hang, then hang too."""
    from ptss_mp import Executor

    ex = Executor(1, context, preload=["deeds"])
    ex.submit(deeds.hang, "native", log)
    with _context("fork").Pool(1) as made:
        made.apply_async(deeds.hang, ("native", log))
        while not Path(log).exists() or len(Path(log).read_text().splitlines()) < 2:
            time.sleep(0.001)
        deeds.note(log, "both")
        time.sleep(deeds.HANG)


def usable_cpus() -> int:
    from ptss_mp import Executor

    return Executor()._max_workers
