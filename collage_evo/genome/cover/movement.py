"""What moving one tensor between engines can cost: tables the dynamic program looks up, filled on demand.

A live tensor's state says which engine made it and which have it (see :class:`LiveTensor`).
"""

from __future__ import annotations

from itertools import combinations

from collage_evo.genome.cover.frontier import EVERYWHERE
from collage_evo.graph.ir import members

MOST_SUBSETS = 8
"""Above this many engines the bound on a tensor's crossings is taken as if each engine had the tensor."""


class ReadTable(dict[int, tuple[float, int]]):
    """What it costs ``engine`` to read a tensor in a given state, and the state after; filled on demand.

    ``later`` are the engines that may still read the tensor afterwards: where it is already on all of them,
    how it got there no longer matters.
    """

    def __init__(self, charge: tuple[tuple[float, ...], ...], engine: int, later: int, shift: int) -> None:
        super().__init__()
        self.charge, self.engine, self.later, self.shift = charge, engine, later, shift

    def __missing__(self, state: int) -> tuple[float, int]:
        if state == EVERYWHERE:
            self[state] = (0.0, EVERYWHERE)
        else:
            source, have = state >> self.shift, state & ((1 << self.shift) - 1)
            cost = 0.0 if have >> self.engine & 1 else self.charge[source][self.engine]
            self[state] = (cost, pack(source, have | 1 << self.engine, self.later, self.shift))
        return self[state]


class GapTable(dict[tuple[int, int], float]):
    """The most that crossings of one tensor can still cost more in state ``a`` than in state ``b`` (ms)."""

    def __init__(self, charge: tuple[tuple[float, ...], ...], engines: int, readers: int, shift: int) -> None:
        super().__init__()
        self.charge, self.engines, self.readers, self.shift = charge, engines, readers, shift

    def __missing__(self, pair: tuple[int, int]) -> float:
        ours, theirs = self._to_pay(pair[0]), self._to_pay(pair[1])
        more = sorted((max(0.0, a - b) for a, b in zip(ours, theirs, strict=True)), reverse=True)
        self[pair] = sum(more[: self.readers])
        return self[pair]

    def _to_pay(self, state: int) -> list[float]:
        """What each engine that may still read the tensor would pay for it."""
        have = state & ((1 << self.shift) - 1)
        return [
            0.0 if state == EVERYWHERE or have >> e & 1 else self.charge[state >> self.shift][e]
            for e in range(self.shift)
            if self.engines >> e & 1
        ]


class AheadTable(dict[int, float]):
    """The least that crossings of one tensor, and the rewards of its readers to come, can add up to (ms)."""

    def __init__(
        self, charge: tuple[tuple[float, ...], ...], readers: list[tuple[int, list[float]]], shift: int
    ) -> None:
        super().__init__()
        self.charge, self.shift = charge, shift
        self.readers = [{e: gain[e] for e in members(able)} for able, gain in readers]
        self.engines = sorted({e for reader in self.readers for e in reader})

    def __missing__(self, state: int) -> float:
        free = set(self.engines)
        dear: list[int] = []
        if state != EVERYWHERE:
            free = {e for e in self.engines if state >> e & 1}
            dear = [e for e in self.engines if e not in free]
        if len(dear) > MOST_SUBSETS:  # then as if every engine had it
            free, dear = set(self.engines), []
        source = state >> self.shift
        least = float("inf")
        for size in range(len(dear) + 1):
            for paid in combinations(dear, size):
                have = free.union(paid)
                total = sum(self.charge[source][e] for e in paid)
                for reader in self.readers:
                    total += min((gain for e, gain in reader.items() if e in have), default=float("inf"))
                least = min(least, total)
        self[state] = least
        return least


def pack(source: int, have: int, later: int, shift: int) -> int:
    """A live tensor's state: made by ``source``, present on ``have``, to be read by ``later``."""
    have &= later
    return EVERYWHERE if have == later else source << shift | have
