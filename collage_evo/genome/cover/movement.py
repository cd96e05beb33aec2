"""Movement costs of one tensor between engines: lookup tables of the dynamic program, filled on demand.

A live tensor's state holds the engine that made it and the engines that have it (see :class:`LiveTensor`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np

from collage_evo.graph.ir.graph import NodeSet, members, union

EVERYWHERE = -1
"""State of a live tensor that every engine that may still read it already has."""

MOST_SUBSETS = 8
"""Above this many engines the bound on a tensor's crossings is taken as if each engine had the tensor."""


@dataclass(frozen=True)
class Tariff:
    """Cost of moving one tensor, in ms.

    State of a live tensor: source engine and location, packed as ``source << shift | where``: a bit for each engine
    that has it and, where engines work in several memories, a bit for each memory.

    Attributes:
        charge: ``charge[source][engine]``, the crossing of their borders; the last row is the caller's own buffer.
        holds: by engine, the last being the caller, the location of the tensor once that one has it.
        copy: by memory, the host's first, the cost of a copy there; empty if there is only one.
    """

    charge: tuple[tuple[float, ...], ...]
    holds: tuple[int, ...]
    copy: tuple[float, ...] = ()

    @property
    def engines(self) -> int:
        """Number of engines: the first bits."""
        return len(self.charge) - 1

    @property
    def shift(self) -> int:
        """Number of bits of the location."""
        return self.engines + len(self.copy)

    def split(self, state: int) -> tuple[int, int]:
        """Source engine and location of a state."""
        return state >> self.shift, state & ((1 << self.shift) - 1)

    def copies_ms(self, where: int, have: int) -> float:
        """Cost of copies to all memories among ``where`` that are not among ``have``."""
        missing = (where & ~have) >> self.engines
        return sum(ms for memory, ms in enumerate(self.copy) if missing >> memory & 1)

    def reach(self, engines: int) -> int:
        """Location once all of ``engines``, a bitmask, have it."""
        return union(map(self.holds.__getitem__, members(engines)))

    def state(self, source: int, have: int, later: int) -> int:
        """State of a tensor made by ``source``, at location ``have``; ``later`` are the engines that may still read
        it."""
        reach = self.reach(later)
        have &= reach
        return EVERYWHERE if have == reach else source << self.shift | have


@dataclass(frozen=True)
class LiveTensor:
    """A tensor between engines: its readers, and the cost of moving it.

    ``common`` is the part of a border, by engine, that engines of one family save where they meet (0 for an engine
    without others in its family); ``made`` is False for inputs from the caller.
    """

    readers: NodeSet
    tariff: Tariff
    common: tuple[float, ...]
    made: bool


class ReadTable(dict[int, tuple[float, int]]):
    """Cost for ``engine`` to read a tensor in a given state, and the state after; filled on demand.

    ``later`` are the engines that may still read the tensor afterwards: where it is already on all of them, how it
    got there no longer matters.
    """

    def __init__(self, tariff: Tariff, engine: int, later: int) -> None:
        super().__init__()
        self.tariff, self.engine, self.later = tariff, engine, later

    def __missing__(self, state: int) -> tuple[float, int]:
        if state == EVERYWHERE:
            self[state] = (0.0, EVERYWHERE)
        else:
            source, have = self.tariff.split(state)
            holds = self.tariff.holds[self.engine]
            cost = 0.0 if have >> self.engine & 1 else self.tariff.charge[source][self.engine]
            cost += self.tariff.copies_ms(holds, have)
            self[state] = (cost, self.tariff.state(source, have | holds, self.later))
        return self[state]


class GapTable(dict[tuple[int, int], float]):
    """The most that crossings of one tensor can still cost more in state ``a`` than in state ``b`` (ms)."""

    def __init__(self, tariff: Tariff, engines: int, readers: int) -> None:
        super().__init__()
        self.tariff, self.readers = tariff, readers
        self.engines = tuple(members(engines))
        reached = {tariff.holds[engine] >> tariff.engines for engine in self.engines}
        several = [subset for size in range(1, len(reached) + 1) for subset in combinations(sorted(reached), size)]
        # All memories that its readers may need together, and the engines that work in these.
        self.needs = [
            (where << tariff.engines, [e for e in self.engines if not tariff.holds[e] >> tariff.engines & ~where])
            for where in dict.fromkeys(union(subset) for subset in several)
        ]

    def __missing__(self, pair: tuple[int, int]) -> float:
        ours, theirs = self._to_pay(pair[0]), self._to_pay(pair[1])
        most = 0.0
        for where, engines in self.needs:
            more = sorted((max(0.0, ours[e] - theirs[e]) for e in engines), reverse=True)
            copies = self._copies_ms(where, pair[0]) - self._copies_ms(where, pair[1])
            most = max(most, sum(more[: self.readers]) + copies)
        self[pair] = most
        return most

    def _to_pay(self, state: int) -> dict[int, float]:
        """Cost for each engine that may still read the tensor at its border."""
        source, have = self.tariff.split(state)
        return {
            e: 0.0 if state == EVERYWHERE or have >> e & 1 else self.tariff.charge[source][e] for e in self.engines
        }

    def _copies_ms(self, where: int, state: int) -> float:
        return 0.0 if state == EVERYWHERE else self.tariff.copies_ms(where, self.tariff.split(state)[1])


class AheadTable(dict[int, float]):
    """The least that crossings of one tensor, and the rewards of its remaining readers, can add up to (ms)."""

    def __init__(self, tariff: Tariff, readers: list[tuple[int, list[float]]]) -> None:
        super().__init__()
        self.tariff = tariff
        self.engines = sorted({e for able, _ in readers for e in members(able)})
        gains = [[gain[e] if able >> e & 1 else np.inf for e in self.engines] for able, gain in readers]
        self.gains = dict(zip(self.engines, np.array(gains).T, strict=True)) if gains else {}
        """By engine, what each reader would gain on it; infinite where it cannot run."""
        self.nothing = np.full(len(gains), np.inf)

    def __missing__(self, state: int) -> float:
        source, where = self.tariff.split(state)
        dear = [] if state == EVERYWHERE else [e for e in self.engines if not where >> e & 1]
        if len(dear) > MOST_SUBSETS:  # then as if every engine had it
            dear = []
        start = np.minimum.reduce([self.nothing, *(self.gains[e] for e in self.engines if e not in dear)])
        # For each reader and set of engines that get the tensor: the best source among those that have it then.
        best = _over_subsets(start[:, None], [self.gains[e][:, None] for e in dear], np.minimum)
        paid = _over_subsets(np.zeros(1), [self.tariff.charge[source][e] for e in dear], np.add)
        total = best.sum(axis=0) + paid
        if self.tariff.copy and dear:
            reached = _over_subsets(np.zeros(1, np.int64), [self.tariff.holds[e] for e in dear], np.bitwise_or)
            total += [self.tariff.copies_ms(int(memories), where) for memories in reached]
        self[state] = float(total.min())
        return self[state]


def _over_subsets(start: np.ndarray, values: Sequence[Any], join: np.ufunc) -> np.ndarray:
    """``start`` joined with the members of each subset of ``values``; the subset's bits are its index on the last
    axis."""
    joined = start
    for value in values:
        joined = np.concatenate((joined, join(joined, value)), axis=-1)
    return joined
