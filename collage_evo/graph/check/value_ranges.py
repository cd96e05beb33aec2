"""Value ranges of a model's integers, whatever its inputs hold.

Floats have none: no operator confines NaN to bounds, and cast to an integer it may be any. For indices, ranges do not
follow through Clip, Min and Max: libraries that compute with 32 bits clip other numbers than a request holds. They
follow through Div and Mod only of numbers that fit 32 bits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import cached_property
from types import MappingProxyType

import numpy as np
import onnx
from onnx import helper, numpy_helper

from collage_evo.graph.convert.read import declared_tensor
from collage_evo.graph.convert.static import NONDETERMINISTIC, STANDARD
from collage_evo.graph.ir.elements import dtype_numbered
from collage_evo.graph.ir.graph import OPAQUE
from collage_evo.graph.ir.weights import array_of, bodies

Range = tuple[int, int]
"""The least and the greatest value."""

RELAYS = frozenset({"Identity", "Reshape", "Flatten", "Transpose", "Squeeze", "Unsqueeze", "Cast"})
"""Operators whose output has all values of the first input, and no others."""
_SELECTING = RELAYS | {"Expand", "Tile", "Slice", "Split", "Gather", "GatherElements", "GatherND"}
"""Operators whose output has only values of the first input."""


class Values:
    """The operators of a model by the tensors they make, its constants, and what is known about its tensors.

    Args:
        model: with its functions inlined.
        declared: types and shapes of its inner tensors.
        ranges: of inputs, by name, where they are narrower than the type.
        around: the values of the surrounding model, if this one is a body in it.
        exact: the library computes whole numbers exactly, so that ranges follow through all operators.
    """

    def __init__(
        self,
        model: onnx.ModelProto,
        declared: Iterable[onnx.ValueInfoProto],
        ranges: Mapping[str, Range] = MappingProxyType({}),
        around: Values | None = None,
        exact: bool = False,
    ) -> None:
        graph = model.graph
        self.around, self._rules = around, {**_RULES, **_EXACT} if exact else _RULES
        self.nodes = tuple(graph.node)
        self.maker = {name: node for node in self.nodes for name in node.output if name}
        self._initializers = {tensor.name: tensor for tensor in graph.initializer}
        self.inputs = {value.name for value in graph.input} - self._initializers.keys()
        self.fixed = all(declared_tensor(v.name, v.type).static for v in graph.input if v.name in self.inputs)
        """Whether all inputs have one shape, so that settled values are the same in every run."""
        types = {value.name: value.type for value in (*declared, *graph.input, *graph.output)}
        self._types = {name: declared_tensor(name, type_) for name, type_ in types.items()}
        kinds = {name: type_.tensor_type.elem_type for name, type_ in types.items()}
        self._dtypes = {name: dtype_numbered(kind) for name, kind in kinds.items() if kind}
        self._ranges: dict[str, Range | None] = dict(ranges)
        self._follow()

    def home(self, name: str) -> Values:
        """The values of the model or body that has the tensor ``name``: these, or some around them."""
        own = name in self.maker or name in self.inputs or name in self._initializers
        return self if own or self.around is None else self.around.home(name)

    def constant(self, name: str) -> np.ndarray | None:
        """The value of a tensor that is written into the model."""
        if (home := self.home(name)) is not self:
            return home.constant(name)
        if name in self._initializers:
            return array_of(self._initializers[name])
        node = self.maker.get(name)
        if node is None or node.op_type != "Constant" or node.domain not in STANDARD:
            return None
        attributes = {attribute.name: helper.get_attribute_value(attribute) for attribute in node.attribute}
        if "value" in attributes:
            return np.asarray(numpy_helper.to_array(attributes["value"]))
        kind, value = next(iter(attributes.items()))
        return np.asarray(value, np.int64) if kind in ("value_int", "value_ints") else None

    def shape(self, name: str) -> tuple[int, ...] | None:
        """A tensor's sizes, unknown ones negative; None where not even their number is known."""
        if name in self._initializers:
            return tuple(self._initializers[name].dims)
        tensor = self._types.get(name)
        if tensor is None and self.around is not None:
            return self.around.shape(name)
        return tensor.shape if tensor is not None and tensor.dtype != OPAQUE else None

    def dtype(self, name: str) -> str:
        """The name of a tensor's element type; empty where it is not known."""
        if name in self._initializers:
            return str(helper.tensor_dtype_to_np_dtype(self._initializers[name].data_type).name)
        if name not in self._types and self.around is not None:
            return self.around.dtype(name)
        return self._dtypes.get(name, "")

    def settled(self, name: str) -> bool:
        """Whether a tensor's values follow from only constants and shapes."""
        return name in self.home(name)._settled

    @cached_property
    def _settled(self) -> set[str]:
        settled = set(self._initializers)
        for node in self.nodes:
            by_shape = node.op_type in ("Shape", "Size") and node.domain in STANDARD
            if node.op_type in NONDETERMINISTIC or any(bodies(node)):
                continue
            outside = (name for name in node.input if name and name not in settled)
            if by_shape or all((home := self.home(name)) is not self and home.settled(name) for name in outside):
                settled.update(filter(None, node.output))
        return settled

    def range(self, name: str) -> Range | None:
        """The values that a tensor of integers may have; None where it may hold floats."""
        if (home := self.home(name)) is not self:
            return home.range(name)
        if name not in self._ranges:
            values = self.constant(name) if _widest(self.dtype(name)) else None
            own_range = (int(values.min()), int(values.max())) if values is not None and values.size else None
            self._ranges[name] = own_range or _widest(self.dtype(name))
        return self._ranges[name]

    def _follow(self) -> None:
        """Find the ranges of the operators' outputs, in order, so that the inputs' ranges are known."""
        for node in self.nodes:
            if node.op_type == "Constant" and node.domain in STANDARD:
                continue  # its value is more precise than a range
            rule = self._rules.get(node.op_type) if node.domain in STANDARD else None
            for name in node.output[1:] if node.op_type == "TopK" else node.output:
                widest = _widest(self.dtype(name))
                result = rule(self, node) if rule and widest else None
                # A result that does not fit into its type wraps around.
                fits = widest and result and widest[0] <= result[0] and result[1] <= widest[1]
                self._ranges[name] = result if fits else widest


def _widest(dtype: str) -> Range | None:
    if dtype == "bool":
        return 0, 1
    if not dtype.startswith(("int", "uint")) or dtype in ("int4", "uint4", "int2", "uint2"):
        return None
    info = np.iinfo(dtype)
    return int(info.min), int(info.max)


def _ranges(values: Values, names: Iterable[str]) -> list[Range]:
    """The ranges of ``names``; empty if one of them has none."""
    ranges = [values.range(name) for name in names]
    return [] if None in ranges else [range_ for range_ in ranges if range_ is not None]


def _union(values: Values, names: Iterable[str]) -> Range | None:
    """The smallest range that contains those of all ``names``; None if one of them has none."""
    ranges = _ranges(values, names)
    return (min(low for low, _ in ranges), max(high for _, high in ranges)) if ranges else None


def _all(values: Values, node: onnx.NodeProto) -> Range | None:
    return _union(values, node.input[1:] if node.op_type == "Where" else node.input)


def _arithmetic(values: Values, node: onnx.NodeProto) -> Range | None:
    left, right = map(values.range, node.input)
    if left is None or right is None:
        return None
    pairs = [(a, b) for a in left for b in right]
    results = [a * b if node.op_type == "Mul" else a + b if node.op_type == "Add" else a - b for a, b in pairs]
    # Some libraries compute with 32 bits whatever the type is.
    return (min(results), max(results)) if min(results) >= -(2**31) and max(results) < 2**31 else None


def _quotient_of_any_library(values: Values, node: onnx.NodeProto) -> Range | None:
    """A quotient or remainder by positive numbers, whichever way a library rounds where the dividend is negative."""
    range_, by = map(values.range, node.input)
    if range_ is None or by is None or by[0] <= 0 or range_[0] < -(2**31) or range_[1] >= 2**31:
        return None
    if node.op_type == "Mod":
        return max(min(range_[0], 0), 1 - by[1]), by[1] - 1
    quotients = [a // b for a in range_ for b in by] + [-(-a // b) for a in range_ if a < 0 for b in by]
    return min(quotients), max(quotients)


def _place_of(values: Values, node: onnx.NodeProto) -> Range | None:
    """An index along an axis (ArgMax and the like); -1 where a library finds none, as among NaN."""
    shape = values.shape(node.input[0])
    default = -1 if node.op_type == "TopK" else 0
    axis = next((attribute.i for attribute in node.attribute if attribute.name == "axis"), default)
    size = shape[axis] if shape and -len(shape) <= axis < len(shape) else 0
    return (-1, size - 1) if size > 0 else None


def _sizes(values: Values, node: onnx.NodeProto) -> Range | None:
    shape = values.shape(node.input[0])
    if node.op_type == "Size" or not shape:
        return 0, 2**63 - 1
    return (min(shape), max(shape)) if min(shape) >= 0 else (0, 2**31 - 1)  # a longer axis takes 2 GiB even of bytes


def _filled(values: Values, node: onnx.NodeProto) -> Range | None:
    value = next((numpy_helper.to_array(attribute.t).item() for attribute in node.attribute), 0)
    return (value, value) if isinstance(value, int) else None


Rule = Callable[[Values, onnx.NodeProto], Range | None]
_RULES: Mapping[str, Rule] = {
    **dict.fromkeys(_SELECTING, lambda values, node: values.range(node.input[0])),
    **dict.fromkeys(("Concat", "Where"), _all),
    **dict.fromkeys(("Add", "Sub", "Mul"), _arithmetic),
    **dict.fromkeys(("Div", "Mod"), _quotient_of_any_library),
    **dict.fromkeys(("ArgMax", "ArgMin", "TopK"), _place_of),
    **dict.fromkeys(("Shape", "Size"), _sizes),
    "ConstantOfShape": _filled,
}


def _of_first(change: Callable[[int, int], Range]) -> Rule:
    """The range of the first input, changed by a function of its ends."""

    def rule(values: Values, node: onnx.NodeProto) -> Range | None:
        range_ = values.range(node.input[0])
        return change(*range_) if range_ else None

    return rule


def _magnitude(low: int, high: int) -> Range:
    ends = sorted((abs(low), abs(high)))
    return 0 if low <= 0 <= high else ends[0], ends[1]


def _extreme(values: Values, node: onnx.NodeProto) -> Range | None:
    ranges, pick = _ranges(values, node.input), max if node.op_type == "Max" else min
    return (pick(low for low, _ in ranges), pick(high for _, high in ranges)) if ranges else None


def _clipped(values: Values, node: onnx.NodeProto) -> Range | None:
    range_, *bounds = (values.range(name) if name else None for name in (*node.input, "", "")[:3])
    if range_ is None:
        return None
    least, most = (one or range_ for one in bounds)
    return min(max(range_[0], least[0]), most[1]), max(min(range_[1], most[1]), least[0])


def _quotient(values: Values, node: onnx.NodeProto) -> Range | None:
    """A quotient, or a remainder, is no larger in magnitude than the dividend."""
    range_, by = map(values.range, node.input)
    if range_ is None or by is None:
        return None
    if by[0] > 0:
        if node.op_type == "Mod":
            fmod = any(attribute.name == "fmod" and attribute.i for attribute in node.attribute)
            return (-(by[1] - 1) if fmod and range_[0] < 0 else 0), by[1] - 1
        pairs = [abs(a) // b * (1 if a >= 0 else -1) for a in range_ for b in by]
        return min(pairs), max(pairs)
    most = max(map(abs, (*range_, *by)))
    return -most, most


def _reduced(values: Values, node: onnx.NodeProto) -> Range | None:
    range_, shape = values.range(node.input[0]), values.shape(node.input[0])
    if range_ is None or node.op_type in ("ReduceMax", "ReduceMin", "ReduceMean"):
        return range_
    count = int(np.prod(shape)) if shape is not None and min(shape, default=0) >= 0 else 0
    return (min(range_[0] * count, 0), max(range_[1] * count, 0)) if count else None


def _scattered(values: Values, node: onnx.NodeProto) -> Range | None:
    added = any(attribute.name == "reduction" and attribute.s != b"none" for attribute in node.attribute)
    return None if added else _union(values, (node.input[0], node.input[2]))


def _padded(values: Values, node: onnx.NodeProto) -> Range | None:
    range_ = values.range(node.input[0])
    added = values.range(node.input[2]) if len(node.input) > 2 and node.input[2] else (0, 0)
    return (min(range_[0], added[0]), max(range_[1], added[1])) if range_ and added else None


def _known(values: Values, node: onnx.NodeProto) -> bool:
    return min(values.shape(node.input[0]) or (-1,)) >= 0


_EXACT: Mapping[str, Rule] = {
    "Neg": _of_first(lambda low, high: (-high, -low)),
    "Abs": _of_first(_magnitude),
    "Sign": lambda values, node: (-1, 1),
    "Relu": _of_first(lambda low, high: (max(low, 0), max(high, 0))),
    **dict.fromkeys(("Max", "Min"), _extreme),
    "Clip": _clipped,
    **dict.fromkeys(("Div", "Mod"), _quotient),
    **dict.fromkeys(("ReduceSum", "ReduceMax", "ReduceMin", "ReduceMean", "CumSum"), _reduced),
    **dict.fromkeys(("ScatterElements", "ScatterND"), _scattered),
    "Pad": _padded,
    "Range": lambda values, node: _union(values, node.input[:2]),
    "OneHot": lambda values, node: values.range(node.input[2]),
    "NonZero": lambda values, node: (0, max(values.shape(node.input[0]) or (0,))) if _known(values, node) else None,
}
"""In addition to those that hold for all libraries."""
