"""The additive cost model: takes measured costs of matches and borders, gives predicted latency."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from collage_evo.graph.ir import Graph, NodeSet, members, node_set
from collage_evo.patterns.match import Placement, Region

Engine = tuple[str, str]
"""Backend and variant, as in :attr:`Match.engine`."""

BYTES_PER_MB = 1e6


@dataclass(frozen=True)
class Border:
    """What one side of a backend border costs (to enter or to leave one engine): ms, ms per 10^6 bytes."""

    fixed_ms: float
    ms_per_mb: float


@dataclass(frozen=True)
class CostModel:
    """Measured costs on one target, in ms.

    ``match_ms[i]`` is what match ``i`` costs inside a region of its own engine, borders left out;
    ``math.inf`` marks a match that cannot be used. ``borders`` has an entry for each engine with a usable match.
    """

    match_ms: tuple[float, ...]
    borders: Mapping[Engine, Border]
    estimated: frozenset[int] = frozenset()
    """Matches whose cost was not measured."""

    def usable(self, match: int) -> bool:
        """Whether match ``match`` has a cost and may be part of a placement."""
        return math.isfinite(self.match_ms[match])

    def side_ms(self, engine: Engine, nbytes: int) -> float:
        """Cost of a tensor of ``nbytes`` crossing the border of ``engine``, in or out."""
        border = self.borders[engine]
        return border.fixed_ms + border.ms_per_mb * nbytes / BYTES_PER_MB

    def crossing_ms(self, source: Engine | None, target: Engine | None, nbytes: int) -> float:
        """Cost of handing a tensor from one region to another. ``None`` is the caller's own buffer: free."""
        leave = 0.0 if source is None else self.side_ms(source, nbytes)
        enter = 0.0 if target is None else self.side_ms(target, nbytes)
        return leave + enter


@dataclass(frozen=True)
class Flow:
    """One tensor that moves at run time: its bytes, who makes it (-1: the caller) and who reads it."""

    name: str
    nbytes: int
    producer: int
    consumers: NodeSet
    is_output: bool


def flows(graph: Graph) -> tuple[Flow, ...]:
    """Every graph input and every node output that is read or returned; constants do not move."""
    outputs = set(graph.outputs)
    made = [(name, -1) for name in graph.inputs if name not in graph.constants]
    made += [(name, node.index) for node in graph.nodes for name in node.outputs if name]
    result = []
    for name, producer in made:
        readers = node_set(graph.consumers.get(name, ()))
        returned = name in outputs and producer >= 0
        if readers or returned:
            result.append(Flow(name, graph.tensors[name].nbytes, producer, readers, returned))
    return tuple(result)


def predict(graph: Graph, placement: Placement, cost: CostModel) -> float:
    """Predicted latency in ms: every match, and every (tensor, consuming region) pair that crosses.

    A tensor the caller hands in, or gets back, crosses one border. ``math.inf`` when a match is unusable.
    """
    return predict_flows(flows(graph), placement, cost)


def predict_flows(moving: Iterable[Flow], placement: Placement, cost: CostModel) -> float:
    """:func:`predict` for a graph whose :func:`flows` are at hand."""
    inner = sum(cost.match_ms[match] for region in placement.regions for match in region.matches)
    return inner + sum(
        cost.crossing_ms(source.engine if source else None, target.engine if target else None, nbytes)
        for nbytes, source, target in crossings(moving, placement)
    )


def crossings(moving: Iterable[Flow], placement: Placement) -> Iterable[tuple[int, Region | None, Region | None]]:
    """Each border a tensor crosses: its bytes, the region it leaves, the one it enters (None: the caller)."""
    regions = placement.regions
    owner = {node: index for index, region in enumerate(regions) for node in members(region.nodes)}
    for flow in moving:
        home = owner[flow.producer] if flow.producer >= 0 else -1
        source = regions[home] if home >= 0 else None
        for index in sorted({owner[node] for node in members(flow.consumers)}):
            if index != home:
                yield flow.nbytes, source, regions[index]
        if flow.is_output:
            yield flow.nbytes, source, None
