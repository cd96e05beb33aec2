"""ONNX Runtime sessions on arrays of any type, also those that its Python interface lacks."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from collage_evo.graph.ir.elements import EXTENDED, is_extended, pack, packed_bytes, unpack

if TYPE_CHECKING:
    import onnxruntime as ort

_DTYPES = {f"tensor({element.name})": dtype for dtype, element in EXTENDED.items()}


def all_numpy(session: ort.InferenceSession) -> bool:
    """Whether all inputs and outputs of a session are of types that NumPy has."""
    return not any(value.type in _DTYPES for value in (*session.get_inputs(), *session.get_outputs()))


def run_session(
    session: ort.InferenceSession, feeds: Mapping[str, Any], options: ort.RunOptions | None = None
) -> list[Any]:
    """All outputs in the model's order: arrays of NumPy's and ``ml_dtypes``'s types, or lists and maps."""
    if any(map(is_extended, feeds.values())) or any(value.type in _DTYPES for value in session.get_outputs()):
        return [from_ort_value(output) for output in run_raw(session, feeds, options)]
    return list(session.run(None, dict(feeds), options))


def run_raw(
    session: ort.InferenceSession, feeds: Mapping[str, Any], options: ort.RunOptions | None = None
) -> list[ort.OrtValue]:
    """All outputs as ONNX Runtime's own values. Strings cannot be inputs here."""
    names = [value.name for value in session.get_outputs()]
    values = {name: to_ort_value(value) for name, value in feeds.items()}
    return list(session.run_with_ort_values(names, values, options))


def to_ort_value(value: Any) -> ort.OrtValue:
    """An array of numbers as ONNX Runtime's value; a copy where NumPy lacks the type."""
    import onnxruntime as ort

    if not is_extended(value):
        return ort.OrtValue.ortvalue_from_numpy(np.asarray(value))
    ort_value = ort.OrtValue.ortvalue_from_shape_and_type(value.shape, EXTENDED[value.dtype.name].number)
    packed = pack(value)
    ctypes.memmove(ort_value.data_ptr(), packed.ctypes.data, packed.nbytes)
    return ort_value


def from_ort_value(value: ort.OrtValue) -> Any:
    """ONNX Runtime's value as an array, list or map."""
    if value.data_type() not in _DTYPES:
        return value.numpy()
    dtype = np.dtype(_DTYPES[value.data_type()])
    array = np.zeros(value.shape(), dtype)
    raw = ctypes.string_at(value.data_ptr(), packed_bytes(dtype, array.size))
    unpack(np.frombuffer(raw, np.uint8), array)
    return array
