"""What pieces and sessions see of a device: arrays in its memory, replays of captures, its health, its errors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from math import prod
from typing import Any, Protocol, runtime_checkable

import numpy as np

from collage_evo.errors import CollageError
from collage_evo_cuda.dlpack import capsule_of


class CaptureError(CollageError):
    """The enqueued work cannot be captured: one line with the reason."""


class OutOfDeviceMemory(CollageError, MemoryError):
    """There is less memory than requested: one line with both figures."""


@dataclass(frozen=True)
class DeviceArray:
    """A C-contiguous array in a device's memory. Libraries use it without a copy, by DLPack.

    Attributes:
        pointer: address on the device.
        shape: sizes of its axes.
        dtype: NumPy's name, such as ``float32``.
        place: DLPack's device type and number.
        stream: address of the stream on which work on it has to be enqueued.
        owner: a reference that keeps the memory alive.
    """

    pointer: int
    shape: tuple[int, ...]
    dtype: str
    place: tuple[int, int]
    stream: int
    owner: Any = field(repr=False, compare=False)

    @cached_property
    def nbytes(self) -> int:
        """Its size in bytes."""
        return prod(self.shape) * np.dtype(self.dtype).itemsize

    def __dlpack__(self, *, stream: Any = None, **_: Any) -> Any:
        """A capsule for ``from_dlpack``. It does not wait for work: readers enqueue on this array's own stream."""
        return capsule_of(self, self.pointer, self.shape, self.dtype, self.place)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.place


@dataclass(frozen=True)
class Health:
    """The device's pace: MHz of its cores (0 if unknown), and the reasons why it runs slower than it could."""

    clock_mhz: int = 0
    throttled: tuple[str, ...] = ()


@dataclass(frozen=True)
class Replay:
    """Enqueues all captured work."""

    launch: Callable[[], None] = field(repr=False)

    def __call__(self) -> None:
        self.launch()


@runtime_checkable
class DeviceExecutable(Protocol):
    """A loaded piece of a variant that runs on an accelerator."""

    capturable: bool
    """Whether the enqueued work can be captured once, and replayed from the capture only."""

    def bind(self, inputs: Sequence[DeviceArray], outputs: Sequence[DeviceArray]) -> Callable[[], None]:
        """Return a call that enqueues the piece on the arrays' own stream without waiting for it.

        Arrays are in the order of the model's inputs and outputs, and the caller keeps them alive. ``bind`` itself
        may wait, allocate, and move weights to the arrays' device. The call must read the inputs anew each time and
        must not change them. From the third call on it must not synchronise, and if it is ``capturable`` it must
        neither allocate from the driver nor use other addresses than before.
        """
