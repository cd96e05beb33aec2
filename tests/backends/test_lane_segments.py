"""What is too long for one cut is cut in segments, and gives what it gave."""

from __future__ import annotations

from functools import partial

import numpy as np
import onnx
import pytest

from collage_evo.backends.lanes.backend import LanesBackend
from collage_evo.backends.lanes.order import order_of
from collage_evo.backends.lanes.plan import Part
from collage_evo.backends.lanes.segments import cut_in_segments
from collage_evo.backends.lanes.split import split
from collage_evo.errors import InputError
from collage_evo.graph.inputs import random_inputs
from collage_evo.graph.read import build_graph
from collage_evo.models.builder import Builder
from tests.support.plan_runner import run, run_plan

ROWS = partial(split, lanes=2, kind="rows")


def chain(convolutions: int, size: int = 40) -> onnx.ModelProto:
    """3x3 convolutions of four channels, one after the other; an output in the middle too."""
    net, rng = Builder("chain"), np.random.default_rng(0)
    shape = (1, 4, size, size)
    x = net.input("x", shape)
    outputs: list[str] = []
    for index in range(convolutions):
        weight = net.const(rng.normal(0, 0.2, (4, 4, 3, 3)).astype(np.float32))
        x = net.op("Conv", x, weight, pads=[1] * 4, kernel_shape=[3, 3])
        if index in (convolutions // 3, convolutions - 1):
            outputs.append(x)
    return net.model(*outputs)


def test_a_chain_whose_stretches_reach_too_far_back_meets_in_between() -> None:
    model = chain(12)
    graph = build_graph(model)
    with pytest.raises(InputError, match="longer than an equal share"):
        ROWS(graph)
    plan, models = cut_in_segments(graph, ROWS)
    plan.check()
    assert len(models) == sum(isinstance(step, Part) for step in plan.steps) > 2
    assert any(order_of(plan).handoffs())
    inputs = random_inputs(model, 0)
    for name, array in run(model, inputs).items():
        np.testing.assert_allclose(run_plan(plan, models, inputs)[name], array, rtol=1e-4, atol=1e-5)


def test_what_can_be_cut_as_a_whole_is_one_segment() -> None:
    _, models = cut_in_segments(build_graph(chain(2)), ROWS)
    assert len(models) == 2


def test_where_a_block_cannot_be_cut_the_reason_is_that_of_the_whole() -> None:
    with pytest.raises(InputError, match="1 rows for 2 lanes"):
        cut_in_segments(build_graph(chain(3, size=1)), ROWS)


def test_kinds_that_cut_nothing_are_no_variants_there() -> None:
    graph = build_graph(chain(4, size=200))
    kinds = {variant.name.partition("-")[2] for variant in LanesBackend().variants_of(graph, graph.all_nodes)}
    assert "rows" in kinds
    assert "samples" not in kinds
    assert "" not in kinds  # no branches
