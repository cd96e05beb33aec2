"""Rewrite rules that onnxscript lacks or leaves unchecked: a written-out LayerNormalization of rows as one operator.

Files of operator sets before 17 write it out.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import onnx_ir as ir
from onnxscript.rewriter import MatchResult, RewriteRule, RewriteRuleClassBase, pattern

_FLOATS = frozenset({ir.DataType.FLOAT, ir.DataType.DOUBLE})


class _WrittenOut(RewriteRuleClassBase):
    """``(x - mean) / sqrt(mean of squares + epsilon) * scale + bias``, means over the last axis."""

    def __init__(self, scale_first: bool, bias_first: bool) -> None:
        super().__init__(f"LayerNormalization{'S' if scale_first else ''}{'B' if bias_first else ''}")
        self._scale_first, self._bias_first = scale_first, bias_first

    def pattern(self, op: Any, x: Any, axes: Any, again: Any, epsilon: Any, scale: Any, bias: Any) -> Any:
        off = op.Sub(x, op.ReduceMean(x, axes, _outputs=["mean"]))
        squares = pattern.OrValue([op.Mul(off, off), op.Pow(off, 2)])
        variance = op.ReduceMean(squares, again, _outputs=["variance"])
        normal = op.Div(off, op.Sqrt(op.Add(variance, epsilon)))
        scaled = op.Mul(scale, normal) if self._scale_first else op.Mul(normal, scale)
        return op.Add(bias, scaled) if self._bias_first else op.Add(scaled, bias)

    def check(
        self,
        context: Any,
        x: Any,
        axes: Any,
        again: Any,
        epsilon: Any,
        scale: Any,
        bias: Any,
        mean: Any,
        variance: Any,
    ) -> MatchResult:
        del context
        result = MatchResult()
        if x.dtype not in _FLOATS or x.shape is None or not x.shape.is_static():
            return result.fail("the input is no tensor of floats of known shape")
        last = len(x.shape) - 1
        for value, output in ((axes, mean), (again, variance)):
            if _numbers(value) not in ([-1], [last]) or output.producer().attributes.get_int("keepdims", 1) != 1:
                return result.fail("a mean is not over the last axis alone")
        if len(_numbers(epsilon)) != 1:
            return result.fail("epsilon is not one number")
        for value in (scale, bias):
            array = value.const_value
            if array is None or value.is_graph_input() or tuple(array.shape) != (x.shape[last],):
                return result.fail("scale or bias is not one number for each element of a row")
        return result

    def rewrite(self, op: Any, x: Any, epsilon: Any, scale: Any, bias: Any, **rest: Any) -> Any:
        del rest
        return op.LayerNormalization(x, scale, bias, axis=-1, epsilon=float(_numbers(epsilon)[0]))


def rules() -> list[RewriteRule]:
    """The rules for onnxscript's RewritePass."""
    rule: Callable[..., RewriteRule] = _WrittenOut.rule  # onnxscript leaves it without types
    return [rule(scale_first, bias_first) for scale_first in (False, True) for bias_first in (False, True)]


def _numbers(value: Any) -> list[Any]:
    """The elements of a constant; none of another value."""
    if value is None or value.const_value is None or value.is_graph_input():
        return []
    numbers: list[Any] = value.const_value.numpy().reshape(-1).tolist()
    return numbers
