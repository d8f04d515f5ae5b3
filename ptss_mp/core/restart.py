"""Restart intensity and backoff: policy as numbers.

The words are Erlang/OTP's (supervisor(3), "restart intensity"): more than so
many restarts within a period, and the supervisor gives up and says so instead
of spinning.  Here only deaths count that no job explains: a worker that never
became ready, or the warden itself.
"""

from __future__ import annotations

from collections import deque

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


BACKOFF_NS = 1_000_000_000  # one second, doubled each time, at most a minute, and a tenth of jitter
BACKOFF_MAX_NS = 60 * BACKOFF_NS


def backoff_ns(failures: int, seed: int, job: int) -> int:
    """Return the pause before the next attempt of `job` after so many failures (from 1).

    Doubles each time up to a minute, with 10 % jitter drawn from seed, job and
    number, so that the same history gives the same pauses (splitmix64).
    """
    pause = min(BACKOFF_NS << min(failures - 1, 8), BACKOFF_MAX_NS)
    x = (seed + job * _GOLDEN + failures * 0xBF58476D1CE4E5B9) & _MASK
    x = ((x ^ x >> 30) * 0xBF58476D1CE4E5B9) & _MASK
    x = ((x ^ x >> 27) * 0x94D049BB133111EB) & _MASK
    return pause + pause * ((x >> 44) - (1 << 19)) // (10 << 19)
