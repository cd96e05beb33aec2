"""What is drawn is what is found: each part of the language on small graphs, whole patterns on random ones."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import helper

from collage_evo.errors import ConfigError
from collage_evo.graph.convert.read import build_graph
from collage_evo.graph.ir.graph import Graph, NodeSet, members, node_set
from collage_evo.models.builder import Builder
from collage_evo.patterns.language import GraphPattern, chain, constant, either, optional, value
from collage_evo.patterns.matcher import COMMUTATIVE, Matcher, TooManyWays
from tests.patterns.strategies import graphs, supported_parts


def graph_of(make: Callable[[Builder], object]) -> Graph:
    b = Builder("small")
    made = make(b)
    return build_graph(b.model(*made) if isinstance(made, tuple) else b.model(made))


def image(b: Builder, name: str = "x") -> str:
    return b.input(name, (1, 4, 6, 6))


def conv(b: Builder, x: str, size: int = 1, **attributes: object) -> str:
    return b.op("Conv", x, b.const(np.ones((4, 4, size, size), np.float32)), **attributes)


def found(draw: Callable[..., object], graph: Graph) -> list[str]:
    """The operators of each place, in the graph's order."""
    sets = GraphPattern("p", draw).find(graph, graph.all_nodes)
    return sorted(" ".join(graph.nodes[index].op_type for index in members(nodes)) for nodes in sets)


def conv_relu(b: Builder) -> str:
    return b.op("Relu", conv(b, image(b), 3, pads=[1, 1, 1, 1]))


@pytest.mark.parametrize(
    ("draw", "expected"),
    [
        (lambda op, x, w: op.Relu(op.Conv(x, w)), ["Conv Relu"]),
        (lambda op, x: op.Relu(op.Conv(x, ...)), ["Conv Relu"]),
        (lambda op: op.Conv(...), ["Conv"]),
        (lambda op: op.any_of()(...), ["Conv", "Relu"]),
        (lambda op: op.any_of("Relu", "Clip")(...), ["Relu"]),
        (lambda op, x: op.Conv(x), []),
        (lambda op, x, w: op.Conv(x, w, None), ["Conv"]),
        (lambda op, x, w, b: op.Conv(x, w, b), []),
        (lambda op, x: op.Conv(x, constant()), ["Conv"]),
        (lambda op, w: op.Conv(constant(), w), []),
        (lambda op, x: op.Conv(x, constant(shape=(None, None, 3, 3))), ["Conv"]),
        (lambda op, x: op.Conv(x, constant(shape=(None, None, 1, 1))), []),
        (lambda op: op.Relu(value(dtype="float32")), ["Relu"]),
        (lambda op: op.Relu(value(dtype="float16")), []),
        (lambda op, x: op.Conv(x, ..., pads=[1, 1, 1, 1]), ["Conv"]),
        (lambda op, x: op.Conv(x, ..., pads=[0, 0, 0, 0]), []),
        (lambda op, x: op.Conv(x, ..., group=1), ["Conv"]),
        (lambda op, x: op.Conv(x, ..., group=lambda group: group > 1), []),
        (lambda op: op.Relu(..., where=lambda graph, node: True), ["Relu"]),
        (lambda op: op.Relu(..., where=lambda graph, node: False), []),
        (lambda op: op.Relu(value(where=lambda graph, name: name in graph.producer)), ["Relu"]),
        (lambda op, x: optional(op.Relu, op.Conv(x, ...)), ["Conv", "Conv Relu"]),
        (lambda op, x: op.Relu(optional(op.Tanh, op.Conv(x, ...))), ["Conv Relu"]),
        (lambda op, x: either(op.Clip(x), op.Relu(x)), ["Relu"]),
        (lambda op, x: optional(op.Relu, x), ["Relu"]),
    ],
)
def test_conditions_wildcards_constants_options_and_alternatives(draw, expected: list[str]) -> None:
    assert found(draw, graph_of(conv_relu)) == expected


def test_a_model_without_onnx_s_own_operators_has_no_operator_set_and_no_defaults_of_one() -> None:
    made = graph_of(lambda b: b.op("Relu", image(b))).model
    made.graph.node[0].domain = "com.example"
    del made.opset_import[:]
    made.opset_import.append(helper.make_opsetid("com.example", 1))
    graph = build_graph(made)
    assert graph.opset == 0
    assert found(lambda op: op.any_of()(..., axis=None), graph) == ["Relu"]


def swishes(b: Builder) -> tuple[str, str]:
    x, y = image(b), image(b, "y")
    return b.op("Mul", b.op("Sigmoid", x), x), b.op("Mul", b.op("Sigmoid", x), y)


def residual(b: Builder) -> str:
    return b.op("Add", conv(b, image(b)), conv(b, image(b, "y")))


def activated(b: Builder) -> str:
    return b.op("Relu", b.op("Tanh", b.op("Relu", conv(b, image(b)))))


def forked(b: Builder) -> tuple[str, str]:
    y = b.op("Relu", image(b))
    return b.op("Tanh", y), b.op("Abs", y)


def both_ends(op, x):
    y = op.Relu(x)
    return y, op.Tanh(y)


@pytest.mark.parametrize(
    ("make", "draw", "expected"),
    [
        (swishes, lambda op, x: op.Mul(x, op.Sigmoid(x)), ["Sigmoid Mul"]),
        (residual, lambda op, x, y: op.Add(op.Conv(x, ...), y), ["Conv Add", "Conv Add"]),
        (
            activated,
            lambda op, x: chain(lambda y: op.any_of("Relu", "Tanh")(y), op.Conv(x, ...), most=2),
            ["Conv Relu", "Conv Relu Tanh"],
        ),
        (forked, lambda op, x: op.Tanh(op.Relu(x)), []),
        (forked, both_ends, ["Relu Tanh"]),
        (forked, lambda op, x: both_ends(op, x)[::-1], ["Relu Tanh"]),
    ],
)
def test_values_used_twice_every_way_to_fit_chains_and_several_ends(make, draw, expected: list[str]) -> None:
    """What others read inside a pattern is an end of it, or there is no match."""
    assert found(draw, graph_of(make)) == expected


def test_an_input_may_stand_anywhere_where_the_pattern_says_so() -> None:
    graph = graph_of(lambda b: b.op("Sub", b.const(np.float32(1)), b.op("Relu", image(b))))
    assert found(lambda op, x: op.Sub(op.Relu(x), ...), graph) == []
    assert found(lambda op, x: op.Sub(..., op.Relu(x), ...), graph) == ["Relu Sub"]
    with pytest.raises(ConfigError, match="Sub"):
        found(lambda op, x: op.Sub(..., op.Relu(x)), graph)


def test_several_ends_and_several_outputs() -> None:
    def halves(op, x):
        parts = op.Split(x, ...)
        return op.Relu(parts), op.Tanh(parts.output(1))

    def make(first: int) -> Callable[[Builder], tuple[str, str]]:
        def build(b: Builder) -> tuple[str, str]:
            parts = b.ops("Split", image(b), outputs=2, axis=1, num_outputs=2)
            return b.op("Relu", parts[first]), b.op("Tanh", parts[1 - first])

        return build

    assert found(halves, graph_of(make(0))) == ["Split Relu Tanh"]
    assert found(halves, graph_of(make(1))) == []
    assert "Split" in found(lambda op: op.any_of()(...), graph_of(make(0)))


def test_a_pattern_that_returns_no_operator_is_told() -> None:
    with pytest.raises(ConfigError, match="must return"):
        found(lambda op, x: x, graph_of(conv_relu))


def test_the_search_is_given_up_rather_than_endless() -> None:
    def sums(b: Builder) -> str:
        values = [b.op("Relu", image(b, f"x{k}")) for k in range(9)]
        for _ in range(8):
            values = [b.op("Sum", *values[k:], *values[:k]) for k in range(9)]
        return b.op("Sum", *values)

    graph = graph_of(sums)
    pattern = GraphPattern("p", lambda op: chain(lambda x: op.Sum(x, ...), op.Relu(...), most=9))
    with pytest.raises(TooManyWays):
        list(Matcher(graph, graph.all_nodes, max_tries=1000).find(pattern.ends))


def two_steps(op, x):
    """Two operators of which the second reads the first, and the second both or the first alone."""
    first = op.any_of("Relu", "Tanh")(x)
    return either(op.Mul(first, x), op.Add(first, ...), op.Tanh(first))


def fits_two_steps(graph: Graph, first: int, last: int) -> bool:
    early, late = graph.nodes[first], graph.nodes[last]
    if early.op_type not in ("Relu", "Tanh") or early.outputs[0] not in late.inputs:
        return False
    if graph.succ[first] != 1 << last or early.outputs[0] in graph.outputs:
        return False
    if late.op_type == "Mul":
        return set(late.inputs) == {early.outputs[0], early.inputs[0]}
    return late.op_type in ("Add", "Tanh")


@given(supported_parts(10))
def test_it_finds_all_places_and_no_others(part: tuple[Graph, NodeSet]) -> None:
    graph, supported = part
    every = set(GraphPattern("p", two_steps).find(graph, supported))
    pairs = itertools.combinations(members(supported), 2)
    assert every == {node_set(pair) for pair in pairs if fits_two_steps(graph, *pair)}


def diamond(op, x, y):
    top = op.any_of("Relu", "Tanh", "Mul", "Add")(x, ...)
    return op.Tanh(op.any_of("Add", "Mul", "Max")(top, optional(op.Tanh, either(top, y))))


@given(graphs(), st.randoms(use_true_random=False))
def test_the_order_of_a_commutative_operators_inputs_does_not_matter(graph: Graph, random) -> None:
    turned = type(graph.model)()
    turned.CopyFrom(graph.model)
    for node in turned.graph.node:
        if node.op_type in COMMUTATIVE:
            names = list(node.input)
            random.shuffle(names)
            node.input[:] = names
    other = build_graph(turned)
    for draw in (diamond, two_steps):
        assert places(draw, graph) == places(draw, other)


def places(draw: Callable[..., object], graph: Graph) -> set[frozenset[str]]:
    sets = GraphPattern("p", draw).find(graph, graph.all_nodes)
    return {frozenset(graph.nodes[index].name for index in members(nodes)) for nodes in sets}
