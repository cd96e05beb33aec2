"""Weights are made integers once for a graph, whatever a piece of it calls them."""

from __future__ import annotations

import numpy as np

from collage_evo.graph.convert.extract import extract
from collage_evo.graph.convert.read import build_graph
from collage_evo.graph.reference.reference import reference_outputs
from collage_evo.models.builder import Builder
from collage_evo.precision.quantise.rounded import rounded_weights, share_rounded, usual_scales
from tests.precision import nets
from tests.precision.nets import net


def test_pieces_share_integers_whatever_they_call_the_weights() -> None:
    graph = net(nets.conv)
    (node,) = graph.nodes
    made = rounded_weights(graph, node.inputs[1], 0, usual_scales(graph, node))
    assert rounded_weights(graph, node.inputs[1], 0, usual_scales(graph, node)) is made
    inner = build_graph(extract(graph, graph.all_nodes))
    share_rounded(graph, inner)
    (named,) = inner.nodes
    assert named.inputs[1] != node.inputs[1]
    assert rounded_weights(inner, named.inputs[1], 0, usual_scales(inner, named)) is made


def test_other_scales_and_means_are_other_numbers() -> None:
    graph = net(nets.gemm)
    node = next(node for node in graph.nodes if node.op_type == "Gemm")
    name = node.inputs[1]
    exact, usual = graph.constants[name], usual_scales(graph, node)
    weights, coarse = (rounded_weights(graph, name, 0, scales) for scales in (usual, 4 * usual))
    assert not np.array_equal(weights.numbers, coarse.numbers)
    zero, one = ((value,) * exact.shape[1] for value in (0.0, 1.0))
    assert not weights.shift(graph, node, zero).any()
    np.testing.assert_allclose(
        weights.shift(graph, node, one), (exact - weights.numbers * usual[:, np.newaxis]).sum(1), atol=1e-6
    )


def test_the_mean_that_is_lost_is_that_of_a_convolution_with_padding() -> None:
    graph = net(nets.conv)
    (node,) = graph.nodes
    exact, scales = graph.constants[node.inputs[1]], usual_scales(graph, node)
    weights = rounded_weights(graph, node.inputs[1], 0, scales)
    b, shape = Builder("lost"), graph.tensors[node.inputs[0]].shape
    lost = b.const(exact - weights.numbers * scales.reshape(-1, 1, 1, 1))
    model = b.model(b.op("Conv", b.input("x", shape), lost, pads=node.attributes["pads"]))
    (found,) = reference_outputs(model, {"x": np.ones(shape, np.float32)})
    np.testing.assert_allclose(weights.shift(graph, node, (1.0,) * shape[1]), found.mean((0, 2, 3)), atol=1e-6)
