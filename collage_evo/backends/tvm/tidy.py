"""Clean-up of the Relax modules that TVM's ONNX front end makes: folded constants, and clips as clips."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

_BOUNDS = {"maximum": "min", "minimum": "max"}
"""The loops that the front end makes of a Clip, and which bound of the clip each one is."""


def tidy(module: Any) -> Any:
    """Fold constants that are only transposed, reshaped or compared, and write clips as clip."""
    from tvm import relax

    mutator = _mutator_class()(module)
    for variable, function in list(module.functions.items()):
        if isinstance(function, relax.Function):
            mutator.builder_.update_func(variable, mutator.visit_expr(function))
    cleaned: Any = relax.transform.DeadCodeElimination()(mutator.builder_.get())
    return cleaned


def _mutator_class() -> Any:
    """The mutator, defined here because its base class needs TVM, which is imported only on use."""
    import tvm
    from tvm import relax
    from tvm.relax.expr_functor import PyExprMutator, mutator

    @mutator
    class Tidy(PyExprMutator):
        def visit_call_(self, call: Any) -> Any:
            call = super().visit_call_(call)
            if not isinstance(call.op, tvm.ir.Op):
                return call
            if call.op.name == "relax.call_tir":
                return self._clip(call)
            fold = _FOLDS.get(call.op.name)
            values = [self._constant(argument) for argument in call.args[: _ARITY.get(call.op.name, 1)]]
            if fold is None or any(value is None for value in values):
                return call
            return relax.const(np.array(fold(call, *values), order="C"))

        def _clip(self, call: Any) -> Any:
            bound = _BOUNDS.get(call.args[0].name_hint.rstrip("0123456789"))
            operands = call.args[1].fields
            if bound is None or len(operands) != 2:
                return call
            value = self._constant(operands[1])
            if value is None or value.size != 1 or value.dtype != np.float32:
                return call
            # The front end imports a Clip as loops that the layout pass cannot see through, so that each one costs
            # two transpositions; Relax's own clip costs none.
            limits = {"min": -np.inf, "max": np.inf, bound: value.item()}
            return relax.op.clip(operands[0], limits["min"], limits["max"])

        def _constant(self, expression: Any) -> np.ndarray | None:
            if isinstance(expression, relax.Var):
                expression = self.lookup_binding(expression)
            return expression.value.numpy() if isinstance(expression, tvm.ir.GenericConst) else None

    return Tidy


def _turned(call: Any, value: np.ndarray) -> np.ndarray:
    axes = call.attrs.axes
    return value.transpose(None if axes is None else [int(axis) for axis in axes])


def _reshaped(call: Any, value: np.ndarray) -> np.ndarray:
    return value.reshape([int(extent) for extent in call.ty.shape])


def _chosen(call: Any, condition: np.ndarray, yes: np.ndarray, no: np.ndarray) -> np.ndarray:
    return np.where(condition, yes, no)


_FOLDS: dict[str, Callable[..., np.ndarray]] = {
    "relax.permute_dims": _turned,
    "relax.reshape": _reshaped,
    "relax.isnan": lambda call, value: np.isnan(value),
    "relax.where": _chosen,
}
_ARITY = {"relax.where": 3}
