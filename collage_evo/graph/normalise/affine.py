"""Rewrite rules that onnxscript lacks: per-channel Mul and Add into the layer before them, Sum of two to Add.

Converters write Caffe's BatchNorm and Scale pair as BatchNormalization, Mul, Add, as in DenseNet.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx_ir as ir
from onnxscript.rewriter import MatchResult, RewriteRule, RewriteRuleClassBase


class _AffineIntoLayer(RewriteRuleClassBase):
    """``outer(layer(x), constant)`` with one value a channel becomes ``layer`` with other weights.

    The new weights are computed in float64 and rounded once.
    """

    def __init__(self, layer: str, outer: str, constant_first: bool) -> None:
        super().__init__(f"{outer}Into{layer}{'Reversed' if constant_first else ''}")
        self._layer, self._outer, self._constant_first = layer, outer, constant_first

    def pattern(self, op: Any, x: Any, constant: Any) -> Any:
        layer = getattr(op, self._layer)(x, _allow_other_inputs=True, _outputs=["layer_out"])
        operands = (constant, layer) if self._constant_first else (layer, constant)
        return getattr(op, self._outer)(*operands, _outputs=["affine_out"])

    def check(self, context: Any, x: Any, constant: Any, layer_out: Any, affine_out: Any) -> MatchResult:
        del context, x, affine_out
        result = MatchResult()
        node = layer_out.producer()
        for value in (constant, *node.inputs[1:]):
            if value is None or value.const_value is None or value.is_graph_input():
                return result.fail("an operand is not constant")
        if len(node.outputs) != 1:
            return result.fail("BatchNormalization is in training mode")
        if layer_out.shape is None:
            return result.fail("the layer's rank is unknown")
        channels = node.inputs[1].const_value.shape[0]
        if _per_channel(constant.const_value.numpy(), len(layer_out.shape), channels) is None:
            return result.fail("the constant is not one value a channel")
        return result

    def rewrite(self, op: Any, x: Any, constant: Any, layer_out: Any, affine_out: Any) -> Any:
        node = layer_out.producer()
        weights = [value.const_value.numpy() for value in node.inputs[1:]]
        values = _per_channel(constant.const_value.numpy(), len(layer_out.shape), weights[0].shape[0])
        assert values is not None  # check() has made sure of it
        if len(weights) == 1:
            weights.append(np.zeros(weights[0].shape[0], weights[0].dtype))
        if self._outer == "Mul":
            weights[0] = _scaled(weights[0], values)
            weights[1] = _scaled(weights[1], values)
        else:
            weights[1] = (weights[1].astype(np.float64) + values).astype(weights[1].dtype)
        # The output's name is unique, so these are too even where layers share weights.
        initializers = [
            op.initializer(ir.tensor(weight), name=f"{affine_out.name}_w{position}")
            for position, weight in enumerate(weights)
        ]
        return getattr(op, self._layer)(x, *initializers, **node.attributes)


class _SumIsAdd(RewriteRuleClassBase):
    """Sum of two becomes Add, which more backends have patterns for."""

    def pattern(self, op: Any, x: Any, y: Any) -> Any:
        return op.Sum(x, y)

    def rewrite(self, op: Any, x: Any, y: Any) -> Any:
        return op.Add(x, y)


def rules() -> list[RewriteRule]:
    """The rules for onnxscript's RewritePass."""
    # The library leaves this method of its base class without types.
    affine_rule: Callable[..., RewriteRule] = _AffineIntoLayer.rule
    sum_rule: Callable[..., RewriteRule] = _SumIsAdd.rule
    affine = [
        affine_rule(layer, outer, constant_first)
        for layer in ("Conv", "BatchNormalization")
        for outer in ("Mul", "Add")
        for constant_first in (False, True)
    ]
    return [*affine, sum_rule()]


def _scaled(weight: np.ndarray, factors: np.ndarray) -> np.ndarray:
    shape = (-1,) + (1,) * (weight.ndim - 1)
    return np.asarray((weight.astype(np.float64) * factors.reshape(shape)).astype(weight.dtype))


def _per_channel(constant: np.ndarray, rank: int, channels: int) -> np.ndarray | None:
    """``constant`` as ``channels`` float64 values if it broadcasts along axis 1 only, else None."""
    if constant.ndim > rank:
        return None
    shape = (1,) * (rank - constant.ndim) + constant.shape
    if any(dim != 1 for axis, dim in enumerate(shape) if axis != 1) or shape[1] not in (1, channels):
        return None
    values = np.empty(channels)
    values[:] = constant.reshape(-1)
    return values
