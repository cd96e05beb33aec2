"""DLPack capsules (https://dmlc.github.io/dlpack, version 0.8) over memory that somebody else owns."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

CPU, CUDA = 1, 2
"""DLPack's device types."""
_CODES = {"int": 0, "uint": 1, "float": 2, "bfloat": 4, "complex": 5, "bool": 6}
_NAME = b"dltensor"


class _Tensor(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )


class _Managed(ctypes.Structure):
    pass


_Deleter = ctypes.CFUNCTYPE(None, ctypes.POINTER(_Managed))
_Managed._fields_ = (("tensor", _Tensor), ("context", ctypes.c_void_p), ("deleter", _Deleter))
_held: dict[int, tuple[Any, ...]] = {}
"""What readers of capsules hold, by the address of their record, until they let go of it."""


def _let_go(managed: Any) -> None:
    _held.pop(ctypes.addressof(managed.contents), None)


_DELETER = _Deleter(_let_go)


def capsule_of(owner: Any, pointer: int, sizes: Sequence[int], dtype: str, place: tuple[int, int]) -> Any:
    """A capsule named ``dltensor`` of C-contiguous memory; ``owner`` is held until its reader lets go of it."""
    kind = dtype.rstrip("0123456789")
    bits = 8 if kind == "bool" else int(dtype[len(kind) :])
    shape = (ctypes.c_int64 * len(sizes))(*sizes)
    tensor = _Tensor(pointer, *place, len(sizes), _CODES[kind], bits, 1, shape, None, 0)
    managed = _Managed(tensor, None, _DELETER)
    address = ctypes.addressof(managed)
    _held[address] = (managed, shape, owner)
    # Without a destructor: a capsule that nobody reads keeps its array. Every reader here takes it at once.
    new = ctypes.pythonapi.PyCapsule_New
    new.restype, new.argtypes = ctypes.py_object, (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)
    return new(address, _NAME, None)
