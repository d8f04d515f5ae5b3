"""What `Executor(...)` is given: checked, and made into a pool that has not been started."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from itertools import count
from typing import TYPE_CHECKING, Any

from .core.job import PENDING_MAX
from .core.scheduler import Scheduler
from .declare import DECLARED_ONLY, RECURRENCE, UNSET, Options
from .errors import InvalidOption, InvalidType
from .pool import WORKERS_MAX, Pool, cpus
from .resources import pool_resources
from .submission import pickled_initializer
from .tasks import Task
from .units import duration_ns, one_of, text, whole

if TYPE_CHECKING:
    from .journal.writer import Journal

_numbers = count(1)


def make_pool(
    max_workers: int | None,
    mp_context: Any,
    initializer: Callable[..., Any] | None,
    initargs: Iterable[Any],
    max_tasks_per_child: int | None,
    preload: Iterable[str],
    max_pending: int | None,
    spares: int | None,
    start_timeout: float | str | None,
    capture: bool | str,
    restart_intensity: tuple[int, float],
    name: str | None,
    backend: str,
    resources: Any,
) -> Pool:
    """Return the pool behind an Executor; no process or thread is started, no file opened.

    Raises:
        InvalidOption, InvalidType: an argument that can never be right (`Executor` says what they mean).
    """
    if type(max_workers) is int and max_workers <= 0:
        raise InvalidOption(f"max_workers must be greater than 0, not {max_workers}")
    workers = cpus() if max_workers is None else whole(max_workers, "max_workers", 1, WORKERS_MAX)
    if max_pending is not None:
        whole(max_pending, "max_pending", 1, PENDING_MAX)
    if capture != "tee" and not isinstance(capture, bool):
        raise InvalidOption(f"capture must be 'tee', True or False, not {capture!r}")
    if backend != "local":
        raise InvalidOption(f"backend must be 'local' (worker processes of this machine), not {backend!r}")
    if name is not None:
        text(name, "name")
    if spares is None:
        spares = 0 if initializer else 1
    core = Scheduler(
        workers,
        whole(spares, "spares", 0, WORKERS_MAX),
        0 if max_tasks_per_child is None else whole(max_tasks_per_child, "max_tasks_per_child", 1, PENDING_MAX),
        *_intensity(restart_intensity),
        0 if start_timeout is None else duration_ns(start_timeout, "start_timeout"),
        resources=pool_resources(resources),
    )
    config = _config(workers, _spawns(mp_context), _initializer(initializer, initargs), _modules(preload), capture)
    if start_timeout is not None:
        config["options"]["say_ready"] = True  # a fork may hang in what a preload has registered for forks
    slots = 2 * (workers + spares) + 16  # the dying keep theirs until they are reaped
    title = name or f"ptss_mp-{next(_numbers)}"
    pool = Pool(core, config, slots, capture == "tee", title, max_pending=max_pending)
    pool.notice_main(config["options"]["initializer"])
    return pool


def base_options(options: Options, fresh: bool) -> Options:
    """Return the options of all jobs of an Executor.

    Raises:
        InvalidOption, InvalidType: as `make_pool`.
    """
    if not isinstance(options, Options):
        raise InvalidType(f"options must be Options(...), not {type(options).__name__}")
    for_tasks_only(options)
    always = Options(fresh=fresh)
    return always | options if fresh else options


def checked_journal(path: Any, resume: Any, on_interrupted: Any) -> Journal | None:
    """Return the journal of an Executor; no file is opened.

    Raises:
        InvalidOption, InvalidType: as `make_pool`.
    """
    if not isinstance(resume, bool) and resume != "failed":
        raise InvalidOption(f"resume must be False, True or 'failed', not {resume!r:.80}")
    one_of("fail", "rerun")(on_interrupted, "on_interrupted")
    if path is None:
        if resume:
            raise InvalidOption("resume needs a journal")
        return None
    if not isinstance(path, str | os.PathLike):
        raise InvalidType(f"journal must be a path, not {type(path).__name__}")
    name = os.fsdecode(os.fspath(path))
    if not name or "\0" in name:
        raise InvalidOption(f"journal must be a path, not {name!r:.80}")
    from .journal.writer import Journal  # and with it sqlite3, for those who want one

    return Journal(name, resume, on_interrupted == "rerun")


def for_tasks_only(options: Options) -> None:
    """Refuse what only a task may have.

    Raises:
        InvalidOption: `args` or `kwargs` were given, or how a task recurs.
    """
    for field in DECLARED_ONLY:
        if getattr(options, field) is not UNSET:
            what = "submit takes arguments as they are" if field in ("args", "kwargs") else "add() and @task take it"
            raise InvalidOption(f"{field} belongs to a task; {what}")


def for_submit(task: Task) -> None:
    """Refuse a Task that recurs.

    Raises:
        InvalidOption: it does.
    """
    for field in RECURRENCE:
        if getattr(task.options, field) is not UNSET:
            raise InvalidOption(f"{field}: task {task.name!r} recurs; add() takes it, submit and map run a job once")


def _config(
    workers: int, spawned: bool, initializer: bytes, preload: tuple[str, ...], capture: bool | str
) -> dict[str, Any]:
    """Return the warden's configuration (shell.hire.Warden)."""
    return {
        "options": {
            "capture": capture is not False,
            "dump": True,
            "spawn": spawned,
            "main": False,
            "workers": workers,
            "initializer": initializer,
            "say_ready": spawned or bool(initializer),
        },
        "preload": preload,
        "calls": [],
    }


def _initializer(initializer: Any, initargs: Any) -> bytes:
    """Return it with its arguments, pickled; empty without one."""
    if initializer is not None and not callable(initializer):
        raise InvalidType("initializer must be callable")
    if not isinstance(initargs, Iterable):
        raise InvalidType(f"initargs must be a tuple, not {type(initargs).__name__}")
    return b"" if initializer is None else pickled_initializer(initializer, tuple(initargs))


def _modules(preload: Any) -> tuple[str, ...]:
    if isinstance(preload, str):
        raise InvalidType("preload must be a list of module names, not one text")
    if not isinstance(preload, Iterable):
        raise InvalidType(f"preload must be a list of module names, not {type(preload).__name__}")
    names = tuple(preload)
    for name in names:
        text(name, "a name in preload")
    return names


def _intensity(given: Any) -> tuple[int, int]:
    try:
        deaths, period = given
    except (TypeError, ValueError):
        raise InvalidType("restart_intensity must be (number of deaths, seconds)") from None
    return whole(deaths, "restart_intensity", 0, PENDING_MAX), duration_ns(period, "restart_intensity")


def _spawns(context: Any) -> bool:
    """Return True for a new interpreter per worker, False for forks of the warden."""
    method = context
    if context is not None and not isinstance(context, str):
        if not hasattr(context, "get_start_method"):
            raise InvalidType(f"mp_context must be a context of multiprocessing or its name, not {context!r:.80}")
        method = context.get_start_method()
    if method == "fork":
        raise InvalidOption(
            "mp_context='fork' is refused: forking a program that has threads hands every lock they hold to the "
            "worker, locked for ever; None (forks of a warden process) is as fast and safe, 'spawn' the slow way"
        )
    if method not in (None, "forkserver", "spawn"):
        raise InvalidOption(f"mp_context must be None, 'forkserver' or 'spawn', not {method!r}")
    return bool(method == "spawn")
