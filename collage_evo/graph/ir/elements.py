"""Element types of tensors: the known ones, their ONNX names, and how types below a byte are packed.

NumPy lacks some of ONNX's types; ``ml_dtypes`` adds them on import, one element a byte or more. Libraries hold
elements of less than a byte packed, the first one in the lowest bits.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from collage_evo.errors import InputError


@dataclass(frozen=True)
class Extended:
    """A type that NumPy has from ``ml_dtypes``: ONNX's number and name of it, and the bits of a packed element."""

    number: int
    name: str
    bits: int = 8


EXTENDED: Mapping[str, Extended] = {
    "bfloat16": Extended(16, "bfloat16", 16),
    "float8_e4m3fn": Extended(17, "float8e4m3fn"),
    "float8_e4m3fnuz": Extended(18, "float8e4m3fnuz"),
    "float8_e5m2": Extended(19, "float8e5m2"),
    "float8_e5m2fnuz": Extended(20, "float8e5m2fnuz"),
    "uint4": Extended(21, "uint4", 4),
    "int4": Extended(22, "int4", 4),
    "float4_e2m1fn": Extended(23, "float4e2m1", 4),
    "float8_e8m0fnu": Extended(24, "float8e8m0"),
    "uint2": Extended(25, "uint2", 2),
    "int2": Extended(26, "int2", 2),
}
"""By their names in ``ml_dtypes``."""
NUMPY = frozenset(
    {
        *("float16", "float32", "float64", "bool", "complex64", "complex128"),
        *("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
    }
)
"""The types that NumPy has itself."""
IN_32_BITS = -(2**31), 2**31
"""The least whole number of 32 bits, and one more than the greatest."""
_NUMBERS: Mapping[int, str] = {
    **{1: "float32", 2: "uint8", 3: "int8", 4: "uint16", 5: "int16", 6: "int32", 7: "int64", 8: "object", 9: "bool"},
    **{10: "float16", 11: "float64", 12: "uint32", 13: "uint64", 14: "complex64", 15: "complex128"},
    **{type_.number: dtype for dtype, type_ in EXTENDED.items()},
}
"""Types by the numbers of ``onnx.TensorProto.DataType``."""
_NAMES = {"float32": "float", "float64": "double"}
_DTYPES = {name: dtype for dtype, name in _NAMES.items()} | {type_.name: dtype for dtype, type_ in EXTENDED.items()}


def onnx_name(dtype: str) -> str:
    """ONNX's name of the type, as in ``tensor(float)``."""
    return EXTENDED[dtype].name if dtype in EXTENDED else _NAMES.get(dtype, dtype)


def dtype_named(name: str) -> str:
    """The type of that ONNX name; ``name`` itself if it is none of NumPy's or ``ml_dtypes``'s."""
    return _DTYPES.get(name, name)


def dtype_numbered(number: int) -> str:
    """The type that ``onnx.TensorProto`` has under that number.

    Raises:
        InputError: there is none.
    """
    if number not in _NUMBERS:
        raise InputError(f"{number} is no element type of ONNX: give onnx.TensorProto.FLOAT or another one")
    return _NUMBERS[number]


def is_extended(value: object) -> bool:
    """Whether ``value`` is an array of a type that NumPy has from ``ml_dtypes``."""
    return isinstance(value, np.ndarray) and value.dtype.name in EXTENDED


def as_bytes(array: np.ndarray) -> np.ndarray:
    """``array`` as NumPy's files hold it: elements of a type that NumPy lacks become raw bytes of the same size."""
    return array.view(f"V{array.itemsize}") if is_extended(array) else array


def is_packed(dtype: np.dtype) -> bool:
    """Whether libraries hold several elements of ``dtype`` in one byte."""
    return dtype.name in EXTENDED and EXTENDED[dtype.name].bits < 8


def packed_bytes(dtype: np.dtype, size: int) -> int:
    """Bytes of ``size`` elements of ``dtype`` as libraries hold them."""
    bits = EXTENDED[dtype.name].bits if dtype.name in EXTENDED else 8 * dtype.itemsize
    return -(-size * bits // 8)


def pack(array: np.ndarray) -> np.ndarray:
    """The bytes, uint8 [n], of ``array`` as libraries hold it."""
    raw = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    if not is_packed(array.dtype):
        return raw
    bits = EXTENDED[array.dtype.name].bits
    each = 8 // bits
    padded = np.zeros(packed_bytes(array.dtype, array.size) * each, np.uint8)
    padded[: array.size] = raw & ((1 << bits) - 1)
    packed = np.zeros(len(padded) // each, np.uint8)
    for place in range(each):
        packed |= padded[place::each] << (place * bits)
    return packed


def unpack(packed: np.ndarray, array: np.ndarray) -> None:
    """Write into ``array`` the elements that ``packed`` holds, bytes as :func:`pack` gives them."""
    flat = array.reshape(-1).view(np.uint8)
    if not is_packed(array.dtype):
        flat[:] = packed
        return
    bits = EXTENDED[array.dtype.name].bits
    each = 8 // bits
    for place in range(each):
        part = flat[place::each]
        part[:] = (packed[: len(part)] >> (place * bits)) & ((1 << bits) - 1)
