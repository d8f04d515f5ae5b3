"""How long a function takes, by what its attempts took: an exponentially weighted mean.

It decides how many jobs may be queued at one worker, and nothing else.
"""

from __future__ import annotations


class Estimates(dict[int, int]):
    """Function -> run time, ns.  What is not in it has never run.

    Attributes:
        runs, total_ns: all attempts that answered so far.
    """

    runs = total_ns = 0

    def learn(self, fn: int, total: int, runs: int) -> None:
        """Take some runs into account; a mean four times as long replaces it, for a function may become slow."""
        self.runs += runs
        self.total_ns += total
        mean = total // runs
        old = self.get(fn)
        if old is None or mean > 4 * old:
            self[fn] = mean
        else:
            self[fn] = old + (mean - old) * min(runs, 4) // 8
