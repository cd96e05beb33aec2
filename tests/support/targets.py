"""The published simulated targets: not additive, each with a known optimum, by which searches are compared."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from collage_evo.graph.ir.graph import Graph
from collage_evo.graph.ir.kinds import kinds_of
from collage_evo.patterns.match import Placement
from tests.support.optimum import exhaustive_optimum
from tests.support.optimum_chain import chain_optimum
from tests.support.optimum_graph import graph_optimum
from tests.support.simulated_target import NonAdditive, SimulatedEvaluator
from tests.support.spaces import (
    chain,
    encoder_like,
    equal_copies,
    inception_like,
    make_space,
    random_graph,
    resnet_like,
)

LOCAL = NonAdditive(layout=0.5, contention=0.01, converted_once=True)
"""Layout and contention of threads: what exact elimination can solve on graphs of any size."""

FULL = NonAdditive(layout=0.5, region=0.03, cache=0.04, contention=0.01)
"""Also fusion inside regions, and regions that outgrow the cache: splits pay too."""


@dataclass(frozen=True)
class PublishedTarget:
    """One target. ``seed`` draws its costs, ``effects`` say what is not additive; ``solve`` finds its optimum."""

    name: str
    graph: Callable[[], Graph]
    engines: int
    extra: float
    effects: NonAdditive
    seed: int
    solve: Callable[[SimulatedEvaluator], Placement]
    spread: float | None = None
    """If given, nodes of one kind cost the same within so much, and have the same effects on each other."""

    def make(self, noise: float = 0.0) -> SimulatedEvaluator:
        """The target, with its search space. ``noise`` is relative."""
        space = make_space(self.graph(), Random(self.seed), self.engines, self.extra, border=0.3)
        if self.spread is None:
            return SimulatedEvaluator(space, self.effects, noise, self.seed)
        kinds = kinds_of(space.graph)
        space = equal_copies(space, kinds, self.spread, Random(self.seed))
        return SimulatedEvaluator(space, self.effects, noise, self.seed, kinds=kinds)

    def optimum_ms(self) -> float:
        """Latency of the fastest placement there is, in ms."""
        target = self.make()
        return target.latency_ms(self.solve(target))


PUBLISHED: tuple[PublishedTarget, ...] = (
    PublishedTarget("random-7", lambda: random_graph(Random(11), 7), 3, 0.5, FULL, 11, exhaustive_optimum),
    PublishedTarget("random-8", lambda: random_graph(Random(12), 8), 3, 0.5, FULL, 12, exhaustive_optimum),
    PublishedTarget("chain-24", lambda: chain(24), 4, 1.0, FULL, 21, chain_optimum),
    PublishedTarget("chain-40", lambda: chain(40), 4, 1.0, FULL, 22, chain_optimum),
    PublishedTarget("chain-60", lambda: chain(60), 5, 1.0, FULL, 23, chain_optimum),
    PublishedTarget("residual-39", lambda: resnet_like(4), 4, 0.7, LOCAL, 31, graph_optimum),
    PublishedTarget("residual-72", lambda: resnet_like(8), 5, 0.7, LOCAL, 32, graph_optimum),
    PublishedTarget("residual-138", lambda: resnet_like(16), 4, 0.7, LOCAL, 33, graph_optimum),
    PublishedTarget("inception-39", lambda: inception_like(4), 4, 0.5, LOCAL, 41, graph_optimum),
    PublishedTarget("inception-84", lambda: inception_like(9), 4, 0.5, LOCAL, 42, graph_optimum),
)

REPEATED: tuple[PublishedTarget, ...] = (
    PublishedTarget("encoder-67", lambda: encoder_like(6), 4, 0.7, LOCAL, 51, graph_optimum, 0.02),
    PublishedTarget("encoder-133", lambda: encoder_like(12), 4, 0.7, LOCAL, 52, graph_optimum, 0.02),
    PublishedTarget("encoder-265", lambda: encoder_like(24), 4, 0.7, LOCAL, 53, graph_optimum, 0.02),
)
"""Targets that repeat equal blocks, as encoders do."""
