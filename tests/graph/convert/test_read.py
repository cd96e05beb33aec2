"""build_graph: order, names, reachability, and what it refuses."""

from __future__ import annotations

import itertools

import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collage_evo.graph.convert.read import build_graph
from collage_evo.graph.ir.graph import COMPOSITE, Graph, members, node_set
from collage_evo.graph.normalise.normalise import normalise
from collage_evo.models.builder import Builder
from tests.support.models import chain, parse_graph, random_dag, tiny_branchy, tiny_convnet

DAGS = st.builds(random_dag, st.integers(0, 2**32 - 1), st.integers(1, 12))


def reachable(graph: Graph, start: int) -> set[int]:
    """All nodes after ``start``, by following tensors."""
    found: set[int] = set()
    queue = [start]
    while queue:
        for name in graph.nodes[queue.pop()].outputs:
            after = set(graph.consumers.get(name, ())) - found
            found |= after
            queue.extend(after)
    return found


@settings(max_examples=50)
@given(model=DAGS)
def test_nodes_are_in_topological_order_and_reachability_is_right(model: onnx.ModelProto) -> None:
    graph = build_graph(model)
    for node in graph.nodes:
        assert all(graph.producer[name] < node.index for name in node.inputs if name in graph.producer)
        after = reachable(graph, node.index)
        assert set(members(graph.desc[node.index])) == after
        assert all(graph.anc[other] >> node.index & 1 for other in after)
        assert graph.succ[node.index] & ~graph.desc[node.index] == 0
    assert sum(set.bit_count() for set in graph.anc) == sum(set.bit_count() for set in graph.desc)


@settings(max_examples=50)
@given(model=DAGS)
def test_branches_neither_fork_nor_join_and_cannot_be_longer(model: onnx.ModelProto) -> None:
    graph = build_graph(model)
    links = [
        (i, j)
        for i in range(len(graph.nodes))
        for j in members(graph.succ[i])
        if graph.succ[i].bit_count() == 1 and graph.pred[j].bit_count() == 1
    ]
    for node in graph.nodes:
        branch, grown = {node.index}, True
        while grown:
            more = {index for link in links if branch & set(link) for index in link}
            branch, grown = branch | more, not more <= branch
        assert set(members(graph.branch(node.index))) == branch


@settings(max_examples=100)
@given(model=DAGS, data=st.data())
def test_convexity_agrees_with_its_definition(model: onnx.ModelProto, data: st.DataObject) -> None:
    graph = build_graph(model)
    chosen = data.draw(st.sets(st.integers(0, len(graph.nodes) - 1), max_size=6))
    outside = set(range(len(graph.nodes))) - chosen
    pairs = itertools.product(chosen, outside)
    leaves_and_returns = any(b in reachable(graph, a) and reachable(graph, b) & chosen for a, b in pairs)
    assert graph.is_convex(node_set(chosen)) == (not leaves_and_returns)


def test_one_branch_is_finished_before_the_next() -> None:
    graph = build_graph(normalise(tiny_branchy()))
    alive_branches = 0
    for node in graph.nodes[2:-1]:
        # Within a branch every node reads the one before it; a new branch reads the shared tensor.
        follows = graph.pred[node.index] == 1 << (node.index - 1)
        alive_branches += not follows or node.inputs[0] == graph.nodes[1].outputs[0]
    assert alive_branches == 3


def test_the_order_is_the_same_every_time() -> None:
    first, second = (build_graph(random_dag(7, 12)) for _ in range(2))
    assert [node.name for node in first.nodes] == [node.name for node in second.nodes]


def test_nameless_and_repeated_names_become_unique() -> None:
    model = chain(3)
    for node, name in zip(model.graph.node, ["", "a", "a", "Relu_1", "", ""], strict=True):
        node.name = name
    names = [node.name for node in build_graph(model).nodes]
    assert names == ["Conv_1", "a", "a_1", "Relu_1", "Conv_2", "Relu_2"]


def test_attributes_are_plain_values() -> None:
    conv = build_graph(tiny_convnet()).nodes[0]
    assert conv.op_type == "Conv"
    assert conv.attributes["pads"] == [1, 1, 1, 1]
    padded = Builder("pad")
    y = padded.op("Pad", padded.input("x", (2, 3)), padded.ints(0, 1, 0, 1), mode="reflect")
    assert build_graph(padded.model(y)).nodes[0].attributes == {"mode": "reflect"}


def test_tensors_have_static_types() -> None:
    graph = build_graph(normalise(tiny_convnet()))
    assert graph.inputs == ("x",)
    assert graph.outputs == ("y",)
    assert graph.tensors["x"].shape == (1, 3, 16, 16)
    assert graph.tensors["y"].nbytes == 40
    with pytest.raises(ValueError, match="read-only"):
        next(iter(graph.constants.values()))[...] = 0


def control_flow(captures: bool) -> onnx.ModelProto:
    one, read = "k = Constant<value_floats = [1.0]>()", "x" if captures else "k"
    bodies = [f"{op_type} () => (float[1] b) {{ {one} b = {op_type}({read}) }}" for op_type in ("Neg", "Abs")]
    choice = f"t = If(c) <then_branch = {bodies[0]}, else_branch = {bodies[1]}>"
    return parse_graph(f"g (bool c, float[1] x) => (float[1] y) {{ {choice} y = Add(t, x) }}", opset=18)


@pytest.mark.parametrize("captures", [False, True])
def test_an_operator_with_a_body_is_a_composite_that_reads_what_its_body_reads(captures: bool) -> None:
    graph = build_graph(normalise(control_flow(captures)))
    assert [(node.op_type, node.domain) for node in graph.nodes] == [("If", COMPOSITE), ("Add", "")]
    assert graph.nodes[0].inputs == (("c", "x") if captures else ("c",))
