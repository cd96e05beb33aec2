"""Nodes keep the names of a person's file, and each node that is gone tells into what it went."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto

from collage_evo.graph.convert.origin import Fate, name_nodes, node_names
from collage_evo.graph.load.load import ModelFile
from collage_evo.graph.normalise.normalise import normalise
from collage_evo.graph.prepare import SearchableModel, prepare_model, searchable
from collage_evo.models.builder import Builder
from tests.support.models import parse_graph, random_dag, tiny_branchy, tiny_convnet, tiny_transformer

WEIGHT = np.ones((4, 4, 3, 3), np.float32)
PADS = [1, 1, 1, 1]


def fates(model: onnx.ModelProto) -> dict[str, Fate]:
    return {fate.name: fate for fate in name_nodes(model, normalise(model)).fates}


def folding() -> onnx.ModelProto:
    """What normalising folds: a BatchNormalization, a shape computed from an input, an idle node, a useless one."""
    b = Builder("folding")
    x = b.input("x", (1, 4, 8, 8))
    y = b.op("Conv", x, b.const(WEIGHT), name="stem", pads=PADS)
    y = b.op("BatchNormalization", y, *[b.const(np.ones(4, np.float32)) for _ in range(4)], name="norm")
    y = b.op("Identity", y, name="idle")
    batch = b.op("Gather", b.op("Shape", x, name="shape"), b.const(np.array([0])), name="batch")
    target = b.op("Concat", batch, b.ints(-1), name="target", axis=0)
    b.op("Relu", x, name="useless")
    return b.model(b.op("Reshape", y, target, name="flat"))


@pytest.mark.parametrize("model", [tiny_branchy(), tiny_transformer(), folding()])
def test_every_node_goes_by_the_name_of_a_node_of_the_file_with_its_operator(model: onnx.ModelProto) -> None:
    normalised = normalise(model)
    name_nodes(model, normalised)
    named = {node.name: node.op_type for node in model.graph.node}
    assert all(named[node.name] == node.op_type for node in normalised.graph.node)
    assert len({node.name for node in normalised.graph.node}) == len(normalised.graph.node)


def test_a_folded_node_says_into_what() -> None:
    found = fates(folding())
    assert {name for name, fate in found.items() if fate.is_preserved} == {"stem", "flat"}
    assert found["norm"].description == "was folded into stem"
    assert found["idle"].description in ("was folded into stem", "was folded into flat")
    for name in ("shape", "batch", "target"):
        assert found[name].description == "was folded into a constant, which flat reads"
    assert found["useless"].description == "was folded into nothing: no output needs it"


def test_of_two_equal_nodes_one_is_folded_into_the_other() -> None:
    b = Builder("twins")
    x = b.input("x", (2, 2))
    one, other = (b.op("Tanh", b.op("Exp", x, name=f"exp{k}"), name=f"tanh{k}") for k in range(2))
    found = fates(b.model(b.op("Add", one, other, name="sum")))
    assert found["exp1"].description == "was folded into exp0"
    assert found["tanh1"].description == "was folded into tanh0"


def test_nodes_of_a_branch_that_is_always_taken_keep_their_names() -> None:
    found = fates(
        parse_graph("""g (float[2] x) => (float[2] y) <bool always = {1}> {
            [choice] y = If(always) <then_branch = then () => (float[2] e) { [inner] r = Relu(x) [last] e = Exp(r) },
                                     else_branch = else () => (float[2] n) { [other] n = Neg(x) }>
        }""")
    )
    assert {name for name, fate in found.items() if fate.is_preserved} == {"inner", "last"}
    assert found["choice"].nodes == ("last",)


@pytest.mark.parametrize("name", ["", "same"])
def test_a_node_has_the_name_of_its_output_where_it_has_none_or_a_number_where_others_have_it_too(name: str) -> None:
    model = tiny_convnet()
    for node in model.graph.node:
        node.name = name
    outputs = [node.output[0] for node in model.graph.node]
    numbered = ["same", *(f"same#{number}" for number in range(1, len(outputs)))]
    assert list(node_names(model)) == (numbered if name else outputs)
    assert set(name_nodes(model, normalise(model)).names) <= {*node_names(model)}


def test_a_node_whose_work_two_others_share_lends_its_name_to_one() -> None:
    b = Builder("shared")
    x = b.input("x", (4,))
    half = b.op("Div", x, b.const(np.float32(2)), name="half")
    y, z = (b.op(kind, half, half, name=kind, output=name) for kind, name in (("Add", "y"), ("Mul", "z")))
    original = b.model(y, z)
    b = Builder("apart")
    x = b.input("x", (4,))
    y, z = (b.op("Div", x, b.const(np.float32(2)), output=name) for name in "yz")
    normalised = b.model(y, z)
    name_nodes(original, normalised)
    assert sorted(node.name for node in normalised.graph.node) == ["Mul", "half"]


@settings(max_examples=40)
@given(st.builds(random_dag, st.integers(0, 2**32 - 1), st.integers(1, 12)), st.booleans())
def test_every_node_has_a_name_of_its_own_and_every_fate_leads_to_one(model: onnx.ModelProto, nameless: bool) -> None:
    if nameless:
        for node in model.graph.node:
            node.name = ""
    normalised = normalise(model)
    origin = name_nodes(model, normalised)
    assert len(set(origin.names)) == len(origin.names) == len(normalised.graph.node)
    assert [fate.name for fate in origin.fates] == list(node_names(model))
    assert all(set(fate.nodes) <= set(origin.names) for fate in origin.fates)
    assert {name for fate in origin.fates for name in fate.nodes} == set(origin.names)


def prepared(model: onnx.ModelProto, folder: Path) -> SearchableModel:
    onnx.save(model, folder / "m.onnx")
    return searchable(prepare_model(ModelFile(str(folder / "m.onnx")), {}, 1, threads=1), threads=1)


def test_a_prepared_model_has_the_names_of_the_file(tmp_path: Path) -> None:
    model = prepared(folding(), tmp_path)
    assert [node.name for node in model.graph.nodes] == ["stem", "flat"]
    assert [node.name for node in model.graph.model.graph.node] == ["stem", "flat"]


def test_operators_that_stand_in_one_node_keep_their_names(tmp_path: Path) -> None:
    b = Builder("composite")
    x = b.input("x", (2, 3))
    found = b.op("Transpose", b.op("NonZero", b.op("Relu", x, name="relu"), name="where"), name="rows")
    count = b.op("ReduceSum", b.op("Cast", found, name="cast", to=TensorProto.FLOAT), name="count", keepdims=0)
    model = b.model(b.op("Add", x, count, name="shift"))
    names = [node.names for node in prepared(model, tmp_path).graph.nodes]
    assert sorted(name for one in names for name in one) == ["cast", "count", "relu", "rows", "shift", "where"]
    assert any({"where", "rows", "cast"} <= {*one} for one in names)
