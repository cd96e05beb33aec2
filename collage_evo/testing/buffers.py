"""Guarded buffers of one tensor for a backend, in the host's memory or a device's."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import numpy as np

from collage_evo.devices.device import Device
from collage_evo.graph.ir.graph import Tensor

GUARD_BYTES = 256
"""Bytes on each side of a buffer that no backend may write."""
UNWRITTEN = 77
_GUARD = 0xA5


class Buffer(ABC):
    """One tensor's memory; ``seen`` is the backend's view of it."""

    seen: Any

    @abstractmethod
    def write(self, value: np.ndarray) -> None:
        """Write ``value`` into the buffer."""

    @abstractmethod
    def read(self) -> np.ndarray:
        """Copy of the content."""

    @property
    @abstractmethod
    def guarded(self) -> bool:
        """Whether the memory around it is unchanged."""

    def clear(self) -> None:
        """Fill it with a value that no model computes."""
        before = self.read()
        self.write(np.full_like(before, True if before.dtype == bool else UNWRITTEN))


class HostBuffer(Buffer):
    """Memory of the host.

    Args:
        tensor: its type.
        aligned: whether it begins at a multiple of 64 bytes, or only of its item size.
        protected: whether the backend receives it write-protected.
    """

    def __init__(self, tensor: Tensor, aligned: bool = True, protected: bool = False) -> None:
        item = np.dtype(tensor.dtype).itemsize
        self._raw = np.full(tensor.nbytes + 64 + item + 2 * GUARD_BYTES, _GUARD, np.uint8)
        first = self._raw.ctypes.data + GUARD_BYTES
        self._start = GUARD_BYTES + (-first % 64) + (0 if aligned else item)
        self._end = self._start + tensor.nbytes
        self._array = self._raw[self._start : self._end].view(tensor.dtype).reshape(tensor.shape)
        self.seen = self._array.view()
        self.seen.flags.writeable = not protected

    def write(self, value: np.ndarray) -> None:
        self._array[...] = value

    def read(self) -> np.ndarray:
        return self._array.copy()

    @property
    def guarded(self) -> bool:
        return bool((self._raw[: self._start] == _GUARD).all() and (self._raw[self._end :] == _GUARD).all())


class DeviceBuffer(Buffer):
    """Memory of a device, aligned like a session's."""

    def __init__(self, tensor: Tensor, device: Device) -> None:
        self._device = device
        start = -(-GUARD_BYTES // device.alignment) * device.alignment
        self._guards = slice(0, start), slice(start + tensor.nbytes, None)
        nbytes = start + tensor.nbytes + GUARD_BYTES
        arena = device.arena(nbytes)
        self._raw = arena(0, (nbytes,), "uint8")
        self.seen = arena(start, tensor.shape, tensor.dtype)
        self._put(self._raw, np.full(nbytes, _GUARD, np.uint8))

    def write(self, value: np.ndarray) -> None:
        self._put(self.seen, np.ascontiguousarray(value, self.seen.dtype).reshape(self.seen.shape))

    def read(self) -> np.ndarray:
        return self._taken(self.seen)

    @property
    def guarded(self) -> bool:
        raw = self._taken(self._raw)
        return all(bool((raw[guard] == _GUARD).all()) for guard in self._guards)

    def _put(self, target: Any, value: np.ndarray) -> None:
        self._device.copy_in(target, value)
        self._device.synchronise()

    def _taken(self, source: Any) -> np.ndarray:
        value = np.empty(source.shape, source.dtype)
        self._device.copy_out(value, source)
        self._device.synchronise()
        return value
