"""Integer operators that OpenVINO's CPU plugin computes inexactly, with the reasons.

The plugin has 32 bits for 64-bit integers, and computes many operators on them in float32, which is exact to 24 bits.
Found by running each operator on numbers around 2^24 and 2^31 (OpenVINO 2026.4.1; openvino #37766, #35829, #35830).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from collage_evo.graph.check.scopes import exact_values, settled
from collage_evo.graph.check.value_ranges import Range, Values
from collage_evo.graph.ir.elements import IN_32_BITS
from collage_evo.graph.ir.graph import Graph, Node

_WHOLE = ("int32", "int64", "uint32", "uint64")
_IN_24_BITS = -(2**24) + 1, 2**24
"""Whole numbers of which each is a float32, and of no other number the rounded one; the end is one beyond."""
_FIRST = (0,)
_EXACT_IN_32_BITS: Mapping[str, tuple[int, ...]] = {
    **dict.fromkeys(("Identity", "Reshape", "Flatten", "Transpose", "Squeeze", "Unsqueeze", "Cast"), _FIRST),
    **dict.fromkeys(("Expand", "Tile", "Slice", "Split", "Gather", "GatherElements", "GatherND", "TopK"), _FIRST),
    **dict.fromkeys(("ArgMax", "ArgMin", "NonZero", "CumSum", "Neg", "Abs", "Sign", "BitwiseNot"), _FIRST),
    **dict.fromkeys(("ScatterElements", "ScatterND"), (0, 2)),
    **dict.fromkeys(("Add", "Sub", "Mul", "BitwiseAnd", "BitwiseOr", "BitwiseXor", "Range", "Where"), (0, 1, 2)),
    "OneHot": (2,),
}
"""Operators that are exact in 32 bits, and which of their inputs hold such numbers."""
_EXACT_OF_ANY_NUMBER = ("Max", "Min", "Concat", "Sum")
"""The same of those that take any number of them."""
_NARROW = ("int8", "uint8", "int16", "uint16")
_WRAPS = ("Add", "Sub", "Mul", "Neg", "Abs", "Pow", "Div", "Mod", "Sum", "CumSum", "ReduceSum", "BitShift")
_DIVIDED = ("Div", "Mod")
_COMPARISONS = ("Equal", "Less", "Greater", "LessOrEqual", "GreaterOrEqual")
_ROUNDED = ("ReduceMean", "Mean", "PRelu", "ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp")
_NOT_COMPUTED = ("Shape", "Size", "Constant", "ConstantOfShape", "If", "Loop", "Scan", "EyeLike", "NonMaxSuppression")
"""Operators whose outputs are no result of arithmetic on whole numbers; bodies are analysed separately."""
_DATA_INPUTS: Mapping[str, tuple[int, ...]] = {
    "Pad": (0, 2),
    **dict.fromkeys(("ReduceSum", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceMean", "ReduceSumSquare"), _FIRST),
    **dict.fromkeys(("ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp"), _FIRST),
}
"""Inputs with such numbers, of operators that the plugin computes in float32, where not all inputs hold them."""


def inexact(graph: Graph, node: Node) -> str:
    """Why integer results are wrong for some inputs of the model; empty where none are."""
    if node.op_type in _NOT_COMPUTED:
        return ""
    values = exact_values(graph)
    if settled(graph, node.outputs):
        return ""
    read = tuple(_data(node))
    narrow = next((name for name in read if values.dtype(name) in _NARROW), None)
    if narrow is not None and node.op_type in _WRAPS:
        return f"{narrow} is {values.dtype(narrow)}, which does not wrap around"
    if not any(values.dtype(name) in _WHOLE for name in (*read[:1], *node.outputs[:1])):
        return ""  # integer inputs of other operators are sizes and axes
    whole = [name for name in (*read, *node.outputs[:1]) if name and values.dtype(name) in _WHOLE]
    if node.op_type in _DIVIDED and _holds_zero(values.range(node.inputs[1])):
        return f"{node.inputs[1]} may be 0, by which it divides without an error"
    if node.op_type in _ROUNDED:
        return "a mean or a power of whole numbers is rounded otherwise"
    if node.op_type in (*_EXACT_IN_32_BITS, *_EXACT_OF_ANY_NUMBER):
        return _beyond(values, whole, IN_32_BITS, "it computes with 32 bits")
    if node.op_type in _COMPARISONS and any(_within(values.range(name), _IN_24_BITS) for name in read):
        return _beyond(values, whole, IN_32_BITS, "it computes with 32 bits")  # exact where one side is small
    if node.op_type == "Clip" and _clips_to_24_bits(values, node):
        return _beyond(values, whole, IN_32_BITS, "it computes with 32 bits")
    return _beyond(values, whole, _IN_24_BITS, "it computes in float32, which has 24 bits")


def _data(node: Node) -> Iterator[str]:
    """The inputs whose numbers go into the operator's outputs."""
    places = _EXACT_IN_32_BITS.get(node.op_type) or _DATA_INPUTS.get(node.op_type)
    for place, name in enumerate(node.inputs):
        if name and (places is None or place in places):
            yield name


def _beyond(values: Values, names: list[str], within: Range, why: str) -> str:
    wide = next((name for name in names if not _within(values.range(name), within)), None)
    return f"{wide} may hold more, and {why}" if wide is not None else ""


def _within(range_: Range | None, within: Range) -> bool:
    return range_ is not None and within[0] <= range_[0] and range_[1] < within[1]


def _holds_zero(range_: Range | None) -> bool:
    return range_ is None or range_[0] <= 0 <= range_[1]


def _clips_to_24_bits(values: Values, node: Node) -> bool:
    bounds = [values.range(name) if name else None for name in (*node.inputs[1:], "", "")[:2]]
    return all(_within(range_, _IN_24_BITS) for range_ in bounds)
