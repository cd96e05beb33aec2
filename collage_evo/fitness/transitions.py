"""Costs of borders: takes standalone costs, measures joined neighbours, gives the additive cost model.

Two neighbouring matches of one backend cost less joined than apart: nothing leaves the backend between them.
What is saved is the price of leaving and entering it with a tensor of that size.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.optimize import nnls

from collage_evo.backends.base import Backend
from collage_evo.fitness.costs import CostMeter, CostTable
from collage_evo.fitness.model import BYTES_PER_MB, Border, CostModel, Engine
from collage_evo.graph.ir import Graph
from collage_evo.patterns.match import Match
from collage_evo.runtime.timing import Timing

HEAVY = frozenset({"Conv", "ConvTranspose", "Gemm", "MatMul"})
LEAST_SHARE = 0.05
"""A match keeps at least this share of its standalone cost, however dear its borders look."""


@dataclass(frozen=True)
class Probe:
    """Two neighbouring matches of one engine and their union, joined by one tensor of ``nbytes``."""

    first: int
    second: int
    joined: Match
    nbytes: int


def build_cost_model(
    meter: CostMeter,
    matches: Sequence[Match],
    table: CostTable,
    backends: Mapping[str, Backend],
    on_done: Callable[[int], None],
    probes_per_engine: int = 5,
) -> CostModel:
    """Fit the border of each engine and take it out of the standalone costs."""
    engines = {m.engine for i, m in enumerate(matches) if math.isfinite(table.standalone_ms[i])}
    borders: dict[Engine, Border] = {}
    for engine in sorted(engines):
        probes = choose_probes(meter.graph, matches, table, backends[engine[0]], engine, probes_per_engine)
        answers = meter.measure([p.joined for p in probes], lambda _: math.inf, on_done)
        samples = []
        for probe in probes:
            answer = answers[meter.key(probe.joined)]
            if not answer.reason:
                apart = table.standalone_ms[probe.first] + table.standalone_ms[probe.second]
                samples.append((probe.nbytes, apart - Timing(answer.times_ms).median_ms))
        if len(samples) >= 2:
            borders[engine] = fit_border(samples)
    # An engine that could not be probed is taken to be no better than the worst that was.
    worst = Border(
        max((b.fixed_ms for b in borders.values()), default=0.0),
        max((b.ms_per_mb for b in borders.values()), default=0.0),
    )
    borders |= {engine: worst for engine in engines if engine not in borders}
    return CostModel(_inner_costs(meter.graph, matches, table, borders), borders)


def fit_border(samples: Sequence[tuple[int, float]]) -> Border:
    """Least squares with non-negative terms: half of each saving is fixed_ms + ms_per_mb * size."""
    rows = np.array([[1.0, nbytes / BYTES_PER_MB] for nbytes, _ in samples])
    saved = np.array([max(saving, 0.0) / 2 for _, saving in samples])
    (fixed, slope), _ = nnls(rows, saved)
    return Border(float(fixed), float(slope))


def choose_probes(
    graph: Graph,
    matches: Sequence[Match],
    table: CostTable,
    backend: Backend,
    engine: Engine,
    count: int,
) -> list[Probe]:
    """Up to ``count`` probes whose tensors differ in size as much as the graph allows."""
    largest = _largest_heavy(graph, matches, table, engine)
    by_size: dict[int, Probe] = {}
    for first in sorted(set(largest.values())):
        nodes = matches[first].nodes
        _, leaving = graph.boundary(nodes)
        if len(leaving) != 1:
            continue
        readers = {largest.get(reader) for reader in graph.consumers.get(leaving[0], ())}
        if len(readers) != 1 or leaving[0] in graph.outputs:
            continue
        second = readers.pop()
        if second is None or second == first or matches[second].nodes & nodes:
            continue
        joined = nodes | matches[second].nodes
        if graph.is_convex(joined) and backend.supports(graph, joined):
            nbytes = graph.tensors[leaving[0]].nbytes
            by_size.setdefault(nbytes, Probe(first, second, Match(joined, *engine, "probe"), nbytes))
    sizes = sorted(by_size)
    if len(sizes) > count:
        sizes = [sizes[round(i * (len(sizes) - 1) / (count - 1))] for i in range(count)]
    return [by_size[size] for size in sizes]


def _largest_heavy(
    graph: Graph, matches: Sequence[Match], table: CostTable, engine: Engine
) -> dict[int, int]:
    """For each node the engine's largest usable match with just one heavy operator that covers it."""
    found: dict[int, int] = {}
    for index, match in enumerate(matches):
        if match.engine != engine or not math.isfinite(table.standalone_ms[index]):
            continue
        inside = [i for i in range(len(graph.nodes)) if match.nodes >> i & 1]
        if sum(graph.nodes[i].op_type in HEAVY for i in inside) != 1:
            continue
        for node in inside:
            best = found.get(node)
            if best is None or matches[best].nodes.bit_count() < len(inside):
                found[node] = index
    return found


def _inner_costs(
    graph: Graph, matches: Sequence[Match], table: CostTable, borders: Mapping[Engine, Border]
) -> tuple[float, ...]:
    inner = []
    for match, standalone in zip(matches, table.standalone_ms, strict=True):
        if math.isfinite(standalone):
            border = borders[match.engine]
            entering, leaving = graph.boundary(match.nodes)
            sizes = [graph.tensors[name].nbytes for name in (*entering, *leaving)]
            sides = sum(border.fixed_ms + border.ms_per_mb * size / BYTES_PER_MB for size in sizes)
            standalone = max(standalone - sides, LEAST_SHARE * standalone)
        inner.append(standalone)
    return tuple(inner)
