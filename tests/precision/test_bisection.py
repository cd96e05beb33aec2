"""Sets of operators that were not tried, and halves of these, show which of them err the most."""

from __future__ import annotations

import math
from functools import partial

import pytest

from collage_evo.graph.convert.read import build_graph
from collage_evo.graph.ir import weights
from collage_evo.graph.ir.graph import node_set
from collage_evo.graph.normalise.normalise import normalise
from collage_evo.precision.quantise.arithmetic import Arithmetic
from collage_evo.precision.quantise.rules import scale_source
from collage_evo.precision.transforms import sensitivity
from collage_evo.precision.transforms.catalogue import TRANSFORMS
from collage_evo.precision.transforms.sensitivity import error_sensitivities
from tests.precision.nets import random_inputs, ranges_of, ticking
from tests.support.models import chain


@pytest.mark.parametrize("heavy_bytes", [weights.HEAVY_BYTES, 0])
def test_halves_of_a_set_find_the_operator_that_errs_the_most_of_those_without_a_trial(
    heavy_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = build_graph(normalise(chain(40)))
    wanted = {Arithmetic.INT8: node_set(node.index for node in graph.nodes if node.op_type == "Conv")}
    int8 = next(one for one in TRANSFORMS if one.arithmetic is Arithmetic.INT8)
    trials = sensitivity._trials(graph, {int8: wanted[Arithmetic.INT8]})
    culprit = sensitivity._in_order(trials, [1.0] * len(graph.nodes))[-1].node
    ranges, source = ranges_of(graph), scale_source(graph, graph.nodes[culprit].inputs[0])
    ranges = {**ranges, source: ranges[source]._replace(high=ranges[source].high / 30)}
    find = partial(error_sensitivities, graph, ranges, [random_inputs(graph, 0)], wanted=wanted)
    exact = find()[Arithmetic.INT8]
    budget = math.sqrt(1.5 * (sum(exact) - exact[culprit]))
    assert exact[culprit] > budget**2
    monkeypatch.setattr(weights, "HEAVY_BYTES", heavy_bytes)
    alone, in_sets = (find(seconds=32, clock=ticking(), budget=one)[Arithmetic.INT8] for one in (0.0, budget))
    assert alone[culprit] < 0.1 * exact[culprit]
    assert in_sets[culprit] == pytest.approx(exact[culprit], rel=0.3)
    assert sum(in_sets) - in_sets[culprit] < budget**2


@pytest.mark.parametrize("heavy_bytes", [weights.HEAVY_BYTES, 0])
def test_single_operators_are_tried_in_the_time_that_sets_do_not_need(
    heavy_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = build_graph(normalise(chain(40)))
    monkeypatch.setattr(weights, "HEAVY_BYTES", heavy_bytes)
    find = partial(error_sensitivities, graph, ranges_of(graph), [random_inputs(graph, 0)], seconds=80)
    alone, beside_sets = (find(clock=ticking(), budget=budget).estimated for budget in (0.0, 0.02))
    assert 40 <= alone <= beside_sets <= alone + 4, "operators in int8 leave time to try 20 others"
