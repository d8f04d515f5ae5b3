"""The scheduler under any sequence of events, against a model of a few lines."""

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from ptss_mp.core import commands as do
from ptss_mp.core import events as on
from ptss_mp.core import invariants
from ptss_mp.core.job import NEVER, Prerequisite, Row, Spec
from ptss_mp.core.restart import Retries
from ptss_mp.core.scheduler import Scheduler

MS = 1_000_000
flags = st.booleans()
NEEDS = [(), (), (("gpu", 1),), (("gpu", 2),), (("gpu", 1), ("space", 2)), (("space", 3),), (("space", 1),)]
delays = st.sampled_from([0, 1, MS, 60 * MS, 2000 * MS])
budgets = st.integers(0, 2)
policies = st.builds(
    Retries, st.just(0), budgets, budgets, budgets, budgets, budgets,
    backoff_ns=delays, factor=st.floats(1, 1000), jitter=st.floats(0, 1), max_delay_ns=delays,
)  # fmt: skip


class Core(RuleBasedStateMachine):
    """The model: which jobs live, which are where, which workers are up."""

    @initialize(workers=st.integers(1, 3), spares=st.integers(0, 2), max_tasks=st.integers(0, 3))
    def build(self, workers, spares, max_tasks):
        self.core = Scheduler(workers, spares, max_tasks, intensity=1000, resources={"gpu": ("0", "1"), "space": 3})
        self.dead = []  # workers whose death was told, and that are not reaped
        self.now, self.next_id = MS, 1
        self.live, self.edges, self.booting, self.queues = {}, {}, [], {}
        self.halted = self.closed = False
        self.ends = {}

    def step(self, *events):
        """Take a step and let the model follow the commands."""
        before, workers = invariants.states(self.core), invariants.worker_states(self.core)
        for command in self.core.step(events):
            if type(command) is do.Settle:
                for job in command.ids:
                    assert job in self.live, f"{job} settled twice"
                    del self.live[job]
                    self.ends[job] = command.status
            elif type(command) is do.StartWorker:
                self.booting.append(command.worker)
            elif type(command) is do.Dispatch:
                assert command.worker in self.queues
                self.queues[command.worker] += command.ids
            elif type(command) is do.Halt:
                self.halted = True
        invariants.check_moves(before, invariants.states(self.core))
        invariants.check_worker_moves(workers, invariants.worker_states(self.core))

    @precondition(lambda self: not self.closed)
    @rule(data=st.data(), due=delays, release=delays, kill=flags, fresh=flags, retries=budgets | policies,
          needs=st.sampled_from(NEEDS), env=st.sampled_from(["", "", "a", "b", "{gpu}"]))  # fmt: skip
    def submit(self, data, due, release, kill, fresh, retries, needs, env):
        job, self.next_id = self.next_id, self.next_id + 1
        earlier = st.lists(st.integers(1, job - 1), max_size=3) if job > 1 else st.just([])
        ids = data.draw(earlier)
        run_if = data.draw(st.sampled_from(["success", "done", "failure"]))
        pieces = ("", "gpu", "") if env == "{gpu}" else (env,)
        template = (("E", pieces),) if env and (len(pieces) == 1 or "gpu" in dict(needs)) else ()
        spec = Spec(job % 2, 0, MS, kill, run_if, retries, fresh, needs=needs, env=template)
        release += self.now
        due = release + due if due else NEVER
        after = tuple(Prerequisite(i, self.ends.get(i, ""), *self.edges[i]) for i in ids) or None
        self.edges[job] = (release, due)
        self.live[job] = spec
        self.step(on.Submitted(self.now, [Row(job, spec, due, release, after)]))

    @precondition(lambda self: self.booting)
    @rule(lives=flags)
    def boot(self, lives):
        worker = self.booting.pop(0)
        if lives:
            self.queues[worker] = []
            self.step(on.WorkerReady(self.now, worker))
        else:
            self.step(on.WorkerDied(self.now, worker, 0, "crashed", False))

    @precondition(lambda self: any(self.queues.values()))
    @rule(end=st.sampled_from([on.OK, on.OK, on.FAILED, on.FAILED_FOR_GOOD, on.EXPIRED]), count=st.integers(1, 3))
    def answer(self, end, count):
        worker = next(w for w, queue in self.queues.items() if queue)
        ids, self.queues[worker] = self.queues[worker][:count], self.queues[worker][count:]
        self.step(on.Answered(self.now, worker, [(job, end, self.now, 1000) for job in ids]))

    @precondition(lambda self: self.queues)
    @rule(data=st.data(), why=st.sampled_from(["crashed", "timeout", "deadline", "memory", "cpu"]), began=flags)
    def die(self, data, why, began):
        worker = data.draw(st.sampled_from(sorted(self.queues)))
        queue = self.queues.pop(worker)
        self.dead.append(worker)
        innocent = [job for job in queue[began:] if job in self.live]
        self.step(on.WorkerDied(self.now, worker, queue[0] if queue and began else 0, why, True))
        for job in innocent:
            expired = self.live.get(job) is None and self.ends[job] == "deadline"
            assert job in self.live or expired or self.closed, f"innocent {job} ended {self.ends[job]}"

    @precondition(lambda self: self.dead)
    @rule()
    def reap(self):
        self.step(on.Reaped(self.now, self.dead.pop(0)))

    @precondition(lambda self: self.live)
    @rule(data=st.data())
    def cancel(self, data):
        job = data.draw(st.sampled_from(sorted(self.live)))
        self.step(on.Cancelled(self.now, [job]))
        assert self.ends[job] == "cancelled"

    @rule(ns=delays)
    def wait(self, ns):
        self.now += ns
        self.step(on.Fired(self.now, {}))
        assert self.core.wake_at > self.now or self.halted

    @rule(short=flags)
    def look_at_memory(self, short):
        self.step(on.MemoryLooked(self.now, short))

    @rule(paused=flags)
    def pause(self, paused):
        self.step(on.Paused(self.now) if paused else on.Resumed(self.now))

    @precondition(lambda self: self.next_id > 15)
    @rule(stop=flags, drop=flags)
    def close(self, stop, drop):
        self.closed = True
        self.step(on.Stopped(self.now, MS) if stop else on.Closed(self.now, drop))

    @invariant()
    def same_jobs_live(self):
        if hasattr(self, "core"):
            assert set(self.core.jobs) == set(self.live)
            assert self.halted == (self.closed and not self.live)
            invariants.check(self.core)


TestCore = Core.TestCase
TestCore.settings = settings(max_examples=150, stateful_step_count=40)


@given(policies, st.integers(1, 10), st.integers(0, 2**40), st.integers(0, 99))
def test_a_pause_is_what_the_policy_says_within_its_jitter(retries, failures, job, seed):
    pause = min(retries.backoff_ns * retries.factor ** (failures - 1), retries.max_delay_ns)
    got = retries.pause_ns(failures, seed, job)
    assert pause * (1 - retries.jitter) - 2 <= got <= pause * (1 + retries.jitter) + 2
