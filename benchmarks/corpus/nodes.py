"""ONNX's own node and simple tests as files of the corpus, with the outputs they want."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, numpy_helper
from onnx.backend.test.loader import load_model_tests

from corpus.entry import Arrays, add

PART = "nodes"
SOURCE = "onnx.backend.test"
LICENSE = "Apache-2.0"


def write_cases(folder: Path, match: str = "") -> Iterator[str]:
    """Put every case into ``folder``/nodes, where it is not yet; yields what ONNX Runtime declines, and why.

    A case whose inputs are not all tensors is left out too: sequences have no place among arrays by name.
    """
    into = folder / PART
    into.mkdir(parents=True, exist_ok=True)
    for name, model, inputs in _cases():
        path = into / f"{name}.onnx"
        if match not in name or path.with_suffix(".json").exists():
            continue
        arrays = _arrays(model, inputs)
        if arrays is None:
            yield f"{name}: an input is no tensor"
            continue
        onnx.save(model, path)
        if refusal := add(into, name, PART, SOURCE, LICENSE, arrays):
            path.unlink()
            yield f"{name}: ONNX Runtime: {refusal[:160]}"


def computed(kind: str) -> Sequence[Any]:
    """ONNX's own tests of a kind."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the cases are computed here, with divisions by zero on purpose
        return load_model_tests(kind=kind)


def _cases() -> Iterator[tuple[str, onnx.ModelProto, Sequence[Any]]]:
    """Name, model and the inputs of its first data set."""
    for test in (*computed("node"), *computed("simple")):
        if test.model is not None and test.data_sets:
            yield test.name, test.model, test.data_sets[0][0]
        elif test.model_dir is not None:
            folder = Path(test.model_dir)
            model = onnx.load(folder / "model.onnx")
            files = sorted((folder / "test_data_set_0").glob("input_*.pb"), key=lambda file: int(file.stem[6:]))
            tensors = all(value.type.HasField("tensor_type") for value in model.graph.input)
            if tensors and len(files) == len(model.graph.input):
                yield test.name, model, [onnx.load_tensor(file) for file in files]


def _arrays(model: onnx.ModelProto, inputs: Sequence[Any]) -> Arrays | None:
    arrays: Arrays = {}
    for value, item in zip(model.graph.input, inputs, strict=False):
        if not value.type.HasField("tensor_type"):
            return None
        array = numpy_helper.to_array(item) if isinstance(item, TensorProto) else np.asarray(item)
        arrays[value.name] = array
    return arrays
