"""A function under one set of options: everything that its jobs share in the parent."""

from __future__ import annotations

from collections.abc import Callable
from types import BuiltinFunctionType, FunctionType, ModuleType
from typing import TYPE_CHECKING, Any

from ..chunk import CHUNK_NS, Chunk
from ..core.job import Spec
from ..core.restart import Retries
from ..keys import function_name
from ..resources import check_held, fitted
from ..retrying import Retry
from ..rules import Rules
from ..tasks import Task
from ..warden.protocol import MEMORY_GROUP, PIDS_GROUP

if TYPE_CHECKING:
    from ..pool import Pool


class Function:
    """An entry of the function table: sent once to each worker that needs it.

    Attributes:
        number: index, from 0; `wire.BY_VALUE` if the function travels with each call.
        pickled: its reference.
    """

    __slots__ = ("fn", "number", "pickled")

    def __init__(self, fn: Any, number: int, pickled: bytes) -> None:
        self.fn, self.number, self.pickled = fn, number, pickled


class Use:
    """What all jobs of one function, submitted through views of equal options, share.

    Attributes:
        spec: the core's part.
        function: how it gets to a worker.
        deadline_ns: relative deadline, 0: none.
        limits: (timeout ns, memory bytes, CPU ns, processes) of an attempt, for the warden; 0: none.
        watched: the warden must look at its attempts from their start on.
        only: pickled classes of the exceptions after which a job may be made again; empty: of all.
        special: its jobs need the slow way (absolute instants, prerequisites, a name to be known by).
        scope: of the view it was submitted through, for that view's `shutdown`.

    Raises:
        InvalidOption: its jobs need what the pool has not: they could never start.
    """

    __slots__ = (
        "deadline_ns", "fn", "function", "key", "limits", "name", "only", "pool", "rules", "scope", "spec",
        "special", "watched",
    )  # fmt: skip

    def __init__(self, pool: Pool, scope: Any, fn: Any, function: Function, rules: Rules, name: str) -> None:
        self.pool, self.scope, self.fn, self.function, self.rules, self.name = pool, scope, fn, function, rules, name
        there = pool.core.tokens.all
        held = fitted(rules.resources, rules.memory_bytes, there)
        check_held(rules.env, held, there)
        self.key = function_name(fn)
        timeout_ns = rules.timeout_ns + (CHUNK_NS if rules.timeout_ns and isinstance(fn, Chunk) else 0)  # of any item
        self.spec = Spec(
            fn=function.number if function.number >= 0 else pool.estimate_of(self.key),
            priority=rules.priority,
            timeout_ns=timeout_ns,
            kill_at_deadline=rules.kill_at_deadline,
            run_if=rules.run_if,
            retries=_by_cause(rules.retries) if isinstance(rules.retries, Retry) else rules.retries,
            fresh=rules.fresh,
            memory_bytes=rules.memory_bytes,
            cpu_ns=rules.cpu_ns,
            alone=pool.exact or bool(rules.file_bytes or rules.open_files or rules.processes),
            needs=held,
            env=rules.env,
        )
        self.watched = bool(rules.memory_bytes or rules.cpu_ns or rules.processes)
        self.limits = (timeout_ns, rules.memory_bytes, rules.cpu_ns, rules.processes)
        self.only = rules.retries.pickled_only() if isinstance(rules.retries, Retry) else b""
        pool.notice_main(self.only)
        if rules.processes:
            pool.groups.add(PIDS_GROUP)
        if rules.memory_bytes:
            pool.groups.add(MEMORY_GROUP)
        self.deadline_ns = rules.deadline_ns
        self.special = False


def _by_cause(retry: Retry) -> Retries:
    """Return a Retry in the core's terms."""
    return Retries(
        failed=retry.exception,
        crashed=retry.crash,
        timeout=retry.timeout,
        memory=retry.memory,
        cpu=retry.cpu,
        backoff_ns=retry.backoff_ns,
        factor=retry.factor,
        jitter=retry.jitter,
        max_delay_ns=retry.max_delay_ns,
    )


def by_reference(fn: Callable[..., Any]) -> bool:
    """Return True if a callable is pickled as a name, so that its table entry serves all its calls.

    Closures, partials and bound methods are not: they are pickled per call, and
    the table holds no more than the program has functions.
    """
    kind = type(fn)
    if kind is FunctionType:
        return "<" not in fn.__qualname__
    if kind is BuiltinFunctionType:
        return isinstance(getattr(fn, "__self__", None), ModuleType)
    return kind is type or kind is Task or getattr(kind, "by_reference", False) is True
