"""IOS's dynamic program: takes units of a graph and a machine, gives the shortest time as stages one after the other.

Ding, Zhu, Jia, Pekhimenko and Han, "IOS: Inter-Operator Scheduler for CNN Acceleration" (MLSys 2021), for cores in
place of a GPU: the groups of a stage, its connected components, run at the same time and share the cores, and the
next stage begins when all are done. Operators are not merged.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from collage_evo.graph.ir import NodeSet, members

PRUNING = ((3, 8), (2, 8), (1, 8), (1, 4), (1, 2))
"""Operators in a group and groups in a stage: the paper's pruning, and what is tried where that leaves too much."""

MOST_ENDINGS = 300_000
"""So many transitions are looked at in a block."""


class TooMany(Exception):
    """More transitions than :data:`MOST_ENDINGS`."""


@dataclass
class Stages:
    """``ms[unit][k]``: a unit's ms on 2**k cores; the machine has 2**(len - 1). ``succ`` are the units' readers."""

    ms: Sequence[Sequence[float]]
    succ: Sequence[NodeSet]
    handoff_ms: float
    largest_group: int
    most_groups: int
    endings: int = 0
    _known: dict[NodeSet, float] = field(default_factory=dict)
    _stage_ms: dict[NodeSet, float] = field(default_factory=dict)
    _group_ms: dict[NodeSet, list[float]] = field(default_factory=dict)

    def shortest_ms(self) -> float:
        """Of all schedules in stages of what is allowed.

        Raises:
            TooMany: there are too many to look at.
        """
        self._known[0] = 0.0
        return self._shortest((1 << len(self.ms)) - 1)

    def _shortest(self, left: NodeSet) -> float:
        """Of ``left``, which nothing outside of it waits in: its last stage is what nothing in ``left`` reads."""
        if left not in self._known:
            best = math.inf
            for ending, groups in self._endings(left):
                self.endings += 1
                if self.endings > MOST_ENDINGS:
                    raise TooMany
                stage = self._stage(ending, groups)
                if stage < best:
                    best = min(best, stage + self._shortest(left & ~ending))
            self._known[left] = best
        return self._known[left]

    def _endings(self, left: NodeSet) -> Iterator[tuple[NodeSet, list[NodeSet]]]:
        """Sets of ``left`` that hold all readers of what they hold, with their connected components."""
        order = list(members(left))[::-1]

        def grow(place: int, ending: NodeSet, groups: list[NodeSet]) -> Iterator[tuple[NodeSet, list[NodeSet]]]:
            if place == len(order):
                if ending and len(groups) <= self.most_groups:
                    yield ending, groups
                return
            unit = order[place]
            readers = self.succ[unit] & left
            if not readers & ~ending:
                joined = 1 << unit
                for group in groups:
                    joined |= group if group & readers else 0
                rest = [group for group in groups if not group & joined]
                # Groups of one never grow together.
                if joined.bit_count() <= self.largest_group and (
                    self.largest_group > 1 or len(rest) < self.most_groups
                ):
                    yield from grow(place + 1, ending | 1 << unit, [*rest, joined])
            yield from grow(place + 1, ending, groups)

        yield from grow(0, 0, [])

    def _stage(self, ending: NodeSet, groups: Sequence[NodeSet]) -> float:
        """The cores go to the group that would take longest, twice as many each time."""
        if ending not in self._stage_ms:
            times = [self._group(group) for group in groups]
            most = len(self.ms[0]) - 1
            if len(groups) > 1 << most:
                total = sum(one[0] for one in times)
                found = max(total / (1 << most), max(one[0] for one in times))
            else:
                shares = [0] * len(groups)
                while True:
                    slowest = max(range(len(groups)), key=lambda k: times[k][shares[k]])
                    grown = sum(1 << share for share in shares) + (1 << shares[slowest])
                    if grown > 1 << most:
                        break
                    shares[slowest] += 1
                found = max(one[share] for one, share in zip(times, shares, strict=True))
            self._stage_ms[ending] = found + (self.handoff_ms if len(groups) > 1 else 0.0)
        return self._stage_ms[ending]

    def _group(self, group: NodeSet) -> list[float]:
        if group not in self._group_ms:
            rows = (self.ms[unit] for unit in members(group))
            self._group_ms[group] = [sum(column) for column in zip(*rows, strict=True)]
        return self._group_ms[group]


def ios_ms(ms: Sequence[Sequence[float]], succ: Sequence[NodeSet], handoff_ms: float) -> tuple[float, int]:
    """The shortest time in ms, and the most units in a stage that were allowed: fewer where there are too many ways.

    Raises:
        TooMany: there are too many in every way.
    """
    for largest, most in PRUNING:
        try:
            return Stages(ms, succ, handoff_ms, largest, most).shortest_ms(), largest * most
        except TooMany:
            continue
    raise TooMany
