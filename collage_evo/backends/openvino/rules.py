"""Operators that OpenVINO's CPU plugin computes wrongly, with the reasons.

ONNX's backend node tests (``benchmarks/node_tests.py``) or the conformance suite found each with OpenVINO 2026.4:
accepted without an error, but with other results than ONNX specifies.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from collage_evo.backends.checks import (
    Rule,
    casts_to_whole,
    constant,
    dtype_of,
    inexact_near_zero,
    other_floats,
    over_several_axes,
    present,
    refused_by,
    slopes_by_channel,
    takes_small_for_zero,
    when,
)
from collage_evo.graph.ir.graph import Graph, Node
from collage_evo.graph.ir.windows import spatial_pads

_ALWAYS: Mapping[str, str] = {
    "Attention": "windows and causal masks over a past come out wrong",
    "LpNormalization": "of small numbers it comes out wrong",
    "DFT": "differs by up to 2e-4, and on some axes altogether",
    "RotaryEmbedding": "comes out wrong",
}
_VANISHING = ("Exp", "Sigmoid", "Softplus", "Softmax")


def refusal(graph: Graph, node: Node) -> str:
    """Why the plugin must not run ``node``; empty if no fault is known."""
    from collage_evo.backends.openvino.whole_numbers import inexact  # serving does not need it

    reason = takes_small_for_zero(graph, node, _VANISHING) or inexact_near_zero(graph, node, ("Erf",))
    if reason := reason or slopes_by_channel(graph, node) or refused_by(_RULES, graph, node):
        return reason
    if reason := _ALWAYS.get(node.op_type) or inexact(graph, node):
        return f"{node.op_type}: {reason}"
    return other_floats(graph, node)


_HIDDEN = -1e30
"""What a mask adds to a score that does not count: minus infinity, or the lowest float."""


def _mends_softmax(graph: Graph, node: Node) -> bool:
    """Whether a Where sets fully masked rows of attention, which are NaN after the Softmax, to zero.

    PyTorch exports it with every attention, also where no row is fully masked.
    """
    makers = (graph.producer.get(name) for name in node.inputs[1:])
    rows = (graph.nodes[maker] for maker in makers if maker is not None and graph.nodes[maker].op_type == "Softmax")
    return any(not _leaves_scores(graph, softmax) for softmax in rows)


def _leaves_scores(graph: Graph, softmax: Node) -> bool:
    """Whether some score of each row counts: between the product and the Softmax is no mask, or one that is constant
    and has a place in each row, and nothing but constant factors that do not enlarge.
    """
    name, masked = softmax.inputs[0], False
    in_rows = softmax.attributes.get("axis", -1) in (-1, len(graph.tensors[name].shape) - 1)
    while (maker := graph.producer.get(name)) is not None:
        node = graph.nodes[maker]
        if node.op_type == "MatMul":
            return True
        places = [place for place in range(len(node.inputs)) if constant(graph, node, place) is not None]
        if len(node.inputs) != 2 or len(places) != 1:
            return False
        value = graph.constants[node.inputs[places[0]]]
        if node.op_type == "Add" and in_rows and not masked and value.ndim:
            # A second mask could hide what the first leaves.
            masked, fits = True, bool(np.all(value.max(axis=-1, initial=-np.inf) > _HIDDEN))
        elif node.op_type == "Mul":
            fits = bool(np.all((value > 0) & (value <= 1)))
        else:
            fits = node.op_type == "Div" and places == [1] and bool(np.all((value >= 1) & np.isfinite(value)))
        if not fits:
            return False
        name = node.inputs[1 - places[0]]
    return False


def _mixes_samples(graph: Graph, node: Node) -> bool:
    """Whether a recurrent operator mixes samples: an exported blob loses which axis its steps are on.

    Results are correct where a Transpose before it brings the steps to the second axis, but that may be in another
    region.
    """
    steps, batch, *_ = (*graph.tensors[node.inputs[0]].shape, -1, -1)  # an unknown size may be any
    return steps != 1 and batch != 1 and node.attributes.get("direction", "forward") != "bidirectional"


def _counts_too_much(graph: Graph, node: Node) -> bool:
    """Whether a last window exceeds the padding: the plugin counts elements beyond it like padding."""
    if not node.attributes.get("ceil_mode", 0) or not node.attributes.get("count_include_pad", 0):
        return False
    kernel, sizes = node.attributes["kernel_shape"], graph.tensors[node.inputs[0]].shape[2:]
    if len(sizes) != len(kernel) or min(sizes) < 0:
        return True  # unknown
    strides, pads = node.attributes.get("strides", [1] * len(kernel)), spatial_pads(graph, node, kernel)
    axes = zip(sizes, kernel, strides, *pads, strict=True)
    return any((size + before + after - extent) % stride for size, extent, stride, before, after in axes)


def _resize(graph: Graph, node: Node) -> str:
    if node.attributes.get("antialias", 0) or node.attributes.get("exclude_outside", 0):
        return "antialias and exclude_outside come out wrong"
    corners = node.attributes.get("coordinate_transformation_mode") == "align_corners"
    return "align_corners by scales comes out wrong" if corners and present(node, 2) else ""


def _recurrent(graph: Graph, node: Node) -> str:
    if _mixes_samples(graph, node):
        return "in one direction, several samples over several steps come out mixed up"
    if node.attributes.get("layout", 0):
        return "layout 1 gives other shapes"
    if node.attributes.get("input_forget", 0):
        return "its input and forget gates are not coupled"
    return "peepholes come out wrong" if node.op_type == "LSTM" and present(node, 7) else ""


def _roi_align(graph: Graph, node: Node) -> str:
    if "sampling_ratio" not in node.attributes:
        return "without sampling_ratio one point is taken, not as many as it needs"
    return "mode max comes out wrong" if node.attributes.get("mode", "avg") == "max" else ""


def _cast(graph: Graph, node: Node) -> str:
    narrow = dtype_of(graph, node.outputs[0]) in ("int16", "uint16")
    return "floats that no such integer holds differ" if narrow and casts_to_whole(graph, node) else ""


_SEVERAL = when(lambda graph, node: len(node.inputs) == 1, "a single input comes out wrong")
_RULES: Mapping[str, Rule] = {
    "LRN": when(
        lambda graph, node: float(node.attributes.get("bias", 1.0)) % 1,
        "the CPU plugin cuts the fraction off a fractional bias",
    ),
    "Resize": _resize,
    **dict.fromkeys(("LSTM", "GRU", "RNN"), _recurrent),
    **dict.fromkeys(("Max", "Min", "Sum", "Mean"), _SEVERAL),
    "Cast": _cast,
    "Mod": when(lambda graph, node: "float" in dtype_of(graph, node.inputs[0]), "of floats it is rounded"),
    "RoiAlign": _roi_align,
    "SpaceToDepth": when(
        lambda graph, node: node.attributes.get("mode", "DCR") != "DCR", "a mode other than DCR comes out wrong"
    ),
    "Where": when(_mends_softmax, "what it puts in place of a Softmax's NaN is lost"),
    "NonMaxSuppression": when(
        lambda graph, node: not (present(node, 3) and np.all(constant(graph, node, 3))),
        "where boxes may not overlap at all, those that touch are lost",
    ),
    "AveragePool": when(_counts_too_much, "what a last window has beyond the padding is counted"),
    "TopK": when(
        lambda graph, node: not node.attributes.get("sorted", 1), "unsorted, it has another order than ONNX Runtime's"
    ),
    "Softmax": when(over_several_axes, "over several axes, as in operator sets before 13, it is over one"),
    "Pad": when(
        lambda graph, node: present(node, 2) and constant(graph, node, 2) is None,
        "a value that is computed is taken for zero",
    ),
}
