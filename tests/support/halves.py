"""ONNX Runtime, slow at some operators, for processes with a clock of tests/support/clock.py."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from collage_evo.backends.base import BuildFailure, Built, Executable, Target
from collage_evo.backends.onnxruntime.backend import OnnxRuntimeBackend
from collage_evo.backends.variants import DEFAULT, Variant
from collage_evo.graph.ir.graph import Graph, NodeSet, Tensor
from tests.support.clock import spend

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
        return noted(model, workdir, super().build(model, target, variant, workdir), "Conv")

    def load(
        self, workdir: Path, target: Target, variant: Variant, inputs: Sequence[Tensor], outputs: Sequence[Tensor]
    ) -> Executable:
        return OnHost(super().load(workdir, target, variant, inputs, outputs), slow_s_of(workdir))


class OnHost:
    def __init__(self, honest: Any, slow_s: float) -> None:
        self._honest, self.slow_s = honest, slow_s

    def bind(self, inputs: Sequence[Any], outputs: Sequence[Any]) -> Callable[[], None]:
        return partial(_slowly, self._honest.bind(inputs, outputs), self.slow_s)


def _slowly(run: Callable[[], None], slow_s: float) -> None:
    spend(slow_s)
    run()


def noted(
    model: onnx.ModelProto, workdir: Path, built: Built | BuildFailure, *operators: str, but: bool = False
) -> Built | BuildFailure:
    """With a file that says how slow the piece is: it has ``operators``, or others than these."""
    if isinstance(built, BuildFailure):
        return built
    count = sum((node.op_type in operators) != but for node in model.graph.node)
    (workdir / _FILE).write_text(str(CALL_S + count * SLOW_S))
    return Built((*built.files, _FILE))


def slow_s_of(workdir: Path) -> float:
    return float((workdir / _FILE).read_text())
