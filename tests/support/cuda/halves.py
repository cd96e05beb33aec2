"""Two backends of which each is fast at what the other is slow at: the best placement is on two devices.

For processes with a clock of tests/support/clock.py, which what is slow moves on.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from collage_evo.backends.base import BuildFailure, Built, DeviceExecutable, Executable, Target
from collage_evo.backends.onnxruntime.backend import OnnxRuntimeBackend
from collage_evo.backends.variants import DEFAULT, Variant
from collage_evo.devices.device import DeviceArray
from collage_evo.devices.open import open_device
from collage_evo.graph.ir.graph import Graph, NodeSet, Tensor
from collage_evo.target.driver import cuda_driver
from tests.support.clock import spend
from tests.support.cuda import HostFunction, host_view
from tests.support.cuda.backend import FakeGpuBackend

if TYPE_CHECKING:
    import onnx

CALL_S = 0.002
"""What a call takes besides, so that the same operators in fewer pieces are faster beyond noise."""
SLOW_S = 0.02
"""What each slow operator of a piece takes."""
_FILE = "slow_s"


class HostHalf(OnnxRuntimeBackend):
    """ONNX Runtime, slow at convolutions."""

    name: ClassVar[str] = "hosthalf"
    extra: ClassVar[str] = ""
    variants: ClassVar[tuple[Variant, ...]] = (DEFAULT,)
    profile = None  # type: ignore[assignment]  # the library's profiler knows nothing of what is slow here

    def variants_of(self, graph: Graph, nodes: NodeSet) -> tuple[Variant, ...]:
        return self.variants

    def build(
        self, model: onnx.ModelProto, target: Target, variant: Variant, workdir: Path
    ) -> Built | BuildFailure:
        return _noted(model, workdir, super().build(model, target, variant, workdir), "Conv")

    def load(
        self, workdir: Path, target: Target, variant: Variant, inputs: Sequence[Tensor], outputs: Sequence[Tensor]
    ) -> Executable:
        return _OnHost(super().load(workdir, target, variant, inputs, outputs), _slow_s(workdir))


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
        return _noted(model, workdir, super().build(model, target, variant, workdir), *slow, but=True)

    def load(
        self, workdir: Path, target: Target, variant: Variant, inputs: Sequence[Tensor], outputs: Sequence[Tensor]
    ) -> DeviceExecutable:
        honest = self.load_honest(workdir, target, inputs, outputs)
        return _OnDevice(_OnHost(honest, _slow_s(workdir)), refuses=variant.name == "plain")


class _OnHost:
    def __init__(self, honest: Any, slow_s: float) -> None:
        self._honest, self.slow_s = honest, slow_s

    def bind(self, inputs: Sequence[Any], outputs: Sequence[Any]) -> Callable[[], None]:
        return partial(_slowly, self._honest.bind(inputs, outputs), self.slow_s)


class _OnDevice:
    capturable = True

    def __init__(self, slowed: _OnHost, refuses: bool) -> None:
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


def _slowly(run: Callable[[], None], slow_s: float) -> None:
    spend(slow_s)
    run()


def _noted(
    model: onnx.ModelProto, workdir: Path, built: Built | BuildFailure, *operators: str, but: bool = False
) -> Built | BuildFailure:
    """With a file that says how slow the piece is: it has ``operators``, or others than these."""
    if isinstance(built, BuildFailure):
        return built
    count = sum((node.op_type in operators) != but for node in model.graph.node)
    (workdir / _FILE).write_text(str(CALL_S + count * SLOW_S))
    return Built((*built.files, _FILE))


def _slow_s(workdir: Path) -> float:
    return float((workdir / _FILE).read_text())
