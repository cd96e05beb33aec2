"""CUDA's primary context: made current in the calling thread, its memory, and the release of unused handles."""

from __future__ import annotations

import ctypes
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import numpy as np

from collage_evo_cuda.device import CaptureError, OutOfDeviceMemory
from collage_evo_cuda.driver import OUT_OF_MEMORY, CudaError, Driver


class Memory:
    """Bytes on the device, freed with the last reference to this object."""

    def __init__(self, address: int, nbytes: int) -> None:
        self.address, self.nbytes = address, nbytes


class Context:
    """The context that every library of the process shares. It exists until the process ends."""

    def __init__(self, driver: Driver) -> None:
        self.driver = driver
        self._handle = ctypes.c_void_p()
        driver.cuDevicePrimaryCtxRetain(self._handle, driver.device())
        self._threads = threading.local()
        self._capturing = False
        self._discarded: list[tuple[Any, Any]] = []

    def enter(self) -> None:
        """Make it this thread's context; nearly free where it was made so before."""
        if not hasattr(self._threads, "entered"):
            self.enter_anew()

    def enter_anew(self) -> None:
        """Make it this thread's context again, after another library may have changed that: memory is allocated in
        the current context, which on a machine of several GPUs may be another GPU's."""
        self.driver.cuCtxSetCurrent(self._handle)
        self._threads.entered = True

    def allocate(self, nbytes: int) -> Memory:
        """Uninitialised memory on the device.

        Raises:
            OutOfDeviceMemory: there is not enough.
        """
        address = ctypes.c_uint64()
        if not self._has(self.driver.cuMemAlloc_v2, address, nbytes):
            raise OutOfDeviceMemory(f"out of memory on the GPU: {_mb(nbytes)} asked for, {self._free()}")
        memory = Memory(address.value, nbytes)
        self.on_release(memory, self.driver.cuMemFree_v2, address.value)
        return memory

    def pinned(self, nbytes: int) -> np.ndarray:
        """Uninitialised page-locked bytes of the host.

        Raises:
            OutOfDeviceMemory: there is not enough.
        """
        address = ctypes.c_void_p()
        if not self._has(self.driver.cuMemAllocHost_v2, address, nbytes):
            raise OutOfDeviceMemory(f"out of page-locked memory: {_mb(nbytes)} asked for")
        assert address.value is not None
        block = (ctypes.c_uint8 * nbytes).from_address(address.value)
        self.on_release(block, self.driver.cuMemFreeHost, address.value)
        return np.frombuffer(memoryview(block), np.uint8)

    def _has(self, allocate: Callable[[Any, int], None], address: Any, nbytes: int) -> bool:
        """Whether ``allocate`` had so many bytes, and wrote their ``address``."""
        self.enter_anew()
        try:
            allocate(address, nbytes)
        except CudaError as error:
            if error.code != OUT_OF_MEMORY:
                raise
            return False
        return True

    def _free(self) -> str:
        free, total = ctypes.c_size_t(), ctypes.c_size_t()
        self.driver.cuMemGetInfo_v2(free, total)
        return f"{_mb(free.value)} of {_mb(total.value)} free"

    def on_release(self, holder: Any, release: Callable[[Any], None], handle: Any) -> None:
        """Call ``release(handle)`` once ``holder`` has no references; at the process's end the driver releases it."""
        weakref.finalize(holder, self._discard, release, handle).atexit = False

    def _discard(self, release: Callable[[Any], None], handle: Any) -> None:
        self._discarded.append((release, handle))
        if not self._capturing:
            self._clear()

    def _clear(self) -> None:
        while True:
            try:
                release, handle = self._discarded.pop()
            except IndexError:  # none is left: another thread that released one meanwhile may have taken it
                return
            # After an error of the device nothing can be released, and the next wait raises the error.
            with suppress(CudaError):
                self.enter()
                release(handle)

    @contextmanager
    def retained(self) -> Iterator[None]:
        """Defer releases within the context: inside a capture, they would break it.

        Raises:
            CaptureError: something is being captured already.
        """
        if self._capturing:
            raise CaptureError("something is being captured already")
        self.enter_anew()
        self._capturing = True
        try:
            yield
        finally:
            self._capturing = False
            self._clear()


def _mb(nbytes: int) -> str:
    return f"{nbytes / 1e6:.1f} MB"
