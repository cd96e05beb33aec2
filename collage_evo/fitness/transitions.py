"""Costs of borders: takes standalone costs, compares joined matches with their parts, gives the additive cost model.

Matches of one backend cost less joined than apart: nothing leaves the backend between them. What is saved is
the price of leaving and entering it, taken as linear in the bytes of the tensor.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.optimize import least_squares, nnls

from collage_evo.backends.base import Backend
from collage_evo.backends.checks import HEAVY
from collage_evo.fitness.costs import CostMeter, CostTable
from collage_evo.fitness.model import BYTES_PER_MB, Border, CostModel, Engine
from collage_evo.graph.ir import Graph, NodeSet, members
from collage_evo.patterns.match import Match
from collage_evo.runtime.timing import Timing

LEAST_SHARE = 0.05
"""A match keeps at least this share of its standalone cost, however dear its borders look."""
FEWEST_SAMPLES = 3


@dataclass(frozen=True)
class Sample:
    """A joined match against its parts, ms, and the borders that went away: how many sides, their bytes in all."""

    sides: int
    nbytes: int
    apart_ms: float
    joined_ms: float


def build_cost_model(
    meter: CostMeter,
    matches: Sequence[Match],
    table: CostTable,
    backends: Mapping[str, Backend],
    on_done: Callable[[int], None],
) -> CostModel:
    """Fit the border of each engine and take it out of the standalone costs."""
    engines = sorted({m.engine for i, m in enumerate(matches) if math.isfinite(table.standalone_ms[i])})
    borders: dict[Engine, Border] = {}
    for engine in engines:
        own = _Engine(meter.graph, matches, table, engine)
        joined = {m.nodes: ms for m, ms in own.joined.items()}
        pairs = own.pairs(backends[engine[0]])
        answers = meter.measure(pairs, lambda _: math.inf, on_done)
        for pair in pairs:
            answer = answers[meter.key(pair)]
            if not answer.reason:
                joined[pair.nodes] = Timing(answer.times_ms).median_ms
        samples = [sample for nodes, ms in joined.items() if (sample := own.sample(nodes, ms))]
        if len(samples) >= FEWEST_SAMPLES:
            borders[engine] = fit_border(samples)
    # An engine that could not be probed is taken to be no better than the worst that was.
    worst = Border(
        max((b.fixed_ms for b in borders.values()), default=0.0),
        max((b.ms_per_mb for b in borders.values()), default=0.0),
    )
    borders |= {engine: worst for engine in engines if engine not in borders}
    inner = (inner_ms(meter.graph, m, ms, borders) for m, ms in zip(matches, table.standalone_ms, strict=True))
    return CostModel(tuple(inner), borders)


def fit_border(samples: Sequence[Sample]) -> Border:
    """Fit ``joined_ms = apart_ms - sides * fixed_ms - nbytes * ms_per_mb`` with terms that are not negative.

    Errors count in relation to ``joined_ms``, so that a whole model says as much as a pair of operators, and
    large ones count less than by their square (soft L1): some of the times were disturbed.
    """
    gone = np.array([[sample.sides, sample.nbytes / BYTES_PER_MB] for sample in samples])
    apart = np.array([sample.apart_ms for sample in samples])
    joined = np.array([sample.joined_ms for sample in samples])

    def errors(border: np.ndarray) -> np.ndarray:
        return np.asarray((apart - gone @ border - joined) / joined)

    start, _ = nnls(gone / joined[:, None], (apart - joined) / joined)
    scale = start + 1e-3
    found = least_squares(errors, start + 1e-6, bounds=(0, np.inf), x_scale=scale, loss="soft_l1", f_scale=0.05)
    return Border(float(found.x[0]), float(found.x[1]))


class _Engine:
    """The measured matches of one engine: parts, with one heavy operator at most, and what joins several."""

    def __init__(self, graph: Graph, matches: Sequence[Match], table: CostTable, engine: Engine) -> None:
        self._graph = graph
        self._engine = engine
        self._parts: dict[NodeSet, float] = {}
        self.joined: dict[Match, float] = {}
        for match, ms in zip(matches, table.standalone_ms, strict=True):
            if match.engine != engine or not math.isfinite(ms):
                continue
            if self._heavy(match.nodes) > 1:
                self.joined[match] = ms
            else:
                self._parts[match.nodes] = ms
        self._largest: dict[int, NodeSet] = {}
        for nodes in sorted(self._parts, key=int.bit_count):
            for index in members(nodes):
                self._largest[index] = nodes

    def pairs(self, backend: Backend, count: int = 5) -> list[Match]:
        """Up to ``count`` unions of two neighbouring heavy parts, joined by tensors of different sizes."""
        by_size: dict[int, NodeSet] = {}
        for first in dict.fromkeys(self._largest.values()):
            _, leaving = self._graph.boundary(first)
            readers = [index for name in leaving for index in self._graph.consumers.get(name, ())]
            for reader in readers:
                second = self._largest.get(reader, first)
                union = first | second
                fits = not first & second and self._heavy(first) and self._heavy(second)
                if fits and self._graph.is_convex(union) and backend.supports(self._graph, union):
                    by_size.setdefault(self._graph.tensors[leaving[0]].nbytes, union)
        sizes = sorted(by_size)
        if len(sizes) > count:
            sizes = [sizes[round(i * (len(sizes) - 1) / (count - 1))] for i in range(count)]
        return [Match(by_size[size], *self._engine, "probe") for size in sizes]

    def sample(self, joined: NodeSet, joined_ms: float) -> Sample | None:
        """``joined`` against its largest parts, run one by one; None if some operator was never measured alone."""
        rest, parts = joined, []
        for nodes in sorted(self._parts, key=int.bit_count, reverse=True):
            if not nodes & ~rest:
                parts.append(nodes)
                rest &= ~nodes
        apart = sum(self._parts[nodes] for nodes in parts)
        if rest:
            return None
        entering = sum(self._sides(nodes) for nodes in parts) - self._sides(joined)
        nbytes = sum(self._bytes(nodes) for nodes in parts) - self._bytes(joined)
        return Sample(entering, nbytes, apart, joined_ms)

    def _heavy(self, nodes: NodeSet) -> int:
        return sum(self._graph.nodes[index].op_type in HEAVY for index in members(nodes))

    def _sides(self, nodes: NodeSet) -> int:
        return sum(map(len, self._graph.boundary(nodes)))

    def _bytes(self, nodes: NodeSet) -> int:
        return boundary_bytes(self._graph, nodes)


def boundary_bytes(graph: Graph, nodes: NodeSet) -> int:
    """Bytes of all tensors that enter or leave ``nodes``."""
    return sum(graph.tensors[name].nbytes for side in graph.boundary(nodes) for name in side)


def inner_ms(graph: Graph, match: Match, standalone_ms: float, borders: Mapping[Engine, Border]) -> float:
    """What ``match`` costs without its borders; infinite stays infinite."""
    border = borders.get(match.engine)
    if border is None:
        return math.inf
    count = sum(map(len, graph.boundary(match.nodes)))
    sides = count * border.fixed_ms + boundary_bytes(graph, match.nodes) / BYTES_PER_MB * border.ms_per_mb
    return max(standalone_ms - sides, LEAST_SHARE * standalone_ms)
