"""Lower bounds for the dynamic program: node prices that no completion can undercut.

The prices solve the dual of the covering program's linear relaxation, crossings between engines included: a node v
has a price p(v), a reader u of tensor t on engine e a reward r(t, u, e), such that for every match

    prices of its nodes + rewards for what it reads - rewards owed to the readers of what it makes <= cost

and rewards never exceed what a border of that engine costs. Where engines of one family meet, only what is not common
to them is due: a reward is the sum of a part that the family shares, within what is common, and a part of the
engine's own, within the rest. Engines on the accelerator share a part in the same way, within what copies cost: what
a reader there is granted at most is the copy back, what it gives at most the copy there, since all others work in the
other memory. The remaining cost from any state is then at least the prices of the uncovered nodes plus what its live
tensors still owe. Any feasible prices are sound; the optimal ones make the bound tight (exact on chains).
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.optimize import linprog
from scipy.sparse import csr_matrix

from collage_evo.genome.cover.movement import LiveTensor
from collage_evo.genome.layout import Laid
from collage_evo.graph.ir.graph import NodeSet, members


@dataclass(frozen=True)
class Prices:
    """Node prices, and by tensor and reader the rewards for reading it, by engine; in ms. ``total`` bounds the whole
    graph from below."""

    nodes: tuple[float, ...]
    rewards: dict[tuple[int, int], list[float]]

    @property
    def total(self) -> float:
        return sum(self.nodes)

    def paid(self, nodes: NodeSet) -> float:
        """Sum of the prices of ``nodes``."""
        return sum(self.nodes[node] for node in members(nodes))


class _LinearProgram:
    """Rows ``sum <= limit`` of a sparse linear program."""

    def __init__(self) -> None:
        self.bounds: list[tuple[float, float]] = []
        self.limits: list[float] = []
        self.entries: list[tuple[int, int, float]] = []

    def columns(self, bounds: Sequence[tuple[float, float]]) -> int:
        """Add variables; returns the index of the first."""
        self.bounds += bounds
        return len(self.bounds) - len(bounds)

    def row(self, limit: float, coefficients: Iterable[tuple[int, float]]) -> None:
        self.entries += [(len(self.limits), column, value) for column, value in coefficients]
        self.limits.append(limit)

    def table(self) -> csr_matrix:
        rows, columns, values = zip(*self.entries, strict=True)
        return csr_matrix((values, (rows, columns)), shape=(len(self.limits), len(self.bounds)))


def solve_prices(
    size: int,
    tensors: Sequence[LiveTensor],
    offers: Sequence[tuple[Laid, int, float]],
    families: Sequence[Hashable],
    off_host: Sequence[bool],
) -> Prices:
    """The prices with the largest total. If the solver gives up, returns weak but sound ones.

    ``offers``: matches with their engine and cost in ms. ``families``: of each engine; ``off_host``: whether it
    works in the accelerator's memory.
    """
    program = _LinearProgram()
    reach = sum(cost for _, _, cost in offers) + 1.0
    program.columns([(-reach, reach)] * size)
    several = [family for family in dict.fromkeys(families) if families.count(family) > 1]
    sides = [_sides(tensor, families, several) for tensor in tensors]
    column = {
        (t, reader): program.columns([(-least, most if tensor.made else 0.0) for least, most in sides[t]])
        for t, tensor in enumerate(tensors)
        for reader in members(tensor.readers)
    }
    # The columns that make up each engine's reward: its own, its family's if that has others, the accelerator's.
    common = len(families) + len(several)
    parts = [
        [
            engine,
            *([len(families) + several.index(family)] if family in several else []),
            *([common] if off_host[engine] else []),
        ]
        for engine, family in enumerate(families)
    ]
    for laid, engine, cost in offers:
        coefficients = [(node, 1.0) for node in members(laid.nodes)]
        coefficients += [(column[pair] + part, 1.0) for pair in laid.reads for part in parts[engine]]
        coefficients += [(column[pair] + part, -1.0) for pair in laid.makes for part in parts[engine]]
        program.row(cost, coefficients)
    for t, tensor in enumerate(tensors):
        _share_border(program, tensor.made, sides[t], [column[t, reader] for reader in members(tensor.readers)])
    table, limits = program.table(), np.asarray(program.limits)
    goal = np.zeros(len(program.bounds))
    goal[:size] = -1.0
    solved = linprog(goal, A_ub=table, b_ub=limits, bounds=np.asarray(program.bounds), method="highs-ipm")
    x = solved.x if solved.status == 0 else np.zeros(len(goal))
    # The solver's tolerance must not make a bound unsound.
    excess = float(np.max((table @ x - limits)[: len(offers)], initial=0.0))
    rewards = {pair: [sum(float(x[c + part]) for part in engine) for engine in parts] for pair, c in column.items()}
    return Prices(tuple(float(price) - excess for price in x[:size]), rewards)


_Side = tuple[float, float]
"""Lower and upper limit of a part of a reward."""


def _sides(tensor: LiveTensor, families: Sequence[Hashable], several: Sequence[Hashable]) -> list[_Side]:
    """Bounds of parts of rewards: each engine's border without the part that its family shares, that part for each
    family, then the costs of copies."""
    shared, tariff = dict(zip(families, tensor.common, strict=True)), tensor.tariff
    unshared = [side - common for side, common in zip(tariff.charge[-1], tensor.common, strict=True)]
    borders = unshared + [shared[family] for family in several]
    copies = [(tariff.copy[1], tariff.copy[0])] if tariff.copy else []
    return [(side, side) for side in borders] + copies


def _share_border(program: _LinearProgram, computed: bool, sides: Sequence[_Side], readers: Sequence[int]) -> None:
    """Several readers' rewards, of either sign, add up to no more than one border, or one copy."""
    if len(readers) < 2:
        return
    for place, (least, most) in enumerate(sides):
        for sign, side in ((1.0, most), (-1.0, least)) if computed else ((-1.0, least),):
            parts = [program.columns([(0.0, side)]) for _ in readers]
            program.row(side, [(part, 1.0) for part in parts])
            for reader, part in zip(readers, parts, strict=True):
                program.row(0.0, [(reader + place, sign), (part, -1.0)])
