"""Inputs at the edge of what a model may be given are drawn where they tell something of a library."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from collage_evo.graph.check.edges import LARGE, TINY, decided, edge_samples, other_shapes
from collage_evo.graph.load.inputs import random_inputs
from collage_evo.graph.reference.reference import Reference, reference_outputs
from collage_evo.graph.reference.rounding import Moved
from tests.support.models import parse_graph


def drawn(graph: str, opset: int = 18) -> list[dict[str, np.ndarray]]:
    model = onnx.shape_inference.infer_shapes(parse_graph(f"g {graph}", opset))
    samples = edge_samples(model, random_inputs(model, seed=1000), Reference(model))
    found = decided(samples, lambda: Moved(model, 1, None))
    assert len(found) <= 2
    return [dict(feeds) for feeds, _ in found]


def test_floats_are_tied_and_taken_far() -> None:
    ties, far = (feeds["x"] for feeds in drawn("(float[64] x) => (float[64] y) { y = Softplus(x) }"))
    assert (ties == np.rint(ties)).all()
    assert len(np.unique(ties)) < ties.size
    assert np.abs(far).max() > 30
    assert (far == np.float32(TINY)).sum() > 5


@pytest.mark.parametrize(
    ("graph", "shape", "other"),
    [
        ("(float[n, 4] x) => (float[n, 4] y) { y = Softplus(x) }", (2, 4), (3, 4)),
        ("(float[n] x) => (float[2, k] y) <int64[2] s = {2, -1}> { y = Reshape(x, s) }", (6,), (12,)),
        ("(float[n] x) => (float[4] y) <float[4] w = {1, 2, 3, 4}> { y = Add(x, w) }", (4,), None),
    ],
)
def test_open_sizes_are_one_more_or_twice_as_large_where_the_model_takes_that(
    graph: str, shape: tuple[int, ...], other: tuple[int, ...] | None
) -> None:
    model = parse_graph(f"g {graph}", opset=18)
    found = other_shapes(model, {"x": np.zeros(shape, np.float32)}, 5.0)
    assert {feeds["x"].shape for feeds, _ in found} == ({other} if other else set())
    assert len(found) == (3 if other else 0), "random ones, ties, far ones"
    for feeds, expected in found:
        np.testing.assert_array_equal(reference_outputs(model, feeds)[0], expected["y"])


def test_where_sums_are_taken_no_floats_are_made_equal() -> None:
    (far,) = drawn("(float[4, 4] x, float[4, 4] w) => (float[4, 4] y) { y = MatMul(x, w) }")
    assert np.abs(far["x"]).max() > 30


def test_where_the_model_chooses_among_sums_an_empty_input_ties_them() -> None:
    weights = f"<float[4, 4] w = {{{', '.join('1234' * 4)}}}>"
    nodes = "s = MatMul(x, w) y = ArgMax<axis = 1, keepdims = 0>(s)"
    empty, far = drawn(f"(float[4, 4] x) => (int64[4] y) {weights} {{ {nodes} }}")
    assert not empty["x"].any()
    assert np.abs(far["x"]).max() > 30


def test_what_is_calculated_with_is_large() -> None:
    graph = "(int32[32] x) => (bool[32] y) <int32 c = {-100}> { s = Add(x, c) y = Less(s, c) }"
    assert set(LARGE) == set(drawn(graph)[-1]["x"].tolist())
    assert {0, 255} <= set(drawn("(uint8[32] x) => (uint8[32] y) { y = Add(x, x) }")[-1]["x"].tolist())


@pytest.mark.parametrize(
    "graph",
    [
        "(int64[3] x) => (float[3, 2] y) <float[4, 2] t = {1, 2, 3, 4, 5, 6, 7, 8}> { y = Gather(t, x) }",
        "(int64[2] x) => (float[a, b] y) <float[1, 1] t = {1}> { y = Expand(t, x) }",
        "(int64[2] x) => (int64[2] y) <int64 c = {7}> { s = Add(x, x) y = Div(c, s) }",
    ],
)
def test_what_is_an_index_a_size_or_a_divisor_is_not(graph: str) -> None:
    assert all(abs(feeds["x"]).max() < 5 for feeds in drawn(graph))


def test_what_is_not_finite_or_decided_by_rounding_is_excluded() -> None:
    assert drawn("(float[8] x) => (float[8] y) { y = Log(x) }") == []
    assert drawn("(float[8] x) => (float[8] y) <float c = {333333.3}> { m = Mul(x, c) y = Sin(m) }") == []
