"""What operators take at least, by their sizes."""

import onnx

from collage_evo.graph.convert.read import build_graph
from collage_evo.graph.ir.roofline import heavy_operators, multiply_adds
from tests.support.models import parse_graph


def test_products_of_sizes_that_are_not_known_count_for_nothing() -> None:
    text = "g (float[N, N] x, float[4, 3] a, float[3, 5] b) => (float[N, N] y, float[4, 5] z)"
    model = parse_graph(f"{text} {{ y = MatMul(x, x) z = MatMul(a, b) }}")
    graph = build_graph(onnx.shape_inference.infer_shapes(model))
    assert multiply_adds(graph, graph.all_nodes) == 4 * 3 * 5
    assert heavy_operators(graph, graph.all_nodes) == 1
