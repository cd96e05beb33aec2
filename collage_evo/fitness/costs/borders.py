"""Costs of borders: takes standalone costs, compares joined matches with their parts, gives the price of a border.

Matches of one backend cost less joined than apart: nothing leaves the backend between them. What is saved is
the price of leaving and entering it, taken as linear in the bytes of the tensor.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy.optimize import least_squares, nnls

from collage_evo.backends.base import Backend
from collage_evo.fitness.costs.model import BYTES_PER_MB, Border, Engine, bordering
from collage_evo.graph.ir import Graph, NodeSet, members
from collage_evo.graph.roofline import heavy_operators, multiply_adds
from collage_evo.patterns.match import Match

LEAST_SHARE = 0.05
"""A match keeps at least this share of its standalone cost, however dear its borders look."""
FEWEST_SAMPLES = 3
USUAL = Border(0.03, 0.1)
"""Where no engine could be probed: the middle of what was fitted to networks where some were (Xeon, 1 and 2 threads:
0 to 0.07 ms, 0.03 to 0.17 ms per 10^6 bytes). If borders looked free, so would covers of many small pieces."""
PAIRS = 4
"""Pairs of neighbours that each engine is probed with."""


@dataclass(frozen=True)
class Sample:
    """A joined match against its parts, ms, and the borders that went away: how many sides, their bytes in all."""

    sides: int
    nbytes: int
    apart_ms: float
    joined_ms: float


@dataclass(frozen=True)
class Pair:
    """Two neighbouring matches of one engine, by index, and what they are joined."""

    first: int
    second: int
    joined: Match


def border_pairs(
    graph: Graph, matches: Sequence[Match], backends: Mapping[str, Backend], count: int = PAIRS
) -> tuple[Pair, ...]:
    """Up to ``count`` pairs for each engine, joined by tensors of different sizes, with little to compute beside.

    A border is a small difference between large times, so that pairs that compute little tell most.
    """
    found: list[Pair] = []
    plain = {match.engine for match in matches if not match.rewrites}
    for engine in sorted(engine for engine in plain if backends[engine[0]].alone):
        by_size: dict[int, Pair] = {}
        for nbytes, pair in _neighbours(graph, matches, engine, backends[engine[0]]):
            other = by_size.get(nbytes)
            if other is None or _work(graph, pair) < _work(graph, other):
                by_size[nbytes] = pair
        sizes = sorted(by_size)
        if len(sizes) > count:
            sizes = [sizes[round(i * (len(sizes) - 1) / (count - 1))] for i in range(count)]
        found += [by_size[size] for size in sizes]
    return tuple(found)


def _work(graph: Graph, pair: Pair) -> int:
    return multiply_adds(graph, pair.joined.nodes)


def _neighbours(
    graph: Graph, matches: Sequence[Match], engine: Engine, backend: Backend
) -> Iterator[tuple[int, Pair]]:
    """Pairs of an engine's largest matches of one heavy operator, with the bytes of the tensor between them."""
    largest: dict[int, int] = {}
    own = [index for index, match in enumerate(matches) if match.engine == engine]
    for index in sorted(own, key=lambda index: matches[index].nodes.bit_count()):
        if heavy_operators(graph, matches[index].nodes) == 1:
            largest |= dict.fromkeys(members(matches[index].nodes), index)
    for first in dict.fromkeys(largest.values()):
        nodes = matches[first].nodes
        for name in graph.boundary(nodes)[1]:
            for second in {largest[reader] for reader in graph.consumers.get(name, ()) if reader in largest}:
                union = nodes | matches[second].nodes
                apart = not nodes & matches[second].nodes
                if apart and graph.is_convex(union) and backend.supports(graph, union):
                    yield graph.tensors[name].nbytes, Pair(first, second, _joined(matches[first], matches[second]))


def _joined(first: Match, second: Match) -> Match:
    """Both as one match of their engine."""
    nodes, quantised = first.nodes | second.nodes, first.quantised | second.quantised
    return replace(first, nodes=nodes, quantised=quantised, pattern="probe")


def fit_borders(
    graph: Graph,
    matches: Sequence[Match],
    ms: Mapping[int, float],
    joined: Mapping[Match, float],
    on_device: Collection[Engine] = (),
) -> dict[Engine, Border]:
    """The border of each engine, what is rewritten left out. What copies between devices cost is no part of it.

    Args:
        graph: the normalised model.
        matches: its matches.
        ms: standalone cost by index of those that were measured.
        joined: standalone cost of others, made of several matches.
        on_device: engines that run on the device beside the host.
    """
    engines = sorted({bordering(match.engine) for match in matches})
    borders: dict[Engine, Border] = {}
    for engine in engines:
        own = {matches[index].nodes: cost for index, cost in ms.items() if matches[index].engine == engine}
        parts = {nodes: cost for nodes, cost in own.items() if heavy_operators(graph, nodes) <= 1}
        wholes = {nodes: cost for nodes, cost in own.items() if nodes not in parts}
        wholes |= {match.nodes: cost for match, cost in joined.items() if match.engine == engine}
        samples = [made for nodes, cost in wholes.items() if (made := _sample(graph, parts, nodes, cost))]
        if len(samples) >= FEWEST_SAMPLES:
            borders[engine] = fit_border(samples, most_border(graph, own))
    # An engine that could not be probed is taken to be no better than the worst that was, of its own device.
    for there in (True, False):
        alike = [engine for engine in engines if (engine in on_device) == there]
        probed = [borders[engine] for engine in alike if engine in borders] or list(borders.values()) or [USUAL]
        worst = Border(max(border.fixed_ms for border in probed), max(border.ms_per_mb for border in probed))
        borders |= {engine: worst for engine in alike if engine not in borders}
    return borders


def most_border(graph: Graph, measured: Mapping[NodeSet, float]) -> Border:
    """What a border costs at most: no match takes less than its own borders."""
    fixed = rate = math.inf
    for nodes, ms in measured.items():
        left = (1 - LEAST_SHARE) * ms
        fixed = min(fixed, left / _sides(graph, nodes))
        rate = min(rate, left * BYTES_PER_MB / max(boundary_bytes(graph, nodes), 1))
    return Border(fixed, rate)


def fit_border(samples: Sequence[Sample], most: Border | None = None) -> Border:
    """Fit ``joined_ms = apart_ms - sides * fixed_ms - nbytes * ms_per_mb`` with terms from zero to ``most``.

    Errors count in relation to ``joined_ms``, so that a whole model says as much as a pair of operators, and
    large ones count less than by their square (soft L1): some of the times were disturbed.
    """
    gone = np.array([[sample.sides, sample.nbytes / BYTES_PER_MB] for sample in samples])
    apart = np.array([sample.apart_ms for sample in samples])
    joined = np.array([sample.joined_ms for sample in samples])
    top = np.array([most.fixed_ms, most.ms_per_mb]) if most else np.full(2, np.inf)

    def errors(border: np.ndarray) -> np.ndarray:
        return np.asarray((apart - gone @ border - joined) / joined)

    start, _ = nnls(gone / joined[:, None], (apart - joined) / joined)
    scale = start + 1e-3
    start = np.minimum(start + 1e-6, top / 2)
    found = least_squares(errors, start, bounds=(0, top), x_scale=scale, loss="soft_l1", f_scale=0.05)
    return Border(float(found.x[0]), float(found.x[1]))


def _sample(graph: Graph, measured: Mapping[NodeSet, float], joined: NodeSet, joined_ms: float) -> Sample | None:
    """``joined`` against its largest parts, run one by one; None if some operator is in no measured part."""
    parts = largest_parts(joined, measured)
    if parts is None:
        return None
    sides = sum(_sides(graph, nodes) for nodes in parts) - _sides(graph, joined)
    nbytes = sum(boundary_bytes(graph, nodes) for nodes in parts) - boundary_bytes(graph, joined)
    return Sample(sides, nbytes, sum(measured[nodes] for nodes in parts), joined_ms)


def largest_parts(nodes: NodeSet, offered: Iterable[NodeSet]) -> list[NodeSet] | None:
    """Disjoint sets among ``offered`` that make up ``nodes``, larger ones first; None if they do not."""
    parts = []
    for part in sorted(offered, key=int.bit_count, reverse=True):
        if not part & ~nodes:
            parts.append(part)
            nodes &= ~part
    return None if nodes else parts


def _sides(graph: Graph, nodes: NodeSet) -> int:
    return sum(map(len, graph.boundary(nodes)))


def boundary_bytes(graph: Graph, nodes: NodeSet) -> int:
    """Bytes of all tensors that enter or leave ``nodes``."""
    return sum(graph.tensors[name].nbytes for side in graph.boundary(nodes) for name in side)


def inner_ms(graph: Graph, match: Match, standalone_ms: float, borders: Mapping[Engine, Border]) -> float:
    """What ``match`` costs without its borders; infinite stays infinite."""
    border = borders.get(bordering(match.engine))
    if border is None:
        return math.inf
    return max(standalone_ms - border_ms(graph, match.nodes, border), LEAST_SHARE * standalone_ms)


def border_ms(graph: Graph, nodes: NodeSet, border: Border) -> float:
    """What all tensors that enter or leave ``nodes`` cost at their borders."""
    megabytes = boundary_bytes(graph, nodes) / BYTES_PER_MB
    return _sides(graph, nodes) * border.fixed_ms + megabytes * border.ms_per_mb
