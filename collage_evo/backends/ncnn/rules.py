"""Operators that ncnn computes correctly after pnnx's conversion, with the reasons against others.

The rules admit only operators that tests have shown to be correct. Several others convert without an error and
compute wrong numbers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from collage_evo.backends.base import YES, Support, no
from collage_evo.backends.checks import (
    Rule,
    constant,
    data_inputs,
    inexact_near_zero,
    over_several_axes,
    plain,
    present,
    refused_by,
    slopes_by_channel,
    takes_small_for_zero,
    when,
)
from collage_evo.graph.ir.graph import Graph, Node

MAX_RANK = 4
"""Axes of a tensor that ncnn can be handed; inside a region a channel shuffle may pass through five."""
_VANISHING = ("Exp", "Sigmoid", "Softplus", "Softmax")
_WRONG = {
    "Softplus": "Softplus: of large numbers it is infinite",
    "LogSoftmax": "LogSoftmax: of large numbers it is minus infinity",
    "ReduceLogSumExp": "ReduceLogSumExp: of large numbers it is infinity",
    "ReduceLogSum": "ReduceLogSum: of large numbers it is infinity",
    "Mod": "Mod: of floats it is rounded",
    **{op: f"{op}: near the largest number it is infinity" for op in ("Sinh", "Cosh")},  # tvm #19559, also here
}
_SHUFFLE = [0, 2, 1, 3, 4]
_DTYPES = frozenset({"float32"})
_CONSTANT_DTYPES = frozenset({"float32", "int64"})


def judge(graph: Graph, node: Node) -> Support:
    """Whether ncnn takes ``node``."""
    verdict = plain(graph, node, _CONSTANT_DTYPES)
    if not verdict:
        return verdict
    if reason := known_wrong(graph, node):
        return no(reason)
    if node.op_type not in _RULES:
        return no(f"{node.op_type} is not among the operators that ncnn was found to compute right")
    if reason := _tensors(graph, node):
        return no(f"{node.op_type}: {reason}")
    reason = refused_by(_RULES, graph, node)
    return no(reason) if reason else YES


def known_wrong(graph: Graph, node: Node) -> str:
    """Why results are wrong on inputs that a check with random ones does not reach; empty if no fault is known."""
    if reason := takes_small_for_zero(graph, node, _VANISHING) or inexact_near_zero(graph, node, ("Tanh",)):
        return reason
    return _WRONG.get(node.op_type, "") or slopes_by_channel(graph, node)


def _tensors(graph: Graph, node: Node) -> str:
    """Require batches of one for every tensor: ncnn has no batch axis."""
    outputs = [graph.tensors[name] for name in node.outputs if name]
    most = MAX_RANK + (node.op_type in ("Reshape", "Transpose"))
    for tensor in (*data_inputs(graph, node), *outputs):
        if tensor.dtype not in _DTYPES:
            return f"tensor {tensor.name} is {tensor.dtype}, not float32"
        if not 2 <= len(tensor.shape) <= most or tensor.shape[0] != 1:
            return f"tensor {tensor.name} has the shape {list(tensor.shape)}, not a batch of one of up to 4 axes"
    return ""


def _rank(graph: Graph, node: Node) -> int:
    return len(graph.tensors[node.inputs[0]].shape)


def _clip(graph: Graph, node: Node) -> str:
    bounds = [position for position in (1, 2) if present(node, position)]
    return "" if all(constant(graph, node, p) is not None for p in bounds) else "its bounds are computed"


def _computes_weights(graph: Graph, node: Node) -> bool:
    return constant(graph, node, 1) is None or (present(node, 2) and constant(graph, node, 2) is None)


def _conv(graph: Graph, node: Node) -> str:
    if _computes_weights(graph, node):
        return "its weights are computed"
    padding = node.attributes.get("auto_pad", "NOTSET")
    return "" if padding in ("NOTSET", "VALID", "SAME_UPPER") else f"auto_pad {padding} is not taken"


def _conv_transpose(graph: Graph, node: Node) -> str:
    if _computes_weights(graph, node):
        return "its weights are computed"
    if _rank(graph, node) != 4:
        return "only two spatial axes are taken"
    if "output_shape" in node.attributes or node.attributes.get("auto_pad", "NOTSET") != "NOTSET":
        return "its padding is not given by pads"
    return "" if set(node.attributes.get("dilations", [1])) == {1} else "dilations are not taken"


def _gemm(graph: Graph, node: Node) -> str:
    if node.attributes.get("transA", 0):
        return "transA is not taken"
    if _computes_weights(graph, node):
        return "its weights are computed"
    if present(node, 2) and graph.tensors[node.inputs[2]].shape != graph.tensors[node.outputs[0]].shape[-1:]:
        return "only a bias of one value a column is taken"
    scaled = (node.attributes.get("alpha", 1.0), node.attributes.get("beta", 1.0)) != (1.0, 1.0)
    return "scales without a bias are not taken" if scaled and not present(node, 2) else ""


def _matmul(graph: Graph, node: Node) -> str:
    left, right = (graph.tensors[name].shape for name in node.inputs)
    if node.inputs[0] in graph.constants:
        return "its left side is constant"
    if node.inputs[1] in graph.constants:
        return "" if len(right) == 2 else "its constant has a batch axis"
    return "" if len(left) == 4 and left[:2] == right[:2] else "its sides are not batched alike"


def _pool(graph: Graph, node: Node) -> str:
    attributes = node.attributes
    if len(node.outputs) > 1:
        return "indices are not given"
    if _rank(graph, node) != 4:
        return "only two spatial axes are taken"
    if attributes.get("auto_pad", "NOTSET") != "NOTSET" or set(attributes.get("dilations", [1])) != {1}:
        return "auto_pad and dilations are not taken"
    pads = attributes.get("pads", [0] * 4)
    if any(pads) and node.op_type == "AveragePool" and attributes.get("ceil_mode", 0):
        return "ceil_mode with pads is not taken"
    if attributes.get("ceil_mode", 0) and _last_windows_in_pads(graph, node, pads):
        return "ceil_mode where a last window would lie in the pads is not taken"
    return "" if pads[:2] == pads[2:] else _uneven_pads(graph, node)


def _last_windows_in_pads(graph: Graph, node: Node, pads: Sequence[int]) -> bool:
    """Whether rounding up adds a window that begins behind the image: ONNX drops it, ncnn does not."""
    strides = node.attributes.get("strides", [1, 1])
    sizes = graph.tensors[node.inputs[0]].shape[2:]
    for size, before, after, width, step in zip(
        sizes, pads[:2], pads[2:], node.attributes["kernel_shape"], strides, strict=True
    ):
        last = -(-(size + before + after - width) // step) * step
        if last >= size + before:
            return True
    return False


def _uneven_pads(graph: Graph, node: Node) -> str:
    """The converter drops pads that no window reaches, else pads and then pools; ncnn then rounds sizes up."""
    attributes = node.attributes
    (top, left, *ends), kernel = attributes["pads"], attributes["kernel_shape"]
    if top or left:
        return "uneven pads at the beginning are not taken"
    strides = attributes.get("strides", [1, 1])
    input_sizes, output_sizes = (graph.tensors[name].shape[2:] for name in (node.inputs[0], node.outputs[0]))
    axes = list(zip(input_sizes, output_sizes, kernel, strides, ends, strict=True))
    reached = any((last - 1) * step + width > size for size, last, width, step, _ in axes)
    if reached and node.op_type == "AveragePool":
        return "uneven pads are not taken"
    even = all((size + end * reached - width) % step == 0 for size, _, width, step, end in axes)
    return "" if even else "uneven pads with windows left over are not taken"


def _binary(graph: Graph, node: Node) -> str:
    if len(node.inputs) != 2:
        return "only two inputs are taken"
    ranks = {len(tensor.shape) for tensor in data_inputs(graph, node)}
    result = len(graph.tensors[node.outputs[0]].shape)
    return "" if ranks == {result} else "its inputs have different numbers of axes"


def _axis(graph: Graph, node: Node) -> str:
    default = 1 if node.op_type == "Flatten" else -1
    axis = int(node.attributes.get("axis", default)) % _rank(graph, node)
    if node.op_type == "Flatten":
        return "" if axis == 1 else "only axis 1 is taken"
    if node.op_type == "Softmax" and over_several_axes(graph, node):
        return "over several axes, as in operator sets before 13, it is over one"
    if node.op_type == "LayerNormalization" and (axis != _rank(graph, node) - 1 or len(node.outputs) > 1):
        return "only the last axis and one output are taken"
    if any(name in graph.constants for name in node.inputs) and node.op_type == "Concat":
        return "it has constant inputs"
    return "" if axis else "the batch axis is not taken"


def _batch_normalization(graph: Graph, node: Node) -> str:
    if node.attributes.get("training_mode", 0) or _rank(graph, node) != 4:
        return "only images at inference are taken"
    return "" if all(name in graph.constants for name in node.inputs[1:]) else "its statistics are computed"


def _reshape(graph: Graph, node: Node) -> str:
    if constant(graph, node, 1) is None or node.attributes.get("allowzero", 0):
        return "its shape is computed"
    before, after = (graph.tensors[name].shape for name in (node.inputs[0], node.outputs[0]))
    if len(before) == 5:
        maker = graph.producer.get(node.inputs[0])
        shuffled = maker is not None and _is_shuffle(graph.nodes[maker])
        return "" if shuffled else "five axes are taken in a channel shuffle only"
    if len(after) == 5:
        users = [graph.nodes[index] for index in graph.consumers.get(node.outputs[0], ())]
        splits = len(before) == 4 and before[2:] == after[3:] and before[1] == after[1] * after[2]
        shuffled = splits and len(users) == 1 and _is_shuffle(users[0])
        return "" if shuffled else "five axes are taken in a channel shuffle only"
    return ""


def _is_shuffle(node: Node) -> bool:
    return node.op_type == "Transpose" and list(node.attributes.get("perm", ())) == _SHUFFLE


def _transpose(graph: Graph, node: Node) -> str:
    if _rank(graph, node) == 5:
        return "" if _is_shuffle(node) else "five axes are taken in a channel shuffle only"
    perm = list(node.attributes.get("perm", ()))
    return "" if perm[:1] == [0] else "the batch axis is not taken"


def _slice(graph: Graph, node: Node) -> str:
    starts, ends, axes = (constant(graph, node, position) for position in (1, 2, 3))
    if starts is None or ends is None or axes is None or axes.size != 1:
        return "only one constant axis is taken"
    steps = constant(graph, node, 4)
    if present(node, 4) and (steps is None or int(steps.item()) != 1):
        return "steps are not taken"
    rank = _rank(graph, node)
    axis = int(axes.item()) % rank
    size = graph.tensors[node.inputs[0]].shape[axis]
    inside = 0 <= int(starts.item()) < int(ends.item()) <= size
    return "" if axis and inside else "only a range counted from the front, not of the batch axis, is taken"


def _split(graph: Graph, node: Node) -> str:
    if constant(graph, node, 1) is None:
        return "its sizes are not constant"
    return "" if int(node.attributes.get("axis", 0)) % _rank(graph, node) else "the batch axis is not taken"


def _reduce_mean(graph: Graph, node: Node) -> str:
    axes = constant(graph, node, 1)
    whole = axes is not None and sorted(int(axis) % 4 for axis in axes.ravel()) == [2, 3]
    keepdims = node.attributes.get("keepdims", 1)
    return "" if whole and keepdims and _rank(graph, node) == 4 else "only whole planes, axes kept, are taken"


def _resize(graph: Graph, node: Node) -> str:
    wanted = {"mode": "nearest", "nearest_mode": "floor", "coordinate_transformation_mode": "asymmetric"}
    scales = constant(graph, node, 2)
    if any(node.attributes.get(key) != value for key, value in wanted.items()) or present(node, 3):
        return "only nearest, floor, asymmetric by scales is taken"
    if scales is None or scales.shape != (4,) or present(node, 1) or "axes" in node.attributes:
        return "only constant scales of images are taken"
    by = scales.tolist()
    doubled = by[:2] == [1, 1] and by[2] == by[3] and np.equal(np.mod(by, 1), 0).all()
    return "" if doubled else "only whole scales of height and width are taken"


_TAKEN: Rule = when(lambda graph, node: False, "")
_IMAGE = when(lambda graph, node: _rank(graph, node) != 4, "only images are taken")
_RULES: Mapping[str, Rule] = {
    **dict.fromkeys(("Relu", "Sigmoid", "Tanh", "LeakyRelu", "Elu", "HardSwish", "HardSigmoid", "Erf"), _TAKEN),
    **dict.fromkeys(("Add", "Sub", "Mul", "Div", "Sum"), _binary),
    **dict.fromkeys(("MaxPool", "AveragePool"), _pool),
    **dict.fromkeys(("GlobalAveragePool", "GlobalMaxPool", "LRN"), _IMAGE),
    **dict.fromkeys(("Softmax", "Concat", "Flatten", "LayerNormalization"), _axis),
    "Clip": _clip,
    "Conv": _conv,
    "ConvTranspose": _conv_transpose,
    "Gemm": _gemm,
    "MatMul": _matmul,
    "BatchNormalization": _batch_normalization,
    "Reshape": _reshape,
    "Transpose": _transpose,
    "Slice": _slice,
    "Split": _split,
    "ReduceMean": _reduce_mean,
    "Resize": _resize,
}
