"""What one simulated run is like, drawn from its seed (swarm testing: Groce et al., ISSTA 2012).

Each run has some kinds of trouble and lacks others, for a run with everything
in it hides the faults that need one thing often and another never.
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

from ptss_mp.core.slices import SLICE

US, MS, S = 1_000, 1_000_000, 1_000_000_000
BUDGETS_FROM = 2_000  # seeds below keep the histories they had before there were budgets by cause (REGRESSIONS)
SALT = 98  # so chosen that the seeds of test_simulation.REGRESSIONS, older than tokens, draw none
RUN_TIMES_NS = ((1 * US, 40 * US), (20 * US, 300 * US), (200 * US, 3 * MS), (2 * MS, 80 * MS))


@dataclass(slots=True)
class Function:
    """What a pretended function does: `low`..`high` ns of run time; a liar takes far longer now and then."""

    number: int
    low: int
    high: int
    lies: float

    def run_ns(self, rng: Random) -> int:
        took = rng.randrange(self.low, self.high)
        return took * 200 if self.lies and rng.random() < self.lies else took


def _chance(rng: Random, *, off: float, high: float) -> float:
    """Return a probability that is 0 in the share `off` of all runs, else anything up to `high`."""
    return 0.0 if rng.random() < off else rng.random() * high


def _resources(rng: Random) -> dict[str, tuple[str, ...] | int]:
    """Draw the tokens of a pool."""
    there: dict[str, tuple[str, ...] | int] = {"gpu": tuple("0123"[: rng.randint(1, 4)])}
    if rng.random() < 0.5:
        there["db"] = ("x", "a", "m")[: rng.randint(1, 3)]  # in no alphabet's order
    if rng.random() < 0.5:
        there["memory"] = 10
    return there


@dataclass(slots=True)
class Swarm:
    """The parameters of one run; every p_ is a probability per job, per attempt or per worker."""

    workers: int
    spares: int
    max_tasks: int
    intensity: int
    start_timeout_ns: int
    jobs: int
    span_ns: int
    batch: int
    window_ns: int
    functions: list[Function]
    p_deadline: float
    p_finish: float
    p_timeout: float
    p_start_time: float
    p_after: float
    p_condition: float
    p_retries: float
    p_fresh: float
    p_alone: float
    p_unfit: float
    resources: dict[str, tuple[str, ...] | int]
    p_needs: float
    p_env: float
    p_priority: float
    p_cancel: float
    p_raise: float
    p_unpicklable: float
    p_crash: float
    p_hang: float
    p_protocol: float
    p_lost_word: float
    p_stale_word: float
    p_garbled_mark: float
    p_boot_death: float
    p_slow_boot: float
    p_ready_then_die: float
    p_coalesce: float
    p_budgets: float
    p_for_good: float
    p_memory: float
    p_cpu: float
    kills: int
    warden_deaths: int
    pauses: int
    shortages: int
    end: str
    lag_ns: int
    slice_size: int
    p_parts: float

    @classmethod
    def draw(cls, rng: Random, seed: int, later: Random, last: Random) -> Swarm:
        """Draw the parameters of a run; `later` and `last` are what was drawn first in later years (World.more)."""
        off = 0.3 if seed >= BUDGETS_FROM else 1.0
        more = Random(seed)
        bound = later.random() < 0.5
        functions = []
        for number in range(1, rng.randint(1, 4) + 1):
            low, high = rng.choice(RUN_TIMES_NS)
            functions.append(Function(number, low, high, _chance(rng, off=0.7, high=0.1)))
        return cls(
            workers=rng.randint(1, 6),
            spares=rng.randint(0, 2),
            max_tasks=rng.choice((0, 0, 0, 1, 2, 5, 20)),
            intensity=rng.choice((3, 1000, 1000, 1000)),
            start_timeout_ns=rng.choice((0, 20 * MS, 200 * MS)),
            jobs=rng.randint(15, 60),
            span_ns=rng.choice((0, 1 * MS, 20 * MS, 300 * MS)),
            batch=rng.choice((1, 4, 12, 60)),
            window_ns=rng.choice((0, 0, 20 * US, 500 * US)),
            functions=functions,
            p_deadline=_chance(rng, off=0.3, high=1),
            p_finish=_chance(rng, off=0.5, high=1),
            p_timeout=_chance(rng, off=0.4, high=1),
            p_start_time=_chance(rng, off=0.6, high=0.5),
            p_after=_chance(rng, off=0.4, high=0.9),
            p_condition=_chance(rng, off=0.4, high=0.8),
            p_retries=_chance(rng, off=0.4, high=1),
            p_fresh=_chance(rng, off=0.7, high=0.7),
            p_alone=_chance(more, off=0.6 if off < 1 else 1.0, high=1),
            p_unfit=_chance(more, off=0.5 if off < 1 else 1.0, high=0.6),
            resources=_resources(later) if bound else {},
            p_needs=_chance(later, off=0.1, high=1),
            p_env=_chance(later, off=0.3, high=0.6) if bound else 0.0,
            p_priority=_chance(rng, off=0.5, high=1),
            p_cancel=_chance(rng, off=0.6, high=0.3),
            p_raise=_chance(rng, off=0.5, high=0.3),
            p_unpicklable=_chance(rng, off=0.8, high=0.2),
            p_crash=_chance(rng, off=0.6, high=0.3),
            p_hang=_chance(rng, off=0.6, high=0.3),
            p_protocol=_chance(rng, off=0.9, high=0.1),
            p_lost_word=_chance(rng, off=0.7, high=0.8),
            p_stale_word=_chance(rng, off=0.8, high=0.3),
            p_garbled_mark=_chance(rng, off=0.8, high=0.5),
            p_boot_death=_chance(rng, off=0.7, high=0.5),
            p_slow_boot=_chance(rng, off=0.7, high=0.5),
            p_ready_then_die=_chance(rng, off=0.8, high=0.4),
            p_coalesce=_chance(rng, off=0.3, high=1),
            p_budgets=_chance(more, off=off, high=1),
            p_for_good=_chance(more, off=off, high=0.5),
            p_memory=_chance(more, off=off, high=0.2),
            p_cpu=_chance(more, off=off, high=0.2),
            kills=rng.choice((0, 0, 2, 8)),
            warden_deaths=rng.choice((0, 0, 0, 0, 1, 2)),
            pauses=rng.choice((0, 0, 0, 1, 3)),
            shortages=more.choice((0, 0, 2)) if bound else 0,
            end=rng.choice(("close", "close", "close", "drop", "stop", "close and stop")),
            lag_ns=rng.choice((1 * US, 50 * US, 2 * MS)),
            slice_size=last.choice((1, 8, 30, SLICE, SLICE)) if off < 1 else SLICE,
            p_parts=_chance(last, off=0.5, high=0.8) if off < 1 else 0.0,
        )
