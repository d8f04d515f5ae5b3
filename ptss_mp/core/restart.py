"""Restart intensity and retries: policy as numbers.

The words are Erlang/OTP's (supervisor(3), "restart intensity"): more than so
many restarts within a period, and the supervisor gives up and says so instead
of spinning.  Here only deaths count that no job explains: a worker that never
became ready, or the warden itself.

A start that takes long to fail never comes to so many within the period.  So as
many in a row are too many too, if no worker came as far as a job in between.
"""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

PAUSE_NS, PAUSE_MAX_NS = 10_000_000, 100_000_000  # ten tries take 0.75 s, within any sensible period
PAUSE_BEYOND_NS = 1_000_000_000  # while somebody is at work and the shortage lasts: a try costs 10 ms of a processor
_GOLDEN = 0x9E3779B97F4A7C15
_MASK = (1 << 64) - 1


class RestartWindow:
    """The unexplained deaths of the last `period_ns`, and those in a row; more than `intensity` of either is too many.

    Attributes:
        in_a_row: deaths since a worker answered, or died of a job.
    """

    __slots__ = ("_began", "_deaths", "in_a_row", "intensity", "period_ns")

    def __init__(self, intensity: int, period_ns: int) -> None:
        self.intensity = intensity
        self.period_ns = period_ns
        self.in_a_row = self._began = 0
        self._deaths: deque[int] = deque()

    def exceeded(self, now: int) -> bool:
        """Note one death at `now`; return True if that is one too many."""
        deaths = self._deaths
        deaths.append(now)
        while deaths[0] < now - self.period_ns or len(deaths) > self.intensity + 1:
            deaths.popleft()
        if not self.in_a_row:
            self._began = now
        self.in_a_row += 1
        return len(deaths) > self.intensity or self.in_a_row > self.intensity

    def pause_ns(self) -> int:
        """Return how long to wait before the next try: none after one death, then longer from death to death.

        What is short for a moment (processes, descriptors) must not use up the intensity in that moment.
        """
        deaths = len(self._deaths)
        if max(deaths, self.in_a_row) > max(1, self.intensity):
            return PAUSE_BEYOND_NS
        return min(PAUSE_NS << deaths - 2, PAUSE_MAX_NS) if deaths > 1 else 0

    def told(self) -> str:
        """Return in words how often, and what is allowed."""
        deaths = self._deaths
        if len(deaths) > self.intensity:
            took, allowed = deaths[-1] - deaths[0], f"{self.intensity} in {self.period_ns / 1e9:g} s"
            return f"{len(deaths)} times in {took / 1e9:.3g} s (restart_intensity allows {allowed})"
        took = deaths[-1] - self._began
        return f"{self.in_a_row} times in a row, in {took / 1e9:.3g} s (restart_intensity allows {self.intensity})"


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

        The jitter is drawn from seed, job and number, so that the same history gives the same pauses.
        """
        if not self.backoff_ns:
            return 0
        try:
            pause = min(int(self.backoff_ns * self.factor ** (failures - 1)), self.max_delay_ns)
        except OverflowError:
            pause = self.max_delay_ns
        x = drawn(seed, job, failures)
        return pause + int(pause * self.jitter * ((x >> 44) / (1 << 19) - 1))


def drawn(seed: int, first: int, second: int) -> int:
    """Return a number of 64 bits that hangs on these three alone (splitmix64)."""
    x = (seed + first * _GOLDEN + second * 0xBF58476D1CE4E5B9) & _MASK
    x = ((x ^ x >> 30) * 0xBF58476D1CE4E5B9) & _MASK
    return ((x ^ x >> 27) * 0x94D049BB133111EB) & _MASK


CAUSES = frozenset(("failed", "crashed", "timeout", "memory", "cpu"))
