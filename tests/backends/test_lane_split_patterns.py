"""Stretches that are worth cutting are proposed: convex, connected, able to be cut, and not too many."""

from __future__ import annotations

import numpy as np
import pytest

from collage_evo.backends.lanes import split_patterns as split_patterns_module
from collage_evo.backends.lanes.split import refusal
from collage_evo.backends.lanes.split_patterns import MOST, split_kinds, split_patterns
from collage_evo.graph.ir import Graph, NodeSet, members
from collage_evo.graph.normalise import normalise
from collage_evo.graph.read import build_graph
from collage_evo.graph.roofline import multiply_adds
from collage_evo.models.builder import Builder
from collage_evo.models.builtin import make_builtin


def graph_of(source: str) -> Graph:
    return build_graph(normalise(make_builtin(f"builtin:{source}", 0)[1]))


def proposed(graph: Graph) -> dict[str, list[NodeSet]]:
    return {pattern.kind: list(pattern.find(graph, graph.all_nodes)) for pattern in split_patterns()}


def operators(graph: Graph, nodes: NodeSet) -> list[str]:
    return [graph.nodes[index].op_type for index in members(nodes)]


@pytest.mark.parametrize("source", ["mobilenet_v2", "squeezenet", "bert?layers=2&hidden=256&heads=4"])
def test_what_is_proposed_is_a_region_that_can_be_cut(source: str) -> None:
    graph = graph_of(source)
    for kind, sets in proposed(graph).items():
        assert len(sets) == len(set(sets)) <= MOST
        for nodes in sets:
            assert graph.is_convex(nodes)
            assert graph.is_connected(nodes)
            assert not refusal(graph, nodes, 2, kind)
            assert kind in split_kinds(graph, nodes)


def test_a_convolutional_network_is_covered_by_stretches_of_rows() -> None:
    graph = graph_of("mobilenet_v2")
    found = proposed(graph)
    together = 0
    for nodes in found["rows"]:
        together |= nodes
    assert multiply_adds(graph, together) > 0.9 * multiply_adds(graph, graph.all_nodes)
    assert max(operators(graph, nodes).count("Conv") for nodes in found["rows"]) >= 6
    assert not found["columns"] + found["positions"] + found["samples"]


def test_a_batch_of_images_can_be_cut_by_samples_whole() -> None:
    _, model = make_builtin("builtin:mobilenet_v2?size=64", 0)
    for value in (*model.graph.input, *model.graph.output):
        value.type.tensor_type.shape.dim[0].dim_value = 2
    del model.graph.value_info[:]
    graph = build_graph(normalise(model))
    assert graph.all_nodes in proposed(graph)["samples"]


def test_attention_is_cut_by_heads_and_what_is_between_by_positions() -> None:
    graph = graph_of("bert?layers=2&hidden=256&heads=4")
    found = proposed(graph)
    attention = [nodes for nodes in found["columns"] if operators(graph, nodes).count("MatMul") == 5]
    between = [nodes for nodes in found["positions"] if operators(graph, nodes).count("MatMul") == 3]
    assert len(attention) == len(between) == 2
    assert not found["rows"] + found["channels"]


def test_a_single_convolution_is_cut_by_channels_and_not_by_rows() -> None:
    net = Builder("net")
    weights = net.const(np.ones((32, 32, 3, 3), np.float32))
    made = net.op("Conv", net.input("x", [1, 32, 32, 32]), weights, pads=[1, 1, 1, 1])
    found = proposed(build_graph(net.model(net.op("Relu", made))))
    assert found["channels"] == [0b11]
    assert not found["rows"]


def test_of_many_stretches_those_of_the_most_work_are_proposed(monkeypatch: pytest.MonkeyPatch) -> None:
    net = Builder("net")
    x = net.input("x", [1, 64, 40, 40])
    for _ in range(8):
        x = net.op("Conv", x, net.const(np.ones((64, 64, 1, 1), np.float32)))
    graph = build_graph(net.model(x))
    assert len(proposed(graph)["rows"]) == 7
    monkeypatch.setattr(split_patterns_module, "MOST", 3)
    assert sorted(nodes.bit_count() for nodes in proposed(graph)["rows"]) == [4, 4, 8]


def test_rows_of_a_matrix_are_tried_once_whatever_they_are_called() -> None:
    net = Builder("net")
    product = net.op("MatMul", net.input("x", [256, 256]), net.const(np.ones((256, 256), np.float32)))
    graph = build_graph(net.model(net.op("Relu", product)))
    assert not any(refusal(graph, graph.all_nodes, 2, kind) for kind in ("positions", "samples"))
    assert split_kinds(graph, graph.all_nodes) == ("positions",)


def test_a_region_is_tried_with_few_kinds_of_split() -> None:
    net = Builder("net")
    x = net.input("x", [1, 64, 40, 40])
    for _ in range(2):
        x = net.op("Conv", x, net.const(np.ones((64, 64, 1, 1), np.float32)))
    graph = build_graph(net.model(net.op("GlobalAveragePool", x)))
    assert split_kinds(graph, 0b11) == ("rows",)
    assert split_kinds(graph, 0b1) == ("channels",)
    assert split_kinds(graph, 0b100) == ()
