"""Weights are made integers once for a graph, whatever a piece of it calls them."""

from __future__ import annotations

import numpy as np
import pytest

from collage_evo.graph.convert.extract import extract
from collage_evo.graph.convert.read import build_graph
from collage_evo.graph.ir.graph import Graph
from collage_evo.graph.reference.reference import reference_outputs
from collage_evo.models.builder import Builder
from collage_evo.precision.quantise import rounded as module
from collage_evo.precision.quantise.rounded import rounded_weights, share_rounded, usual_scales
from collage_evo.precision.quantise.scales import quantise_weights
from collage_evo.precision.quantise.write import quantised_region
from tests.precision import nets
from tests.precision.nets import net, ranges_of
from tests.support.numerics import INPUTS


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[np.ndarray]:
    """The constants that integers were made of."""
    seen: list[np.ndarray] = []

    def quantise(weights: np.ndarray, scales: np.ndarray, axis: int) -> np.ndarray:
        seen.append(weights)
        return quantise_weights(weights, scales, axis)

    monkeypatch.setattr(module, "quantise_weights", quantise)
    return seen


def written(graph: Graph) -> bytes:
    model = quantised_region(graph, graph.all_nodes, graph.all_nodes, ranges_of(graph), INPUTS)
    return model.SerializeToString(deterministic=True)


def test_a_second_piece_takes_what_the_first_made(made: list[np.ndarray]) -> None:
    graph = net(nets.conv)
    assert written(graph) == written(graph) == written(net(nets.conv))
    assert len(made) == 2, "one for each of the two graphs"


def test_a_graph_made_of_another_has_what_is_known_under_other_names(made: list[np.ndarray]) -> None:
    graph = net(nets.conv)
    written(graph)
    inner = build_graph(extract(graph, graph.all_nodes))
    share_rounded(graph, inner)
    written(inner)
    assert len(made) == 1


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
