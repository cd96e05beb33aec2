"""Simulated targets with a choice of precision, and the fastest placement within a budget of error.

Errors lie on a grid, so that the optimum under a budget is exact: a dynamic program over the error spent so far.
What the search is told of them is wrong by a factor for each engine and one for each node.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from random import Random

import numpy as np

from collage_evo.genome.cost_model import Border, CostModel, Engine
from collage_evo.genome.outcome import Objective
from collage_evo.genome.space import SearchSpace
from collage_evo.graph.ir.graph import Graph, members
from collage_evo.patterns.match import Match, Placement
from tests.support.optimum import backend_sets
from tests.support.optimum_chain import chain_regions
from tests.support.simulated_target import NonAdditive, SimulatedEvaluator
from tests.support.spaces import chain, connected_sets, inception_like, resnet_like

BUDGET = 0.01
STEPS = 300
"""The budget's square is so many steps of the grid."""

SPEED: dict[str, tuple[float, float]] = {"default": (1.0, 1.0), "bf16": (0.7, 2.5), "int8": (0.6, 4.5)}
"""How many times as fast a node is in each arithmetic, from and to: some are slower in a lower one."""

STEPS_OF = {"bf16": 0.7, "int8": 20.0}
"""Median of the steps that a node's error takes."""

ENGINES: tuple[Engine, ...] = (
    ("b0", "default"), ("b0", "bf16"), ("b0", "int8"), ("b1", "default"), ("b1", "int8"),
)  # fmt: skip


@dataclass(frozen=True)
class PreciseTarget:
    """One target. ``seed`` draws costs and errors, ``effects`` say what is not additive in its latency."""

    name: str
    graph: Callable[[], Graph]
    seed: int
    effects: NonAdditive
    larger: float = 0.4
    """Deviation of the predicted squared errors from the true ones, in natural logarithms."""

    def make(self, noise: float = 0.0) -> SimulatedEvaluator:
        """The target, with its search space. ``noise`` is relative, of latency."""
        graph, rng = self.graph(), Random(self.seed)
        matches, costs = _matches(graph, rng)
        borders = {engine: Border(rng.uniform(0, 0.3), rng.uniform(0, 0.3)) for engine in ENGINES}
        steps = {
            (node, engine): round(STEPS_OF[engine[1]] * rng.lognormvariate(0, 1.0))
            for engine in ENGINES
            if engine[1] in STEPS_OF
            for node in range(len(graph.nodes))
        }
        told = {engine: rng.lognormvariate(0, self.larger) for engine in ENGINES}
        wrong = {key: told[key[1]] * rng.lognormvariate(0, self.larger) for key in steps}
        step = BUDGET**2 / STEPS
        error2 = tuple(
            sum(wrong[key] * steps[key] * step for i in members(m.nodes) if (key := (i, m.engine)) in steps)
            for m in matches
        )
        space = SearchSpace(graph, matches, CostModel(costs, borders), terms={Objective.ERROR: error2})
        truth = {key: count * step for key, count in steps.items()}
        return SimulatedEvaluator(space, self.effects, noise, self.seed, truth)


def _matches(graph: Graph, rng: Random) -> tuple[tuple[Match, ...], tuple[float, ...]]:
    """Single nodes on nearly every engine, and pieces of up to four nodes, which are cheaper than their nodes."""
    alone = [rng.uniform(0.5, 1.5) for _ in graph.nodes]
    ms: dict[tuple[int, Engine], float] = {}
    for node, base in enumerate(alone):
        backends = {backend: base * rng.uniform(0.7, 1.4) for backend, _ in ENGINES}
        for engine in ENGINES:
            ms[node, engine] = backends[engine[0]] / rng.uniform(*SPEED[engine[1]])
    matches = [
        Match(1 << node, *engine)
        for node in range(len(graph.nodes))
        for engine in ENGINES
        if engine == ENGINES[0] or rng.random() < 0.9
    ]
    for _ in range(len(graph.nodes)):
        nodes = connected_sets(graph, rng.randrange(len(graph.nodes)), rng.randint(2, 4), rng)
        matches += [Match(nodes, *engine) for engine in rng.sample(ENGINES, 2)]
    gains = [rng.uniform(0.7, 1) for _ in matches]
    costs = [sum(ms[i, m.engine] for i in members(m.nodes)) * g for m, g in zip(matches, gains, strict=True)]
    return tuple(matches), tuple(costs)


def predicted_error(space: SearchSpace, placement: Placement) -> float:
    """Relative error of ``placement``: the root of the sum of what its matches add."""
    matches = (match for region in placement.regions for match in region.matches)
    return math.sqrt(space.added(Objective.ERROR, matches))


def chain_optimum_ms(target: SimulatedEvaluator, budget: float = BUDGET) -> float:
    """Latency in ms of the fastest placement of a chain whose error is at most ``budget``.

    Exact for every effect but ``failures``, as :func:`tests.support.optimum_chain.chain_optimum` is.
    """
    step = BUDGET**2 / STEPS
    levels = math.floor(budget**2 / step + 1e-6) + 1
    regions = chain_regions(target)
    return min(
        _fastest_path(target, regions, allowed, step, levels) * target.contention(allowed)
        for allowed in backend_sets(target)
    )


def _fastest_path(
    target: SimulatedEvaluator,
    regions: Mapping[tuple[int, int, int], tuple[float, object]],
    allowed: frozenset[str],
    step: float,
    levels: int,
) -> float:
    """The least ms by which all nodes run on ``allowed`` backends in fewer steps of error than ``levels``."""
    engines, count = target.space.engines, len(target.space.graph.nodes)
    spent = np.zeros((len(engines), count + 1), dtype=int)
    for index, engine in enumerate(engines):
        each = [round(target.node_error2.get((node, engine), 0.0) / step) for node in range(count)]
        spent[index, 1:] = np.cumsum(each)
    best = np.full((count + 1, len(engines), levels), math.inf)
    for (i, j, index), (cost, _) in sorted(regions.items(), key=lambda item: item[0][1]):
        used = spent[index, j] - spent[index, i]
        if engines[index][0] not in allowed or used >= levels:
            continue
        if not i:
            arriving = np.zeros(levels - used)
        else:
            layout = [target.layout_ms(i - 1, one, i, engines[index]) for one in engines]
            arriving = (best[i, :, : levels - used] + np.array(layout)[:, None]).min(axis=0)
        best[j, index, used:] = np.minimum(best[j, index, used:], arriving + cost)
    return float(best[count].min())


FULL = NonAdditive(layout=0.4, region=0.03, cache=0.03, contention=0.01)

CHAINS: tuple[PreciseTarget, ...] = tuple(
    PreciseTarget(f"chain-{nodes}-{seed}", lambda nodes=nodes: chain(nodes), seed, FULL)  # type: ignore[misc]
    for nodes, seed in ((20, 51), (40, 52), (40, 53), (60, 54))
)
"""With known optima."""

GRAPHS: tuple[PreciseTarget, ...] = (
    PreciseTarget("residual-39", lambda: resnet_like(4), 61, FULL),
    PreciseTarget("residual-72", lambda: resnet_like(8), 62, FULL),
    PreciseTarget("inception-39", lambda: inception_like(4), 63, FULL),
)
"""Without: what searches find on them can only be compared."""


def well_told(target: PreciseTarget) -> PreciseTarget:
    """The same target where the predicted errors are the true ones."""
    return replace(target, larger=0.0)
