"""What a session needs of an accelerator: one arena of memory, one stream of work, captures, and times."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from math import prod
from typing import Any

import numpy as np

from collage_evo.devices.dlpack import capsule_of
from collage_evo.errors import CollageError


class CaptureError(CollageError):
    """What was enqueued cannot be captured: one line that says why."""


class OutOfDeviceMemory(CollageError):
    """There is less memory than was asked for: one line with both."""


@dataclass(frozen=True)
class DeviceArray:
    """A C-contiguous array in a device's memory. Libraries take it as it is, by DLPack.

    Attributes:
        pointer: address on the device.
        shape: sizes of its axes.
        dtype: as ONNX tensors are typed here, ``float32`` and so on.
        place: DLPack's device type and number.
        stream: address of the stream on which work on it has to be enqueued.
        owner: what keeps the memory alive.
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
        """A capsule for ``from_dlpack``. No work is waited for: readers enqueue on this array's own stream."""
        return capsule_of(self, self.pointer, self.shape, self.dtype, self.place)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.place


@dataclass(frozen=True)
class Health:
    """What the device says of its own pace: MHz of its cores (0: not told), and why it runs slower than it could."""

    clock_mhz: int = 0
    throttled: tuple[str, ...] = ()


@dataclass(frozen=True)
class Replay:
    """Enqueues all that was captured."""

    launch: Callable[[], None] = field(repr=False)
    independent: bool = False
    """Whether some of it need not wait for what was captured just before, be it captured to overlap or not."""

    def __call__(self) -> None:
        self.launch()


class Device(ABC):
    """One accelerator with one stream. Work runs in the order in which it is enqueued. For one thread at a time.

    Raises:
        OutOfDeviceMemory: memory is out.
        CollageError: the device reports an error; one line says which.
    """

    name: str
    alignment: int = 256
    """Bytes at a multiple of which arrays begin."""

    @property
    @abstractmethod
    def stream(self) -> int:
        """Address of the stream that everything runs on."""

    @abstractmethod
    def arena(self, nbytes: int) -> Callable[[int, Sequence[int], str], DeviceArray]:
        """Zeroed memory, freed with the last array in it: gives the array at an offset, with a shape and a dtype."""

    @abstractmethod
    def pinned(self, nbytes: int) -> np.ndarray:
        """Zeroed page-locked bytes of the host, freed with the last view of them."""

    @abstractmethod
    def copy_in(self, target: DeviceArray, source: np.ndarray) -> None:
        """Enqueue a copy from the host, whose array must stay as it is until it ran."""

    @abstractmethod
    def copy_out(self, target: np.ndarray, source: DeviceArray) -> None:
        """Enqueue a copy to the host."""

    @abstractmethod
    def copy(self, target: DeviceArray, source: DeviceArray) -> None:
        """Enqueue a copy on the device."""

    @abstractmethod
    def synchronise(self) -> None:
        """Wait until everything that was enqueued has run."""

    @abstractmethod
    def settle(self) -> None:
        """Wait until everything has run that libraries of this process gave the device, on whatever stream."""

    @abstractmethod
    def capture(self, call: Callable[[], None], overlapping: bool = False) -> Replay:
        """Record what ``call`` enqueues, which does not run meanwhile; gives what enqueues all of it at once.

        Args:
            overlapping: whether what it gives :meth:`side_by_side` may run at the same time when it is replayed.

        Raises:
            CaptureError: something that ``call`` does cannot be recorded.
        """

    @abstractmethod
    def side_by_side(self, calls: Sequence[Callable[[], None]], waits: Sequence[Sequence[int]]) -> None:
        """Make ``calls`` in this order, each of which enqueues work that does not need that of all before it.

        In an overlapping capture a call's work waits for what was enqueued before all of them, and of them for those
        at the places in ``waits``, all earlier ones; what is enqueued afterwards waits for all. Elsewhere it runs in
        the order in which it was enqueued.
        """

    @abstractmethod
    def time_ms(self, call: Callable[[], None]) -> float:
        """Milliseconds between two events of the device, one before and one after what ``call`` enqueues; waits."""

    @abstractmethod
    def flush(self, nbytes: int) -> None:
        """Enqueue writing ``nbytes``, so that the device's caches hold nothing of before."""

    @abstractmethod
    def health(self) -> Health:
        """Clocks and reasons for throttling, now. Nothing is set."""

    @abstractmethod
    def close(self) -> None:
        """Let go of the stream. Arrays stay valid as long as they are held."""
