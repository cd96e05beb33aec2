"""ONNX operators in PyTorch: for each operator the same computation by torch.

Shapes are static, so that operators that only rearrange use the result's shape. Each function takes a :class:`Call`;
constants that an operator needs as numbers are read when the module is traced.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

import numpy as np

from collage_evo.graph.ir.graph import Graph, Node
from collage_evo.graph.ir.windows import spatial_pads


@dataclass(frozen=True)
class Call:
    """One operator while the module is traced: ``tensors`` are its inputs as torch tensors, None if absent."""

    graph: Graph
    node: Node
    tensors: Sequence[Any]

    def given(self, position: int) -> Any:
        """The input number ``position``, or None."""
        return self.tensors[position] if position < len(self.tensors) else None

    def constant(self, position: int) -> np.ndarray:
        """The input number ``position``, constant by the rules."""
        return self.graph.constants[self.node.inputs[position]]

    def operands(self) -> tuple[Any, Any]:
        """Both inputs, a one-element constant as a plain number: Inductor recognises attention's scale only so."""
        (left, right), constants = self.tensors, [self.graph.constants.get(name) for name in self.node.inputs]
        match constants:
            case (None, np.ndarray() as value) if value.size == 1 and value.ndim <= left.ndim:
                return left, value.item()
            case (np.ndarray() as value, None) if value.size == 1 and value.ndim <= right.ndim:
                return value.item(), right
        return left, right

    def attribute(self, name: str, default: Any) -> Any:
        return self.node.attributes.get(name, default)

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the first output."""
        return self.graph.tensors[self.node.outputs[0]].shape

    @property
    def given_shape(self) -> tuple[int, ...]:
        """Shape of the first input."""
        return self.graph.tensors[self.node.inputs[0]].shape


def _torch() -> Any:
    import torch

    return torch


def _elementwise(name: str) -> Callable[[Call], Any]:
    return lambda call: getattr(_torch(), name)(*call.tensors)


def _arithmetic(operation: Callable[[Any, Any], Any]) -> Callable[[Call], Any]:
    return lambda call: operation(*call.operands())


def _n_ary(name: str) -> Callable[[Call], Any]:
    return lambda call: reduce(getattr(_torch(), name), call.tensors)


def _reshaped(call: Call) -> Any:
    return call.tensors[0].reshape(call.shape)


def _padded(tensor: Any, before: Sequence[int], after: Sequence[int], value: float = 0.0) -> Any:
    """``tensor`` with its last axes padded, or cut where a number is negative."""
    flat = [n for pair in zip(reversed(before), reversed(after), strict=True) for n in pair]
    return _torch().nn.functional.pad(tensor, flat, value=value) if any(flat) else tensor


def _conv(call: Call) -> Any:
    x, weight, bias = call.tensors[0], call.tensors[1], call.given(2)
    before, after = spatial_pads(call.graph, call.node, weight.shape[2:])
    count = len(before)
    if before != after:
        x, before = _padded(x, before, after), [0] * count
    strides, dilations = (call.attribute(key, [1] * count) for key in ("strides", "dilations"))
    return _torch().convolution(
        x, weight, bias, strides, before, dilations, False, [0] * count, call.attribute("group", 1)
    )


def _conv_transpose(call: Call) -> Any:
    x, weight, bias = call.tensors[0], call.tensors[1], call.given(2)
    count = weight.ndim - 2
    pads, group = call.attribute("pads", [0] * count), call.attribute("group", 1)
    strides, dilations = (call.attribute(key, [1] * count) for key in ("strides", "dilations"))
    extra = call.attribute("output_padding", [0] * count)
    return _torch().convolution(x, weight, bias, strides, pads[:count], dilations, True, extra, group)


def _gemm(call: Call) -> Any:
    left, right, added = call.tensors[0], call.tensors[1], call.given(2)
    left = left.T if call.attribute("transA", 0) else left
    right = right.T if call.attribute("transB", 0) else right
    alpha, beta = call.attribute("alpha", 1.0), call.attribute("beta", 1.0)
    if added is None:
        return alpha * (left @ right) if alpha != 1.0 else left @ right
    return _torch().addmm(added, left, right, beta=beta, alpha=alpha)


def _max_pool(call: Call) -> Any:
    kernel, strides, dilations, before, after = _windows(call)
    x = _padded(call.tensors[0], before, after, -np.inf)
    pool = getattr(_torch().nn.functional, f"max_pool{len(kernel)}d")
    return pool(x, kernel, strides, 0, dilations)


def _average_pool(call: Call) -> Any:
    kernel, strides, _, before, after = _windows(call)
    functional = _torch().nn.functional
    mean = getattr(functional, f"avg_pool{len(kernel)}d")(_padded(call.tensors[0], before, after), kernel, strides)
    counted = window_counts(
        call.given_shape[2:],
        kernel,
        strides,
        spatial_pads(call.graph, call.node, kernel),
        call.shape[2:],
        bool(call.attribute("count_include_pad", 0)),
    )
    volume = float(np.prod(kernel))
    if (counted == volume).all():
        return mean
    scale = _torch().from_numpy((volume / counted).astype(np.float32))
    return mean * (scale if mean.dtype == scale.dtype else scale.to(mean.dtype))


def _windows(call: Call) -> tuple[list[int], list[int], list[int], list[int], list[int]]:
    """Kernel, strides, dilations and padding of a pool; the padding behind ends with the last window."""
    kernel = list(call.attribute("kernel_shape", []))
    strides, dilations = (list(call.attribute(key, [1] * len(kernel))) for key in ("strides", "dilations"))
    before, _ = spatial_pads(call.graph, call.node, kernel)
    after = [
        (out - 1) * stride + (extent - 1) * dilation + 1 - size - front
        for out, stride, extent, dilation, size, front in zip(
            call.shape[2:], strides, kernel, dilations, call.given_shape[2:], before, strict=True
        )
    ]
    return kernel, strides, dilations, before, after


def _planes(name: str) -> Callable[[Call], Any]:
    return lambda call: getattr(call.tensors[0], name)(tuple(range(2, len(call.given_shape))), keepdim=True)


def _reduction(name: str) -> Callable[[Call], Any]:
    def reduced(call: Call) -> Any:
        rank = len(call.given_shape)
        axes = call.constant(1).tolist() if call.given(1) is not None else []
        if not axes and call.attribute("noop_with_empty_axes", 0):
            return call.tensors[0]
        chosen = tuple(axis % rank for axis in axes) or tuple(range(rank))
        return getattr(call.tensors[0], name)(chosen, keepdim=bool(call.attribute("keepdims", 1)))

    return reduced


def _batch_normalization(call: Call) -> Any:
    x, scale, bias, mean, variance = call.tensors
    return _torch().nn.functional.batch_norm(x, mean, variance, scale, bias, eps=call.attribute("epsilon", 1e-5))


def _layer_normalization(call: Call) -> Any:
    axis = call.attribute("axis", -1) % len(call.given_shape)
    return _torch().nn.functional.layer_norm(
        call.tensors[0], call.given_shape[axis:], call.tensors[1], call.given(2), call.attribute("epsilon", 1e-5)
    )


def _lrn(call: Call) -> Any:
    alpha, beta, bias = (
        call.attribute(key, value) for key, value in (("alpha", 1e-4), ("beta", 0.75), ("bias", 1.0))
    )
    return _torch().nn.functional.local_response_norm(call.tensors[0], call.attribute("size", 1), alpha, beta, bias)


def _hard_sigmoid(call: Call) -> Any:
    alpha, beta = call.attribute("alpha", 0.2), call.attribute("beta", 0.5)
    return (alpha * call.tensors[0] + beta).clamp(0.0, 1.0)


def _clip(call: Call) -> Any:
    """Clip by plain numbers where bounds are constant: Inductor fails on tensors behind a convolution."""
    bounds = [call.given(1), call.given(2)]
    if all(name in call.graph.constants for name in call.node.inputs[1:] if name):
        bounds = [None if bound is None else call.constant(at).item() for at, bound in enumerate(bounds, 1)]
    return _torch().clamp(call.tensors[0], *bounds)


def _concat(call: Call) -> Any:
    return _torch().cat(list(call.tensors), call.attribute("axis", 0))


def _split(call: Call) -> Any:
    axis = call.attribute("axis", 0)
    sizes = [call.graph.tensors[name].shape[axis] for name in call.node.outputs]
    return _torch().split(call.tensors[0], sizes, axis)


def _slice(call: Call) -> Any:
    rank = len(call.given_shape)
    starts, ends = call.constant(1).tolist(), call.constant(2).tolist()
    axes = call.constant(3).tolist() if call.given(3) is not None else list(range(len(starts)))
    chosen = [slice(None)] * rank
    for start, end, axis in zip(starts, ends, axes, strict=True):
        chosen[axis % rank] = slice(*slice(start, end).indices(call.given_shape[axis % rank]))
    return call.tensors[0][tuple(chosen)]


def _pad(call: Call) -> Any:
    pads = call.constant(1).tolist()
    value = float(call.constant(2)) if call.given(2) is not None else 0.0
    return _padded(call.tensors[0], pads[: len(pads) // 2], pads[len(pads) // 2 :], value)


def _resize(call: Call) -> Any:
    x = call.tensors[0]
    for axis, (before, after) in enumerate(zip(call.given_shape, call.shape, strict=True)):
        x = x.repeat_interleave(after // before, axis) if after != before else x
    return x


def _gather(call: Call) -> Any:
    x, index = call.tensors
    axis = call.attribute("axis", 0)
    index = _torch().where(index < 0, index + call.given_shape[axis], index)
    return x.index_select(axis, index.reshape(-1).long()).reshape(call.shape)


def _arg_max(call: Call) -> Any:
    return call.tensors[0].argmax(call.attribute("axis", 0), keepdim=bool(call.attribute("keepdims", 1)))


def _cast(call: Call) -> Any:
    return call.tensors[0].to(getattr(_torch(), call.graph.tensors[call.node.outputs[0]].dtype))


def _transpose(call: Call) -> Any:
    order = tuple(call.attribute("perm", range(len(call.given_shape))[::-1]))
    if order == (0, 2, 3, 1):
        # Inductor replaces attention correctly only if heads and keys are moved in two steps; with one step it
        # replaces the wrong part ("Attempting to broadcast a dimension").
        return call.tensors[0].permute(0, 2, 1, 3).transpose(2, 3)
    return call.tensors[0].permute(order)


def _gelu(call: Call) -> Any:
    return _torch().nn.functional.gelu(call.tensors[0], approximate=call.attribute("approximate", "none"))


OPERATORS: Mapping[str, Callable[[Call], Any]] = {
    **{op: _elementwise(op.lower()) for op in ("Relu", "Sigmoid", "Tanh", "Erf", "Sqrt", "Exp", "Log", "Abs", "Neg")},
    **{op: _elementwise(op.lower()) for op in ("Pow", "Greater", "Less", "Where", "MatMul")},
    **{op: _arithmetic(getattr(operator, op.lower())) for op in ("Add", "Sub", "Mul")},
    **{"Div": _arithmetic(operator.truediv), "Equal": _elementwise("eq")},
    **{"Reciprocal": _elementwise("reciprocal"), "Not": _elementwise("logical_not")},
    **{"Sum": _n_ary("add"), "Max": _n_ary("maximum"), "Min": _n_ary("minimum")},
    **dict.fromkeys(("Reshape", "Flatten", "Squeeze", "Unsqueeze", "Identity"), _reshaped),
    "LeakyRelu": lambda call: _torch().nn.functional.leaky_relu(call.tensors[0], call.attribute("alpha", 0.01)),
    "Elu": lambda call: _torch().nn.functional.elu(call.tensors[0], call.attribute("alpha", 1.0)),
    "HardSwish": lambda call: _torch().nn.functional.hardswish(call.tensors[0]),
    "HardSigmoid": _hard_sigmoid,
    "Gelu": _gelu,
    "Clip": _clip,
    "Softmax": lambda call: _torch().softmax(call.tensors[0], call.attribute("axis", -1)),
    "Conv": _conv,
    "ConvTranspose": _conv_transpose,
    "Gemm": _gemm,
    "MaxPool": _max_pool,
    "AveragePool": _average_pool,
    "GlobalAveragePool": _planes("mean"),
    "GlobalMaxPool": _planes("amax"),
    **{"ReduceMean": _reduction("mean"), "ReduceSum": _reduction("sum"), "ReduceMax": _reduction("amax")},
    "BatchNormalization": _batch_normalization,
    "LayerNormalization": _layer_normalization,
    "LRN": _lrn,
    "Concat": _concat,
    "Expand": lambda call: call.tensors[0].expand(call.shape),
    "Split": _split,
    "Slice": _slice,
    "Pad": _pad,
    "Resize": _resize,
    "Gather": _gather,
    "ArgMax": _arg_max,
    "Cast": _cast,
    "Transpose": _transpose,
}
"""Translations of the operators that pass the conditions in ``rules.py``."""


def window_counts(
    sizes: Sequence[int],
    kernel: Sequence[int],
    strides: Sequence[int],
    pads: tuple[Sequence[int], Sequence[int]],
    windows: Sequence[int],
    padding_counts: bool,
) -> np.ndarray:
    """How many elements each window averages over: those of the input, and of its padding if that counts.

    Elements of a last window beyond the padding never count.
    """
    counts = []
    for size, extent, stride, front, back, number in zip(sizes, kernel, strides, *pads, windows, strict=True):
        first, last = (-front, size + back) if padding_counts else (0, size)
        begin = np.arange(number) * stride - front
        counts.append(np.minimum(begin + extent, last) - np.maximum(begin, first))
    return reduce(np.multiply.outer, counts)
