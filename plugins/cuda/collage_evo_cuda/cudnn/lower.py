"""Lowering of a region to cuDNN's steps and weights, for an arithmetic and a layout."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod

import numpy as np

from collage_evo.backends.checks import present
from collage_evo.backends.variants import Arithmetic
from collage_evo.errors import CollageError
from collage_evo.graph.ir.graph import Graph, Node
from collage_evo.graph.ir.windows import spatial_pads
from collage_evo_cuda.cudnn.attention import Attention, find_attention
from collage_evo_cuda.cudnn.drafts import Draft, drafts_of, operands, read_by, spread
from collage_evo_cuda.cudnn.layout import channels_inside, moved
from collage_evo_cuda.cudnn.plan import (
    Attribute,
    Buffer,
    Operation,
    Plan,
    Role,
    Step,
    View,
    channels_last,
    contiguous,
)
from collage_evo_cuda.cudnn.rules import BINARY, UNARY, bounds, collapse, geometry

_STORED = {Arithmetic.FLOAT16: "float16", Arithmetic.BFLOAT16: "bfloat16"}
"""The stored type of tensors inside a region, where that is not float32."""
_Shape = tuple[int, ...]


@dataclass(frozen=True)
class Planned:
    """A plan and its weights in memory order, before they are rounded to their type."""

    plan: Plan
    weights: Mapping[str, np.ndarray]


def lower(graph: Graph, arithmetic: Arithmetic, inside: bool) -> Planned:
    """Plan all of ``graph``; with ``inside``, tensors between convolutions have their channels innermost.

    Raises:
        CollageError: the region is one that cuDNN does not take.
    """
    return _Lowering(graph, arithmetic, inside).planned()


class _Lowering:
    """The lowering of one region. Names that it makes have a ``#``, so that no tensor of a model has the same."""

    def __init__(self, graph: Graph, arithmetic: Arithmetic, inside: bool) -> None:
        self._graph, self._arithmetic, self._inside = graph, arithmetic, inside
        self._dtype = _STORED.get(arithmetic, "float32")
        self._last: frozenset[str] = frozenset()
        self._buffers: dict[str, Buffer] = {}
        self._weights: dict[str, np.ndarray] = {}
        self._steps: list[Step] = []

    def planned(self) -> Planned:
        graph = self._graph
        if any(node.op_type == "Softmax" for node in graph.nodes):
            attention = find_attention(graph, graph.all_nodes)
            if isinstance(attention, str):
                raise CollageError(attention)
            self._borders({attention.query.name, attention.key.name, attention.value.name})
            self._attention(attention)
        else:
            drafts = drafts_of(graph, graph.all_nodes, graph.outputs)
            border = (*graph.inputs, *graph.outputs)
            self._last = channels_inside(graph, drafts, border) if self._inside else frozenset()
            self._borders(set(graph.inputs))
            for draft in drafts:
                self._draft(draft)
        self._give_back()
        plan = Plan(
            str(self._arithmetic), graph.inputs, graph.outputs, tuple(self._buffers.values()), tuple(self._steps)
        )
        return Planned(plan, self._weights)

    def _borders(self, rounded: set[str]) -> None:
        """Buffers of the region's inputs; those in ``rounded`` are first cast to the type inside the region."""
        for name in self._graph.inputs:
            self._buffer(name, "input", "float32", self._size(name))
            if name in rounded and self._dtype != "float32":
                self._buffer(self._inner_copy(name), "inner", self._dtype, self._size(name))
                self._cast(name, self._inner_copy(name))
        for name in self._graph.outputs:
            self._buffer(name, "output", "float32", self._size(name))

    def _give_back(self) -> None:
        """The region's outputs in float32."""
        for name in self._graph.outputs if self._dtype != "float32" else ():
            self._cast(self._inner_copy(name), name)

    def _cast(self, source: str, target: str) -> None:
        flat = (1, 1, self._buffers[source].size)
        views = tuple(View(n, flat, contiguous(flat), self._buffers[n].dtype, n) for n in (source, target))
        self._steps.append(Step((Operation("identity", (source,), target),), views))

    def _draft(self, draft: Draft) -> None:
        if not draft.heavy:
            self._elementwise(draft)
        elif draft.first.op_type == "Conv":
            self._convolution(draft)
        elif draft.first.op_type == "ConvTranspose":
            self._transposed(draft)
        else:
            self._product(draft)

    def _convolution(self, draft: Draft) -> None:
        node, graph = draft.first, self._graph
        views = [self._image(node.inputs[0]), self._filter(graph.constants[node.inputs[1]])]
        operation = Operation("conv_fprop", _names(views), "", windows(graph, node))
        self._fused(draft, operation, views, self._image(draft.result))

    def _transposed(self, draft: Draft) -> None:
        """A step of its own; ONNX's bias of each channel becomes an elementwise step behind it."""
        node, graph = draft.first, self._graph
        raw_result = result = self._image(draft.result)
        if present(node, 2):
            raw = f"{draft.result}#raw"
            self._buffer(raw, "inner", self._dtype, self._size(draft.result))
            raw_result = View(raw, result.shape, result.strides, self._dtype, raw)
        views = [self._image(node.inputs[0]), self._filter(graph.constants[node.inputs[1]]), raw_result]
        operation = Operation("conv_dgrad", _names(views[:2]), raw_result.name, windows(graph, node))
        self._steps.append(Step((operation,), tuple(views)))
        if present(node, 2):
            batch, channels, *spatial = result.shape
            last = draft.result in self._last
            shape = (1, batch * prod(spatial), channels) if last else (batch, channels, prod(spatial))
            along = (1, 1, channels) if last else (1, channels, 1)
            bias = self._weight(graph.constants[node.inputs[2]].reshape(along))
            raw_view, out = (View(v.name, shape, contiguous(shape), v.dtype, v.buffer) for v in (raw_result, result))
            self._steps.append(Step((Operation("add", (raw_view.name, bias.name), out.name),), (raw_view, bias, out)))

    def _product(self, draft: Draft) -> None:
        node, graph = draft.first, self._graph
        left, right = (graph.tensors[name].shape for name in node.inputs[:2])
        rows, columns = prod(left[:-1]), graph.tensors[draft.result].shape[-1]
        weight = graph.constants.get(node.inputs[1])
        if weight is None:
            batch = prod(left[:-2])
            sides = zip(node.inputs, (left, right), strict=True)
            views = [self._view(name, (batch, *shape[-2:])) for name, shape in sides]
            # Both sides may be one tensor, in two shapes.
            views[1] = replace(views[1], name=f"right#{views[1].name}")
            self._fused(draft, Operation("matmul", _names(views), ""), views, (batch, left[-2], columns))
            return
        matrix = weight.reshape(right[-2:])
        matrix = matrix.T if node.attributes.get("transB", 0) else matrix
        if self._arithmetic is not Arithmetic.FLOAT32:
            views = [self._view(node.inputs[0], (1, rows, left[-1])), self._weight(matrix[None])]
            self._fused(draft, Operation("matmul", _names(views), ""), views, (1, rows, columns))
            return
        # cuDNN multiplies matrices only on tensor cores, which round to TF32: a 1x1 convolution does not.
        views = [self._view(node.inputs[0], (rows, left[-1], 1, 1)), self._weight(matrix.T[..., None, None])]
        still: dict[str, Attribute] = {
            **dict.fromkeys(("pre_padding", "post_padding"), (0, 0)),
            **dict.fromkeys(("stride", "dilation"), (1, 1)),
        }
        operation = Operation("conv_fprop", _names(views), "", still)
        self._fused(draft, operation, views, (rows, columns, 1, 1))

    def _fused(self, draft: Draft, heavy: Operation, views: list[View], result: View | _Shape) -> None:
        """One step of the heavy operation and its epilogue."""
        out = result if isinstance(result, View) else self._view(draft.result, result)
        then: list[tuple[str, tuple[str, ...], Mapping[str, Attribute]]] = []
        if draft.addend:
            inner = self._addend(draft, out)
            if inner in views:
                # Some engines of cuDNN 9.19 refuse to run where the addend is also the convolution's input.
                inner = replace(inner, name=f"added#{inner.name}")
            views.append(inner)
            then.append(("add", (inner.name,), {}))
        if draft.bias:
            axis = 1 if heavy.kind == "conv_fprop" else len(out.shape) - 1
            shape = tuple(size if position == axis else 1 for position, size in enumerate(out.shape))
            value = np.broadcast_to(self._graph.constants[draft.bias].reshape(-1), (out.shape[axis],))
            views.append(self._weight(value.reshape(shape)))
            then.append(("add", (views[-1].name,), {}))
        if draft.activation is not None:
            kind, attributes = activation(self._graph, draft.activation)
            then.append((kind, (), attributes))
        operations, last = [heavy], ""
        for number, (kind, more, attributes) in enumerate(then):
            last = f"#{number}"
            views.append(_inside(out, last))
            operations[-1] = _into(operations[-1], last)
            operations.append(Operation(kind, (last, *more), "", attributes))
        operations[-1] = _into(operations[-1], out.name)
        self._steps.append(Step(tuple(operations), (*dict.fromkeys(views), out)))

    def _addend(self, draft: Draft, out: View) -> View:
        """The addend of a heavy operation's result, viewed in the result's shape."""
        value = self._graph.constants.get(draft.addend)
        if value is None:
            return self._image(draft.addend) if draft.convolution else self._view(draft.addend, out.shape)
        lying = self._weight(np.moveaxis(value, 1, -1) if draft.result in self._last else value)
        return replace(lying, shape=out.shape, strides=out.strides)

    def _elementwise(self, draft: Draft) -> None:
        graph, last = self._graph, draft.result in self._last
        names = operands(draft)
        shape = graph.tensors[draft.result].shape
        collapsed = spread(graph, draft)
        if last:
            padded = [(1,) * (len(shape) - len(s)) + s for s in (graph.tensors[name].shape for name in names)]
            collapsed = collapse(moved(shape), [moved(one) for one in padded])
        if collapsed is None:
            raise CollageError(f"{draft.first.op_type}: its inputs are spread over too many axes apart")
        whole, shapes = collapsed
        views = {
            name: self._spread_constant(graph.constants[name], len(shape), last, flat)
            if name in graph.constants
            else self._view(name, flat)
            for name, flat in zip(names, shapes, strict=True)
        }
        out = self._view(draft.result, whole)
        operations: list[Operation] = []
        for node in draft.nodes:
            target = out if node is draft.nodes[-1] else _inside(out, f"#{len(operations)}")
            kind, attributes = (BINARY[node.op_type], {}) if node.op_type in BINARY else activation(graph, node)
            reads = tuple(views[name].name for name in read_by(node))
            views[node.outputs[0]] = target
            operations.append(Operation(kind, reads, target.name, attributes))
        self._steps.append(Step(tuple(operations), tuple(dict.fromkeys(views.values()))))

    def _attention(self, attention: Attention) -> None:
        views = [
            View(self._inner_copy(one.name), one.shape, one.strides, self._dtype, self._inner_copy(one.name))
            for one in (attention.query, attention.key, attention.value)
        ]
        # One tensor may have two views, such as queries and keys of one projection.
        views = [replace(view, name=f"{role}#{view.name}") for role, view in zip("qkv", views, strict=True)]
        if attention.mask:
            shape = self._graph.tensors[attention.mask].shape
            full = (1,) * (4 - len(shape)) + shape
            if attention.mask in self._graph.constants:
                views.append(self._weight(self._graph.constants[attention.mask].reshape(full), "float32"))
            else:
                views.append(View(f"mask#{attention.mask}", full, contiguous(full), "float32", attention.mask))
        out = attention.result
        target = self._inner(out.name)
        views.append(View("#result", out.shape, out.strides, self._dtype, target))
        operation = Operation("sdpa", _names(views[:-1]), "#result", {"attn_scale": attention.scale})
        self._steps.append(Step((operation,), tuple(views)))

    def _image(self, name: str) -> View:
        """A convolution's tensor on two or three spatial axes."""
        shape = self._graph.tensors[name].shape
        full = (*shape[:2], 1, *shape[2:]) if len(shape) == 3 else shape
        strides = channels_last(full) if name in self._last else contiguous(full)
        buffer = self._inner(name)
        return View(buffer, full, strides, self._dtype, buffer)

    def _filter(self, weight: np.ndarray) -> View:
        """A convolution's weights; cuDNN prefers them in the layout of the tensors around them."""
        full = weight[:, :, None] if weight.ndim == 3 else weight
        if not self._inside:
            return self._weight(full)
        lying = self._weight(np.moveaxis(full, 1, -1))
        return replace(lying, shape=full.shape, strides=channels_last(full.shape))

    def _view(self, name: str, shape: Sequence[int]) -> View:
        if name in self._graph.constants:
            return self._weight(self._graph.constants[name].reshape(shape))
        buffer = self._inner(name)
        return View(buffer, tuple(shape), contiguous(shape), self._dtype, buffer)

    def _spread_constant(self, value: np.ndarray, rank: int, last: bool, flat: _Shape) -> View:
        padded = value.reshape((1,) * (rank - value.ndim) + value.shape)
        return self._weight((np.moveaxis(padded, 1, -1) if last else padded).reshape(flat))

    def _weight(self, value: np.ndarray, dtype: str = "") -> View:
        name = f"#w{len(self._weights)}"
        self._weights[name] = np.ascontiguousarray(value, np.float32)
        self._buffer(name, "weight", dtype or self._dtype, value.size)
        return View(name, value.shape, contiguous(value.shape), dtype or self._dtype, name)

    def _inner(self, name: str) -> str:
        """The buffer of a tensor inside the region."""
        inner = self._inner_copy(name)
        if inner not in self._buffers:
            self._buffer(inner, "inner", self._dtype, self._size(name))
        return inner

    def _inner_copy(self, name: str) -> str:
        border = name in self._graph.inputs or name in self._graph.outputs
        return f"{name}#{self._dtype}" if border and self._dtype != "float32" else name

    def _buffer(self, name: str, role: Role, dtype: str, size: int) -> None:
        self._buffers[name] = Buffer(name, role, dtype, size)

    def _size(self, name: str) -> int:
        return prod(self._graph.tensors[name].shape)


def windows(graph: Graph, node: Node) -> Mapping[str, Attribute]:
    """Padding, strides and dilations of a convolution; a single spatial axis becomes the second of two."""
    kernel, strides, dilations = geometry(graph, node)
    before, after = map(tuple, spatial_pads(graph, node, kernel))
    one = len(strides) == 1
    return {
        "pre_padding": (0, *before) if one else before,
        "post_padding": (0, *after) if one else after,
        "stride": (1, *strides) if one else strides,
        "dilation": (1, *dilations) if one else dilations,
    }


def activation(graph: Graph, node: Node) -> tuple[str, Mapping[str, Attribute]]:
    """cuDNN's name of an operator on one tensor, and its numbers."""
    match node.op_type:
        case "Clip":
            low, high = bounds(graph, node)
            return "relu", {"lower_clip": low, **({"upper_clip": high} if np.isfinite(high) else {})}
        case "LeakyRelu":
            return "relu", {"negative_slope": float(node.attributes.get("alpha", 0.01))}
        case "Gelu" if node.attributes.get("approximate", "none") == "tanh":
            return "gelu_approx_tanh", {}
    return UNARY[node.op_type], {}


def _names(views: Sequence[View]) -> tuple[str, ...]:
    return tuple(view.name for view in views)


def _into(operation: Operation, output: str) -> Operation:
    return replace(operation, output=output)


def _inside(view: View, name: str) -> View:
    """A tensor like ``view`` that exists only inside the step."""
    return View(name, view.shape, view.strides, "float32")

