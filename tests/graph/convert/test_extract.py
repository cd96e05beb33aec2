"""extract cuts regions that compute what they did in place; hashes tell regions apart and together."""

from __future__ import annotations

import itertools

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

from collage_evo.graph.convert.extract import content_hash, extract, structural_hash
from collage_evo.graph.convert.read import build_graph
from collage_evo.graph.ir.graph import Graph, node_set
from collage_evo.graph.load.inputs import random_inputs
from collage_evo.graph.normalise.normalise import normalise
from collage_evo.graph.reference.reference import reference_outputs
from collage_evo.models.builder import Builder
from tests.support.models import chain, random_dag, tiny_branchy, tiny_convnet, tiny_transformer

_KINDS = {"bfloat16": TensorProto.BFLOAT16, "int4": TensorProto.INT4}


def run_in_pieces(graph: Graph, pieces: list[int]) -> list[np.ndarray]:
    """The graph's outputs, each piece run as a model of its own, in order."""
    values = dict(random_inputs(graph, 0))
    for nodes in pieces:
        entering, leaving = graph.boundary(nodes)
        model = extract(graph, nodes)
        onnx.checker.check_model(model, full_check=True)
        assert [value.name for value in model.graph.input] == [f"i{k}" for k in range(len(entering))]
        feeds = {f"i{k}": values[name] for k, name in enumerate(entering)}
        values.update(zip(leaving, reference_outputs(model, feeds), strict=True))
    return [values[name] for name in graph.outputs]


def assert_equal_outputs(graph: Graph, pieces: list[int]) -> None:
    expected = reference_outputs(graph.model, random_inputs(graph, 0))
    for actual, wanted in zip(run_in_pieces(graph, pieces), expected, strict=True):
        np.testing.assert_array_equal(actual, wanted)


@pytest.mark.parametrize("model", [tiny_convnet(), tiny_branchy(), tiny_transformer()])
def test_every_node_on_its_own_gives_the_whole(model: onnx.ModelProto) -> None:
    graph = build_graph(normalise(model))
    assert_equal_outputs(graph, [1 << index for index in range(len(graph.nodes))])


@settings(max_examples=25)
@given(seed=st.integers(0, 2**32 - 1), n=st.integers(1, 10), cuts=st.sets(st.integers(1, 15)))
def test_runs_of_nodes_give_the_whole(seed: int, n: int, cuts: set[int]) -> None:
    graph = build_graph(random_dag(seed, n))
    edges = [0, *sorted(cut for cut in cuts if cut < len(graph.nodes)), len(graph.nodes)]
    assert_equal_outputs(graph, [node_set(range(a, b)) for a, b in itertools.pairwise(edges)])


@pytest.mark.parametrize("kind", ["float32", "int64", "bool", "bfloat16", "int4", "str"])
def test_constants_are_written_as_onnx_writes_them(kind: str) -> None:
    """Also types that NumPy lacks, and those of less than a byte."""
    dtype = helper.tensor_dtype_to_np_dtype(_KINDS[kind]) if kind in _KINDS else np.dtype(kind)
    values = numpy_helper.from_array(np.ones((2, 3)).astype(dtype), "values")
    node = helper.make_node("Identity", ["values"], ["out"], name="node")
    out = helper.make_tensor_value_info("out", values.data_type, (2, 3))
    model = helper.make_model(helper.make_graph([node], "constants", [], [out], [values]))
    (written,) = extract(build_graph(model), 1).graph.initializer
    values.name = written.name
    assert written == values


def test_a_tensor_that_leaves_and_is_used_inside_is_one_output() -> None:
    # The residual's source is read by the second convolution, in the region, and by the Add, outside it.
    model = extract(build_graph(normalise(tiny_convnet())), 0b111)
    assert [value.name for value in model.graph.output] == ["o0", "o1"]
    assert next(iter(model.graph.node[2].input)) == "o0"


def test_a_tensor_read_twice_enters_once() -> None:
    net = Builder("twice")
    x, k = net.input("x", (2, 2)), net.const(np.ones((2, 2), np.float32))
    y = net.op("Sum", x, x, k, k)
    graph = build_graph(net.model(net.op("Mul", y, k, output="y")))
    model = extract(graph, graph.all_nodes)
    assert list(model.graph.node[0].input) == ["i0", "i0", "w0", "w0"]
    assert list(model.graph.node[1].input) == ["t0", "w0"]
    assert len(model.graph.initializer) == 1
    assert structural_hash(graph, 1) != structural_hash(_other_wiring(), 1)


def _other_wiring() -> Graph:
    net = Builder("other")
    x, k = net.input("x", (2, 2)), net.const(np.ones((2, 2), np.float32))
    return build_graph(net.model(net.op("Sum", x, k, x, k)))


def test_absent_optional_inputs_stay_absent() -> None:
    net = Builder("clip")
    y = net.op("Clip", net.input("x", (2, 2)), "", net.const(np.array(6, np.float32)))
    model = extract(build_graph(net.model(y)), 1)
    assert list(model.graph.node[0].input) == ["i0", "", "w0"]
    onnx.checker.check_model(model, full_check=True)


def test_repeated_blocks_share_structure_but_not_content() -> None:
    graph = build_graph(normalise(chain(4)))
    blocks = [0b11 << 2 * k for k in range(4)]
    assert len({structural_hash(graph, block) for block in blocks}) == 1
    assert len({content_hash(graph, block) for block in blocks}) == 4
    first, second = (extract(graph, block) for block in blocks[:2])
    assert first.graph.node == second.graph.node
    assert first.graph.value_info == second.graph.value_info


def test_equal_regions_of_two_models_have_equal_content() -> None:
    first, second = build_graph(normalise(chain(2))), build_graph(normalise(chain(3)))
    assert content_hash(first, 0b11) == content_hash(second, 0b11)
    assert extract(first, 0b11) == extract(second, 0b11)


def one_node(
    op_type: str, shape: tuple[int, ...], *constants: np.ndarray, opset: int = 18, **attributes: object
) -> Graph:
    net = Builder("one")
    x = net.input("x", shape)
    y = net.op(op_type, x, *(net.const(constant) for constant in constants), output="y", **attributes)
    return build_graph(normalise(net.model(y, opset=opset)))


def clip(high: float) -> Graph:
    return one_node("Clip", (2, 6), np.array(0, np.float32), np.array(high, np.float32))


def pair(both: bool) -> Graph:
    net = Builder("pair")
    a = net.op("Relu", net.input("x", (2, 2)))
    b = net.op("Tanh", a)
    return build_graph(net.model(a, b) if both else net.model(b))


SOFTMAX = one_node("Softmax", (2, 6), axis=1)


@pytest.mark.parametrize(
    ("one", "other", "equal"),
    [
        (SOFTMAX, one_node("Softmax", (2, 6), axis=0), False),
        (SOFTMAX, one_node("LogSoftmax", (2, 6), axis=1), False),
        (SOFTMAX, one_node("Softmax", (2, 7), axis=1), False),
        (SOFTMAX, one_node("Softmax", (2, 6), axis=1, opset=21), False),
        (clip(6), clip(6), True),
        (clip(6), clip(5), False),
        (one_node("Reshape", (2, 6), np.array([3, 4])), one_node("Reshape", (2, 6), np.array([4, 3])), False),
        (pair(True), pair(False), False),
    ],
)
def test_structure_covers_all_but_weights(one: Graph, other: Graph, equal: bool) -> None:
    """Operators, attributes, shapes, operator sets, constants that steer, and which tensors leave."""
    assert (structural_hash(one, one.all_nodes) == structural_hash(other, other.all_nodes)) == equal
