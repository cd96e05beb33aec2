"""Random inputs that a model accepts, reproducible by seed."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from collage_evo.errors import InputError
from collage_evo.graph.ir.graph import Graph
from collage_evo.graph.ir.weights import array_of
from collage_evo.graph.load.data import given_inputs
from collage_evo.multimap import multimap

_RELAYS = {"Cast", "Concat", "Expand", "Identity", "Reshape", "Slice", "Squeeze", "Transpose", "Unsqueeze"}
"""Operators that preserve an index."""
_INDEXED = {"Gather", "GatherElements"}
_INTEGERS = (TensorProto.INT32, TensorProto.INT64)
_COMPARISONS = {"Equal", "Less", "Greater", "LessOrEqual", "GreaterOrEqual"}
_DIVIDED: Mapping[str, tuple[int, ...]] = {"Div": (1,), "Mod": (1,), "STFT": (1, 3)}
"""Inputs that operators divide by. ONNX Runtime 1.32 ended the process for an STFT with random steps; which numbers
it cannot stand is not known."""
_Affine = Callable[[np.ndarray, np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]
_AFFINE: Mapping[tuple[str, int], _Affine] = {
    **dict.fromkeys((("Add", 0), ("Add", 1)), lambda factor, term, constant: (factor, term + constant)),
    **dict.fromkeys((("Mul", 0), ("Mul", 1)), lambda factor, term, constant: (factor * constant, term * constant)),
    **dict.fromkeys((("Div", 0), ("Mod", 0)), lambda factor, term, constant: (factor / constant, term / constant)),
    **{
        (op, place): lambda factor, term, constant: (factor, term - constant)
        for op in _COMPARISONS
        for place in (0, 1)
    },
    ("Sub", 0): lambda factor, term, constant: (factor, term - constant),
    ("Sub", 1): lambda factor, term, constant: (-factor, constant - term),
}
"""By operator and position of the input: the factor and the term that are in effect behind it."""
_FAR, _LITTLE = 2.0**3, 2.0**-15
"""Terms beyond it cost a float32 three bits; by a factor below it 16 bits become nothing."""
_LARGEST_DIVISOR = 9
_MOST_COMPARED = 64
_READ_LIMIT = 64
_LARGEST_ELEMENT = 16
_WORDS, _NUMBERS = ("a", "word", "some text"), ("0", "1", "2", "17")


def random_inputs(
    model: onnx.ModelProto | Graph,
    seed: int,
    shapes: Mapping[str, Sequence[int]] | None = None,
    values: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Random arrays for every input of ``model``, by name.

    Floats are standard normal, bytes any value. Indices are whole and below the size of the smallest table they
    index. Integers that divide are 1 to 9, of either sign: ONNX Runtime refuses 0; steps of an STFT are positive.
    Other integers that are compared with constants are 0, 1, these constants, or next to one. Numbers that constants
    shift or scale far away are such that the result is standard normal. Other integers are 0 or 1, like a mask, with
    a 1 first so that no mask is all zero; a single bool is either. Strings are short, and numbers where they are cast
    to some.

    Args:
        shapes: replace those that the model declares.
        values: inputs with fixed values.

    Raises:
        InputError: an input has a dynamic shape, is a sequence or the like, or does not fit into memory.
    """
    proto = model.model if isinstance(model, Graph) else model
    fixed_shapes, fixed_values = shapes or {}, values or {}
    bounds = _IndexBounds(proto.graph)
    rng = np.random.default_rng(seed)
    feeds: dict[str, Any] = {}
    for value in given_inputs(proto).values():
        if value.name in fixed_values:
            feeds[value.name] = fixed_values[value.name]
            continue
        tensor = value.type.tensor_type
        shape = tuple(fixed_shapes.get(value.name, bounds.shapes[value.name]))
        if value.type.WhichOneof("value") != "tensor_type" or tensor.elem_type == onnx.TensorProto.UNDEFINED:
            raise InputError(f"input {value.name!r} is no tensor: only models whose inputs are tensors can run")
        if value.name not in fixed_shapes and not _is_static(value):
            raise InputError(f"input {value.name!r} has a dynamic shape: fix it with model.shapes")
        if tensor.elem_type == onnx.TensorProto.STRING:
            words = _NUMBERS if bounds.is_cast(value.name) else _WORDS
            feeds[value.name] = rng.choice(np.array(words), shape)
            continue
        dtype = helper.tensor_dtype_to_np_dtype(tensor.elem_type)
        try:
            if dtype.kind in "iu" and (operators := bounds.divides(value.name)):
                feeds[value.name] = _divisors(rng, shape, dtype, signed="STFT" not in operators)
                continue
            limits = bounds.of(value.name), bounds.compared_with(value.name), bounds.far(value.name, shape)
            feeds[value.name] = _random_array(rng, shape, dtype, *limits)
        except MemoryError:
            raise InputError(f"input {value.name!r} of shape {list(shape)} does not fit into memory") from None
    return feeds


def index_bound(model: onnx.ModelProto, name: str) -> int | None:
    """The least number of entries among the tables that the input ``name`` indexes, or None if it indexes none."""
    return _IndexBounds(model.graph).of(name)


def _is_static(value: onnx.ValueInfoProto) -> bool:
    tensor = value.type.tensor_type
    return tensor.HasField("shape") and all(dim.HasField("dim_value") for dim in tensor.shape.dim)


def _random_array(
    rng: np.random.Generator,
    shape: tuple[int, ...],
    dtype: np.dtype,
    bound: int | None,
    compared: Sequence[int],
    far: tuple[np.ndarray, np.ndarray] | None,
) -> np.ndarray:
    if math.prod(shape) > sys.maxsize // _LARGEST_ELEMENT:
        raise MemoryError  # NumPy has errors of other kinds for what no machine could address
    if bound is not None:
        return rng.integers(0, bound, shape).astype(dtype)
    if dtype.kind == "f" and far is not None:
        return np.asarray((rng.standard_normal(shape) - far[1]) / far[0]).astype(dtype)
    if "int" not in dtype.name and dtype.kind != "b":
        return rng.standard_normal(shape, dtype=np.float32).astype(dtype)
    if dtype == np.uint8:
        return rng.integers(0, 256, shape).astype(dtype)
    if dtype.kind in "iu" and compared:
        limits = np.iinfo(dtype)
        return rng.choice([one for one in compared if limits.min <= one <= limits.max] or [0], shape).astype(dtype)
    if dtype.kind in "iu" and far is not None:
        limits, drawn = np.iinfo(dtype), np.rint((rng.standard_normal(shape) - far[1]) / far[0])
        return np.asarray(np.clip(drawn, float(limits.min), np.nextafter(float(limits.max), 0))).astype(dtype)
    mask = rng.integers(0, 2, shape)
    if mask.size and shape and (mask.size > 1 or dtype.kind != "b"):
        mask[..., 0] = 1
    return np.asarray(mask).astype(dtype)


def divides(model: onnx.ModelProto, name: str) -> bool:
    """Whether an operator divides by the input ``name``, so that it may not be 0."""
    return bool(_IndexBounds(model.graph).divides(name))


def _divisors(rng: np.random.Generator, shape: tuple[int, ...], dtype: np.dtype, signed: bool) -> np.ndarray:
    signs = rng.choice((-1, 1) if signed and dtype.kind == "i" else (1,), shape)
    return np.asarray(signs * rng.integers(1, _LARGEST_DIVISOR + 1, shape)).astype(dtype)


class _IndexBounds:
    """Follows a tensor to the tables it indexes."""

    def __init__(self, proto: onnx.GraphProto) -> None:
        self.shapes = {tensor.name: tuple(tensor.dims) for tensor in proto.initializer}
        for value in (*proto.value_info, *proto.input):
            self.shapes[value.name] = tuple(dim.dim_value for dim in value.type.tensor_type.shape.dim)
        self._depths = {
            tensor.name: [int(numpy_helper.to_array(tensor).reshape(-1)[0])]
            for tensor in proto.initializer
            if list(tensor.dims) in ([], [1]) and tensor.data_type in _INTEGERS
        }
        self._constants = {tensor.name: tensor for tensor in proto.initializer}
        self._constants |= {
            node.output[0]: attribute.t
            for node in proto.node
            for attribute in node.attribute
            if node.op_type == "Constant" and attribute.name == "value"
        }
        self._readers = multimap((name, (one, place)) for one in proto.node for place, name in enumerate(one.input))

    def of(self, name: str) -> int | None:
        """The least number of entries among the tables that ``name`` indexes, or None if it indexes none."""
        entries = (one for node, position in self._uses(name) for one in self._entries(node, position))
        return min(entries, default=None)

    def compared_with(self, name: str) -> list[int]:
        """0, 1, the whole numbers that ``name`` is compared with, and their neighbours; nothing if it is not."""
        uses = ((node, position) for node, position in self._uses(name) if node.op_type in _COMPARISONS)
        others = (node.input[1 - position] for node, position in uses if len(node.input) == 2)
        constants = {one for other in others for one in self._whole(other)}
        if not constants - {0, 1}:
            return []  # a mask
        return sorted({0, 1} | {one + step for one in constants for step in (-1, 0, 1)})

    def is_cast(self, name: str) -> bool:
        """Whether ``name``, of strings, is cast to numbers."""
        return any(node.op_type == "Cast" for node, _ in self._uses(name))

    def far(self, name: str, shape: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray] | None:
        """A factor and a term that constants apply to ``name``; None where usual numbers are not far from these.

        Of usual numbers minus a large constant nothing is left but the constant, so that a library which rounds
        coarsely, as float32 rounds the seconds since 1970, would look exact.
        """
        factor, term = np.ones(()), np.zeros(())
        try:
            with np.errstate(all="ignore"):
                while step := self._step(name):
                    node, position, constant = step
                    if constant is not None:
                        factor, term = _AFFINE[node.op_type, position](factor, term, constant)
                    if node.op_type in _COMPARISONS:
                        break
                    name = node.output[0]
                centre = np.broadcast_to(-term / factor, shape)
        except ValueError:  # behind a Reshape constants fit another shape
            return None
        shifted = min(np.abs(term).max(initial=0.0), np.abs(centre).max(initial=0.0)) > _FAR
        little = np.abs(factor).max(initial=0.0) < _LITTLE
        return (factor, term) if (shifted or little) and np.isfinite(centre).all() else None

    def _step(self, name: str) -> tuple[onnx.NodeProto, int, np.ndarray | None] | None:
        """A reader of ``name`` that preserves it, or applies a constant to it, with the position and the constant."""
        for node, position in self._readers.get(name, []):
            if node.op_type in _RELAYS and position == 0:
                return node, position, None
            if (node.op_type, position) in _AFFINE and len(node.input) == 2:
                constant = self._constants.get(node.input[1 - position])
                if constant is not None:
                    return node, position, array_of(constant).astype(np.float64)
        return None

    def divides(self, name: str) -> set[str]:
        """The operators that divide by ``name``."""
        return {node.op_type for node, position in self._uses(name) if position in _DIVIDED.get(node.op_type, ())}

    def _uses(self, name: str) -> Iterator[tuple[onnx.NodeProto, int]]:
        """The readers of ``name``, each with the position of that input, also behind operators that preserve it."""
        queue, seen = [name], {name}
        while queue and len(seen) <= _READ_LIMIT:
            for node, position in self._readers.get(queue.pop(), []):
                yield node, position
                if node.op_type in _RELAYS and node.output[0] not in seen:
                    seen.add(node.output[0])
                    queue.append(node.output[0])

    def _whole(self, name: str) -> list[int]:
        tensor = self._constants.get(name)
        if tensor is None or math.prod(tensor.dims) > _MOST_COMPARED:
            return []
        values = array_of(tensor).reshape(-1)
        usual = values.dtype.kind in "iuf" and bool(np.isfinite(values).all())
        return [int(value) for value in values if int(value) == value] if usual else []

    def _entries(self, node: onnx.NodeProto, position: int) -> list[int]:
        """The number of entries of the table that ``node`` indexes by its input number ``position``, if it does."""
        if (node.op_type, position) == ("OneHot", 0):
            return self._depths.get(node.input[1], [])
        if node.op_type not in _INDEXED or position != 1:
            return []
        shape = self.shapes.get(node.input[0], ())
        axis = next((attr.i for attr in node.attribute if attr.name == "axis"), 0)
        return [shape[axis]] if -len(shape) <= axis < len(shape) and shape[axis] > 0 else []
