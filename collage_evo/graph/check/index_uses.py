"""Index inputs of operators: which inputs choose where an operator reads or writes, and their allowed values."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import onnx
from onnx import helper

from collage_evo.graph.convert.static import BY_VALUE, CONTRIB_BY_VALUE, STANDARD

Shape = Sequence[int]
"""Sizes of a tensor; one that is not known is negative."""
ShapeOf = Callable[[str], Shape | None]
"""The shape of a tensor by its name, None where not even the number of axes is known."""


@dataclass(frozen=True)
class IndexUse:
    """An input of an operator whose values choose where it reads or writes.

    Attributes:
        name: the tensor.
        low: the least value, for each component along its last axis, or one for all.
        high: one more than the greatest, likewise; empty where any value may be too large: the input has to be
            constant.
        refused: whether ONNX Runtime refuses any other value. Otherwise it returns a result, which others do not.
    """

    name: str
    low: tuple[int, ...] = ()
    high: tuple[int, ...] = ()
    refused: bool = True


_Rule = Callable[[onnx.NodeProto, ShapeOf], Iterator[IndexUse]]


def uses(node: onnx.NodeProto, shape_of: ShapeOf) -> Iterator[IndexUse]:
    """The inputs of ``node`` that are indices, lengths, axes, repeats, pads, shapes or positions."""
    standard = node.domain in STANDARD
    for position in _places(node, standard):
        if position < len(node.input) and node.input[position]:
            yield IndexUse(node.input[position])
    rule = (_RULES if standard else _CONTRIB_RULES).get(node.op_type)
    if rule is not None:
        yield from (use for use in rule(node, shape_of) if use.name)


def _places(node: onnx.NodeProto, standard: bool) -> Sequence[int]:
    """Inputs for which no range of values is known to be valid whatever the other inputs are."""
    if standard and node.op_type.startswith("Reduce"):
        return (1,)
    tables = (BY_VALUE, _PLACES) if standard else (CONTRIB_BY_VALUE, _CONTRIB_PLACES)
    return [position for table in tables for position in table.get(node.op_type, ())]


_PLACES: Mapping[str, tuple[int, ...]] = {
    **dict.fromkeys(("SequenceAt", "SequenceErase", "SplitToSequence"), (1,)),
    **dict.fromkeys(("NegativeLogLikelihoodLoss", "SoftmaxCrossEntropyLoss"), (1,)),
    **dict.fromkeys(("GridSample", "MaxRoiPool", "MaxUnpool", "RoiAlign", "Trilu"), (1,)),
    **dict.fromkeys(("DeformConv", "NonMaxSuppression", "SequenceInsert", "TensorScatter"), (2,)),
    "Attention": (6,),
    "Loop": (0,),
}
"""As in ``BY_VALUE``, of operators whose outputs have the same shape whatever the values are."""
_CONTRIB_PLACES: Mapping[str, tuple[int, ...]] = {
    "Attention": (3,),
    "GatherBlockQuantized": (1,),
    "GatherND": (1,),
    "RotaryEmbedding": (1,),
}


def _name(node: onnx.NodeProto, position: int) -> str:
    return node.input[position] if position < len(node.input) else ""


def attribute(node: onnx.NodeProto, name: str, default: int) -> int:
    """The attribute ``name`` of ``node``, a whole number."""
    values = (helper.get_attribute_value(one) for one in node.attribute if one.name == name)
    return int(next(values, default))


def _size(shape: Shape | None, axis: int) -> int:
    """The size of one axis, negative where it is not known."""
    return shape[axis] if shape is not None and -len(shape) <= axis < len(shape) else -1


def _both_ways(name: str, *sizes: int) -> IndexUse:
    """Indices that may count from the end: one for each of ``sizes`` along the last axis, or all into one size."""
    static = bool(sizes) and min(sizes) >= 0
    return IndexUse(name, tuple(-size for size in sizes), tuple(sizes)) if static else IndexUse(name)


def _along_axis(node: onnx.NodeProto, shape_of: ShapeOf) -> Iterator[IndexUse]:
    size = _size(shape_of(node.input[0]), attribute(node, "axis", 0))
    yield _both_ways(_name(node, 1), size)


def _tuples(node: onnx.NodeProto, shape_of: ShapeOf) -> Iterator[IndexUse]:
    """GatherND and ScatterND: the last axis holds one index for each of several axes."""
    first = attribute(node, "batch_dims", 0)
    data, length = shape_of(node.input[0]), _size(shape_of(_name(node, 1)), -1)
    sizes = tuple(data[first : first + length]) if data is not None and length >= 0 else ()
    yield _both_ways(_name(node, 1), *(sizes[:1] if len(set(sizes)) == 1 else sizes))


def _one_hot(node: onnx.NodeProto, shape_of: ShapeOf) -> Iterator[IndexUse]:
    """OneHot: for any other value ONNX requires a row without a hot element."""
    shape = shape_of(node.output[0])
    depth = _size(shape, attribute(node, "axis", -1))
    use = _both_ways(node.input[0], depth)
    yield IndexUse(use.name, use.low, use.high, refused=False)


def _cumulated(node: onnx.NodeProto, shape_of: ShapeOf) -> Iterator[IndexUse]:
    yield _both_ways(_name(node, 1), len(shape_of(node.input[0]) or ()))


def _into(position: int, table: int, axis: int | str = 0, lengths: bool = False) -> _Rule:
    """Input ``position`` counts along an axis of input ``table``; ``lengths`` may be one more than the last index."""

    def rule(node: onnx.NodeProto, shape_of: ShapeOf) -> Iterator[IndexUse]:
        place = attribute(node, axis, 0) if isinstance(axis, str) else axis
        size, name = _size(shape_of(_name(node, table)), place), _name(node, position)
        yield IndexUse(name, (0,), (size + lengths,)) if size >= 0 else IndexUse(name)

    return rule


def _embedding(node: onnx.NodeProto, shape_of: ShapeOf) -> Iterator[IndexUse]:
    for ids, table in ((0, 2), (1, 4), (8, 3)):
        yield from _into(ids, table)(node, shape_of)


_RULES: Mapping[str, _Rule] = {
    **dict.fromkeys(("Gather", "GatherElements", "Scatter", "ScatterElements"), _along_axis),
    **dict.fromkeys(("GatherND", "ScatterND"), _tuples),
    **dict.fromkeys(("LSTM", "GRU", "RNN"), _into(4, 0, "layout", lengths=True)),
    "OneHot": _one_hot,
    **dict.fromkeys(("CumSum", "CumProd"), _cumulated),
    "ReverseSequence": _into(1, 0, "time_axis", lengths=True),
    "RoiAlign": _into(2, 0),
    "RotaryEmbedding": _into(3, 1),
}
_CONTRIB_RULES: Mapping[str, _Rule] = {"EmbedLayerNormalization": _embedding}
