"""DLPack capsules (https://dmlc.github.io/dlpack, version 0.8) over memory of other owners."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

import numpy as np

CPU, CUDA = 1, 2
"""DLPack's device types."""
_NAME = b"dltensor"


class _Tensor(ctypes.Structure):
    """The beginning of DLPack's record."""

    _fields_ = (("data", ctypes.c_void_p), ("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32))


class _Exposed:
    """An address from which NumPy makes an array, and holds it, without reading the memory."""

    def __init__(self, owner: Any, pointer: int, shape: tuple[int, ...], dtype: str) -> None:
        self._owner = owner
        self.__array_interface__ = {
            "data": (pointer, False),
            "shape": shape,
            "typestr": np.dtype(dtype).str,
            "version": 3,
        }


def capsule_of(owner: Any, pointer: int, sizes: Sequence[int], dtype: str, place: tuple[int, int]) -> Any:
    """A capsule named ``dltensor`` of C-contiguous memory; it references ``owner`` until its reader releases it."""
    # NumPy's record, with the memory's device: its deleter must be no Python function, because readers call it while
    # exceptions propagate, and those would be lost.
    capsule: Any = np.asarray(_Exposed(owner, pointer, tuple(sizes), dtype)).__dlpack__()
    address = ctypes.pythonapi.PyCapsule_GetPointer
    address.restype, address.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)
    tensor = _Tensor.from_address(address(capsule, _NAME))
    tensor.data, tensor.device_type, tensor.device_id = pointer, *place
    return capsule


def borrow(array: Any, stream: int) -> tuple[np.ndarray, tuple[int, int]]:
    """The array of an object with ``__dlpack__``, and its device: work on ``stream`` may use it from now on.

    The array has address, shape and dtype, and keeps the memory alive; it may be read only if that is the host's.

    Raises:
        AttributeError, BufferError, RuntimeError, TypeError: there is no such array, or NumPy does not know its type.
    """
    place = array.__dlpack_device__()
    capsule = array.__dlpack__() if place[0] == CPU else array.__dlpack__(stream=stream)
    address = ctypes.pythonapi.PyCapsule_GetPointer
    address.restype, address.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)
    _Tensor.from_address(address(capsule, _NAME)).device_type = CPU
    return np.from_dlpack(_Capsule(capsule)), (int(place[0]), int(place[1]))


class _Capsule:
    """A capsule in the form that NumPy reads."""

    def __init__(self, capsule: Any) -> None:
        self._capsule = capsule

    def __dlpack__(self, **_: Any) -> Any:
        return self._capsule

    def __dlpack_device__(self) -> tuple[int, int]:
        return (CPU, 0)
