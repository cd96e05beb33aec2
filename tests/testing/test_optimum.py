"""The published targets' optima are optima: methods that scale agree with trying everything on small graphs."""

from __future__ import annotations

import random

import pytest

from collage_evo.errors import InputError
from collage_evo.genome.encoding import decode
from collage_evo.genome.variation import mutate, random_genome
from tests.support.optimum import exhaustive_optimum
from tests.support.optimum_chain import chain_optimum
from tests.support.optimum_graph import graph_optimum
from tests.support.simulated_target import SimulatedEvaluator
from tests.support.spaces import chain, check_placement, make_space, random_graph
from tests.support.targets import FULL, LOCAL, PUBLISHED, PublishedTarget


@pytest.mark.parametrize("seed", range(4))
def test_on_chains(seed: int) -> None:
    target = SimulatedEvaluator(make_space(chain(6), random.Random(seed), engines=3), FULL, seed=seed)
    found, truth = chain_optimum(target), exhaustive_optimum(target)
    check_placement(target.space.graph, found)
    assert target.latency_ms(found) == pytest.approx(target.latency_ms(truth))


@pytest.mark.parametrize("seed", [0, 2, 4, 5])
def test_on_graphs(seed: int) -> None:
    graph = random_graph(random.Random(seed), 7)
    target = SimulatedEvaluator(make_space(graph, random.Random(seed), engines=3, extra=0.5), LOCAL, seed=seed)
    found, truth = graph_optimum(target), exhaustive_optimum(target)
    check_placement(graph, found)
    assert target.latency_ms(found) == pytest.approx(target.latency_ms(truth))


@pytest.mark.parametrize("published", PUBLISHED[2:], ids=lambda published: published.name)
def test_no_neighbour_of_a_published_optimum_is_faster(published: PublishedTarget) -> None:
    target = published.make()
    optimum = published.optimum_ms()
    assert optimum == pytest.approx(target.latency_ms(published.solve(target)))
    rng = random.Random(0)
    for _ in range(30):
        other = decode(mutate(random_genome(target.space, rng), target.space, rng), target.space)
        assert target.latency_ms(other) >= optimum - 1e-9


def test_what_a_method_cannot_solve_is_refused() -> None:
    space = make_space(random_graph(random.Random(0), 6), random.Random(0))
    with pytest.raises(InputError, match="no chain"):
        chain_optimum(SimulatedEvaluator(space, FULL))
    with pytest.raises(InputError, match="leave the others at 0"):
        graph_optimum(SimulatedEvaluator(space, FULL))
