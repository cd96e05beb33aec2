"""Cases of operators with inputs that are indices, lengths, axes, shapes or places, each with a request for these."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto

from collage_evo.models.builder import OPSET, Builder
from collage_evo.testing.cases.case import weight

_INDICES = (*range(-8, 9), -100, 100, 10**6, -(2**31), 2**31 - 1, 2**31, 2**32, 2**32 + 1, 2**62, -(2**63), 2**63 - 1)
_FLOATS = (np.nan, np.inf, -np.inf, -1.0, 1.5, 7.0, 100.0, 1e6, -1e6, 1e10, 1e30, -1e30, 3e38)
_SIZES = (-100, -2, -1, 0, 1, 2, 7, 100)
_SIZED = frozenset({"Tile", "Expand", "Pad", "Reshape", "Range", "ConstantOfShape"})
"""Operators whose outputs are as large as an input demands: greater sizes do not fit in memory."""
_TYPES = {"int64": TensorProto.INT64, "int32": TensorProto.INT32, "float32": TensorProto.FLOAT}


@dataclass(frozen=True)
class Indexed:
    """A model with one operator that reads or writes at the places in its input ``i``, and a valid value of that
    input."""

    operator: str
    model: onnx.ModelProto
    right: np.ndarray

    def wild(self) -> Iterator[np.ndarray]:
        """Other values, most of them wrong: in one element, and in all."""
        kind = self.right.dtype.kind
        for value in _SIZES if self.operator in _SIZED else _FLOATS if kind == "f" else _INDICES:
            if kind == "f" or np.iinfo(self.right.dtype).min <= value <= np.iinfo(self.right.dtype).max:
                one = self.right.copy()
                one.reshape(-1)[-1] = value
                yield one
                yield np.full_like(self.right, value)


@cache
def index_cases() -> Mapping[str, Indexed]:
    """All cases, by name."""
    return {name: make(name) for name, make in _MAKERS.items()}


def _maker(
    operator: str,
    right: Any,
    inputs: Sequence[tuple[int, ...] | np.ndarray | str],
    opset: int = OPSET,
    **attributes: Any,
) -> Callable[[str], Indexed]:
    """One operator. Its inputs: a shape is one of the model's, an array a constant, "i" the indices, "" none."""
    value = np.asarray(right)

    def make(name: str) -> Indexed:
        b = Builder(name)
        names = [_given(b, place, given, value) for place, given in enumerate(inputs)]
        made = b.ops(operator, *names, outputs=2 if operator in ("TopK", "Split") else 1, **attributes)
        return Indexed(operator, b.model(*made, opset=opset), value)

    return make


def _given(b: Builder, place: int, given: tuple[int, ...] | np.ndarray | str, right: np.ndarray) -> str:
    if isinstance(given, str):
        return b.input("i", right.shape, _TYPES[right.dtype.name]) if given else ""
    return b.input(f"x{place}", given) if isinstance(given, tuple) else b.const(given)


def _behind(operator: str, **attributes: Any) -> Callable[[str], Indexed]:
    """A Gather with indices that another operator computes from the request."""

    def make(name: str) -> Indexed:
        b = Builder(name)
        other = b.const(np.array([2], np.int64))
        given = [b.input("i", (3,), TensorProto.INT64)]
        computed = b.op(operator, *given, *([] if operator == "Identity" else [other]), **attributes)
        return Indexed("Gather", b.model(b.op("Gather", b.input("x", (5, 7)), computed)), np.array([0, 2, 1]))

    return make


def _recurrent(operator: str, gates: int) -> Callable[[str], Indexed]:
    w, r = weight(2, gates * 3, 5), weight(2, gates * 3, 3)
    lengths = np.array([2, 4], np.int32)
    return _maker(operator, lengths, [(4, 2, 5), w, r, "", "i"], hidden_size=3, direction="bidirectional")


_LINE = np.array([0, 4, 2])
_ROW = np.arange(7)[None] % 5
_IMAGE = (2, 3, 6, 6)
_ROIS = np.array([[0, 0, 3, 3], [1, 1, 4, 5]], np.float32)
_HALF = np.float32(0.5)
_MAKERS: Mapping[str, Callable[[str], Indexed]] = {
    "gather": _maker("Gather", _LINE, [(5, 7), "i"]),
    "gather_int32": _maker("Gather", _LINE.astype(np.int32), [(5, 7), "i"]),
    "gather_columns": _maker("Gather", _LINE, [(5, 7), "i"], axis=-1),
    "gather_table": _maker("Gather", _LINE[None], [weight(5, 7), "i"]),
    "gather_scalar": _maker("Gather", np.array(3), [(5, 7), "i"]),
    "gather_behind_identity": _behind("Identity"),
    "gather_behind_add": _behind("Add"),
    "gather_behind_min": _behind("Min"),
    "gather_behind_mod": _behind("Mod"),
    "gather_elements": _maker("GatherElements", np.arange(35).reshape(5, 7) % 5, [(5, 7), "i"]),
    "gather_nd": _maker("GatherND", [[1, 1], [3, 2]], [(5, 7), "i"]),
    "gather_nd_rows": _maker("GatherND", [[1], [3]], [(5, 7), "i"]),
    "scatter_elements": _maker("ScatterElements", _ROW, [(5, 7), "i", (1, 7)]),
    "scatter_elements_add": _maker("ScatterElements", _ROW, [(5, 7), "i", (1, 7)], reduction="add"),
    "scatter_nd": _maker("ScatterND", [[1], [3]], [(5, 7), "i", (2, 7)]),
    "scatter_nd_points": _maker("ScatterND", [[1, 1], [3, 2]], [(5, 7), "i", (2,)]),
    "tensor_scatter": _maker("TensorScatter", [0, 3], [(2, 2, 5, 4), (2, 2, 2, 4), "i"], opset=24),
    "one_hot": _maker("OneHot", _LINE, ["i", np.array([6]), np.array([0, 1], np.float32)]),
    "cum_sum_axis": _maker("CumSum", np.array(1), [(5, 7), "i"]),
    "trilu": _maker("Trilu", np.array(1), [(5, 7), "i"]),
    "reverse_sequence": _maker("ReverseSequence", [1, 2, 3, 4, 5, 1, 1], [(5, 7), "i"]),
    "lstm_lengths": _recurrent("LSTM", 4),
    "gru_lengths": _recurrent("GRU", 3),
    "rnn_lengths": _recurrent("RNN", 1),
    "roi_align_batch": _maker("RoiAlign", [0, 1], [_IMAGE, _ROIS, "i"], sampling_ratio=2),
    "roi_align_boxes": _maker("RoiAlign", _ROIS, [_IMAGE, "i", np.array([0, 1])], sampling_ratio=2),
    "grid_sample": _maker("GridSample", np.full((2, 4, 4, 2), _HALF), [_IMAGE, "i"], opset=20),
    "deform_conv": _maker(
        "DeformConv", np.full((2, 18, 6, 6), _HALF), [_IMAGE, weight(4, 3, 3, 3), "i"], opset=22, pads=[1, 1, 1, 1]
    ),
    "max_unpool": _maker("MaxUnpool", [[[0, 3]]], [(1, 1, 2), "i"], kernel_shape=[2], strides=[2]),
    "rotary_positions": _maker(
        "RotaryEmbedding", [[0, 1, 2]], [(1, 2, 3, 8), weight(6, 4), weight(6, 4) * _HALF, "i"], opset=23
    ),
    "attention_lengths": _maker(
        "Attention", [3, 5], [(2, 2, 3, 4), (2, 2, 5, 4), (2, 2, 5, 4), "", "", "", "i"], opset=24
    ),
    "non_max_suppression": _maker("NonMaxSuppression", [2], [(1, 4, 4), (1, 1, 4), "i"]),
    "split": _maker("Split", [1, 2], [(3, 5), "i"]),
    "slice": _maker("Slice", [1], [(5, 7), "i", np.array([3]), np.array([0])]),
    "tile": _maker("Tile", [2, 1], [(3, 5), "i"]),
    "expand": _maker("Expand", [3, 5], [(3, 5), "i"]),
    "pad": _maker("Pad", [1, 0, 0, 1], [(3, 5), "i"]),
    "top_k": _maker("TopK", [2], [(3, 5), "i"]),
    "reduce_axes": _maker("ReduceSum", [1], [(3, 5), "i"]),
    "unsqueeze_axes": _maker("Unsqueeze", [1], [(3, 5), "i"]),
    "reshape": _maker("Reshape", [5, 3], [(3, 5), "i"]),
    "range": _maker("Range", np.array(4), [np.array(0), "i", np.array(1)]),
    "constant_of_shape": _maker("ConstantOfShape", [2, 3], ["i"]),
}
