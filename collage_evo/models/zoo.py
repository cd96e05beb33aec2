"""Model-zoo graphs that the onnx package ships without weights, with a seeded random fill."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import onnx
from onnx import numpy_helper, version_converter

from collage_evo.errors import InputError
from collage_evo.models.builder import IR_VERSION, OPSET, refill
from collage_evo.models.weights import BATCHNORM_PARTS, batchnorm_part, generator, layer_weight, normal
from collage_evo.multimap import multimap

_RECTIFIERS = {"Relu", "Clip"}
_POOLS = {"MaxPool", "AveragePool", "GlobalAveragePool"}
_KEEPS_MOMENT = {*_POOLS, "Concat", "Dropout", "Reshape", "Transpose", "LRN"}
_RELAYS = {"Unsqueeze", "Reshape"}
"""Operators that stand between a weight and the operator that uses it."""


def zoo_model(name: str, seed: int) -> onnx.ModelProto:
    """The zoo graph ``name`` at opset 18, batch 1, BatchNormalization unfused, weights random.

    Raises:
        InputError: the onnx package was installed without its test data.
    """
    path = Path(onnx.__file__).parent / f"backend/test/data/light/light_{name}.onnx"
    if not path.is_file():
        raise InputError(f"builtin:{name} needs {path.name}, which this onnx package lacks: reinstall onnx")
    model = onnx.load(path)
    # IR version 3 lists weights among the inputs; as true inputs they would not be constant.
    weights = {tensor.name for tensor in model.graph.initializer}
    inputs = [value for value in model.graph.input if value.name not in weights]
    refill(model.graph.input, inputs)
    model.ir_version = IR_VERSION
    model = version_converter.convert_version(model, OPSET)
    model.graph.name = name
    fill_weights(model, seed)
    return model


def fill_weights(model: onnx.ModelProto, seed: int) -> None:
    """Replace every ConstantOfShape of ``model`` by an initializer with random values, in place."""
    graph = model.graph
    shapes = {tensor.name: tensor for tensor in graph.initializer}
    uses = _Uses(graph)
    remaining, used = [], set()
    for node in graph.node:
        if node.op_type != "ConstantOfShape":
            remaining.append(node)
            used.update(node.input)
            continue
        shape = tuple(int(dim) for dim in numpy_helper.to_array(shapes[node.input[0]]))
        values = uses.fill(node.output[0], shape, generator(seed, node.output[0]))
        graph.initializer.append(numpy_helper.from_array(values, node.output[0]))
        used.add(node.output[0])
    initializers = [tensor for tensor in graph.initializer if tensor.name in used]
    refill(graph.node, remaining)
    refill(graph.initializer, initializers)


class _Uses:
    """Producer and readers of each tensor, and from these the role of a weight."""

    def __init__(self, graph: onnx.GraphProto) -> None:
        self._maker = {name: node for node in graph.node for name in node.output}
        self._readers = multimap((name, (one, place)) for one in graph.node for place, name in enumerate(one.input))
        self._residual = any(node.op_type == "Sum" for node in graph.node)

    def fill(self, name: str, shape: tuple[int, ...], rng: np.random.Generator) -> np.ndarray:
        """Random values for the weight ``name``, scaled by its role."""
        reader, position = self._reader(name)
        if reader.op_type == "Conv" and position == 1:
            return layer_weight(rng, shape, math.prod(shape[1:]), self._rectified(reader.input[0]))
        if reader.op_type == "Gemm" and position == 1:
            transposed = any(attr.name == "transB" and attr.i for attr in reader.attribute)
            fan_in = math.prod(shape) // shape[0] if transposed else shape[0]
            last = all(user.op_type == "Softmax" for user, _ in self._readers.get(reader.output[0], []))
            weight = layer_weight(rng, shape, fan_in, self._rectified(reader.input[0]) and not last)
            # Sums leave large features; scores near one keep the softmax that follows far from one-hot.
            return weight * np.float32(0.2) if last and self._residual else weight
        if reader.op_type == "BatchNormalization":
            part = BATCHNORM_PARTS[position - 1]
            return batchnorm_part(rng, part, shape[0], self._branch_scale(reader.output[0]))
        if reader.op_type == "Mul":
            return batchnorm_part(rng, "scale", shape[0])
        return normal(rng, shape, 0.05)

    def _reader(self, name: str) -> tuple[onnx.NodeProto, int]:
        reader, position = self._readers[name][0]
        while reader.op_type in _RELAYS:
            reader, position = self._readers[reader.output[0]][0]
        return reader, position

    def _rectified(self, name: str) -> bool:
        """Whether the tensor's last nonlinearity was a rectifier."""
        while (maker := self._maker.get(name)) is not None and maker.op_type in _KEEPS_MOMENT:
            name = maker.input[0]
        return maker is not None and maker.op_type in _RECTIFIERS

    def _branch_scale(self, name: str) -> float:
        """Less than one for a residual branch, whose sum would otherwise double the variance each block."""
        for reader, _ in self._readers.get(name, []):
            if reader.op_type in {"Sum", "Add"}:
                both = all(self._is_batchnorm(other) for other in reader.input)
                return math.sqrt(0.5) if both else 0.2
        return 1.0

    def _is_batchnorm(self, name: str) -> bool:
        maker = self._maker.get(name)
        return maker is not None and maker.op_type == "BatchNormalization"
