"""TVM's rules: which normalisations lose digits far from zero, and are declined."""

from __future__ import annotations

import pytest

from collage_evo.backends.tvm.backend import TvmBackend
from collage_evo.graph.check.scopes import operators
from tests.support.models import parse_graph

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
        ("y = LayerNormalization<axis = -1>(x, z)", True, True),
        ("y = LayerNormalization<axis = 1>(x, x)", True, False),
    ],
)
def test_a_variance_by_squares_and_a_mean_of_many_numbers_are_declined(body: str, small: bool, large: bool) -> None:
    for size, taken in ((32, small), (128, large)):
        image = f"float[1, 3, {size}, {size}]"
        model = parse_graph(f"g ({image} x, float[{size}] z) => ({image} y) {WEIGHTS} {{ {body} }}")
        reasons = [TvmBackend().known_wrong(graph, node) for graph, node in operators(model)]
        assert any("far from zero" in reason for reason in reasons) != taken
