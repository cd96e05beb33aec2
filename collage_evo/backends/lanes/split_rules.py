"""How operators are computed on a part of their output: takes a node and a span of it, gives the work.

Only operators listed here are cut, and only along axes on which an element needs no other (or those in a window).
Whatever else stands behind a rule's axis makes it raise :class:`InputError`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from itertools import accumulate
from typing import Any

import numpy as np

from collage_evo.backends.lanes.spans import Need, Span, Work
from collage_evo.backends.lanes.windows import convolution, pool, transposed_convolution
from collage_evo.errors import InputError
from collage_evo.graph.ir import Graph, Node

Rule = Callable[[Graph, Node, Span], Work]


def work_of(graph: Graph, node: Node, span: Span) -> Work:
    """What ``node`` needs to make ``span`` of its outputs.

    Raises:
        InputError: that part cannot be computed by itself.
    """
    rule = _RULES.get(node.op_type) if node.domain in ("", "ai.onnx") else None
    if rule is None:
        raise InputError(f"{node.op_type} is not cut")
    return rule(graph, node, span)


def _shape(graph: Graph, name: str) -> tuple[int, ...]:
    return graph.tensors[name].shape


def _axis(node: Node, default: int, rank: int) -> int:
    return int(node.attributes.get("axis", default)) % rank


def _mixes(node: Node, span: Span) -> InputError:
    return InputError(f"{node.name} ({node.op_type}) mixes what lies along axis {span.axis}")


def _broadcast(shape: tuple[int, ...], result: tuple[int, ...], span: Span) -> Need:
    """What an operand of this shape gives for ``span`` of the result: all where it is repeated along that axis."""
    axis = span.axis - len(result) + len(shape)
    return None if axis < 0 or shape[axis] != result[span.axis] else span.moved(axis)


def _elementwise(graph: Graph, node: Node, span: Span) -> Work:
    result = _shape(graph, node.outputs[0])
    return Work(tuple(_broadcast(_shape(graph, name), result, span) if name else None for name in node.inputs))


def _clip(graph: Graph, node: Node, span: Span) -> Work:
    return Work((span, *(None for _ in node.inputs[1:])))


def _per_channel(graph: Graph, node: Node, span: Span) -> Work:
    """Parameters with one value a channel (axis 1)."""
    if any(node.outputs[1:]):
        raise InputError(f"{node.name} counts running means")
    parameter = Span(0, span.start, span.stop) if span.axis == 1 else None
    return Work((span, *(parameter for _ in node.inputs[1:])))


def _per_sample_and_channel(graph: Graph, node: Node, span: Span) -> Work:
    if span.axis > 1:
        raise _mixes(node, span)
    return _per_channel(graph, node, span)


def _quantiser(graph: Graph, node: Node, span: Span) -> Work:
    scale = _shape(graph, node.inputs[1])
    if len(scale) > 1 or node.attributes.get("block_size", 0):
        raise InputError(f"{node.name} has scales of blocks")
    along = math.prod(scale) > 1 and span.axis == _axis(node, 1, len(_shape(graph, node.inputs[0])))
    return Work((span, *(span.moved(0) if along else None for _ in node.inputs[1:])))


def _normalised_along_one(graph: Graph, node: Node, span: Span) -> Work:
    if span.axis == _axis(node, -1, len(_shape(graph, node.outputs[0]))):
        raise _mixes(node, span)
    return Work((span,))


def _local_response(graph: Graph, node: Node, span: Span) -> Work:
    if span.axis == 1:
        raise _mixes(node, span)
    return Work((span,))


def _layer_normalisation(graph: Graph, node: Node, span: Span) -> Work:
    rank = len(_shape(graph, node.inputs[0]))
    if any(node.outputs[1:]) or span.axis >= _axis(node, -1, rank):
        raise _mixes(node, span)
    return Work((span, *(None for _ in node.inputs[1:])))


def _reduction(graph: Graph, node: Node, span: Span) -> Work:
    """Sums, means and extremes of other axes."""
    shape = _shape(graph, node.inputs[0])
    given: Any = graph.constants.get(node.inputs[1]) if len(node.inputs) > 1 else node.attributes.get("axes")
    if given is None or len(given) == 0:
        raise InputError(f"{node.name} does not say which axes it reduces")
    reduced = {int(axis) % len(shape) for axis in given}
    kept = [axis for axis in range(len(shape)) if node.attributes.get("keepdims", 1) or axis not in reduced]
    axis = kept[span.axis]
    if axis in reduced:
        raise _mixes(node, span)
    return Work((span.moved(axis), *(None for _ in node.inputs[1:])))


def _concat(graph: Graph, node: Node, span: Span) -> Work:
    """Along its own axis, the parts of those operands that lie in the span."""
    sizes = [_shape(graph, name)[span.axis] for name in node.inputs]
    if span.axis != _axis(node, 0, len(_shape(graph, node.outputs[0]))):
        return Work(tuple(span for _ in sizes))
    needs = []
    for start, size in zip(accumulate(sizes, initial=0), sizes, strict=False):
        first, stop = (min(max(edge - start, 0), size) for edge in (span.start, span.stop))
        needs.append(Span(span.axis, first, stop))
    return Work(tuple(needs))


def _split(graph: Graph, node: Node, span: Span) -> Work:
    if span.axis == _axis(node, 0, len(_shape(graph, node.inputs[0]))):
        raise _mixes(node, span)
    return Work((span, *(None for _ in node.inputs[1:])))


def _slice(graph: Graph, node: Node, span: Span) -> Work:
    shape = _shape(graph, node.inputs[0])
    axes: Any = graph.constants.get(node.inputs[3]) if len(node.inputs) > 3 and node.inputs[3] else range(len(shape))
    if axes is None or span.axis in {int(axis) % len(shape) for axis in axes}:
        raise _mixes(node, span)
    return Work((span, *(None for _ in node.inputs[1:])))


def _pad(graph: Graph, node: Node, span: Span) -> Work:
    """Along a padded axis with a constant, inner portions have less of it or none."""
    pads = graph.constants.get(node.inputs[1])
    shape = _shape(graph, node.inputs[0])
    if pads is None or len(pads) != 2 * len(shape) or (len(node.inputs) > 3 and node.inputs[3]):
        raise InputError(f"{node.name} does not say how it pads each axis")
    before, after = int(pads[span.axis]), int(pads[len(shape) + span.axis])
    rest = tuple(None for _ in node.inputs[1:])
    if not before and not after:
        return Work((span, *rest))
    if node.attributes.get("mode", "constant") != "constant" or min(before, after) < 0:
        raise _mixes(node, span)
    size = shape[span.axis]
    need = Span(span.axis, max(0, span.start - before), min(size, span.stop - before))
    if need.size <= 0:
        raise InputError(f"a portion of {node.name} is padding")
    changed = np.array(pads)
    changed[span.axis] = max(0, before - span.start)
    changed[len(shape) + span.axis] = max(0, span.stop - before - size)
    return Work((need, *rest), values={1: changed})


def _transpose(graph: Graph, node: Node, span: Span) -> Work:
    rank = len(_shape(graph, node.outputs[0]))
    order = node.attributes.get("perm", range(rank)[::-1])
    return Work((span.moved(order[span.axis]),))


def _reshape(graph: Graph, node: Node, span: Span) -> Work:
    """Where the axis leads its group of axes on both sides, so that a span of it is a span of the other's."""
    read, made = _shape(graph, node.inputs[0]), _shape(graph, node.outputs[0])
    if node.op_type == "Squeeze" and len(node.inputs) < 2:
        raise InputError(f"{node.name} does not say which axes it drops")
    before, inner = math.prod(made[: span.axis]), math.prod(made[span.axis + 1 :])
    places = [axis for axis in range(len(read)) if math.prod(read[:axis]) == before and read[axis] > 1]
    if not places:
        raise _mixes(node, span)
    axis = places[0]
    size = math.prod(read[axis + 1 :])
    first, stop = span.start * inner, span.stop * inner
    if first % size or stop % size:
        raise InputError(f"a portion of {node.name} ends inside an element of axis {axis}")
    target = list(made)
    target[span.axis] = span.size
    values = {1: np.array(target, np.int64)} if node.op_type == "Reshape" else {}
    return Work((Span(axis, first // size, stop // size), *(None for _ in node.inputs[1:])), values=values)


def _product(graph: Graph, node: Node, span: Span) -> Work:
    """By rows, by columns, or by an axis of its batch."""
    first, second, result = (_shape(graph, name) for name in (*node.inputs, node.outputs[0]))
    if min(len(first), len(second)) < 2:
        raise InputError(f"{node.name} has a vector for an operand")
    rank = len(result)
    if span.axis == rank - 2:
        return Work((span.moved(len(first) - 2), None))
    if span.axis == rank - 1:
        return Work((None, span.moved(len(second) - 1)))
    return Work((_broadcast(first, result, span), _broadcast(second, result, span)))


def _gemm(graph: Graph, node: Node, span: Span) -> Work:
    turned = [node.attributes.get(key, 0) for key in ("transA", "transB")]
    result = _shape(graph, node.outputs[0])
    rows, columns = span.moved(1 if turned[0] else 0), span.moved(0 if turned[1] else 1)
    added = [_broadcast(_shape(graph, name), result, span) if name else None for name in node.inputs[2:]]
    return Work((rows, None, *added) if span.axis == 0 else (None, columns, *added))


def _pixels(graph: Graph, node: Node, span: Span) -> Work:
    """Blocks of pixels into channels or back: by samples, or along a spatial axis in whole blocks."""
    size = node.attributes["blocksize"]
    if span.axis == 0:
        return Work((span,))
    if span.axis == 1:
        raise _mixes(node, span)
    if node.op_type == "SpaceToDepth":
        return Work((Span(span.axis, span.start * size, span.stop * size),))
    need = Span(span.axis, span.start // size, -(-span.stop // size))
    return Work((need,), makes=Span(span.axis, need.start * size, need.stop * size))


def _resize(graph: Graph, node: Node, span: Span) -> Work:
    """By samples and channels that keep their number, or along a spatial axis that grows by a whole factor.

    Elements near the edges of a portion come from one further element of the input where they lie between two.
    """
    shape, result = _shape(graph, node.inputs[0]), _shape(graph, node.outputs[0])
    told = {key: node.attributes.get(key) or usual for key, usual in _RESIZE.items()}
    plain = told["mode"] in ("nearest", "linear") and told[_COORDINATES] in _TRANSLATES
    factor, rest = divmod(result[span.axis], shape[span.axis])
    if not plain or rest or any(node.attributes.get(key) for key in ("antialias", "axes", "exclude_outside")):
        raise InputError(f"{node.name} is not resized by a whole factor, by nearest or linear")
    sizes = len(node.inputs) > 3 and bool(node.inputs[3])
    scales = None if sizes else graph.constants.get(node.inputs[2])
    if told["keep_aspect_ratio_policy"] != "stretch" or not (sizes or scales is not None):
        raise InputError(f"{node.name} does not say its sizes")
    if scales is not None and scales[span.axis] != factor:
        raise _mixes(node, span)
    exact = factor == 1 or (told["mode"] == "nearest" and (told[_COORDINATES], told["nearest_mode"]) in _NO_FURTHER)
    further = 0 if exact else 1
    first = max(0, span.start // factor - further)
    stop = min(shape[span.axis], -(-span.stop // factor) + further)
    made = Span(span.axis, first * factor, stop * factor)
    values = {3: np.array(made.of(graph.tensors[node.outputs[0]]).shape, np.int64)} if sizes else {}
    return Work((Span(span.axis, first, stop), *(None for _ in node.inputs[1:])), values=values, makes=made)


_COORDINATES = "coordinate_transformation_mode"
_RESIZE = {
    "mode": "nearest",
    _COORDINATES: "half_pixel",
    "nearest_mode": "round_prefer_floor",
    "keep_aspect_ratio_policy": "stretch",
}
_TRANSLATES = ("half_pixel", "asymmetric")
"""With a whole factor, a part of the input gives the same as all of it, moved."""
_NO_FURTHER = (("half_pixel", "round_prefer_floor"), ("asymmetric", "floor"))
"""Element i of the output is element i // factor of the input."""
_UNARY = (
    *("Relu", "LeakyRelu", "Elu", "Selu", "Celu", "Sigmoid", "HardSigmoid", "HardSwish", "Tanh", "Erf", "Gelu"),
    *("Exp", "Log", "Sqrt", "Abs", "Neg", "Reciprocal", "Softplus", "Softsign", "Cast", "Not", "Identity", "Mish"),
    *("Floor", "Ceil", "Round", "Sign", "ThresholdedRelu", "Sin", "Cos"),
)
_BROADCASTING = (
    *("Add", "Sub", "Mul", "Div", "Sum", "Max", "Min", "Mean", "Pow", "Where", "PRelu"),
    *("Greater", "GreaterOrEqual", "Less", "LessOrEqual", "Equal", "And", "Or"),
)
_REDUCTIONS = ("ReduceMean", "ReduceSum", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceL2", "ReduceSumSquare")
_RULES: Mapping[str, Rule] = {
    **dict.fromkeys((*_UNARY, *_BROADCASTING), _elementwise),
    **dict.fromkeys(_REDUCTIONS, _reduction),
    **dict.fromkeys(("GlobalAveragePool", "GlobalMaxPool", "InstanceNormalization"), _per_sample_and_channel),
    **dict.fromkeys(("MaxPool", "AveragePool", "LpPool"), pool),
    **dict.fromkeys(("QuantizeLinear", "DequantizeLinear"), _quantiser),
    **dict.fromkeys(("Softmax", "LogSoftmax"), _normalised_along_one),
    **dict.fromkeys(("Reshape", "Flatten", "Squeeze", "Unsqueeze"), _reshape),
    **dict.fromkeys(("DepthToSpace", "SpaceToDepth"), _pixels),
    "Conv": convolution,
    "ConvTranspose": transposed_convolution,
    "Clip": _clip,
    "BatchNormalization": _per_channel,
    "LRN": _local_response,
    "LayerNormalization": _layer_normalisation,
    "Concat": _concat,
    "Split": _split,
    "Slice": _slice,
    "Pad": _pad,
    "Resize": _resize,
    "Transpose": _transpose,
    "MatMul": _product,
    "Gemm": _gemm,
}
