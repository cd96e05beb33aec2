"""A backend on the fake device that is slow where ``HostHalf`` is fast: the best placement is on two devices.

For processes with a clock of tests/support/clock.py, which what is slow moves on.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from collage_evo.backends.base import BuildFailure, Built, Target
from collage_evo.backends.variants import Variant
from collage_evo.graph.ir.graph import Tensor
from collage_evo_cuda.device import DeviceArray, DeviceExecutable
from collage_evo_cuda.driver import cuda_driver
from collage_evo_cuda.open import open_device
from stand_in import HostFunction, host_view
from stand_in.backend import FakeGpuBackend
from tests.support.halves import OnHost, noted, slow_s_of

if TYPE_CHECKING:
    import onnx


class DeviceHalf(FakeGpuBackend):
    """ONNX Runtime on the fake device, slow at everything but convolutions; ``plain`` refuses to be captured.

    ``default`` is slow at convolutions too. ``missing`` is declined.
    """

    name: ClassVar[str] = "devicehalf"
    extra: ClassVar[str] = ""
    variants: ClassVar[tuple[Variant, ...]] = tuple(
        Variant(name, device="cuda") for name in ("default", "plain", "missing")
    )

    def declines(self, variant: Variant) -> str:
        return "no kernels for this device" if variant.name == "missing" else ""

    def build(
        self, model: onnx.ModelProto, target: Target, variant: Variant, workdir: Path
    ) -> Built | BuildFailure:
        slow = () if variant.name == "default" else ("Conv",)
        return noted(model, workdir, super().build(model, target, variant, workdir), *slow, but=True)

    def load(
        self, workdir: Path, target: Target, variant: Variant, inputs: Sequence[Tensor], outputs: Sequence[Tensor]
    ) -> DeviceExecutable:
        honest = self.load_honest(workdir, target, inputs, outputs)
        return _OnDevice(OnHost(honest, slow_s_of(workdir)), refuses=variant.name == "plain")


class _OnDevice:
    capturable = True

    def __init__(self, slowed: OnHost, refuses: bool) -> None:
        self._slowed, self._refuses = slowed, refuses

    def bind(self, inputs: Sequence[DeviceArray], outputs: Sequence[DeviceArray]) -> Callable[[], None]:
        run = partial(self._run, self._slowed.bind(list(map(host_view, inputs)), list(map(host_view, outputs))))
        _pass_on_device(0.0)  # events go by that clock before the first run, too
        enqueue = partial(HostFunction(run).enqueue, outputs[0].stream)
        if not self._refuses:
            return enqueue
        device = open_device("cuda")

        def call() -> None:
            device.synchronise()
            enqueue()

        return call

    def _run(self, slowed: Callable[[], None]) -> None:
        slowed()
        _pass_on_device(self._slowed.slow_s)


def _pass_on_device(seconds: float) -> None:
    cuda_driver().library.fake_cuda_spend(ctypes.c_double(seconds * 1e3))
