"""Guarded buffers of one tensor for a backend, and where pieces that get them run."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np

from collage_evo.graph.ir.graph import Tensor

GUARD_BYTES = 256
"""Bytes on each side of a buffer that no backend may write."""
UNWRITTEN = 77
GUARD = 0xA5


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
        self._raw = np.full(tensor.nbytes + 64 + item + 2 * GUARD_BYTES, GUARD, np.uint8)
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
        return bool((self._raw[: self._start] == GUARD).all() and (self._raw[self._end :] == GUARD).all())


class Harness:
    """Where pieces of the conformance suite run: here on the host."""

    on_host: ClassVar[bool] = True

    def buffer(self, tensor: Tensor, aligned: bool, protected: bool) -> Buffer:
        """A guarded buffer; ``aligned`` and ``protected`` apply to the host's."""
        return HostBuffer(tensor, aligned, protected)

    def accept(self, executable: Any) -> None:
        """Make sure that a loaded piece has what the contract asks of it here.

        Raises:
            TypeError: it has not.
        """

    def wait(self) -> None:
        """Wait until all work has run."""

    def captured(self, executable: Any, call: Callable[[], None]) -> Callable[[], None] | None:
        """A replay of a capture of ``call``; None if the piece does not declare that it can be captured.

        Raises:
            CollageError: it declares so, and it cannot.
        """
        return None
