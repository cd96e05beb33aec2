"""Between which bounds integers of a model lie, whatever its inputs hold: takes its operators, gives ranges.

Floats have none: no operator keeps NaN within bounds, and as an integer it is any. Of operators there are those only
that every library keeps to (a remainder, in floats, may be as large as the divisor).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import cached_property

import numpy as np
import onnx
from onnx import helper, numpy_helper

from collage_evo.graph.ir import OPAQUE
from collage_evo.graph.read import declared_tensor
from collage_evo.graph.static import DICE, STANDARD, bodies

Range = tuple[int, int]
"""The least and the greatest value."""

RELAYS = frozenset({"Identity", "Reshape", "Flatten", "Transpose", "Squeeze", "Unsqueeze", "Cast"})
"""Operators that give all values that go in first, and no others."""
_SELECTING = RELAYS | {"Expand", "Tile", "Slice", "Split", "Gather", "GatherElements", "GatherND"}
"""Operators that give none but values that go in first."""
_FARTHEST = 64
"""Operators that are looked through, one behind the other."""


class Values:
    """The operators of a model by what they make, its constants, and what is known of its tensors.

    Args:
        model: with its functions inlined.
        declared: types and shapes of its tensors beside those of its inputs and outputs.
    """

    def __init__(self, model: onnx.ModelProto, declared: Iterable[onnx.ValueInfoProto]) -> None:
        graph = model.graph
        self.nodes = tuple(graph.node)
        self.maker = {name: node for node in self.nodes for name in node.output if name}
        self._initializers = {tensor.name: tensor for tensor in graph.initializer}
        self.inputs = {value.name for value in graph.input} - self._initializers.keys()
        self.fixed = all(declared_tensor(v.name, v.type).static for v in graph.input if v.name in self.inputs)
        """Whether all inputs have one shape, so that what is settled is the same in every run."""
        types = {value.name: value.type for value in (*declared, *graph.input, *graph.output)}
        self._types = {name: declared_tensor(name, type_) for name, type_ in types.items()}
        self._ranges: dict[str, Range | None] = {}

    def constant(self, name: str) -> np.ndarray | None:
        """The value of a tensor that is written into the model."""
        if name in self._initializers:
            return np.asarray(numpy_helper.to_array(self._initializers[name]))
        node = self.maker.get(name)
        if node is None or node.op_type != "Constant" or node.domain not in STANDARD:
            return None
        found = {attribute.name: helper.get_attribute_value(attribute) for attribute in node.attribute}
        if "value" in found:
            return np.asarray(numpy_helper.to_array(found["value"]))
        kind, value = next(iter(found.items()))
        return np.asarray(value, np.int64) if kind in ("value_int", "value_ints") else None

    def shape(self, name: str) -> tuple[int, ...] | None:
        """A tensor's sizes, unknown ones negative; None where not even their number is known."""
        if name in self._initializers:
            return tuple(self._initializers[name].dims)
        tensor = self._types.get(name)
        return tensor.shape if tensor is not None and tensor.dtype != OPAQUE else None

    def dtype(self, name: str) -> str:
        """The name of a tensor's element type; empty where it is not known."""
        if name in self._initializers:
            return str(helper.tensor_dtype_to_np_dtype(self._initializers[name].data_type).name)
        tensor = self._types.get(name)
        return tensor.dtype if tensor is not None and tensor.dtype != OPAQUE else ""

    def settled(self, name: str) -> bool:
        """Whether a tensor's values follow from constants and from shapes alone."""
        return name in self._settled

    @cached_property
    def _settled(self) -> set[str]:
        found = set(self._initializers)
        for node in self.nodes:
            by_shape = node.op_type in ("Shape", "Size") and node.domain in STANDARD
            if node.op_type in DICE or any(bodies(node)):
                continue
            if by_shape or all(name in found for name in node.input if name):
                found.update(filter(None, node.output))
        return found

    def range(self, name: str) -> Range | None:
        """The values that a tensor of integers may have; None where it may hold floats."""
        if name not in self._ranges:
            self._ranges[name] = None  # for one that is asked for again on the way
            self._ranges[name] = self._range(name, _FARTHEST)
        return self._ranges[name]

    def _range(self, name: str, left: int) -> Range | None:
        values = self.constant(name)
        if values is not None:
            return (int(values.min()), int(values.max())) if values.size and values.dtype.kind in "iub" else None
        widest = _widest(self.dtype(name))
        node = self.maker.get(name)
        rule = _RULES.get(node.op_type) if node is not None and node.domain in STANDARD else None
        if widest is None or node is None or rule is None or not left:
            return widest
        found = rule(self, node, lambda inner: self._range(inner, left - 1))
        # What does not fit into its type wraps around.
        return found if found is not None and widest[0] <= found[0] and found[1] <= widest[1] else widest


RangeOf = Callable[[str], Range | None]


def _widest(dtype: str) -> Range | None:
    if dtype == "bool":
        return 0, 1
    if not dtype.startswith(("int", "uint")) or dtype in ("int4", "uint4", "int2", "uint2"):
        return None
    info = np.iinfo(dtype)
    return int(info.min), int(info.max)


def _first(values: Values, node: onnx.NodeProto, of: RangeOf) -> Range | None:
    return of(node.input[0])


def _all(values: Values, node: onnx.NodeProto, of: RangeOf) -> Range | None:
    found = [of(name) for name in (node.input[1:] if node.op_type == "Where" else node.input)]
    known = [one for one in found if one is not None]
    return (min(low for low, _ in known), max(high for _, high in known)) if len(known) == len(found) else None


def _bounded(values: Values, node: onnx.NodeProto, of: RangeOf) -> Range | None:
    """Clip, Min and Max: the bounds of the greatest and of the least."""
    if node.op_type == "Clip":
        limits = [of(name) if name else None for name in (*node.input[1:], "", "")[:2]]
        low, high = of(node.input[0]) or (0, 0)
        if limits[0] is not None:
            low, high = max(low, limits[0][0]), max(high, limits[0][1])
        if limits[1] is not None:  # where the bounds contradict each other, the upper one holds
            low, high = min(low, limits[1][0]), min(high, limits[1][1])
        return low, high
    known = [one for one in map(of, node.input) if one is not None]
    if len(known) < len(node.input):
        return None
    most = max if node.op_type == "Max" else min
    return most(low for low, _ in known), most(high for _, high in known)


def _arithmetic(values: Values, node: onnx.NodeProto, of: RangeOf) -> Range | None:
    left, right = map(of, node.input)
    if left is None or right is None:
        return None
    pairs = [(a, b) for a in left for b in right]
    made = [a * b if node.op_type == "Mul" else a + b if node.op_type == "Add" else a - b for a, b in pairs]
    # Some libraries compute with 32 bits whatever the type is.
    return (min(made), max(made)) if min(made) >= -(2**31) and max(made) < 2**31 else None


def _place_of(values: Values, node: onnx.NodeProto, of: RangeOf) -> Range | None:
    """Where along an axis something was found; -1 where a library finds none, as among NaN."""
    shape = values.shape(node.input[0])
    default = -1 if node.op_type == "TopK" else 0
    axis = next((attribute.i for attribute in node.attribute if attribute.name == "axis"), default)
    size = shape[axis] if shape and -len(shape) <= axis < len(shape) else 0
    return (-1, size - 1) if size > 0 else None


def _sizes(values: Values, node: onnx.NodeProto, of: RangeOf) -> Range | None:
    shape = values.shape(node.input[0])
    return (min(shape), max(shape)) if shape and min(shape) >= 0 and node.op_type == "Shape" else (0, 2**63 - 1)


_RULES: Mapping[str, Callable[[Values, onnx.NodeProto, RangeOf], Range | None]] = {
    **dict.fromkeys(_SELECTING, _first),
    **dict.fromkeys(("Concat", "Where"), _all),
    **dict.fromkeys(("Clip", "Min", "Max"), _bounded),
    **dict.fromkeys(("Add", "Sub", "Mul"), _arithmetic),
    **dict.fromkeys(("ArgMax", "ArgMin", "TopK"), _place_of),
    **dict.fromkeys(("Shape", "Size"), _sizes),
}
