"""An annotated model is the user's own, with who runs each node where Netron looks."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest

from collage_evo.backends.onnxruntime.backend import OnnxRuntimeBackend
from collage_evo.backends.registry import register_backend
from collage_evo.errors import InputError
from collage_evo.graph.convert.read import build_graph
from collage_evo.graph.ir.graph import Graph
from collage_evo.precision.quantise.arithmetic import Arithmetic
from collage_evo.report.listings import print_artifact
from collage_evo.run import annotated
from collage_evo.run.annotated import export_onnx, write_annotated
from collage_evo.runtime.artifact import read_artifact
from tests.export.runs import alone, placed
from tests.support.models import tiny_convnet


def run_directory(folder: Path, *engines: str) -> Graph:
    """A run whose answer gives each of ``engines`` an equal share of the nodes."""
    placed(folder, tiny_convnet(), [(name, "default") for name in engines])
    return build_graph(onnx.load(folder / "work" / "normalised.onnx"))


def notes(model: onnx.ModelProto) -> dict[str, dict[str, str]]:
    return {node.name: {prop.key: prop.value for prop in node.metadata_props} for node in model.graph.node}


def test_every_node_carries_its_region_and_backend_and_outputs_stay(tmp_path: Path) -> None:
    graph = run_directory(tmp_path, "onnxruntime", "openvino")
    done = export_onnx(tmp_path, tmp_path / "out.onnx")
    model = onnx.load(tmp_path / "out.onnx")
    onnx.checker.check_model(model)
    half = -(-len(graph.nodes) // 2)
    for node in graph.nodes:
        region, backend = (0, "onnxruntime") if node.index < half else (1, "openvino")
        found = notes(model)[node.name]
        assert (found["collage_evo.region"], found["collage_evo.backend"]) == (str(region), backend)
        assert "collage_evo.simplified" not in found
    folded = next(node.name for node in model.graph.node if node.op_type == "BatchNormalization")
    assert notes(model)[folded]["collage_evo.simplified"].startswith("was folded into ")
    assert notes(model)[folded]["collage_evo.backend"] == "onnxruntime"
    assert [node.name for node in model.graph.node] == [node.name for node in tiny_convnet().graph.node]
    assert done.nodes == {"onnxruntime": half, "openvino": len(graph.nodes) - half}
    x = {"x": np.random.default_rng(0).standard_normal((1, 3, 16, 16)).astype(np.float32)}
    before, after = (
        ort.InferenceSession(str(tmp_path / path), providers=["CPUExecutionProvider"]).run(None, x)[0]
        for path in ("work/original.onnx", "out.onnx")
    )
    np.testing.assert_array_equal(before, after)


def test_nodes_and_regions_say_in_which_precision_they_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    placed(tmp_path, tiny_convnet(), [("openvino", "default")], Arithmetic.INT8)
    export_onnx(tmp_path, tmp_path / "out.onnx")
    model = onnx.load(tmp_path / "out.onnx")
    heavy = {node.name for node in model.graph.node if node.op_type in ("Gemm", "MatMul", "Conv")}
    assert heavy
    for name, found in notes(model).items():
        folded = found.get("collage_evo.simplified", "").startswith("was folded into Conv")
        assert found["collage_evo.precision"] == ("int8" if folded or name in heavy else "float32")
    print_artifact(read_artifact(tmp_path / "best.collage"))
    assert f"(default), float32, {len(heavy)} in int8, " in capsys.readouterr().out


@pytest.mark.parametrize("regions", [[{}], [3], 3])
def test_regions_of_another_artifact_are_refused_in_a_line(tmp_path: Path, regions: Any) -> None:
    alone(tmp_path, tiny_convnet(), "onnxruntime")
    manifest = tmp_path / "best.collage" / "manifest.json"
    content = json.loads(manifest.read_text())
    content["profiles"][0]["info"]["regions"] = regions if regions != [{}] else [{"nodes": 1, "backend": "x"}] * 2
    manifest.write_text(json.dumps(content))
    with pytest.raises(InputError, match=r"the artifact lists .* run the search again"):
        print_artifact(read_artifact(tmp_path / "best.collage"))


class InLanes(OnnxRuntimeBackend):
    name = "in_lanes"

    def lanes(self, workdir: Path) -> tuple[tuple[str, ...], ...]:
        return (("Conv",), ("Relu",))


@pytest.mark.usefixtures("registry_alone")
def test_nodes_say_in_how_many_lanes_their_region_runs(tmp_path: Path) -> None:
    register_backend(InLanes)
    graph = run_directory(tmp_path, "onnxruntime", "in_lanes")
    export_onnx(tmp_path, tmp_path / "out.onnx")
    found = notes(onnx.load(tmp_path / "out.onnx"))
    told = [found[node.name].get("collage_evo.lanes") for node in graph.nodes]
    half = -(-len(graph.nodes) // 2)
    assert told == [None] * half + ["2"] * (len(graph.nodes) - half)


def test_a_single_backend_s_answer_is_the_person_s_own_file(tmp_path: Path) -> None:
    alone(tmp_path, tiny_convnet(), "onnxruntime")
    done = export_onnx(tmp_path, tmp_path / "out.onnx")
    model = onnx.load(tmp_path / "out.onnx")
    assert list(notes(model)) == [node.name for node in tiny_convnet().graph.node]
    assert {found["collage_evo.backend"] for found in notes(model).values()} == {"onnxruntime"}
    assert (done.regions, done.nodes) == (1, {"onnxruntime": len(model.graph.node)})


def test_a_run_without_an_answer_is_refused(tmp_path: Path) -> None:
    alone(tmp_path, tiny_convnet(), "onnxruntime")
    with pytest.raises(InputError, match="no artifact"):
        export_onnx(tmp_path / "work", tmp_path / "out.onnx")


def test_a_run_writes_it_beside_the_answer_in_place_of_an_earlier_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    alone(tmp_path, tiny_convnet(), "onnxruntime")
    (tmp_path / "annotated.onnx").write_text("of an earlier answer")
    write_annotated(tmp_path)
    assert all(notes(onnx.load(tmp_path / "annotated.onnx")).values())
    monkeypatch.setattr(annotated, "MOST_BYTES", 100)
    write_annotated(tmp_path)
    assert not (tmp_path / "annotated.onnx").exists(), "the weights are large"
