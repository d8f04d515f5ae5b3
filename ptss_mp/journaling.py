"""Submitting a job that has a key of its own: which, and whether an earlier run has settled it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from . import wire
from .keys import default_key, given_key
from .outcome import EXIT_STATUS, Outcome, Status

if TYPE_CHECKING:
    from .future import Future
    from .keyed import Keyed
    from .pool import Pool
    from .shell.use import Use


def keyed(future: Keyed[Any], args: Any, kwargs: Any) -> Keyed[Any]:
    """Give a new job its key; if the journal says how it has ended, it is settled so.

    Raises:
        InvalidOption, InvalidType: no key can be made of the call, or it was given before.
        JournalError: the journal cannot be asked.
    """
    use = future._use
    journal, given = use.pool.journal, use.scope.options.get("key")
    key = default_key(use.fn, args, kwargs) if given is None else given_key(given, args, kwargs)
    future._key = journal.claim(key, given is not None) if journal else key
    try:
        outcome = journal.settled(future._key, use.name) if journal else None
    except BaseException:
        take_back(future)
        raise
    if outcome is not None:
        counted(outcome, use.pool)
        future._settle_from(outcome)
    return future


def counted(outcome: Outcome[Any], pool: Pool) -> None:
    """Let an outcome of an earlier run count in the exit status of this one."""
    late = outcome.ok and outcome.tardiness > 0
    pool.weights.add(EXIT_STATUS[Status.DEADLINE if late else outcome.status])


def take_back(future: Keyed[Any]) -> None:
    """Let a key be used by another job: this one was refused."""
    use = future._use
    if use.pool.journal:
        given = use.scope.options.get("key") is not None
        use.pool.journal.unclaim(future._key, given)


def check_kept(use: Use, needs: Iterable[Future[Any]]) -> None:
    """Refuse a call that needs a value which an earlier run has made and not kept.

    Raises:
        LookupError: it does.
    """
    for future in needs if use.rules.run_if == "success" else ():
        if getattr(future, "_kind", None) == wire.UNKEPT:  # a Recurring is refused behind this
            text = "succeeded in an earlier run, and its value was not kept (keep_result=False)"
            raise LookupError(f"job {future._use.name!r} {text}")
