"""TVM's rules: which normalisations lose digits far from zero, and are declined."""

from __future__ import annotations

import pytest

from collage_evo.backends.tvm.backend import TvmBackend
from collage_evo.graph.check.scopes import operators
from tests.support.models import parse_graph

SMALL, LARGE = "[1, 3, 32, 32]", "[1, 3, 128, 128]"
WEIGHTS = "<float[3] s = {1, 1, 1}, float[3] b = {0, 0, 0}, int64[2] axes = {2, 3}>"


@pytest.mark.parametrize(
    ("body", "small", "large"),
    [
        ("y = InstanceNormalization(x, s, b)", True, False),
        ("m = ReduceMean(x, axes) y = Sub(x, m)", True, False),
        ("m = GlobalAveragePool(x) y = Sub(x, m)", True, False),
        ("m = GlobalAveragePool(x) y = Mul(x, m)", True, True),
        ("y = GroupNormalization<num_groups = 3>(x, s, b)", False, False),
        ("y = MeanVarianceNormalization(x)", False, False),
    ],
)
def test_a_variance_by_squares_and_a_mean_of_many_numbers_are_declined(body: str, small: bool, large: bool) -> None:
    for sizes, taken in ((SMALL, small), (LARGE, large)):
        model = parse_graph(f"g (float{sizes} x) => (float{sizes} y) {WEIGHTS} {{ {body} }}")
        reasons = [TvmBackend().known_wrong(graph, node) for graph, node in operators(model)]
        assert any("far from zero" in reason for reason in reasons) != taken


@pytest.mark.parametrize(("axis", "taken"), [(-1, True), (1, False)])
def test_a_layer_normalisation_of_many_numbers_is_declined(axis: int, taken: bool) -> None:
    scale = "float[128]" if axis < 0 else "float[3, 128, 128]"
    text = f"g (float{LARGE} x, {scale} s) => (float{LARGE} y) {{ y = LayerNormalization<axis = {axis}>(x, s) }}"
    reasons = [TvmBackend().known_wrong(graph, node) for graph, node in operators(parse_graph(text))]
    assert any(reasons) != taken
