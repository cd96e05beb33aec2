"""The form of an export that the execution provider in plugins/onnxruntime_ep runs."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from pathlib import Path

import onnx
import pytest
from onnx import TensorProto, helper

from collage_evo.errors import InputError
from collage_evo.export.context_model import export_context_model
from collage_evo.models.builder import Builder
from collage_evo.runtime.artifact import read_artifact, write_artifact
from tests.export.runs import alone, placed, with_fallback
from tests.support.models import tiny_convnet


def of_rows(rows: int | str) -> onnx.ModelProto:
    made = Builder("net")
    return made.model(made.op("Relu", made.input("x", (rows, 4)), output="y"))


def attributes(model: onnx.ModelProto) -> dict[str, object]:
    (node,) = model.graph.node
    assert (node.op_type, node.domain) == ("EPContext", "com.microsoft")
    return {one.name: helper.get_attribute_value(one) for one in node.attribute}


def test_the_model_has_the_tensors_of_the_users_file_and_one_node_that_names_the_folder(tmp_path: Path) -> None:
    run = placed(tmp_path / "run", tiny_convnet(), [("onnxruntime", "default"), ("openvino", "default")])
    assert export_context_model(run, tmp_path / "out").directory == str(tmp_path / "out")
    model = onnx.load(tmp_path / "out" / "model.onnx")
    onnx.checker.check_model(model)
    assert list(model.graph.input) == list(tiny_convnet().graph.input)
    assert list(model.graph.output) == list(tiny_convnet().graph.output)
    values = attributes(model)
    assert (values["source"], values["embed_mode"], values["ep_cache_context"]) == (b"CollageEvo", 0, b"pieces")
    index = (tmp_path / "out" / "pieces" / "answer.json").read_bytes()
    assert values["notes"] == hashlib.sha256(index).hexdigest().encode()
    files = json.loads(index)["files"]
    names = ["pipeline.json", "00_onnxruntime.onnx", "01_openvino.xml", "01_openvino.bin"]
    assert sorted(files) == sorted(names)
    for name, digest in files.items():
        assert hashlib.sha256((tmp_path / "out" / "pieces" / name).read_bytes()).hexdigest() == digest


def test_sizes_keep_their_names_and_programs_their_order(tmp_path: Path) -> None:
    export_context_model(with_fallback(tmp_path / "run", of_rows(2), of_rows("rows")), tmp_path / "out")
    graph = onnx.load(tmp_path / "out" / "model.onnx").graph
    assert [dim.dim_param or dim.dim_value for dim in graph.input[0].type.tensor_type.shape.dim] == ["rows", 4]
    assert json.loads((tmp_path / "out" / "pieces" / "answer.json").read_text())["folders"] == ["2x4", "open"]


def test_sizes_that_the_file_declares_wrong_are_open(tmp_path: Path) -> None:
    """A library gives the size that it computes, whatever the file says."""
    for sizes, declared in (([2, 5], [2, None]), ([3, 4], [None, 4]), ([4], [None, None])):
        run = alone(tmp_path / f"run{sizes}", of_rows(2), "onnxruntime")
        artifact = read_artifact(run / "best.collage")
        y = replace(artifact.signature.outputs[0], shape=sizes)
        signature = replace(artifact.signature, outputs=(y,))
        write_artifact(run / "best.collage", artifact.profiles, artifact.target, signature)
        export_context_model(run, tmp_path / f"out{sizes}")
        (output,) = onnx.load(tmp_path / f"out{sizes}" / "model.onnx").graph.output
        assert [dim.dim_value or None for dim in output.type.tensor_type.shape.dim] == declared


def test_what_no_node_can_be_is_refused_and_leaves_nothing(tmp_path: Path) -> None:
    run = alone(tmp_path / "run", of_rows(2), "onnxruntime")
    with pytest.raises(InputError, match="exists already"):
        export_context_model(run, tmp_path)
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [2]) for name in ("x", "y")]
    graph = helper.make_graph([helper.make_node("Neg", ["x"], ["y"])], "g", values[:1], [values[1], values[0]])
    both = helper.make_model(graph, ir_version=9, opset_imports=[helper.make_opsetid("", 18)])
    with pytest.raises(InputError, match="x is an input and an output"):
        export_context_model(alone(tmp_path / "both", both, "onnxruntime"), tmp_path / "out")
    assert not list(tmp_path.glob("*out*"))
