"""An NVIDIA GPU through CUDA's driver and no other library."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import ClassVar

import numpy as np

from collage_evo.errors import CollageError, one_line
from collage_evo_cuda.context import Context, Memory
from collage_evo_cuda.device import CaptureError, DeviceArray, Health, Replay
from collage_evo_cuda.dlpack import CPU, CUDA
from collage_evo_cuda.driver import CudaError, Driver
from collage_evo_cuda.health import Gauges

_NON_BLOCKING = 1
"""A stream that does not wait for the default stream, nor that for it."""
_THREAD_LOCAL = 1
"""Capture mode in which other threads' work on the device does not break a capture in this one."""
_MEMORY_TYPE, _HOST = 2, 1


class Device:
    """The driver's first GPU, in its primary context, with one stream, in whose order work runs.

    For one thread at a time.

    Raises:
        OutOfDeviceMemory: there is not enough memory.
        CollageError: the device reports an error, named in one line.
    """

    alignment: ClassVar[int] = 256
    """Bytes at a multiple of which arrays begin."""

    def __init__(self, driver: Driver) -> None:
        self.name = driver.name()
        self._driver = driver
        self._context = Context(driver)
        self._context.enter()
        self._stream = ctypes.c_void_p()
        driver.cuStreamCreate(self._stream, _NON_BLOCKING)
        self._before, self._after = ctypes.c_void_p(), ctypes.c_void_p()
        driver.cuEventCreate(self._before, 0)
        driver.cuEventCreate(self._after, 0)
        self._scratch: Memory | None = None
        bus = ctypes.create_string_buffer(32)
        driver.cuDeviceGetPCIBusId(bus, len(bus), driver.device())
        self._gauges = Gauges(bus.value.decode())

    @property
    def stream(self) -> int:
        """Address of the stream of all work."""
        address = self._stream.value
        if address is None:
            raise CollageError(f"{self.name}: the device was closed")
        return address

    @property
    def closed(self) -> bool:
        """Whether its stream is gone."""
        return self._stream.value is None

    def arena(self, nbytes: int) -> Callable[[int, Sequence[int], str], DeviceArray]:
        """Zeroed memory, freed with the last array in it, as a function from offset, shape and dtype to an array."""
        stream = self.stream
        memory = self._context.allocate(max(nbytes, 1))
        self._driver.cuMemsetD8Async(memory.address, 0, memory.nbytes, stream)
        # Other streams may read arrays, such as a library's own while it is prepared.
        self.synchronise()
        place = self._place(memory)

        def array(offset: int, shape: Sequence[int], dtype: str) -> DeviceArray:
            block = DeviceArray(memory.address + offset, tuple(shape), dtype, place, stream, memory)
            if offset < 0 or offset + block.nbytes > memory.nbytes:
                raise ValueError(f"{dtype}{list(shape)} at {offset} does not lie in {nbytes} bytes")
            return block

        return array

    def _place(self, memory: Memory) -> tuple[int, int]:
        """DLPack's place of ``memory`` by the driver: on a GPU always the GPU, in tests the host."""
        kind = ctypes.c_uint()
        self._driver.cuPointerGetAttribute(ctypes.byref(kind), _MEMORY_TYPE, memory.address)
        return (CPU if kind.value == _HOST else CUDA, 0)

    def pinned(self, nbytes: int) -> np.ndarray:
        """Zeroed page-locked bytes of the host, freed with the last view of them."""
        block = self._context.pinned(max(nbytes, 1))[:nbytes]
        block[...] = 0
        return block

    def copy_in(self, target: DeviceArray, source: np.ndarray) -> None:
        """Enqueue a copy from the host, whose array must not change before the copy has run."""
        if nbytes := _agreed(target, source):
            self._context.enter()
            self._driver.cuMemcpyHtoDAsync_v2(target.pointer, _address(source), nbytes, self.stream)

    def copy_out(self, target: np.ndarray, source: DeviceArray) -> None:
        """Enqueue a copy to the host."""
        if nbytes := _agreed(source, target):
            self._context.enter()
            self._driver.cuMemcpyDtoHAsync_v2(_address(target), source.pointer, nbytes, self.stream)

    def copy(self, target: DeviceArray, source: DeviceArray) -> None:
        """Enqueue a copy on the device."""
        if target.nbytes != source.nbytes:
            raise ValueError(f"a copy of {source.nbytes} bytes into {target.nbytes}")
        if source.nbytes:
            self._context.enter()
            self._driver.cuMemcpyDtoDAsync_v2(target.pointer, source.pointer, source.nbytes, self.stream)

    def synchronise(self) -> None:
        """Wait until all enqueued work has run."""
        self._context.enter()
        self._driver.cuStreamSynchronize(self.stream)

    def settle(self) -> None:
        """Wait until all work of this process's libraries on the device has run, on any stream."""
        # A stream that does not block is not ordered after the default stream, on which libraries copy weights; and
        # a copy from ordinary memory returns before it has arrived ("API synchronization behavior" of the driver).
        self._context.enter()
        self._driver.cuCtxSynchronize()

    def capture(self, call: Callable[[], None]) -> Replay:
        """Record the work that ``call`` enqueues, without running it; returns a replay that enqueues it at once.

        Raises:
            CaptureError: some work of ``call`` cannot be recorded.
        """
        stream, graph, executable = self.stream, ctypes.c_void_p(), ctypes.c_void_p()
        try:
            with self._context.retained():
                self._driver.cuStreamBeginCapture_v2(stream, _THREAD_LOCAL)
                try:
                    self._record(call, graph)
                    self._driver.cuGraphInstantiateWithFlags(executable, graph, 0)
                finally:
                    if graph.value is not None:
                        self._driver.cuGraphDestroy(graph)
        except CudaError as error:
            raise CaptureError(str(error)) from None
        return self._replay(executable)

    def _record(self, call: Callable[[], None], graph: ctypes.c_void_p) -> None:
        """Run ``call``, and end the capture in any case."""
        try:
            call()
        except BaseException as error:
            # The reason is the error that broke the capture, not that it is broken.
            with suppress(CudaError):
                self._driver.cuStreamEndCapture(self.stream, graph)
            if isinstance(error, Exception):
                raise CaptureError(one_line(error)) from error
            raise
        self._driver.cuStreamEndCapture(self.stream, graph)

    def _replay(self, executable: ctypes.c_void_p) -> Replay:
        enter, launch, stream = self._context.enter, self._driver.cuGraphLaunch, self.stream

        def replay() -> None:
            enter()
            launch(executable, stream)

        self._context.on_release(replay, self._driver.cuGraphExecDestroy, executable)
        return Replay(replay)

    def time_ms(self, call: Callable[[], None]) -> float:
        """Milliseconds between two events of the device, before and after the work that ``call`` enqueues; waits."""
        self._context.enter()
        elapsed = ctypes.c_float()
        self._driver.cuEventRecord(self._before, self.stream)
        call()
        self._driver.cuEventRecord(self._after, self.stream)
        self._driver.cuEventSynchronize(self._after)
        self._driver.cuEventElapsedTime(elapsed, self._before, self._after)
        return elapsed.value

    def flush(self, nbytes: int) -> None:
        """Enqueue writing ``nbytes``, so that the device's caches hold no earlier data."""
        if nbytes == 0:
            return
        if self._scratch is None or self._scratch.nbytes < nbytes:
            self._scratch = None
            self._scratch = self._context.allocate(nbytes)
        self._context.enter()
        self._driver.cuMemsetD8Async(self._scratch.address, 0xA5, nbytes, self.stream)

    def health(self) -> Health:
        """Present clocks and reasons for throttling. Read-only."""
        return self._gauges.read()

    def close(self) -> None:
        """Release the stream. Arrays stay valid as long as they are referenced."""
        if self.closed:
            return
        self._context.enter()
        self._scratch = None
        for event in (self._before, self._after):
            self._driver.cuEventDestroy_v2(event)
        self._driver.cuStreamDestroy_v2(self.stream)
        self._stream = ctypes.c_void_p()


def _agreed(array: DeviceArray, host: np.ndarray) -> int:
    """The number of bytes of both.

    Raises:
        ValueError: they differ, or the host's array is not contiguous.
    """
    if array.nbytes != host.nbytes or not host.flags.c_contiguous:
        raise ValueError(f"{array.nbytes} bytes of the device are no copy of these {host.nbytes} of the host")
    return host.nbytes


def _address(host: np.ndarray) -> int:
    address: int = host.__array_interface__["data"][0]
    return address
