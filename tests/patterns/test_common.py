"""What the shared patterns find in small graphs."""

from __future__ import annotations

from collage_evo.graph.convert.read import build_graph
from collage_evo.graph.ir.graph import Graph, members
from collage_evo.graph.normalise.normalise import normalise
from collage_evo.models.builder import Builder
from collage_evo.patterns.common import ATTENTION, CHAIN, EPILOGUE, SINGLE
from collage_evo.patterns.language import Pattern
from collage_evo.testing.cases import CASES
from tests.support.models import tiny_convnet


def found(pattern: Pattern, graph: Graph) -> list[str]:
    sets = pattern.find(graph, graph.all_nodes)
    return [" ".join(graph.nodes[index].op_type for index in members(nodes)) for nodes in sets]


def test_single_gives_every_supported_operator() -> None:
    graph = build_graph(normalise(tiny_convnet()))
    assert found(SINGLE, graph) == [node.op_type for node in graph.nodes]
    assert list(SINGLE.find(graph, 0b101)) == [0b1, 0b100]


def test_an_epilogue_is_found_in_every_length() -> None:
    every = found(EPILOGUE, build_graph(normalise(tiny_convnet())))
    assert {"Conv Relu", "Conv Add", "Conv Add Relu"} <= set(every)


def test_a_chain_has_two_to_eight_operators_and_takes_diamonds_whole() -> None:
    b = Builder("chain")
    y = b.op("Relu", b.input("x", (2, 3)))
    gate = b.op("Mul", y, b.op("Sigmoid", y))
    assert set(found(CHAIN, build_graph(b.model(gate)))) == {"Relu Sigmoid Mul", "Sigmoid Mul"}
    for _ in range(9):
        gate = b.op("Tanh", gate)
    assert {name.count(" ") + 1 for name in found(CHAIN, build_graph(b.model(gate)))} == {2, 3, 4, 5, 6, 7, 8}


def test_attention_is_found_with_its_scale_and_mask() -> None:
    assert found(ATTENTION, build_graph(CASES["attention"]())) == ["MatMul Div Add Softmax MatMul"]
