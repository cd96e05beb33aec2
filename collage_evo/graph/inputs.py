"""Random inputs that a model accepts: takes a model, gives one array an input, the same for the same seed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np
import onnx
from onnx import helper

from collage_evo.errors import InputError
from collage_evo.graph.ir import Graph

_RELAYS = {"Cast", "Concat", "Expand", "Identity", "Reshape", "Slice", "Squeeze", "Transpose", "Unsqueeze"}
"""Operators behind which an index is still the same index."""
_INDEXED = {"Gather", "GatherElements"}
_READ_LIMIT = 64


def random_inputs(model: onnx.ModelProto | Graph, seed: int) -> dict[str, np.ndarray]:
    """Random arrays for every input of ``model``, by name.

    Floats are standard normal. Integers that are used as indices are below the smallest table they index;
    other integers are 0 or 1, like a mask, and 1 at the front so that no mask is all zero.

    Raises:
        InputError: an input has a dynamic shape or no numeric type.
    """
    proto = model.model if isinstance(model, Graph) else model
    constants = {tensor.name: tuple(tensor.dims) for tensor in proto.graph.initializer}
    shapes = dict(constants)
    for value in (*proto.graph.value_info, *proto.graph.input):
        shapes[value.name] = tuple(dim.dim_value for dim in value.type.tensor_type.shape.dim)
    bounds = _IndexBounds(proto.graph.node, shapes)
    rng = np.random.default_rng(seed)
    feeds = {}
    for value in proto.graph.input:
        if value.name in constants:
            continue
        tensor = value.type.tensor_type
        shape = shapes[value.name]
        if not tensor.HasField("shape") or any(dim <= 0 for dim in shape):
            raise InputError(f"input {value.name!r} has a dynamic shape: fix it with model.shapes")
        if tensor.elem_type in (onnx.TensorProto.UNDEFINED, onnx.TensorProto.STRING):
            raise InputError(f"input {value.name!r} holds no numbers: only numeric inputs are supported")
        dtype = helper.tensor_dtype_to_np_dtype(tensor.elem_type)
        feeds[value.name] = _random_array(rng, shape, dtype, bounds.of(value.name))
    return feeds


def _random_array(
    rng: np.random.Generator, shape: tuple[int, ...], dtype: np.dtype, bound: int | None
) -> np.ndarray:
    if dtype.kind in "fcV":
        # The extended floats (bfloat16, float8) have kind V and convert from float32.
        return rng.standard_normal(shape, dtype=np.float32).astype(dtype)
    if bound is not None:
        return rng.integers(0, bound, shape).astype(dtype)
    mask = rng.integers(0, 2, shape)
    if shape:
        mask[..., 0] = 1
    return mask.astype(dtype)


class _IndexBounds:
    """Follows a tensor to the tables it indexes."""

    def __init__(self, nodes: Iterable[onnx.NodeProto], shapes: Mapping[str, tuple[int, ...]]) -> None:
        self._shapes = shapes
        self._readers: dict[str, list[tuple[onnx.NodeProto, int]]] = {}
        for node in nodes:
            for position, name in enumerate(node.input):
                self._readers.setdefault(name, []).append((node, position))

    def of(self, name: str) -> int | None:
        """The least number of entries among the tables that ``name`` indexes, or None if it indexes none."""
        found: list[int] = []
        queue, seen = [name], {name}
        while queue and len(seen) <= _READ_LIMIT:
            for node, position in self._readers.get(queue.pop(), []):
                if node.op_type in _INDEXED and position == 1:
                    found.extend(self._entries(node))
                elif node.op_type in _RELAYS and node.output[0] not in seen:
                    seen.add(node.output[0])
                    queue.append(node.output[0])
        return min(found, default=None)

    def _entries(self, node: onnx.NodeProto) -> list[int]:
        shape = self._shapes.get(node.input[0])
        axis = next((attr.i for attr in node.attribute if attr.name == "axis"), 0)
        if not shape or not -len(shape) <= axis < len(shape) or shape[axis] <= 0:
            return []
        return [shape[axis]]
