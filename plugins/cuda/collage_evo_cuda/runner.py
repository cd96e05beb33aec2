"""Runner of a program that has pieces on a device: its host part is the one of every runner."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import numpy as np

from collage_evo.backends.base import Executable, Target
from collage_evo.backends.registry import device_of
from collage_evo.backends.variants import engine_name
from collage_evo.errors import InputError
from collage_evo.hardware.target import CPU
from collage_evo.runtime.input_shapes import require_fit
from collage_evo.runtime.limits import require_inside, reraise_index_error
from collage_evo.runtime.program import Piece
from collage_evo.runtime.runner import Runner, closed
from collage_evo_cuda.arrays import arrays_on, require_place
from collage_evo_cuda.cuda import Device
from collage_evo_cuda.device import DeviceArray, DeviceExecutable
from collage_evo_cuda.open import open_device
from collage_evo_cuda.work import BoundPiece, DeviceWork, exclusive

WARM_UP_S = 0.2
"""Warm-up on a GPU, whose clocks rise once it has work. How long that takes was not measured: it is as long as
TensorRT's ``trtexec`` warms up by default."""
COPY_WARM_UP = 3


class DeviceClock:
    """The clock of a loaded program of which some pieces run on a device."""

    warm_s: ClassVar[float] = WARM_UP_S
    first_run_s: ClassVar[float] = 30.0
    """Libraries load kernels in a first run, and select the fastest."""

    def __init__(self, work: DeviceWork) -> None:
        self._work = work

    def time_ms(self, flush_bytes: int = 0) -> float:
        return self._work.time_ms(flush_bytes)

    def throttled(self) -> bool:
        return bool(self._work.device.health().throttled)


class DeviceRunner(Runner):
    """A loaded program, of which pieces may run on a device; the others, or all, run on the host."""

    _work: DeviceWork | None = None

    def load_pieces(self, target: Target) -> tuple[Callable[[], None], ...]:
        pieces = self.program.pieces
        devices = [device_of(piece.backend, piece.variant) for piece in pieces]
        on_device = [name != CPU for name in devices]
        if not any(on_device):
            self.allocate()
            return tuple(self.loaded(piece, target) for piece in pieces)
        device = open_device(devices[on_device.index(True)])
        with exclusive(device):  # loading allocates and waits, which breaks others' captures
            self._forks = False
            self._work = work = DeviceWork(device, self.program, on_device)
            self._buffers = work.host
            calls = tuple(self.loaded(piece, target) for piece in pieces)
            device.settle()  # weights may still be in copy on a library's own stream
        work.parts = tuple(
            BoundPiece(
                engine_name(piece.backend, piece.variant),
                call,
                isinstance(executable, DeviceExecutable) and executable.capturable,
            )
            for piece, call, executable in zip(pieces, calls, self._executables, strict=True)
        )
        return calls

    def bound(self, piece: Piece, executable: Executable) -> Callable[[], None]:
        if self._work is None or device_of(piece.backend, piece.variant) == CPU:
            return super().bound(piece, executable)
        arrays = self._work.arrays
        if not all(tensor in arrays for tensor in (*piece.inputs, *piece.outputs)):
            name = engine_name(piece.backend, piece.variant)
            raise InputError(f"{name} runs no piece with open shapes: run the search again")
        return executable.bind([arrays[n] for n in piece.inputs], [arrays[n] for n in piece.outputs])

    def steps(self) -> tuple[Callable[[], None], ...]:
        return (self._work.execute,) if self._work else super().steps()

    @property
    def clock(self) -> DeviceClock | None:
        return DeviceClock(self._work) if self._work else None

    @property
    def notes(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(self._work.notes)) if self._work else ()

    def copies(self, name: str) -> tuple[Any, ...]:
        there = (self._work.held(name),) if self._work and name in self._work.arrays else ()
        return (*super().copies(name), *there)

    def profile(self) -> list[float]:
        """Milliseconds of each piece in one run on the last fed inputs, without captures."""
        return self._work.profile() if self._work else super().profile()

    def close(self) -> None:
        self._calls = self._regions = (closed,)
        if self._work is not None:
            self._work.close()
        self._work = None
        super().close()

    def run_there(self, feeds: Mapping[str, DeviceArray]) -> dict[str, DeviceArray]:
        """Outputs by name as arrays on the device of ``feeds`` that the caller owns.

        The caller must be in :func:`exclusive` with the device.

        Raises:
            InputError: as :meth:`feed`; or an input or output has no fixed shape.
        """
        device, program, work = open_device("cuda"), self.program, self._work
        tensors = program.tensors
        if missing := [name for name in (*program.inputs, *program.outputs) if not tensors[name].static]:
            raise InputError(f"{missing[0]!r} has an open shape and cannot lie on the device: call run")
        for name, array in feeds.items():
            require_fit(array, tensors[name])
        on_host = set(work.route.host_inputs if work and work.warm else program.inputs).difference(program.limits)
        outputs = arrays_on(device, [tensors[name] for name in program.outputs])
        for name, array in feeds.items():
            require_place(name, array, next(iter(outputs.values())).place)
        # The caller's array may change: pieces on the device, too, must read the checked values.
        checked = {name: np.empty(tensors[name].shape, tensors[name].dtype) for name in program.limits}
        for name, copied in checked.items():
            device.copy_out(copied, feeds[name])
        if checked:
            device.synchronise()
            require_inside(checked, program.limits)
        for name, array in feeds.items():
            there = work.arrays.get(name) if work else None
            if name in checked:
                np.copyto(self._buffers[name], checked[name])
                if there is not None:
                    device.copy_in(there, self._buffers[name])
                continue
            if there is not None:
                device.copy(there, array)
            if name in on_host:
                device.copy_out(self._buffers[name], array)
        if on_host:
            device.synchronise()
        try:
            if work is None or not work.warm:
                self.execute()
            if work:
                work.execute_body()
        except Exception as error:  # each library has its own
            reraise_index_error(error)
            raise
        for name, array in outputs.items():
            if work and name in work.arrays:
                device.copy(array, work.arrays[name])
            else:
                device.copy_in(array, self._buffers[name])
        return outputs


def time_copies(
    device: Device, nbytes: int, to_device: bool, runs: int, clock: Callable[[], float] = time.perf_counter
) -> tuple[float, ...]:
    """Milliseconds of each of ``runs`` copies of ``nbytes``, from or to page-locked memory, without the warm-up runs.

    The device warms up because the clocks of an idle one, and its bus's pace, may have fallen. A copy to the device
    is queued with the device's work, and no one waits for it: events time it. The host waits for a copy from the
    device: the clock times it until the data has arrived.
    """
    array = device.arena(nbytes)(0, (nbytes,), "uint8")
    host = device.pinned(nbytes)

    def once() -> float:
        device.synchronise()
        if to_device:
            return device.time_ms(lambda: device.copy_in(array, host))
        begin = time.perf_counter()
        device.copy_out(host, array)
        device.synchronise()
        return (time.perf_counter() - begin) * 1e3

    began, warm = clock(), 0
    while warm < COPY_WARM_UP or clock() - began < WARM_UP_S:
        once()
        warm += 1
    return tuple(once() for _ in range(runs))
