"""Expected costs, before any match is timed."""

from __future__ import annotations

from functools import partial

import pytest

from collage_evo.backends.enumerate import Matches
from collage_evo.costs.expected import apportioned_ms, expected_space
from collage_evo.genome.failure import Failure, Fault
from collage_evo.genome.greedy import engine_placement
from collage_evo.genome.outcome import Objective, Outcome
from collage_evo.graph.convert.read import build_graph
from collage_evo.patterns.match import Match
from collage_evo.precision.quantise.arithmetic import Arithmetic
from collage_evo.precision.transforms.edits import nodes_in, numerics_of
from collage_evo.search.mixtures.knapsack import mixtures_at
from collage_evo.search.mixtures.measured import Mixture
from tests.support.models import chain

GRAPH = build_graph(chain(4))
BUDGET = 0.02
FAMILY = ("openvino", "default")
OTHER = ("onnxruntime", "default")


@pytest.mark.parametrize(
    ("variant", "arithmetic"),
    [("int8", Arithmetic.INT8), ("int8-weights", Arithmetic.INT8_WEIGHTS), ("bf16-cast", Arithmetic.BFLOAT16)],
)
def test_every_lower_precision_is_expected_to_be_faster(variant: str, arithmetic: Arithmetic) -> None:
    nodes = [node.index for node in GRAPH.nodes]
    heavy = [node.index for node in GRAPH.nodes if node.op_type == "Conv"]
    matches = [Match(1 << node, "openvino", "default") for node in nodes]
    lower = partial(Match, backend="openvino", variant=variant, base="default")
    matches += [lower(1 << node, edits=numerics_of((arithmetic, 1 << node))) for node in heavy]
    terms = {Objective.ERROR: (0.0,) * len(nodes) + (1e-6,) * len(heavy)}
    space = expected_space(GRAPH, Matches(tuple(matches), {}), terms, {("openvino", "default"): 10.0})
    ((_, placement),) = mixtures_at(space, space.engines, BUDGET, (0.95,))
    (region,) = placement.regions
    assert nodes_in(region.numerics, arithmetic) == sum(1 << node for node in heavy)


def test_int8_beside_bfloat16_that_was_measured_is_expected_to_be_faster_than_that() -> None:
    nodes = [node.index for node in GRAPH.nodes]
    matches = [Match(1 << node, "openvino", "default") for node in nodes]
    matches += [
        Match(1 << node, "openvino", variant, base="default", edits=numerics_of((arithmetic, 1 << node)))
        for variant, arithmetic in (("bf16-cast", Arithmetic.BFLOAT16), ("int8", Arithmetic.INT8))
        for node in nodes
    ]
    baseline_ms = {FAMILY: 10.0, ("openvino", "bf16-cast"): 2.0, OTHER: 1.0}
    space = expected_space(GRAPH, Matches(tuple(matches), {}), {}, baseline_ms)
    whole = [sum(space.cost.match_ms[k * len(nodes) : (k + 1) * len(nodes)]) for k in range(3)]
    assert whole == pytest.approx([10.0, 2.0, 1.5])


@pytest.mark.parametrize(("best_ms", "known_ms"), [(5.1, 5.0), (5.0, 0.0)])
def test_latencies_of_mixtures_are_apportioned_where_these_may_be_the_answer(best_ms: float, known_ms: float) -> None:
    matches = tuple(Match(1 << node.index, *FAMILY) for node in GRAPH.nodes)
    space = expected_space(GRAPH, Matches(matches, {}), {}, {FAMILY: 10.0})
    placement = engine_placement(space, FAMILY)
    outcomes = Outcome(5.0, 5.0, 5.0, 3, error=0.01), Outcome.unfit(Failure(Fault.BUILD, "no"))
    mixtures = [Mixture(placement, FAMILY, outcome) for outcome in outcomes]
    apportioned = apportioned_ms(mixtures, GRAPH, space.matches, best_ms)
    assert sum(apportioned.values()) == pytest.approx(known_ms)
    assert set(apportioned) == (set(range(len(matches))) if known_ms else set())
