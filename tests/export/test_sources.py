"""A run's files tell which nodes of the user's file a library's kernels compute."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from collage_evo.backends.profiled import Kernel
from collage_evo.export.sources import namings_of
from collage_evo.precision.quantise.arithmetic import Arithmetic
from collage_evo.runtime.trace import trace_artifact
from tests.export.runs import alone, placed
from tests.runtime.helpers import image
from tests.support.models import tiny_convnet


@pytest.mark.parametrize("low", [None, Arithmetic.INT8])
def test_kernels_of_edited_regions_have_the_names_of_the_file(low: Arithmetic | None, tmp_path: Path) -> None:
    placed(tmp_path / "run", tiny_convnet(), [("onnxruntime", "default"), ("openvino", "default")], low)
    file = {node.name: node.op_type for node in tiny_convnet().graph.node}
    events = trace_artifact(tmp_path / "run", image(0), runs=2, namings=namings_of(tmp_path / "run"))
    named = {name for event in events if event.operator for name in event.nodes}
    heavy = {name for name, kind in file.items() if kind in ("Conv", "Gemm")}
    assert heavy <= named <= set(file)
    for event in events:
        if event.operator in ("Conv", "Convolution", "QLinearConv"):
            assert event.precision == ("int8" if low else "float32")
            assert heavy.intersection(event.nodes)


def test_an_artifact_apart_from_its_run_has_no_such_names(tmp_path: Path) -> None:
    alone(tmp_path / "run", tiny_convnet(), "onnxruntime")
    (naming,) = namings_of(tmp_path / "run" / "best.collage").values()
    (last,) = (node for node in tiny_convnet().graph.node if node.op_type == "Softmax")
    relu = next(node for node in tiny_convnet().graph.node if node.op_type == "Relu")
    found = naming([Kernel(f"{relu.output[0]}_nchwc", "Conv", 2.0), Kernel(last.output[0], "Softmax", 1.0)])
    assert found[0] == ("Conv_0", "BatchNormalization_0", relu.name), "what was fused into a kernel is its"
    assert found[1][-1] == last.name
    shutil.copytree(tmp_path / "run" / "best.collage", tmp_path / "elsewhere" / "best.collage")
    assert not namings_of(tmp_path / "elsewhere")
