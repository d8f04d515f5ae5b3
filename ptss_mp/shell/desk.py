"""The desk between callers and loop: Futures, queues, and the settling of both.

A caller's thread does one atomic operation on each of `futures`, `inbox`,
`gone` and `controls`, and wakes the loop if it sleeps; no lock is needed.
Whoever pops a Future from `futures` owns its end (future.py).
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures._base import CANCELLED_AND_NOTIFIED, FINISHED
from itertools import count
from logging import WARNING
from typing import TYPE_CHECKING, Any

from ..core import commands as do
from ..core import events as on
from ..core.job import NEVER, Prerequisite, Row
from ..core.scheduler import Scheduler
from ..errors import PoolBroken
from ..marker import Progress
from ..outcome import EXIT_STATUS, Status
from .answers import Answer
from .answers import Row as AnswerRow
from .callbacks import Callbacks
from .channel import Channel
from .clock import monotonic_ns
from .dates import Dates
from .freight import Move
from .lateness import Lateness
from .memfree import MemoryGate
from .poller import Poller
from .records import replay
from .report import Report, finished_at, make_outcome
from .verdicts import explain_end, extra_of

if TYPE_CHECKING:
    from ..future import Future
    from ..journal.writer import Journal
    from ..outcome import Outcome
    from ..saving import Saving

# Whoever owns an end stores it within microseconds, once it gets the interpreter lock; unless it is a `cancel`
# that this very thread has begun, and a signal handler that cancels has interrupted.
YIELDS_MAX = 1_000
LOOK_NS = 500_000_000  # observers are told what running jobs report at most so often
EARLY_NS = 1_000_000_000  # a thread does not need so long from the table of Futures to the inbox
SLICE = 1_000  # submissions, edges of the graph, or cancels taken in one turn: about 1.5 ms of each
ASIDE = 10 * SLICE  # jobs looked at in one turn once some have prerequisites: 2 ms to put them all aside
_NOT_ENDED_BY_ITSELF = frozenset(("cancelled", "dependency", "skipped"))
_CUT_OFF = frozenset(("cancelled", "interrupted"))  # by the end of a pool
CANCELS = 200  # made in one turn for a view that ends: 1 ms


class Desk:
    """What callers touch, and what is done with it on the loop thread."""

    never = NEVER
    thread: threading.Thread
    poller: Poller  # made by `start`: an executor that only was constructed holds no descriptor

    def __init__(self, core: Scheduler, tee: bool, name: str) -> None:
        self.core, self.tee, self.name = core, tee, name
        self.futures: dict[int, Future[Any]] = {}
        self.journal: Journal | None = None
        self.uncommitted: dict[int, Future[Any]] = {}  # ended, and told when that is in the journal
        self.exact = False  # what was sent has begun: one job at a worker (a journal must know what has started)
        self.inbox: deque[Any] = deque()  # Futures, and controls among them
        self.landed: deque[tuple[Channel, Move]] = deque()  # moves of large values that have ended
        self.gone: deque[int] = deque()
        self.controls: deque[None] = deque()  # one for each control in the inbox
        self.ids = count(1)
        self.linked = False  # some job had prerequisites
        self.ended = False  # nothing more will be settled by the loop
        self.halted = False  # the core has nothing more to do
        self.broken: PoolBroken | None = None
        self.main_data: bytes = b""
        self.groups: set[int] = set()  # flags of warden.protocol: which options that limit trees are in use
        self.environ: dict[str, str] = {}  # of workers, beside the program's own
        self.room: threading.Condition | None = None  # of max_pending
        self.observers: list[Any] = []  # observe.story.Narrator
        self.drainers: list[tuple[threading.Event, bool]] = []  # who waits, and whether for the unreleased too
        self.savings: list[Saving] = []  # of a stop that is to write what has not run
        self.weights: set[int] = set()  # what the ends so far count in an exit status: at most 0, 1 and 3
        self.ends: Counter[str] = Counter()  # settled jobs by status; a cancel counts once the loop has heard of it
        self.retries = 0
        self.look_at = NEVER  # when to look what running jobs report: only if somebody observes
        self.releases: Any = None  # recurring.Releases, once a task was added
        self.gate: MemoryGate | None = None
        self.short = False  # the core was told to start nothing
        self.gate_at = NEVER  # when to look at the memory though nothing happens
        self.attempt_failed: Callable[[Outcome[Any]], None] | None = None  # told of each that another one follows
        # of the loop
        self.events: list[on.Event] = []  # that the core has not been told yet
        self.gathering: deque[tuple[Any, int]] = deque()  # rows with prerequisites, and how many of these were told
        self.early: dict[int, int] = {}  # jobs cancelled before their row was taken, and when that was heard
        self.aired_at = 0  # when `early` was last looked through
        self.answers: dict[int, Answer] = {}  # what workers answered, until the core has judged
        self.reports: dict[int, Report] = {}  # of attempts that died, likewise
        self.channels: dict[int, Channel] = {}  # by worker; callers read markers
        self.callbacks = Callbacks(name)
        self.lateness = Lateness(name, self.callbacks)
        self.dates = Dates()

    # ---- any thread

    def enqueue(self, future: Future[Any]) -> None:
        """Hand a new job to the loop."""
        self.futures[future._id] = future
        self.inbox.append(future)
        poller = self.poller
        if poller.asleep:
            poller.asleep = False  # one write per sleep, whoever comes first
            poller.wake()
        if self.ended and self.futures.pop(future._id, None) is not None:  # between the caller's look and the append
            self._settle_late(future)

    def control(self, make: Callable[[int], on.Event | None]) -> None:
        """Let the loop make an event, with its instant; in line with the submissions."""
        self.controls.append(None)  # first: who finds `make` in the inbox knows that there is one
        self.inbox.append(make)
        self.wake()

    def wake(self) -> None:
        """End the loop's sleep."""
        if self.thread.ident is not None:
            self.poller.wake()

    def arrived(self, channel: Channel, move: Move) -> None:
        """Tell the loop that a large value was moved."""
        self.landed.append((channel, move))
        self.wake()

    def cancel(self, future: Future[Any]) -> bool:
        """Settle a Future as cancelled, if nobody else owns its end; the core is told."""
        if self.futures.pop(future._id, None) is None:
            for _ in range(YIELDS_MAX):
                if future.done() or future.status():
                    break
                time.sleep(0)
            return future.cancelled()
        report = Report("cancelled", monotonic_ns())
        report.started = self._began(future)
        report.attempts = (future._extra.tries if future._extra else 0) + bool(report.started)
        report.duration = report.finished - report.started if report.started else 0
        report.error = "was cancelled"
        self.weights.add(EXIT_STATUS[Status.CANCELLED])
        future._report = report
        if future._end(CANCELLED_AND_NOTIFIED):
            self.callbacks.settled(future)
        self.free_room()
        self.gone.append(future._id)
        if not self.ended:
            self.wake()
        return True

    def cancel_unsent(self, futures: Iterable[Future[Any]]) -> None:
        """Cancel those that no worker was sent, soon: a moment's decision of the loop thread, for it alone sends.

        A caller that looked by itself might kill one that starts just now.
        """
        left = deque(future for future in futures if not future.done())
        if left:
            self.control(lambda _now: self._cancel_unsent(left))

    def _cancel_unsent(self, left: deque[Future[Any]]) -> None:
        for _ in range(min(len(left), CANCELS)):
            future = left.popleft()
            if not future.running():
                self.cancel(future)
        if left:
            self.control(lambda _now: self._cancel_unsent(left))

    def progress(self) -> list[tuple[Future[Any], Progress]]:
        """Return what running jobs have told of themselves, as the pages say; costs nobody who does not ask."""
        found = []
        for channel in list(self.channels.values()):
            with contextlib.suppress(ValueError):  # the page was let go of in this moment
                told = channel.progress()
                future = self.futures.get(told.job) if told else None
                if told and future and future._pid == channel.pid:
                    found.append((future, told))
        return found

    def _began(self, future: Future[Any]) -> int:
        """Return since when the job's attempt runs, 0 if none does, by the marker page."""
        for channel in list(self.channels.values()):
            if channel.pid == future._pid:
                with contextlib.suppress(ValueError):  # the page was let go of in this moment
                    job, began = channel.marked()
                    return min(began, monotonic_ns()) if job == future._id else 0
        return 0

    # ---- the loop thread

    def busy(self) -> bool:
        """Return True if a caller has left something."""
        return bool(self.inbox or self.gone or self.gathering or self.events)

    def taken(self) -> list[on.Event]:
        """Take what callers have left, as events, in their order."""
        most = ASIDE if self.linked else SLICE
        left: list[Any] = [self.inbox.popleft() for _ in range(min(len(self.inbox), most))]
        events = self._controlled(left) if self.controls else []
        if self.early:
            left = [future for future in left if self.early.pop(future._id, None) is None]
            self._air()
        if self.linked:  # those with prerequisites stand aside: what they wait for has been told when they are
            left = self._put_aside(left)
        rows: list[Any] = [(f._id, f._use.spec, f._due, f._release, None) for f in left]
        if rows:
            events.append(on.Submitted(monotonic_ns(), rows))
        if self.gathering:
            self._gather(events)
        if self.gone:
            ids = [self.gone.popleft() for _ in range(min(len(self.gone), SLICE))]
            self.ends["cancelled"] += len(ids)
            now, here = monotonic_ns(), {row[0] for event in events for row in getattr(event, "rows", ())}
            here |= {event.row[0] for event in events if type(event) is on.Linked}
            self.early |= {job: now for job in ids if job not in self.core.jobs and job not in here}
            events.append(on.Cancelled(now, ids))
        if self.gate or self.journal:
            events += self._look_at_gates(bool(rows or self.core.ready))
        return events

    def _put_aside(self, left: list[Future[Any]]) -> list[Future[Any]]:
        """Put those with prerequisites aside; return a slice of the others, and put back what follows it."""
        plain: list[Future[Any]] = []
        for at, future in enumerate(left):
            after = future._extra.after if future._extra else None
            if after:
                self.gathering.append(((future._id, future._use.spec, future._due, future._release, after), 0))
                continue
            if len(plain) == SLICE:
                self.inbox.extendleft(reversed(left[at:]))
                break
            plain.append(future)
        return plain

    def _gather(self, events: list[on.Event]) -> None:
        """Tell of jobs with prerequisites, a slice of edges; one with many is told in parts.

        Jobs without any do not wait for that: a graph is submitted faster than it is taken.
        """
        rows: list[Row] = []
        left = SLICE
        while self.gathering and left > 0:
            (job, spec, due, release, after), told = self.gathering.popleft()
            if (told and job not in self.core.jobs) or self.early.pop(job, None) is not None:
                continue  # it was cancelled, or one of them has failed
            part, last = after[told : told + SLICE], told + SLICE >= len(after)
            edges = tuple(Prerequisite(f._id, f.status(), f._release, f._due) for f in part)
            left -= len(edges)
            if last and not told:
                rows.append(Row(job, spec, due, release, edges))
                continue
            if not last:
                self.gathering.append(((job, spec, due, release, after), told + SLICE))
            if rows:
                events.append(on.Submitted(monotonic_ns(), rows))
                rows = []
            events.append(on.Linked(monotonic_ns(), Row(job, spec, due, release, edges), not told, last))
        if rows:
            events.append(on.Submitted(monotonic_ns(), rows))

    def _look_at_gates(self, wanted: bool) -> list[on.Event]:
        """Look whether jobs may start: at the memory only if some are ready."""
        gate, short = self.gate, bool(self.journal and self.journal.shut)
        if gate:
            looked = gate.look(monotonic_ns()) if wanted else None
            self.gate_at = gate.again_at if wanted else NEVER
            if looked and looked.short and not gate.told:
                gate.told = True
                self.callbacks.log(WARNING, "no job is started: %s", gate.why())
            short = short or gate.short
        if short == self.short:
            return []
        self.short = short
        return [on.MemoryLooked(monotonic_ns(), short)]

    def _air(self) -> None:
        """Forget early cancels whose row will not come, now and then.

        A job may have ended in the very moment in which it was cancelled: the core knows it no more, and its row
        was taken long ago.  Those still to come stand in line, aside, or in the hands of a thread within `enqueue`.
        """
        now = monotonic_ns()
        if not (self.inbox or self.gathering) and now - self.aired_at > EARLY_NS:
            self.aired_at = now
            self.early = {job: at for job, at in self.early.items() if now - at <= EARLY_NS}

    def _controlled(self, left: list[Any]) -> list[on.Event]:
        """Take the controls at the head of the line; leave what follows one that follows rows to the next turn.

        So a pause holds for what was submitted after it, and what came before a shutdown may start before it; for that
        they wait for those that stand aside.
        """
        events: list[on.Event] = []
        while left and callable(left[0]) and not self.gathering:
            self.controls.pop()
            event = left.pop(0)(monotonic_ns())
            if event is not None:
                events.append(event)
        later = next((i for i, what in enumerate(left) if callable(what)), len(left))
        self.inbox.extendleft(reversed(left[later:]))
        del left[later:]
        return events

    def refuse(self) -> None:
        """Cancel what was submitted between its caller's look at the state and the end of everything."""
        while self.inbox:
            what = self.inbox.popleft()
            if not callable(what):
                self._save(what, "cancelled")
                self.cancel(what)

    def _save(self, future: Future[Any], status: str) -> None:
        """Note a job that ends without having run, for who stopped the pool."""
        for saving in self.savings:
            saving.take(future, status)

    def settle(self, command: do.Settle) -> None:
        """Store results and wake who waits."""
        take, answer_of, late = self.futures.pop, self.answers.pop, self.lateness.wanted
        if command.status == "succeeded":
            missing = 0
            for job in command.ids:
                future, answer = take(job, None), answer_of(job, None)
                if future is None:
                    missing += 1
                    continue
                assert answer is not None
                future._kind, future._result, report = answer
                if future._extra and type(report) is Report:
                    report.attempts += future._extra.tries
                future._report = report
                if late and finished_at(report) > future._due:
                    self.weights.add(EXIT_STATUS[Status.DEADLINE])
                    self.lateness.note(future._use.name, finished_at(report) - future._due)
                if future._end(FINISHED):
                    self.callbacks.settled(future)
            self.ends["succeeded"] += len(command.ids) - missing
            if self.reports:  # of one who forged its own answer and died
                for job in command.ids:
                    self.reports.pop(job, None)
        else:
            for i, job in enumerate(command.ids):
                blame = command.blame[i] if command.blame else 0
                self._settle_badly(take(job, None), job, command.status, blame)
        if self.room:
            self.free_room()

    def _settle_badly(self, future: Future[Any] | None, job: int, status: str, blame: int) -> None:
        answer, report = self.answers.pop(job, None), self.reports.pop(job, None)
        if future is None:
            return
        if self.savings and status in _CUT_OFF:
            self._save(future, status)
        future._report = explain_end(future, status, answer, report, blame, monotonic_ns())
        self.ends[status] += 1
        if status != "dependency":  # its root, a job of this pool, has counted
            self.weights.add(EXIT_STATUS[Status(status)])
        if future._report.finished > future._due and status not in _NOT_ENDED_BY_ITSELF:
            self.lateness.note(future._use.name, future._report.finished - future._due)
        if future._end(CANCELLED_AND_NOTIFIED if status == "cancelled" else FINISHED):
            self.callbacks.settled(future)

    def tell_deadline(self, command: do.TellDeadline) -> None:
        """Log that deadlines are near."""
        self.lateness.tell(command, self.futures, monotonic_ns())

    def carry_on(self, rows: list[AnswerRow], found: dict[int, Answer]) -> list[AnswerRow]:
        """Let unfinished chunks keep what they have; return the rows, those of jobs that are none as lost."""
        for i, (job, end, started, duration) in enumerate(rows):
            if end == on.UNFINISHED and job in found:  # else it was taken back: what is said of it does not count
                _, payload, report = found.pop(job)
                if type(report) is Report:
                    self.pass_on(report, job)
                future = self.futures.get(job)
                if future and not (future._extra and future._extra.run and future._extra.run.carry_on(payload)):
                    rows[i] = job, on.LOST, started, duration
        return rows

    def postpone(self, command: do.Postpone) -> None:
        """Count a failed attempt; another one follows."""
        future = self.futures.get(command.job)
        answer, report = self.answers.pop(command.job, None), self.reports.pop(command.job, None)
        if future and self.attempt_failed:
            call = future._kind, future._result  # it is needed again; the answer's value takes its place
            failed = make_outcome(future, explain_end(future, command.status, answer, report, 0, monotonic_ns()))
            future._kind, future._result = call
            self.callbacks.put(lambda tell=self.attempt_failed: tell(failed))  # type: ignore[misc]
        self.retries += 1
        if future:
            extra_of(future).tries += 1

    def pass_on(self, report: Report, job: int) -> None:
        """Let the program say what an attempt printed and logged."""
        if self.tee and (report.out or report.err):
            self.callbacks.tee(report)
        if report.log:
            future, lines = self.futures.get(job), report.log
            name = future._use.name if future else None  # cancelled while it ran: nobody else keeps its name
            self.callbacks.put(lambda: replay(lines, name))
            report.log = None

    def _break(self, why: str) -> None:
        """No job can run any more: fail them all for that reason, the first that was seen."""
        self.broken = self.broken or PoolBroken(f"the pool cannot go on: {why}")
        self.halted = self.ended = True

    def settle_all(self) -> None:
        """Settle what is left when the loop ends: as cancelled, or for the reason that broke the pool."""
        for job in list(self.futures):
            future = self.futures.pop(job, None)
            if future is not None:
                self._settle_late(future)
        if self.journal:
            self.journal.finish()
        self.free_room()
        for over, _ in self.drainers:
            self.callbacks.put(over.set)  # behind those that are due
        for saving in self.savings:
            self.callbacks.put(saving.write)
        self.drainers = []

    def _settle_late(self, future: Future[Any]) -> None:
        broken = self.broken
        report = Report("crashed" if broken else "cancelled", monotonic_ns())
        report.error, report.cause = str(broken or "the pool has ended").partition("\n")[0], broken
        self.ends[report.status] += 1
        self.weights.add(EXIT_STATUS[Status(report.status)])
        future._report = report
        self._save(future, report.status)
        if future._end(FINISHED if broken else CANCELLED_AND_NOTIFIED):
            self.callbacks.settled(future)

    def naming(self, events: Sequence[on.Event]) -> list[Any]:
        """Let observers note the names of jobs while their Futures are there; return who is to be told the rest."""
        observers = self.observers
        for observer in observers:
            observer.names(events)
        return observers

    def tell(self, observers: list[Any], events: Sequence[on.Event], commands: Sequence[do.Command]) -> None:
        """Let observers know a step, behind the callbacks of what it settled."""
        for observer in observers:
            observer.take(events, commands)

    def put_behind(self, what: Callable[[], object]) -> None:
        """Call `what` on the callback thread, behind the callbacks of what was settled before."""
        self.journal.after(what) if self.journal else self.callbacks.put(what)

    def looks_at(self) -> int:
        """Return the next instant at which the loop is to look around though nothing happens."""
        at = min(self.look_at, self.gate_at, self.lateness.sum_at, self.dates.look_at)
        return min(at, self.releases.wake_at) if self.releases else at

    def look_around(self, now: int) -> None:
        """Do what is due of that; memory and dates are looked at in every turn."""
        if now >= self.look_at:
            self.look(now)
        if now >= self.lateness.sum_at:
            self.lateness.sum_up()

    def look(self, now: int) -> None:
        """Let observers know what running jobs report, and look again later; without observers that ends."""
        if self.observers and (reports := self.progress()):
            for observer in self.observers:
                observer.progress(now, reports)
        self.look_at = now + LOOK_NS if self.observers else NEVER

    def free_room(self) -> None:
        """Tell those who wait for `max_pending`."""
        if self.room:
            with self.room:
                self.room.notify_all()

    def tell_drainers(self) -> None:
        """Tell those who wait for the work to be done, once no callback can bring more."""
        if self.inbox or self.gathering or self.callbacks.due or (self.releases and self.releases.told):
            return  # `rested` wakes the loop
        idle = not (self.futures or self.uncommitted)
        drained = idle or (not self.uncommitted and self.core.only_unreleased())
        for over, everything in self.drainers:
            if (idle and not (everything and self.releases and self.releases.go_on)) or (drained and not everything):
                over.set()
        self.drainers = [drainer for drainer in self.drainers if not drainer[0].is_set()]

    def rested(self) -> None:
        """The last callback that was due has run (on the callback thread)."""
        if self.drainers:
            self.wake()
