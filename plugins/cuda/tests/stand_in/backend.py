"""Backends for tests on the fake driver: ONNX Runtime's CPU code in host functions that the device's stream runs.

Real drivers cannot serve them: they need device memory that the host may read.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from pathlib import Path
from threading import get_ident
from typing import Any, ClassVar

import numpy as np

from collage_evo.backends.base import Executable, Probe, Target
from collage_evo.backends.variants import Variant
from collage_evo.errors import UnavailableError
from collage_evo.graph.ir.graph import Tensor
from collage_evo_cuda.device import DeviceArray, DeviceExecutable
from collage_evo_cuda.driver import cuda_driver
from collage_evo_cuda.open import open_device
from stand_in import HostFunction, host_view
from tests.support.delegating import DelegatingBackend

Arrays = Sequence[DeviceArray]


class FakeGpuBackend(DelegatingBackend):
    """Everything that ONNX Runtime takes, on the device; ``plain`` says that it cannot be captured."""

    name: ClassVar[str] = "fakegpu"
    variants: ClassVar[tuple[Variant, ...]] = (Variant("default", device="cuda"), Variant("plain", device="cuda"))

    def runs_any_model(self, variant: Variant) -> bool:
        return self.name == FakeGpuBackend.name

    def probe(self) -> Probe:
        try:
            cuda_driver()
        except UnavailableError as missing:
            return Probe(False, reason=str(missing))
        return super().probe()

    def load(
        self, workdir: Path, target: Target, variant: Variant, inputs: Sequence[Tensor], outputs: Sequence[Tensor]
    ) -> Executable | DeviceExecutable:
        loaded = self.load_honest(workdir, target, inputs, outputs)
        return loaded if variant.device == "cpu" else _OnDevice(loaded, variant.name)


class FaultyGpuBackend(FakeGpuBackend):
    """Its variants break the contract of what runs on a device, each in one way; all say that they can be captured.

    ``allocates`` and ``synchronises`` do so in every call, ``refuses`` raises while it is captured,
    ``elsewhere`` does not work on the stream, ``halfway`` only copies there from memory of its own what it works out
    elsewhere, ``overwrites`` changes its inputs. ``greedy`` asks the driver for more memory than there is, ``hoards``
    says so as libraries do. Two are no faults: ``handles`` allocates in the first call of each thread,
    ``weights`` brings something there on a stream of its own while it is bound, which it does not wait for.
    """

    name: ClassVar[str] = "faultygpu"
    variants: ClassVar[tuple[Variant, ...]] = tuple(
        Variant(name, device="cuda")
        for name in (
            *("allocates", "synchronises", "refuses", "elsewhere", "halfway", "overwrites", "greedy", "hoards"),
            *("handles", "weights"),
        )
    )


class _OnDevice:
    def __init__(self, honest: Executable, variant: str) -> None:
        self.capturable = variant != "plain"
        self._honest = honest
        self._variant = variant

    def bind(self, inputs: Arrays, outputs: Arrays) -> Callable[[], None]:
        device: Any = open_device("cuda")
        stream = outputs[0].stream
        run = self._honest.bind(list(map(host_view, inputs)), list(map(host_view, outputs)))
        work = HostFunction(run)
        own = [np.zeros(array.shape, array.dtype) for array in outputs]
        threads: set[int] = set()

        def overwrite() -> None:
            run()
            for array in inputs:
                host_view(array)[...] += 1

        def bring() -> None:
            for array, made in zip(outputs, own, strict=True):
                host_view(array)[...] = made

        match self._variant:
            case "greedy":
                device.arena(2**60)
            case "hoards":
                raise RuntimeError("CUDA out of memory. Tried to allocate 1024.00 PiB")
            case "elsewhere":
                return lambda: run()
            case "overwrites":
                work = HostFunction(overwrite)
            case "halfway":
                run, work = self._honest.bind(list(map(host_view, inputs)), own), HostFunction(bring)
            case "weights":
                work = _with_weights(run, list(map(host_view, outputs)))

        def call() -> None:
            if self._variant == "allocates" or (self._variant == "handles" and get_ident() not in threads):
                threads.add(get_ident())
                device.arena(1)
            if self._variant == "halfway":
                run()
            if self._variant == "refuses" and device._context._capturing:
                raise RuntimeError("not while it is captured, on purpose")
            work.enqueue(stream)
            if self._variant == "synchronises":
                device.synchronise()

        return call


def _with_weights(run: Callable[[], None], outputs: Sequence[np.ndarray]) -> HostFunction:
    """``run``, but nothing comes of it as long as a copy that was enqueued elsewhere has not arrived."""
    arrived: list[bool] = []
    copy, stream = HostFunction(lambda: arrived.append(True)), ctypes.c_void_p()
    cuda_driver().cuStreamCreate(stream, 0)
    copy.enqueue(stream.value or 0)

    def work() -> None:
        run()
        for array in () if arrived else outputs:
            array.fill(0)

    work.copy = copy  # type: ignore[attr-defined]
    return HostFunction(work)
