"""Measurement of regions of backends that stand on others: the largest first, while their engine wins.

Such a region runs its parts on another backend's pieces, so that no sum of matches predicts its time; and there are
few of them, each of many operators.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from collage_evo.costs.known_costs import KnownCosts
from collage_evo.costs.matches import BATCH, Costs
from collage_evo.graph.ir.graph import members
from collage_evo.placement.cost_model import Engine
from collage_evo.placement.failure import Fault
from collage_evo.placement.space import SearchSpace
from collage_evo.search.cover.dynamic_program import cheapest_covers

SHARE = 1.6
"""Share of the time for costs after which no region of backends that stand on others is measured: it includes
additional time for them."""
TRIED = 3
"""Regions of an engine that are measured before the engine may be given up. Chosen: the largest ones come first, and
two may be exceptions."""
LOST = 1.05
"""An engine is given up when each of its regions took more than this many times what it would replace. Chosen a
little above 1: what would be replaced is partly an estimate, and without its borders."""
HOPELESS = 1.5
"""It is also given up when the first, its largest, took more than this many times as much. Chosen: on two threads
regions that came near to what they would replace took 1.1 to 1.4 times as long (docs/results.md)."""
STATES = 30_000
"""States that the dynamic program examines to find what regions would replace."""


def time_dependents(measured: KnownCosts, costs: Costs, on_done: Callable[[int], None]) -> KnownCosts:
    """Time matches of backends that stand on others, in additional time, until that is over."""
    if not measured.scope.dependents:
        return measured
    space = measured.space()
    cover = cheapest_covers(space, effort=STATES).covers[0].matches
    node_ms = {node: space.ms_per_node(match) for match in cover for node in members(space.matches[match].nodes)}
    replaced = {
        index: sum(node_ms[node] for node in members(space.matches[index].nodes))
        for index in measured.scope.dependents
    }
    waiting = sorted(replaced, key=lambda index: (-replaced[index], index))
    ratios: dict[Engine, list[float]] = {}
    while waiting and not costs.meter.over(SHARE):
        waiting = [index for index in waiting if not _lost(ratios.get(space.matches[index].engine, ()))]
        batch = _next(space, waiting, ratios)
        waiting = [index for index in waiting if index not in batch]
        costs.measure(batch, on_done, SHARE)
        for index in batch:
            ms = _took_ms(costs, index)
            if ms is not None:
                ratios.setdefault(space.matches[index].engine, []).append(ms / replaced[index])
    return replace(measured, standalone_ms=dict(costs.ms), failures=dict(costs.failures))


def _next(space: SearchSpace, waiting: Sequence[int], ratios: Mapping[Engine, Sequence[float]]) -> list[int]:
    """The first of ``waiting`` that are measured together, but only one of each engine that has no measurement
    yet."""
    batch: list[int] = []
    begun: set[Engine] = set()
    for index in waiting:
        engine = space.matches[index].engine
        if engine in ratios or engine not in begun:
            begun.add(engine)
            batch.append(index)
    return batch[:BATCH]


def _took_ms(costs: Costs, index: int) -> float | None:
    """The measured latency in ms; infinite if it was too slow to end. A refused region is no evidence about
    others."""
    failure = costs.failures.get(index)
    far_behind = failure is not None and failure.fault is Fault.FAR_BEHIND
    return math.inf if far_behind else costs.ms.get(index)


def _lost(ratios: Sequence[float]) -> bool:
    return bool(ratios) and min(ratios) > (LOST if len(ratios) >= TRIED else HOPELESS)
