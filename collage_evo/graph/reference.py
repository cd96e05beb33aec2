"""What a model ought to give, by ONNX Runtime without graph optimisations, and how far off a result is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import onnx

from collage_evo.errors import InputError, one_line


class Reference:
    """A model loaded once for many inputs.

    Args:
        model: the model to run as it is written.
        threads: threads inside one operator.

    Raises:
        InputError: ONNX Runtime cannot load the model.
    """

    def __init__(self, model: onnx.ModelProto, threads: int = 1) -> None:
        import onnxruntime as ort  # not above: a measuring process loads only the libraries that it measures

        options = ort.SessionOptions()
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
        options.intra_op_num_threads = threads
        options.inter_op_num_threads = 1
        options.log_severity_level = 4
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        try:
            self._session = ort.InferenceSession(
                model.SerializeToString(), options, providers=["CPUExecutionProvider"]
            )
        except Exception as error:
            raise InputError(f"ONNX Runtime cannot load the model: {one_line(error)}") from error

    def run(self, feeds: Mapping[str, np.ndarray]) -> list[np.ndarray]:
        """The outputs, in the model's order.

        Raises:
            InputError: the model fails on these inputs.
        """
        try:
            return [np.asarray(value) for value in self._session.run(None, dict(feeds))]
        except Exception as error:
            raise InputError(f"ONNX Runtime cannot run the model: {one_line(error)}") from error


def reference_outputs(
    model: onnx.ModelProto, feeds: Mapping[str, np.ndarray], threads: int = 1
) -> list[np.ndarray]:
    """The model's outputs on ``feeds``, in the model's order. Raises InputError as ``Reference`` does."""
    return Reference(model, threads).run(feeds)


@dataclass(frozen=True)
class Error:
    """How far a result is from what it should be: 2-norm of the difference over 2-norm of the reference."""

    relative: float
    max_abs: float


def relative_error(
    actual: np.ndarray | Sequence[np.ndarray], expected: np.ndarray | Sequence[np.ndarray]
) -> Error:
    """The error of one output, or the worst over several.

    Infinite where a shape differs or a value is not finite. Where the reference is all zero the relative
    error is zero for an exact result and infinite for any other.
    """
    if isinstance(actual, np.ndarray) and isinstance(expected, np.ndarray):
        return _error(actual, expected)
    if len(actual) != len(expected):
        return Error(np.inf, np.inf)
    errors = [_error(np.asarray(a), np.asarray(e)) for a, e in zip(actual, expected, strict=True)]
    return Error(
        relative=max((error.relative for error in errors), default=0.0),
        max_abs=max((error.max_abs for error in errors), default=0.0),
    )


def _error(actual: np.ndarray, expected: np.ndarray) -> Error:
    if actual.shape != expected.shape:
        return Error(np.inf, np.inf)
    if not actual.size:
        return Error(0.0, 0.0)
    a, e = actual.astype(np.float64), expected.astype(np.float64)
    if not (np.isfinite(a).all() and np.isfinite(e).all()):
        return Error(np.inf, np.inf)
    difference = a - e
    distance, size = float(np.linalg.norm(difference)), float(np.linalg.norm(e))
    relative = distance / size if size else (0.0 if distance == 0.0 else np.inf)
    return Error(relative, float(np.abs(difference).max()))
