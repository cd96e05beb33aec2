"""Computes a cuDNN plan with NumPy: proves that its steps are the region, strides and roundings included."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import erf
from typing import Any

import ml_dtypes  # noqa: F401  # makes bfloat16 known to NumPy
import numpy as np

from collage_evo_cuda.cudnn.plan import Operation, Plan, Step

_erf = np.vectorize(erf, otypes=[np.float64])


def outputs_of(plan: Plan, weights: Mapping[str, np.ndarray], feeds: Sequence[np.ndarray]) -> list[np.ndarray]:
    """The region's outputs, each as one row. ``weights`` are what lies in the plan's file."""
    memory = {buffer.name: np.full(buffer.size, np.nan, buffer.dtype) for buffer in plan.buffers}
    for name, value in weights.items():
        dtype = plan.buffer(name).dtype
        memory[name] = value.view(dtype) if dtype == "bfloat16" else value
    for name, feed in zip(plan.inputs, feeds, strict=True):
        memory[name][:] = feed.reshape(-1)
    for step in plan.steps:
        run_step(step, memory, plan.arithmetic)
    return [memory[name] for name in plan.outputs]


def run_step(step: Step, memory: Mapping[str, np.ndarray], arithmetic: str = "float32") -> None:
    """Compute one step in double precision; what it reads from and writes to memory has the memory's type."""
    views, values = {view.name: view for view in step.tensors}, {}
    made = {operation.output for operation in step.operations}
    for view in step.tensors:
        if view.name not in made:
            values[view.name] = _seen(memory[view.buffer], view.shape, view.strides).astype(np.float64)
    for operation in step.operations:
        view = views[operation.output]
        value = compute(operation, [values[name] for name in operation.inputs], view.shape)
        # What lies inside a step alone has the shape that its operation gives it.
        assert not view.buffer or value.shape == view.shape, (operation, value.shape, view.shape)
        values[view.name] = value
        if view.buffer:
            _seen(memory[view.buffer], view.shape, view.strides)[...] = value


def _seen(memory: np.ndarray, shape: Sequence[int], strides: Sequence[int]) -> np.ndarray:
    return np.lib.stride_tricks.as_strided(memory, shape, [stride * memory.itemsize for stride in strides])


def compute(operation: Operation, given: Sequence[np.ndarray], shape: tuple[int, ...]) -> np.ndarray:
    """What cuDNN's documentation says of the operation."""
    numbers: Mapping[str, Any] = operation.attributes
    match operation.kind:
        case "conv_fprop":
            return _convolution(given[0], given[1], numbers)
        case "conv_dgrad":
            return _transposed(given[0], given[1], shape, numbers)
        case "matmul":
            return given[0] @ given[1]
        case "sdpa":
            return _attention(given, numbers["attn_scale"])
        case "relu":
            return _relu(given[0], **numbers)
    return _ELEMENTWISE[operation.kind](*given)


def _relu(x: np.ndarray, negative_slope: float = 0.0, lower_clip: float = 0.0, upper_clip: float = np.inf) -> Any:
    return np.minimum(np.where(x > lower_clip, x, lower_clip + negative_slope * (x - lower_clip)), upper_clip)


def _convolution(x: np.ndarray, w: np.ndarray, numbers: Mapping[str, Any]) -> np.ndarray:
    """Cross-correlation; the number of groups is what the channels of image and filter say."""
    kernel = w.shape[2:]
    x = np.pad(x, [(0, 0), (0, 0), *zip(numbers["pre_padding"], numbers["post_padding"], strict=True)])
    reach = [(k - 1) * d + 1 for k, d in zip(kernel, numbers["dilation"], strict=True)]
    axes = tuple(range(2, x.ndim))
    windows = np.lib.stride_tricks.sliding_window_view(x, reach, axes)
    step = (slice(None), slice(None), *(slice(None, None, s) for s in numbers["stride"]))
    windows = windows[(*step, *(slice(None, None, d) for d in numbers["dilation"]))]
    groups = x.shape[1] // w.shape[1]
    parts = zip(np.split(windows, groups, 1), np.split(w, groups, 0), strict=True)
    inner = tuple(range(x.ndim, x.ndim + len(kernel)))
    made = [np.tensordot(part, filters, axes=((1, *inner), (1, *axes))) for part, filters in parts]
    return np.moveaxis(np.concatenate(made, -1), -1, 1)


def _transposed(dy: np.ndarray, w: np.ndarray, shape: tuple[int, ...], numbers: Mapping[str, Any]) -> np.ndarray:
    before, after = numbers["pre_padding"], numbers["post_padding"]
    padded = np.zeros((*shape[:2], *(s + b + a for s, b, a in zip(shape[2:], before, after, strict=True))))
    for at in np.ndindex(w.shape[2:]):
        part = np.moveaxis(np.tensordot(dy, w[(slice(None), slice(None), *at)], axes=((1,), (0,))), -1, 1)
        where = [
            slice(k * d, k * d + (n - 1) * s + 1, s)
            for k, d, s, n in zip(at, numbers["dilation"], numbers["stride"], dy.shape[2:], strict=True)
        ]
        padded[(slice(None), slice(None), *where)] += part
    return padded[(slice(None), slice(None), *(slice(b, b + s) for b, s in zip(before, shape[2:], strict=True)))]


def _attention(given: Sequence[np.ndarray], scale: float) -> np.ndarray:
    query, key, value = given[:3]
    scores = query @ key.swapaxes(-1, -2) * scale + (given[3] if len(given) > 3 else 0.0)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return weights / weights.sum(-1, keepdims=True) @ value


_ELEMENTWISE: Mapping[str, Callable[..., np.ndarray]] = {
    **{"identity": lambda x: x, "add": np.add, "sub": np.subtract, "mul": np.multiply, "div": np.divide},
    **{"max": np.maximum, "min": np.minimum, "pow": np.power, "abs": np.abs, "neg": np.negative},
    **{"sigmoid": lambda x: 1 / (1 + np.exp(-x)), "tanh": np.tanh, "exp": np.exp, "log": np.log, "sqrt": np.sqrt},
    **{"elu": lambda x: np.where(x > 0, x, np.expm1(x)), "softplus": lambda x: np.logaddexp(0, x), "erf": _erf},
    **{"reciprocal": np.reciprocal, "floor": np.floor, "ceil": np.ceil},
    "gelu": lambda x: x / 2 * (1 + _erf(x / np.sqrt(2))),
    "gelu_approx_tanh": lambda x: x / 2 * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3))),
}


