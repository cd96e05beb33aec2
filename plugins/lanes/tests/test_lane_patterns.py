"""Where lanes are tried: at blocks with branches, few times in any model, and nowhere in a chain."""

from __future__ import annotations

import runpy
from collections import Counter
from functools import cache
from pathlib import Path

import pytest

from collage_evo.graph.convert.read import build_graph
from collage_evo.graph.ir.graph import Graph, NodeSet, members
from collage_evo.graph.normalise.normalise import normalise
from collage_evo.models.builtin import BUILTINS, make_builtin
from collage_evo_lanes.patterns import lane_patterns
from plugins.lanes.tests.branchy import BranchyNet, towers

BERT, NASNET = "bert?layers=3&length=64&hidden=384&vocabulary=100", "nasnet_a?cells=1&filters=192"
NETWORKS = runpy.run_path(str(Path(__file__).parents[3] / "benchmarks/networks.py"))


@cache
def graph_of(name: str) -> Graph:
    known = name.partition("?")[0] in BUILTINS
    model = make_builtin(f"builtin:{name}", 0)[1] if known else NETWORKS["make_network"](f"network:{name}")
    return build_graph(normalise(model))


def proposals(graph: Graph) -> list[NodeSet]:
    (pattern,) = lane_patterns()
    return list(dict.fromkeys(pattern.find(graph, graph.all_nodes)))


def operators(graph: Graph, nodes: NodeSet) -> Counter[str]:
    return Counter(graph.nodes[index].op_type for index in members(nodes))


@pytest.mark.parametrize(
    ("name", "module", "count"),
    [
        ("squeezenet", Counter(Conv=2, Relu=2, Concat=1), 8),
        ("inception_v1", Counter(Conv=6, Relu=6, MaxPool=1, Concat=1), 9),
    ],
)
def test_every_module_and_consecutive_ones_joined(name: str, module: Counter[str], count: int) -> None:
    graph = graph_of(name)
    found = [operators(graph, nodes) for nodes in proposals(graph)]
    assert found.count(module) == count
    assert sorted({some["Concat"] for some in found}) == [1, 2, 4, count]


def test_layers_one_after_the_other_have_none() -> None:
    net = BranchyNet(0)
    x = net.image("x", 64)
    for _ in range(3):
        x = net.same("Add", x, net.conv(net.conv(x, 64, 3), 64))  # as in ResNet
    for _ in range(3):
        x = net.joined(x, net.conv(net.conv(x, 64), 32, 3))  # as in DenseNet
    assert proposals(build_graph(net.model(x))) == []


def test_what_leads_to_attention_begins_with_the_layer() -> None:
    graph = graph_of(BERT)
    found = [operators(graph, nodes) for nodes in proposals(graph)]
    assert sum(some["Softmax"] == 1 and some["MatMul"] == 5 for some in found) == 3


def test_cells_that_read_the_last_two_are_found_one_by_one() -> None:
    graph = graph_of(NASNET)
    found = proposals(graph)
    assert sum(30 <= nodes.bit_count() <= 50 for nodes in found) >= 4
    assert all(nodes.bit_count() <= 100 for nodes in found[:8])
    assert len(found) < 40


def test_towers_are_one_block() -> None:
    graph = build_graph(towers())
    assert graph.all_nodes in proposals(graph)


def test_a_part_of_a_block_that_is_wider_than_the_block_is_tried_too() -> None:
    net = BranchyNet(0)
    x = net.image("x", 64)
    joined, beside = net.joined(*(net.conv(x, 64, 3) for _ in range(3))), x
    for _ in range(4):
        joined = net.conv(joined, 64, 5)
    for _ in range(3):  # so much that all of it is one block
        beside = net.conv(beside, 64, 5)
    graph = build_graph(net.model(net.same("Add", joined, beside)))
    assert Counter(Conv=3, Concat=1) in [operators(graph, nodes) for nodes in proposals(graph)]


def test_a_module_is_tried_without_the_branch_that_lanes_would_wait_for_too() -> None:
    graph = graph_of("inception_v1")
    found = [operators(graph, nodes) for nodes in proposals(graph)]
    assert Counter(Conv=4, Relu=4, MaxPool=1, Concat=1) in found


@pytest.mark.parametrize("name", ["squeezenet", "inception_v1", BERT, NASNET])
def test_all_are_connected_and_convex(name: str) -> None:
    graph = graph_of(name)
    for nodes in proposals(graph):
        assert graph.is_connected(nodes)
        assert graph.is_convex(nodes)


def test_only_what_is_supported_is_proposed() -> None:
    graph = graph_of("inception_v1")
    (pattern,) = lane_patterns()
    pools = sum(1 << node.index for node in graph.nodes if node.op_type == "MaxPool")
    assert not any(nodes & pools for nodes in pattern.find(graph, graph.all_nodes & ~pools))
