"""Cases whose inputs have any batch, length, height and width, with inputs of several shapes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto

from collage_evo.graph.convert.observe import observe
from collage_evo.graph.convert.read import build_graph
from collage_evo.graph.convert.static import annotate, static_types
from collage_evo.graph.ir.graph import Graph
from collage_evo.graph.load.inputs import random_inputs
from collage_evo.models.builder import Builder
from collage_evo.testing.cases.case import conv, ints, weight

SIZES = ((1, 6), (1, 1), (3, 9), (2, 130))
"""Batch and every other size of the inputs. The graphs have the first ones."""
_Make = Callable[[Builder, int | str, int | str], str]


def open_cases() -> Iterator[tuple[str, Graph, list[dict[str, Any]]]]:
    """Each case's name, its graph, and its inputs in each of ``SIZES``, then of a rank that it refuses, then valid
    ones."""
    for name, make in _MAKERS.items():
        model = _model(make, "batch", "length")
        feeds = [random_inputs(_model(make, *sizes), seed=1) for sizes in SIZES]
        seen, *others = (observe(model, one) for one in feeds)
        annotate(model, static_types(model, seen, others))
        refused = {name: np.stack([value] * 2) for name, value in feeds[-1].items()}
        yield name, build_graph(model), [*feeds, refused, feeds[0]]


def _model(make: _Make, batch: int | str, length: int | str) -> onnx.ModelProto:
    b = Builder("open")
    return b.model(make(b, batch, length))


def _product(b: Builder, batch: int | str, length: int | str) -> str:
    """As large as products have to be for all lower precisions."""
    return b.op("Relu", b.op("MatMul", b.input("x", (batch, length, 512)), b.const(weight(512, 512))))


def _convolution(b: Builder, batch: int | str, length: int | str) -> str:
    return b.op("Relu", conv(b, b.input("x", (batch, 4, length, length)), (8, 4, 3, 3), pads=[1] * 4))


def _encoder(b: Builder, batch: int | str, length: int | str) -> str:
    """An embedding, a layer normalisation, and attention of two heads whose shapes the model computes."""
    rows = b.op("Gather", b.const(weight(32, 16)), b.input("i", (batch, length), TensorProto.INT64))
    x = b.op("LayerNormalization", rows, b.const(weight(16)), b.const(weight(16)), axis=-1)
    outer = b.op("Gather", b.op("Shape", x), b.const(ints(0, 1)))
    shape = b.op("Concat", outer, b.const(ints(2, 8)), axis=0)
    query, key, value = (
        b.op("Transpose", b.op("Reshape", b.op("MatMul", x, b.const(weight(16, 16))), shape), perm=perm)
        for perm in ([0, 2, 1, 3], [0, 2, 3, 1], [0, 2, 1, 3])
    )
    mixed = b.op("MatMul", b.op("Softmax", b.op("MatMul", query, key), axis=-1), value)
    return b.op("Reshape", b.op("Transpose", mixed, perm=[0, 2, 1, 3]), b.op("Shape", x))


_MAKERS: Mapping[str, _Make] = {
    "open product": _product,
    "open convolution": _convolution,
    "open encoder": _encoder,
}
