"""Tokens: what there is of each, what is free, and which units a job gets.

A token is counted in units with names of their own ("gpu": "0", "3"), or it is
an amount ("memory": bytes).  Which units a job gets is decided here, the
lowest free first, so that the same history hands out the same units.
"""

from __future__ import annotations

from collections.abc import Mapping

Needs = tuple[tuple[str, int], ...]  # (token, how much), by name
Holding = Mapping[str, tuple[str, ...] | int]  # token -> the units, or the amount
Environment = tuple[tuple[str, str], ...]  # (variable, value)
Template = tuple[tuple[str, tuple[str, ...]], ...]  # (variable, pieces of its value: every other one names a token)

NOTHING: Holding = {}


class Tokens:
    """What a pool has of each token, and what of it is free.

    Attributes:
        all: token -> the names of its units, or its amount.
        changes: counts what was taken and given back, so that who has looked can tell whether to look again.
    """

    __slots__ = ("_amounts", "_free", "_rank", "all", "changes")

    def __init__(self, resources: Mapping[str, tuple[str, ...] | int]) -> None:
        self.all = resources
        self._amounts = {name: there for name, there in resources.items() if isinstance(there, int)}
        self._free = {name: list(there) for name, there in resources.items() if not isinstance(there, int)}
        self._rank = {name: {unit: i for i, unit in enumerate(units)} for name, units in self._free.items()}
        self.changes = 0

    def copy(self) -> Tokens:
        """Return the same tokens, to try on what would be left."""
        other = object.__new__(Tokens)
        other.all, other._rank, other.changes = self.all, self._rank, 0
        other._amounts = dict(self._amounts)
        other._free = {name: list(free) for name, free in self._free.items()}
        return other

    def left(self, name: str) -> int:
        """Return how much of a token is free."""
        return len(self._free[name]) if name in self._free else self._amounts[name]

    def units(self, name: str) -> tuple[str, ...]:
        """Return the free units of a token, in order."""
        return tuple(self._free[name])

    def choose(self, needs: Needs, wish: Holding = NOTHING) -> Holding | None:
        """Return what a job would get now, None if it lacks something.

        Args:
            wish: units to be preferred, if all of them are free and as many as are needed.
        """
        if not needs:
            return NOTHING
        chosen: dict[str, tuple[str, ...] | int] = {}
        for name, count in needs:
            if count > self.left(name):
                return None
            if name in self._amounts:
                chosen[name] = count
                continue
            free, wished = self._free[name], wish.get(name)
            fit = isinstance(wished, tuple) and len(wished) == count and set(free).issuperset(wished)
            chosen[name] = wished if fit else tuple(free[:count])  # type: ignore[assignment]
        return chosen

    def take(self, holding: Holding) -> None:
        """Take what `choose` returned."""
        self.changes += 1
        for name, what in holding.items():
            if isinstance(what, int):
                self._amounts[name] -= what
            else:
                taken = set(what)
                self._free[name] = [unit for unit in self._free[name] if unit not in taken]

    def give(self, holding: Holding) -> None:
        """Give back what was taken."""
        self.changes += 1
        for name, what in holding.items():
            if isinstance(what, int):
                self._amounts[name] += what
            else:
                self._free[name] = sorted((*self._free[name], *what), key=self._rank[name].__getitem__)


def expand(template: Template, holding: Holding) -> Environment:
    """Return the environment that a template means for who holds this: units joined by commas, an amount as number."""
    found = []
    for variable, pieces in template:
        value = ""
        for i, piece in enumerate(pieces):
            what = holding[piece] if i % 2 else piece
            value += ",".join(what) if isinstance(what, tuple) else str(what)
        found.append((variable, value))
    return tuple(found)
