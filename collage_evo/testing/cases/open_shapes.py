"""Cases whose inputs have any batch, length, height and width, with inputs of several shapes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

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
_WIDTH, _HEADS = 16, 2
_PERMUTED = ([0, 2, 1, 3], [0, 2, 3, 1], [0, 2, 1, 3])
"""Axes of queries, keys and values."""

Size = int | str
"""A name if it is open."""


def open_cases() -> Iterator[tuple[str, Graph, list[dict[str, Any]]]]:
    """Each case's name, its graph, and its inputs in each of ``SIZES``."""
    for name, make in _MAKERS.items():
        model = _model(make, "batch", "length")
        feeds = [random_inputs(_model(make, *sizes), seed=1) for sizes in SIZES]
        seen, *others = (observe(model, one) for one in feeds)
        annotate(model, static_types(model, seen, others))
        yield name, build_graph(model), feeds


def _model(make: Callable[[Builder, Size, Size], str], batch: Size, length: Size) -> onnx.ModelProto:
    b = Builder("open")
    return b.model(make(b, batch, length))


def _linear(b: Builder, x: str, width: int = _WIDTH) -> str:
    return b.op("Add", b.op("MatMul", x, b.const(weight(width, width))), b.const(weight(width)))


def _product(b: Builder, batch: Size, length: Size) -> str:
    """As large as products have to be for all lower precisions."""
    return b.op("Relu", _linear(b, b.input("x", (batch, length, 512)), 512))


def _convolution(b: Builder, batch: Size, length: Size) -> str:
    x = b.input("x", (batch, 4, length, length))
    return conv(b, b.op("Relu", conv(b, x, (8, 4, 3, 3), pads=[1] * 4)), (4, 8, 1, 1))


def _encoder(b: Builder, batch: Size, length: Size) -> str:
    """An embedding, a layer normalisation, and attention whose shapes the model computes."""
    rows = b.op("Gather", b.const(weight(32, _WIDTH)), b.input("i", (batch, length), TensorProto.INT64))
    x = b.op("LayerNormalization", rows, b.const(weight(_WIDTH)), b.const(weight(_WIDTH)), axis=-1)
    outer = b.op("Gather", b.op("Shape", x), b.const(ints(0, 1)))
    shape = b.op("Concat", outer, b.const(ints(_HEADS, _WIDTH // _HEADS)), axis=0)
    split = [b.op("Reshape", _linear(b, x), shape) for _ in range(3)]
    query, key, value = (b.op("Transpose", one, perm=perm) for one, perm in zip(split, _PERMUTED, strict=True))
    mixed = b.op("MatMul", b.op("Softmax", b.op("MatMul", query, key), axis=-1), value)
    return b.op("Reshape", b.op("Transpose", mixed, perm=[0, 2, 1, 3]), b.op("Shape", x))


_MAKERS: Mapping[str, Callable[[Builder, Size, Size], str]] = {
    "open product": _product,
    "open convolution": _convolution,
    "open encoder": _encoder,
}
