"""Features of a placement for the surrogate, as a sparse vector.

Each feature is in ms by the additive model; a weight of 0.1 on it means 10 % more than the model predicts.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Sequence
from itertools import combinations

import numpy as np

from collage_evo.genome.cost_model import bordering, crossings, transfers
from collage_evo.genome.space import SearchSpace
from collage_evo.graph.ir.graph import members
from collage_evo.graph.ir.kinds import kinds_of
from collage_evo.patterns.match import Placement
from collage_evo.search.surrogate.regression import Vector

GROUPS = ("engine", "border", "region", "size", "kind", "node", "kind edge", "edge", "backends", "copy")
"""Kinds of features, in the order of their columns; each kind has its own prior."""


class FeatureMap:
    """Maps placements of one search space to feature vectors.

    By engine: ms of its matches; ms at its borders; its regions, each as one mean node; ms times the doublings of
    region size. By node and engine: its share of its match. By edge, engines at its ends and whether they are equal
    and merged: the cheapest ms of its target. Both also by kind of node, so that what one copy of a block shows
    counts for the others. By pair of backends used together: the whole placement. If some engines work in an
    accelerator's memory: ms of copies there, and of those back.
    """

    def __init__(self, space: SearchSpace) -> None:
        self.space = space
        self._engine = {engine: index for index, engine in enumerate(space.engines)}
        backends = sorted({backend for backend, _ in space.engines})
        self._pairs = {pair: index for index, pair in enumerate(combinations(backends, 2))}
        engines, nodes, edges = len(space.engines), len(space.graph.nodes), len(space.edges)
        each = kinds_of(space.graph)
        self._node_kinds, kinds = _repeated(each)
        self._edge_kinds, edge_kinds = _repeated([(each[source], each[target]) for source, target in space.edges])
        by_edge = engines * (engines + 1)
        copies = 2 if space.cost.off_host else 0
        sides = (kinds * engines, nodes * engines, edge_kinds * by_edge, edges * by_edge)
        widths = (engines, engines, engines, engines, *sides, len(self._pairs), copies)
        self.starts = dict(zip(GROUPS, np.cumsum([0, *widths[:-1]]).tolist(), strict=True))
        self.group_of = np.repeat(np.arange(len(GROUPS)), widths)
        self.cheapest_ms = np.array([min(map(space.ms_per_node, options)) for options in space.candidates])
        self._sources = np.array([i for i, _ in space.edges], dtype=int)
        self._targets = np.array([j for _, j in space.edges], dtype=int)

    @property
    def width(self) -> int:
        """Number of columns."""
        return len(self.group_of)

    def node_weights(self, weights: np.ndarray) -> np.ndarray:
        """Weights of each node on each engine (nodes, engines): its own and its kind's."""
        engines = len(self._engine)
        single, kind = (self._group(name, weights).reshape(-1, engines) for name in ("node", "kind"))
        return np.asarray(single + _of_kind(kind, self._node_kinds))

    def edge_weights(self, weights: np.ndarray) -> np.ndarray:
        """Weights of each edge by engines at its ends (edges, engines + 1, engines); the last source: merged."""
        engines = len(self._engine)
        groups = (self._group(name, weights).reshape(-1, engines + 1, engines) for name in ("edge", "kind edge"))
        single, kind = groups
        return np.asarray(single + _of_kind(kind, self._edge_kinds))

    def _group(self, name: str, weights: np.ndarray) -> np.ndarray:
        return np.asarray(weights[self.group_of == GROUPS.index(name)])

    def copy_column(self, there: bool) -> int:
        """Column of copies to the accelerator, or of those back; there are none where all engines are on the host."""
        return int(self.starts["copy"]) + (0 if there else 1)

    def vector(self, placement: Placement) -> Vector:
        """The features of ``placement``."""
        space, engines = self.space, len(self._engine)
        by_engine = np.zeros((4, engines))
        owner = np.zeros(len(space.graph.nodes), dtype=int)
        engine_of = np.zeros(len(space.graph.nodes), dtype=int)
        share = np.zeros(len(space.graph.nodes))
        for position, region in enumerate(placement.regions):
            inner = dict.fromkeys(sorted({space.engine_of[match] for match in region.matches}), 0.0)
            for match in region.matches:
                engine = space.engine_of[match]
                inner[engine] += space.cost.match_ms[match]
                for node in members(space.matches[match].nodes):
                    owner[node], engine_of[node] = position, engine
                    share[node] = space.ms_per_node(match)
            for engine, ms in inner.items():
                by_engine[0, engine] += ms
                by_engine[3, engine] += ms * math.log2(region.nodes.bit_count())
            by_engine[2, self._engine[bordering(region.engine)]] += self.cheapest_ms.mean()
        for crossing in crossings(space.flows, placement):
            for side in (crossing.source, crossing.target):
                if side is not None:
                    ms = space.cost.side_ms(side, crossing.nbytes)
                    less = space.cost.common_ms(side, crossing.nbytes) if crossing.inside else 0.0
                    by_engine[1, self._engine[side]] += ms - less
        copies = [0.0, 0.0] if space.cost.off_host else []
        for copy in transfers(space.flows, placement, space.cost.off_host):
            copies[self.copy_column(copy.there) - self.starts["copy"]] += copy.ms(space.cost)
        additive = float(by_engine[0].sum() + by_engine[1].sum()) + sum(copies)
        nodes = self.starts["node"] + np.arange(len(owner)) * engines + engine_of
        before, after = engine_of[self._sources], engine_of[self._targets]
        merged = (owner[self._sources] == owner[self._targets]) & (before == after)
        before = np.where(merged, engines, before)
        within, by_edge = before * engines + after, engines * (engines + 1)
        edges = self.starts["edge"] + np.arange(len(before)) * by_edge + within
        entered = self.cheapest_ms[self._targets]
        kinds, spent = _summed(self._node_kinds, engines, engine_of, share)
        edge_kinds, entered_by_kind = _summed(self._edge_kinds, by_edge, within, entered)
        used = sorted({region.backend for region in placement.regions})
        pairs = [self.starts["backends"] + self._pairs[pair] for pair in combinations(used, 2)]
        moves = self.starts["copy"] + np.arange(len(copies))
        kinds, edge_kinds = self.starts["kind"] + kinds, self.starts["kind edge"] + edge_kinds
        sides = (kinds, nodes, edge_kinds, edges)
        columns = np.concatenate([np.arange(4 * engines), *sides, np.array(pairs, dtype=int), moves])
        whole = np.full(len(pairs), additive)
        amounts = (spent, share, entered_by_kind, entered)
        values = np.concatenate([by_engine.ravel(), *amounts, whole, copies])
        return Vector(additive, columns, values)


def _repeated(kinds: Sequence[Hashable]) -> tuple[np.ndarray, int]:
    """Number of each kind that has several members, -1 for others; and how many such kinds there are."""
    count = Counter(kinds)
    numbers: dict[Hashable, int] = {}
    repeated = [numbers.setdefault(kind, len(numbers)) if count[kind] > 1 else -1 for kind in kinds]
    return np.array(repeated, dtype=int), len(numbers)


def _summed(
    kinds: np.ndarray, width: int, within: np.ndarray, ms: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """``ms`` of all members of one kind with the same column ``within`` it, ``width`` columns a kind: the columns of
    the group, each once, and the sums."""
    alike = kinds >= 0
    columns, place = np.unique(kinds[alike] * width + within[alike], return_inverse=True)
    return columns, np.bincount(place, ms[alike], len(columns))


def _of_kind(weights: np.ndarray, kinds: np.ndarray) -> np.ndarray:
    """``weights`` of each member's kind; 0 for members without one."""
    none = np.zeros((1, *weights.shape[1:]))
    return np.asarray(np.concatenate([weights, none])[kinds])
