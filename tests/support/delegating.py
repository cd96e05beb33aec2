"""What backends of tests share that leave compiling and running to ONNX Runtime, and change what is around it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, cast

from collage_evo.backends.base import Backend, BuildFailure, Built, Executable, Probe, Support, Target
from collage_evo.backends.onnxruntime.backend import OnnxRuntimeBackend
from collage_evo.backends.variants import DEFAULT, Variant
from collage_evo.graph.ir.graph import Graph, Node, Tensor

if TYPE_CHECKING:
    import onnx

    from collage_evo.patterns.language import Pattern


class DelegatingBackend(Backend):
    """Takes what ONNX Runtime takes; whatever the variant, that one's default builds it."""

    extra: ClassVar[str] = "onnxruntime"
    _honest = OnnxRuntimeBackend()

    def probe(self) -> Probe:
        return self._honest.probe()

    def patterns(self) -> tuple[Pattern, ...]:
        return self._honest.patterns()

    def supports_node(self, graph: Graph, node: Node) -> Support:
        return self._honest.supports_node(graph, node)

    def build(
        self, model: onnx.ModelProto, target: Target, variant: Variant, workdir: Path
    ) -> Built | BuildFailure:
        return self._honest.build(model, target, DEFAULT, workdir)

    def load_honest(
        self, workdir: Path, target: Target, inputs: Sequence[Tensor], outputs: Sequence[Tensor]
    ) -> Executable:
        """What was built, as ONNX Runtime runs it on the CPU."""
        return cast(Executable, self._honest.load(workdir, target, DEFAULT, inputs, outputs))
