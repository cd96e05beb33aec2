"""The first mixtures of precisions, before any cost is measured."""

from __future__ import annotations

from functools import partial

import pytest

from collage_evo.backends.enumerate import Matches
from collage_evo.graph.convert.read import build_graph
from collage_evo.patterns.match import Match
from collage_evo.placement.outcome import Objective
from collage_evo.precision.quantise.arithmetic import Arithmetic
from collage_evo.precision.transforms.edits import nodes_in, numerics_of
from collage_evo.run.stages.early import likeliest_mixtures
from tests.support.models import chain

GRAPH = build_graph(chain(4))
BUDGET = 0.02


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
    baseline_ms = {("openvino", "default"): 10.0}
    (placement,) = likeliest_mixtures(GRAPH, Matches(tuple(matches), {}), terms, baseline_ms, BUDGET)
    (region,) = placement.regions
    assert nodes_in(region.numerics, arithmetic) == sum(1 << node for node in heavy)
