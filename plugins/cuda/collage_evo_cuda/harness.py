"""A device's buffers and captures for the conformance suite."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from collage_evo.graph.ir.graph import Tensor
from collage_evo.testing.buffers import GUARD, GUARD_BYTES, Buffer, Harness
from collage_evo_cuda.cuda import Device
from collage_evo_cuda.device import DeviceExecutable


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
        self._put(self._raw, np.full(nbytes, GUARD, np.uint8))

    def write(self, value: np.ndarray) -> None:
        self._put(self.seen, np.ascontiguousarray(value, self.seen.dtype).reshape(self.seen.shape))

    def read(self) -> np.ndarray:
        return self._taken(self.seen)

    @property
    def guarded(self) -> bool:
        raw = self._taken(self._raw)
        return all(bool((raw[guard] == GUARD).all()) for guard in self._guards)

    def _put(self, target: Any, value: np.ndarray) -> None:
        self._device.copy_in(target, value)
        self._device.synchronise()

    def _taken(self, source: Any) -> np.ndarray:
        value = np.empty(source.shape, source.dtype)
        self._device.copy_out(value, source)
        self._device.synchronise()
        return value


class DeviceHarness(Harness):
    """Pieces on a device: whoever calls one waits for it."""

    on_host = False

    def __init__(self, device: Device) -> None:
        self._device = device

    def buffer(self, tensor: Tensor, aligned: bool, protected: bool) -> Buffer:
        return DeviceBuffer(tensor, self._device)

    def accept(self, executable: Any) -> None:
        if not isinstance(executable, DeviceExecutable):
            raise TypeError("what runs on cuda must say whether it is capturable")

    def wait(self) -> None:
        self._device.synchronise()

    def captured(self, executable: Any, call: Callable[[], None]) -> Callable[[], None] | None:
        return self._device.capture(call) if executable.capturable else None
