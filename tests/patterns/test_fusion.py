"""Fusion walks post-dominators, and takes what TVM's rule takes."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import pytest
from hypothesis import given

from collage_evo.graph.convert.read import build_graph
from collage_evo.graph.ir.graph import Graph, NodeSet, members
from collage_evo.graph.ir.operators import OpKind, kind_of
from collage_evo.models.builder import Builder
from collage_evo.patterns.fusion import PostDominatorFusion, post_dominators
from tests.patterns.strategies import graphs, supported_parts


def by_definition(graph: Graph, index: int) -> int | None:
    """The first node without which no way from ``index`` leads to the model's end."""
    final = [k for k, node in enumerate(graph.nodes) if set(node.outputs) & set(graph.outputs) or not graph.succ[k]]

    def reaches_the_end(start: int, without: int) -> bool:
        seen, todo = set(), [start]
        while todo:
            now = todo.pop()
            if now == without or now in seen:
                continue
            seen.add(now)
            if now in final:
                return True
            todo += members(graph.succ[now])
        return False

    passed = [node for node in members(graph.desc[index]) if not reaches_the_end(index, node)]
    return min(passed, default=None)


@given(graphs(10))
def test_post_dominators_are_what_their_definition_says(graph: Graph) -> None:
    assert list(post_dominators(graph)) == [by_definition(graph, index) for index in range(len(graph.nodes))]


@given(supported_parts())
def test_what_is_fused_is_one_piece_with_one_way_out_and_at_most_one_heavy_operator(
    part: tuple[Graph, NodeSet],
) -> None:
    graph, supported = part
    for nodes in PostDominatorFusion(max_nodes=5).find(graph, supported):
        kinds = [kind_of(graph.nodes[index]) for index in members(nodes)]
        assert graph.is_convex(nodes)
        assert graph.is_connected(nodes)
        assert 2 <= nodes.bit_count() <= 5
        assert not nodes & ~supported
        assert sum(kind >= OpKind.OUT_FUSABLE for kind in kinds) <= 1
        assert {graph.producer[name] for name in graph.boundary(nodes)[1]} <= {max(members(nodes))}


def image(b: Builder) -> str:
    return b.input("x", (1, 4, 6, 6))


def conv(b: Builder, x: str) -> str:
    return b.op("Conv", x, b.const(np.ones((4, 4, 1, 1), np.float32)))


def swish(b: Builder) -> str:
    y = conv(b, image(b))
    return b.op("Relu", b.op("Mul", y, b.op("Sigmoid", y)))


def widened(b: Builder) -> str:
    return b.op("Add", conv(b, b.input("x", (1, 4, 1, 1))), b.input("y", (1, 4, 6, 6)))


def read_twice(b: Builder) -> Iterator[str]:
    y = conv(b, image(b))
    yield b.op("Relu", y)
    yield b.op("Tanh", y)


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (swish, ["Conv Sigmoid Mul", "Conv Sigmoid Mul Relu", "Sigmoid Mul", "Sigmoid Mul Relu", "Mul Relu"]),
        (widened, []),
        (read_twice, []),
        (lambda b: b.op("Relu", b.op("Softmax", image(b))), []),
        (lambda b: conv(b, b.op("Relu", image(b))), []),
        (lambda b: b.op("GlobalAveragePool", b.op("Relu", image(b))), ["Relu GlobalAveragePool"]),
        (lambda b: b.op("Relu", b.op("GlobalAveragePool", image(b))), []),
        (lambda b: b.op("Flatten", b.op("Transpose", image(b))), ["Transpose Flatten"]),
        (lambda b: b.op("Relu", b.op("Flatten", image(b))), ["Flatten Relu"]),
        (lambda b: b.op("Flatten", conv(b, image(b))), []),
    ],
)
def test_the_rule(make: Callable[[Builder], object], expected: list[str]) -> None:
    b = Builder("rule")
    made = make(b)
    graph = build_graph(b.model(made) if isinstance(made, str) else b.model(*made))
    sets = PostDominatorFusion().find(graph, graph.all_nodes)
    assert [" ".join(graph.nodes[index].op_type for index in members(nodes)) for nodes in sets] == expected
