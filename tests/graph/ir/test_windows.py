"""Windows of convolutions: which share of them sees the input at each place of the kernel."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from collage_evo.graph.convert.read import build_graph
from collage_evo.graph.ir.windows import kernel_inside
from collage_evo.graph.reference.reference import reference_outputs
from collage_evo.models.builder import Builder


@pytest.mark.parametrize(
    "attributes",
    [
        {},
        {"pads": [1, 1, 1, 1]},
        {"pads": [0, 2, 1, 0], "strides": [2, 1]},
        {"pads": [2, 2, 2, 2], "dilations": [2, 1], "strides": [1, 3]},
        {"auto_pad": "SAME_UPPER", "strides": [2, 2]},
        {"auto_pad": "SAME_LOWER", "strides": [2, 2]},
        {"auto_pad": "VALID"},
    ],
)
def test_each_place_of_a_kernel_sees_the_input_as_often_as_a_convolution_of_ones_tells(
    attributes: dict[str, Any],
) -> None:
    b = Builder("windows")
    one_place_each = np.eye(9, dtype=np.float32).reshape(9, 1, 3, 3)
    graph = build_graph(b.model(b.op("Conv", b.input("x", (1, 1, 6, 5)), b.const(one_place_each), **attributes)))
    (seen,) = reference_outputs(graph.model, {"x": np.ones((1, 1, 6, 5), np.float32)})
    np.testing.assert_allclose(kernel_inside(graph, graph.nodes[0]).ravel(), seen.mean((0, 2, 3)), rtol=1e-6)


def test_a_product_has_no_windows() -> None:
    b = Builder("product")
    graph = build_graph(b.model(b.op("MatMul", b.input("x", (3, 4)), b.const(np.ones((4, 2), np.float32)))))
    assert kernel_inside(graph, graph.nodes[0]) == 1.0
