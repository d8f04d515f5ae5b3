"""Restart intensity and retries: policy as numbers.

The words are Erlang/OTP's (supervisor(3), "restart intensity"): more than so
many restarts within a period, and the supervisor gives up and says so instead
of spinning.  Here only deaths count that no job explains: a worker that never
became ready, or the warden itself.
"""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

PAUSE_NS, PAUSE_MAX_NS = 10_000_000, 100_000_000  # ten tries take 0.75 s, within any sensible period
_GOLDEN = 0x9E3779B97F4A7C15
_MASK = (1 << 64) - 1


class RestartWindow:
    """The unexplained deaths of the last `period_ns`; more than `intensity` of them is too many."""

    __slots__ = ("_deaths", "intensity", "period_ns")

    def __init__(self, intensity: int, period_ns: int) -> None:
        self.intensity = intensity
        self.period_ns = period_ns
        self._deaths: deque[int] = deque()

    def exceeded(self, now: int) -> bool:
        """Note one death at `now`; return True if that is one too many."""
        deaths = self._deaths
        deaths.append(now)
        while deaths[0] < now - self.period_ns or len(deaths) > self.intensity + 1:
            deaths.popleft()
        return len(deaths) > self.intensity

    def pause_ns(self) -> int:
        """Return how long to wait before the next try: none after one death, then longer from death to death.

        What is short for a moment (processes, descriptors) must not use up the intensity in that moment.
        """
        deaths = len(self._deaths)
        return min(PAUSE_NS << deaths - 2, PAUSE_MAX_NS) if deaths > 1 else 0


class Retries(NamedTuple):
    """Which failed attempts are followed by another one, and after what pause.

    A field that is called like a status is that cause's own budget.

    Attributes:
        together: one budget for all causes; with it the others are 0.
        backoff_ns: the first pause; each further one is `factor` times as long, at most `max_delay_ns`.
        jitter: share of the pause by which it may be longer or shorter.
    """

    together: int = 0
    failed: int = 0
    crashed: int = 0
    timeout: int = 0
    memory: int = 0
    cpu: int = 0
    backoff_ns: int = 1_000_000_000
    factor: float = 2.0
    jitter: float = 0.1
    max_delay_ns: int = 60_000_000_000

    def budget(self, status: str) -> int:
        """Return how many failures of this cause may be followed by another attempt; `together` not counted."""
        return getattr(self, status) if status in CAUSES else 0

    def pause_ns(self, failures: int, seed: int, job: int) -> int:
        """Return the pause before the next attempt of `job` after so many failures (from 1), of whatever cause.

        The jitter is drawn from seed, job and number, so that the same history gives the same pauses (splitmix64).
        """
        if not self.backoff_ns:
            return 0
        try:
            pause = min(int(self.backoff_ns * self.factor ** (failures - 1)), self.max_delay_ns)
        except OverflowError:
            pause = self.max_delay_ns
        x = (seed + job * _GOLDEN + failures * 0xBF58476D1CE4E5B9) & _MASK
        x = ((x ^ x >> 30) * 0xBF58476D1CE4E5B9) & _MASK
        x = ((x ^ x >> 27) * 0x94D049BB133111EB) & _MASK
        return pause + int(pause * self.jitter * ((x >> 44) / (1 << 19) - 1))


CAUSES = frozenset(("failed", "crashed", "timeout", "memory", "cpu"))
