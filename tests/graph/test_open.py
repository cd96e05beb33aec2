"""A model whose shapes stay open: its graph has sizes for costs, and pieces that take all."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

from collage_evo.backends.enumerate import supported_nodes
from collage_evo.backends.registry import get_backend
from collage_evo.graph.convert.extract import extract
from collage_evo.graph.convert.read import build_graph
from collage_evo.graph.ir.graph import Graph, Tensor
from collage_evo.graph.load.load import ModelFile
from collage_evo.graph.prepare import PreparedModel, prepare_model, searchable
from collage_evo.graph.reference.reference import reference_outputs
from collage_evo.models.builder import Builder
from tests.support.models import open_rows


def feeds(batch: int, length: int) -> dict[str, np.ndarray]:
    return {"x": np.random.default_rng(length).standard_normal((batch, length, 8)).astype(np.float32)}


def prepared(model: onnx.ModelProto, folder: Path, *shapes: tuple[int, int]) -> PreparedModel:
    onnx.save(model, folder / "m.onnx")
    given = [feeds(*shape) for shape in shapes]
    return prepare_model(ModelFile(str(folder / "m.onnx")), {}, 1, 1, given, is_open=True)


@pytest.fixture
def graph(tmp_path: Path) -> Graph:
    return searchable(prepared(open_rows(), tmp_path, (1, 5), (1, 3)), 1).graph


def test_sizes_that_follow_the_inputs_vary_and_have_those_of_the_first_sample(graph: Graph) -> None:
    assert graph.is_open
    assert graph.tensors["x"] == Tensor("x", "float32", (1, 5, 8), varies=(0, 1)), "the batch is tried, too"
    assert graph.tensors["x"].opened.shape == (-1, -1, 8)
    rows = next(node.outputs[0] for node in graph.nodes if node.op_type == "Reshape")
    assert (graph.tensors[rows].shape, graph.tensors[rows].varies) == ((5, 8), (0,))
    assert not any(name for name in graph.constants if graph.constants[name].tolist() in ([5, 8], [1, 5, 4], [5], 5))


def test_a_graph_is_read_back_as_it_was_written(graph: Graph) -> None:
    assert build_graph(graph.model).tensors == graph.tensors


@pytest.mark.parametrize("shape", [(1, 5), (1, 11), (3, 2), (2, 1)])
def test_each_piece_runs_on_other_shapes(shape: tuple[int, int], graph: Graph) -> None:
    values = dict(feeds(*shape))
    for node in graph.nodes:
        piece = extract(graph, 1 << node.index)
        names, made = graph.boundary(1 << node.index)
        inputs = {value.name: values[name] for value, name in zip(piece.graph.input, names, strict=False)}
        values |= dict(zip(made, reference_outputs(piece, inputs), strict=True))
    (expected,) = reference_outputs(open_rows(), feeds(*shape))
    np.testing.assert_allclose(values["y"], expected, rtol=1e-5, atol=1e-6)


def test_a_size_that_the_model_refuses_to_change_stays(tmp_path: Path) -> None:
    model = prepared(open_rows(batch=1), tmp_path, (1, 5), (1, 3))
    assert searchable(model, 1).graph.tensors["x"].varies == (1,)
    assert [note for note in model.notes if "'batch' of 'x' stays 1: the model refuses another" in note]


def test_a_backend_without_open_inputs_takes_no_node_and_says_why(graph: Graph) -> None:
    taken = {name: supported_nodes(graph, get_backend(name)) for name in ("onnxruntime", "openvino", "ncnn", "tvm")}
    assert taken["onnxruntime"] == taken["openvino"] == (graph.all_nodes, {})
    for supported, refused in list(taken.values())[2:]:
        assert not supported
        assert len(refused) == len(graph.nodes)
        assert all("open shapes" in why for why in refused.values())


@pytest.mark.parametrize("length", [3, "length"])
def test_a_weight_that_the_file_lists_as_an_input_has_no_type_of_a_run(tmp_path: Path, length: int | str) -> None:
    net = Builder("listed")
    weight = net.const(np.ones((8, 4), np.float32))
    model = net.model(net.op("MatMul", net.input("x", (1, length, 8)), weight, output="y"))
    model.graph.input.append(onnx.helper.make_tensor_value_info(weight, onnx.TensorProto.FLOAT, (8, 4)))
    onnx.save(model, tmp_path / "m.onnx")
    given = [feeds(1, 3), feeds(1, 5)] if length == "length" else []
    found = prepare_model(ModelFile(str(tmp_path / "m.onnx")), {}, 1, 1, given, is_open=bool(given))
    assert searchable(found, 1).graph.is_open == bool(given)
