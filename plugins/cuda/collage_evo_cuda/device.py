"""The device contract: one arena of memory, one stream of work, captures, and times of an accelerator."""

from __future__ import annotations

from abc import ABC, abstractmethod
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


class Device(ABC):
    """One accelerator with one stream. Work runs in the order in which it is enqueued. For one thread at a time.

    Raises:
        OutOfDeviceMemory: there is not enough memory.
        CollageError: the device reports an error, named in one line.
    """

    name: str
    alignment: int = 256
    """Bytes at a multiple of which arrays begin."""

    @property
    @abstractmethod
    def stream(self) -> int:
        """Address of the stream of all work."""

    @abstractmethod
    def arena(self, nbytes: int) -> Callable[[int, Sequence[int], str], DeviceArray]:
        """Zeroed memory, freed with the last array in it, as a function from offset, shape and dtype to an array."""

    @abstractmethod
    def pinned(self, nbytes: int) -> np.ndarray:
        """Zeroed page-locked bytes of the host, freed with the last view of them."""

    @abstractmethod
    def copy_in(self, target: DeviceArray, source: np.ndarray) -> None:
        """Enqueue a copy from the host, whose array must not change before the copy has run."""

    @abstractmethod
    def copy_out(self, target: np.ndarray, source: DeviceArray) -> None:
        """Enqueue a copy to the host."""

    @abstractmethod
    def copy(self, target: DeviceArray, source: DeviceArray) -> None:
        """Enqueue a copy on the device."""

    @abstractmethod
    def synchronise(self) -> None:
        """Wait until all enqueued work has run."""

    @abstractmethod
    def settle(self) -> None:
        """Wait until all work of this process's libraries on the device has run, on any stream."""

    @abstractmethod
    def capture(self, call: Callable[[], None]) -> Replay:
        """Record the work that ``call`` enqueues, without running it; returns a replay that enqueues it at once.

        Raises:
            CaptureError: some work of ``call`` cannot be recorded.
        """

    @abstractmethod
    def time_ms(self, call: Callable[[], None]) -> float:
        """Milliseconds between two events of the device, before and after the work that ``call`` enqueues; waits."""

    @abstractmethod
    def flush(self, nbytes: int) -> None:
        """Enqueue writing ``nbytes``, so that the device's caches hold no earlier data."""

    @abstractmethod
    def health(self) -> Health:
        """Present clocks and reasons for throttling. Read-only."""

    @abstractmethod
    def close(self) -> None:
        """Release the stream. Arrays stay valid as long as they are referenced."""


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
        ...
