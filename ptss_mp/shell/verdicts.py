"""The facts of an end in words: what was observed, what was allowed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .. import marker, wire
from ..chunk import noted
from ..core.job import NEVER
from ..errors import Root
from ..units import shown_size as size
from ..warden.protocol import WHYS
from .answers import Answer
from .channel import Channel
from .clock import monotonic_ns
from .report import Extra, Report

if TYPE_CHECKING:
    from ..future import Future


LIMITS = frozenset(("timeout", "deadline", "memory", "cpu"))  # what the warden alone judges, and names the attempt


def extra_of(future: Future[Any]) -> Extra:
    """Return the Future's record of rare facts, made if need be."""
    if future._extra is None:
        future._extra = Extra()
    return future._extra


def judge(channel: Channel) -> tuple[int, str]:
    """Return (attempt to blame or 0, why) of a worker that is dead.

    In this order: the verdict that was told, the verdict that was written, noise in its pipe, which may be heard
    of after its death, the marker, nobody.
    A limit blames the attempt that the warden named and no other.  A marker that names what this worker was not
    given was scribbled on, or is of a job that has answered: it names nobody, nor does a verdict that goes by it.
    """
    marked = channel.marked()[0]
    if marked not in channel.given:
        marked = 0
    job, why = channel.verdict or (0, "")
    if not why:
        number, at, observed, job = channel.cell()
        why = WHYS[number] if 0 < number < len(WHYS) else ""
        channel.observed = at, observed
    if not why:
        return marked, "protocol" if channel.violation else "crashed"
    if why == "protocol" and job not in channel.given:
        job = 0
    return job or (0 if why in LIMITS else marked), why


def explain(channel: Channel, future: Future[Any] | None, why: str, now: int) -> Report:
    """Return the report of the attempt for which a worker died."""
    report = channel.last_report(why, now)
    report.attempts = 1
    report.noted = noted(channel.page, channel.words, future._id) if future else None
    how = report.exited(channel.status) if why in ("crashed", "protocol") and channel.status >= 0 else ""
    ran = report.duration / 1e9
    if why == "timeout" and future:
        report.limit = future._use.rules.timeout_ns / 1e9
        report.observed = (channel.observed[1] or report.duration) / 1e9
        report.error = f"ran {report.observed:.3f} s, allowed are {report.limit:g} s (timeout); it was killed"
    elif why == "memory" and future:
        report.limit, report.observed = future._use.spec.memory_bytes, channel.observed[1]
        report.peak_bytes = max(report.peak_bytes or 0, report.observed)
        report.error = f"held {size(report.observed)}, allowed are {size(report.limit)} (memory); it was killed"
    elif why == "cpu" and future:
        report.limit, report.observed = future._use.spec.cpu_ns / 1e9, channel.observed[1] / 1e9
        report.error = f"used {report.observed:.3f} s of the processor, allowed are {report.limit:g} s (cpu_time); "
        report.error += "it was killed"
    elif why == "deadline" and future:
        _late(report, future, now)
        report.error = f"was still running {report.observed:.3f} s after its release, at its deadline; it was killed"
    elif why == "crashed" and channel.observed[1] and future:
        report.limit, report.observed = future._use.rules.processes, channel.observed[1]
        report.error = f"had {report.observed:g} processes, allowed are {report.limit:g} (processes); it was killed"
    elif why == "crashed":
        report.error = f"its worker (pid {channel.pid}) {how or 'died'} after {ran:.3f} s of the job"
        if channel.oom_kills:
            report.error += f", as the kernel killed {channel.oom_kills} for lack of memory: give jobs a memory limit"
    elif why == "protocol":
        report.error = f"its worker (pid {channel.pid}) sent what is no answer, or closed its pipe; "
        report.error += "it was killed" if channel.verdict else f"it {how}"
    elif why == "interrupted":
        report.error = f"was running when the grace ended, after {ran:.3f} s; it was killed"
    else:
        report.error = "was cancelled while it ran; it was killed"
    return report


def lost(channel: Channel, unanswered: list[int]) -> dict[int, Report]:
    """Return the jobs that came to their end and whose answers are lost in noise, with their reports.

    They are not made again: each has run.
    """
    now, gone = monotonic_ns(), {}
    for job in unanswered[: max(0, channel.words[marker.COMPLETED] - channel.answered)]:
        gone[job] = report = Report("protocol", now)
        report.attempts = 1
        report.error = f"its answer is lost: its worker (pid {channel.pid}) sent what is no answer, and was killed"
    return gone


def _late(report: Report, future: Future[Any], now: int) -> None:
    if future._due < NEVER:
        report.limit = (future._due - future._release) / 1e9
        report.observed = (now - future._release) / 1e9


def explain_end(
    future: Future[Any], status: str, answer: Answer | None, report: Report | None, blame: int, now: int
) -> Report:
    """Return the report of a job that did not succeed; keeps the answer's value in the Future."""
    tries = future._extra.tries if future._extra else 0
    if answer is not None and (report is None or report.status != status):
        report = _answered(future, answer)
    elif report is None:
        report = Report(status, now)
        if blame:
            _blamed(report, future, blame)
    report.status = status
    report.attempts += tries
    if status == "deadline" and not report.started:
        _late(report, future, now)
        report.error = "its deadline passed before it could start"
    elif status == "protocol" and not report.error:
        report.error = "its worker gave it back, and nobody had asked for that"
    elif status in ("crashed", "timeout") and not report.error:
        report.error = "its worker died again and again, and each time it was the first in line"
    elif status == "skipped" and not report.error:
        report.error = f"run_if={future._use.rules.run_if!r} did not come true"
    elif status == "cancelled" and not report.error:
        report.error = "was cancelled before it started"
    return report


def _answered(future: Future[Any], answer: Answer) -> Report:
    kind, payload, facts = answer
    if type(facts) is Report:
        report = facts
    else:
        report = Report("", facts[2] + facts[3])  # type: ignore[index]
        report.started, report.duration, report.attempts = facts[2], facts[3], 1  # type: ignore[index]
    if kind < wire.RAISED:  # it had expired, or was revoked, when the worker came to it
        report.started = report.duration = report.attempts = 0
        return report
    future._kind, future._result = kind, payload
    error = wire.unpack_error(payload)
    text = " ".join(error.text.split())[:500]
    report.error = f"{error.type_name}: {text}" if text else error.type_name
    if kind == wire.UNLOADABLE:
        report.error = _unloadable(report.error, error)
    elif kind == wire.DESCRIBED:
        report.error = f"its result cannot be pickled and rebuilt: {report.error}"
    report.stack, report.exit_code = error.traceback or None, error.exit_code
    return report


def _unloadable(text: str, error: wire.ErrorFacts) -> str:
    text = f"its function or arguments cannot be decoded in the worker: {text}"
    if error.type_name == "AttributeError" and ("'__main__'" in error.text or "'__mp_main__'" in error.text):
        text += "; a function defined only under `if __name__ == '__main__':` does not exist there"
    return text


def _blamed(report: Report, future: Future[Any], blame: int) -> None:
    """A prerequisite decided: name it, and the root behind it."""
    found = next((f for f in future._extra.after if f._id == blame), None) if future._extra else None
    if found is None or found.status() == "succeeded":
        return  # run_if="failure", and nothing failed: nobody is to blame
    upstream = found._report if isinstance(found._report, Report) else None
    root = (upstream.root if upstream else None) or Root(found._use.name, found._key)
    report.root = root
    if found.status() == "skipped":
        report.error = f"its prerequisite {found._use.name!r} was skipped"
        return
    cause = upstream.cause if upstream and upstream.root else None
    report.cause = cause or found._error_or_cancelled()
    through = "" if not (upstream and upstream.root) else f" (through {found._use.name!r})"
    why = upstream.error if upstream and not upstream.root else None
    report.error = f"{root.name!r} did not succeed{through}: {why or _one_line(report.cause)}"


def _one_line(error: BaseException | None) -> str:
    from ..outcome import brief

    return brief(error) if error else "unknown"
