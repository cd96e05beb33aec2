"""Model files of any size: what one protobuf message cannot hold is saved as external data."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator
from pathlib import Path

import onnx
from onnx import TensorProto, helper

from collage_evo.files import reading

MESSAGE_BYTES = 2**31 - 2**24
"""A protobuf message holds less than 2 GiB, the operators included."""
_LARGE = 1024
"""Weights of at least so many bytes move into the data file of a large model."""


def weights(graph: onnx.GraphProto) -> Iterator[TensorProto]:
    """Every constant tensor of a graph and of the bodies of its nodes."""
    yield from graph.initializer
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.HasField("t"):
                yield attribute.t
            yield from attribute.tensors
            for body in (attribute.g, *attribute.graphs):
                yield from weights(body)


def fits_in_a_message(model: onnx.ModelProto) -> bool:
    """Whether the model, weights included, can be one protobuf message."""
    return sum(map(weight_bytes, weights(model.graph))) < MESSAGE_BYTES


def weight_bytes(tensor: TensorProto) -> int:
    """Size of the tensor in bytes, by its type and shape; types under a byte are packed."""
    if tensor.data_type in (TensorProto.UNDEFINED, TensorProto.STRING):
        return len(tensor.raw_data)
    name = TensorProto.DataType.Name(tensor.data_type)
    bits = next((b for kind, b in (("INT4", 4), ("FLOAT4", 4), ("INT2", 2)) if kind in name), 0)
    bits = bits or 8 * helper.tensor_dtype_to_np_dtype(tensor.data_type).itemsize
    return int(-(-math.prod(tensor.dims) * bits // 8))


def save_model(model: onnx.ModelProto, path: Path) -> None:
    """Write ``model`` unchanged to ``path``, and the weights of a large one to ``path`` + ``.data``."""
    if fits_in_a_message(model):
        onnx.save(model, path)
        return
    moved = []
    with (path.parent / f"{path.name}.data").open("wb") as data_file:
        for tensor in weights(model.graph):
            if tensor.HasField("raw_data") and weight_bytes(tensor) >= _LARGE:
                raw, offset = tensor.raw_data, data_file.tell()
                data_file.write(raw)
                tensor.ClearField("raw_data")
                tensor.data_location = TensorProto.EXTERNAL
                place = {"location": Path(data_file.name).name, "offset": str(offset), "length": str(len(raw))}
                for key, value in place.items():
                    tensor.external_data.add(key=key, value=value)
                moved.append((tensor, raw))
    try:
        path.write_bytes(model.SerializeToString())
    finally:
        for tensor, raw in moved:
            tensor.raw_data = raw
            tensor.ClearField("data_location")
            tensor.ClearField("external_data")


def read_model(path: Path) -> onnx.ModelProto:
    """Read a model written by :func:`save_model`.

    Raises:
        DamagedFile: the file holds no model.
    """
    with reading(path, "resume the run, which writes it again"):
        return onnx.load(path)


def digest(model: onnx.ModelProto) -> str:
    """SHA-256 of everything in ``model``, the same for the same model in every process."""
    if fits_in_a_message(model):
        return hashlib.sha256(model.SerializeToString(deterministic=True)).hexdigest()
    found = hashlib.sha256()
    for tensor in weights(model.graph):
        found.update(f"{tensor.name} {tensor.data_type} {list(tensor.dims)}".encode())
        found.update(tensor.raw_data)
    for node in model.graph.node:
        found.update(node.SerializeToString(deterministic=True))
    for value in (*model.graph.input, *model.graph.output):
        found.update(value.SerializeToString(deterministic=True))
    return found.hexdigest()
