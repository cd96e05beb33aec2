"""The cuDNN backend: plans a region as cuDNN graphs with their weights, and runs it on the GPU."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from collage_evo.backends.base import (
    YES,
    Backend,
    BuildFailure,
    Built,
    Probe,
    Support,
    Target,
    Tensors,
    no,
)
from collage_evo.backends.checks import probe_distribution, returns_failures
from collage_evo.backends.variants import Arithmetic, Variant
from collage_evo.errors import UnavailableError
from collage_evo.extras import install
from collage_evo.graph.ir.graph import Graph, Node, NodeSet, members
from collage_evo_cuda import PACKAGE
from collage_evo_cuda.checks import normalised_graph, release_of
from collage_evo_cuda.cudnn.attention import find_attention
from collage_evo_cuda.cudnn.rules import HEAVY, judge
from collage_evo_cuda.device import DeviceExecutable
from collage_evo_cuda.gpu import gpu_capability
from collage_evo_cuda.requirements import lacks_arithmetic, lacks_gpu

if TYPE_CHECKING:
    import onnx

    from collage_evo.patterns.language import Pattern
    from collage_evo_cuda.cudnn.plan import Plan

_FRONTEND, _OLDEST = "nvidia-cudnn-frontend", (1, 32)
_LIBRARIES = {"nvidia-cudnn-cu13": (7, 5), "nvidia-cudnn-cu12": (5, 0)}
"""cuDNN as packages, and the least compute capability that each has kernels for."""
_INSIDE = "-nhwc"

_EXACT = (Variant("cuda", device="cuda"), Variant(f"cuda{_INSIDE}", device="cuda"))
_ROUNDED = (
    Variant("cuda-tf32", Arithmetic.TF32, "cuda"),
    Variant(f"cuda-tf32{_INSIDE}", Arithmetic.TF32, "cuda"),
    Variant("cuda-f16", Arithmetic.FLOAT16, "cuda"),
    Variant("cuda-bf16", Arithmetic.BFLOAT16, "cuda"),
)
_HALF = (Arithmetic.FLOAT16, Arithmetic.BFLOAT16)


class CudnnBackend(Backend):
    """A region as a sequence of cuDNN graphs: a convolution, product or attention each with its epilogue.

    Variants differ in the arithmetic, and in the layout of tensors inside the region: as in ONNX, or with channels
    innermost (``nhwc``), as always in half precision. Borders are float32 in ONNX's order.
    """

    name: ClassVar[str] = "cudnn"
    title: ClassVar[str] = "cuDNN"
    execution_providers: ClassVar[Mapping[str, str]] = {"cuda": "CUDAExecutionProvider"}
    variants: ClassVar[tuple[Variant, ...]] = (*_EXACT, *_ROUNDED)

    def probe(self) -> Probe:
        frontend = probe_distribution(_FRONTEND, "cudnn", PACKAGE)
        if not frontend.available:
            return frontend
        mend = install("cudnn", PACKAGE)
        if release_of(frontend.version) < _OLDEST:
            oldest = ".".join(map(str, _OLDEST))
            return Probe(False, frontend.version, f"{_FRONTEND} {frontend.version} is older than {oldest}: {mend}")
        for library, least in _LIBRARIES.items():
            try:
                installed = f"{frontend.version}, cuDNN {version(library)}"
            except PackageNotFoundError:
                continue
            reason = lacks_gpu(least, library)
            return Probe(not reason, installed, reason)
        return Probe(False, frontend.version, f"cuDNN itself is not installed: {mend}")

    def declines(self, variant: Variant) -> str:
        return lacks_arithmetic(variant.arithmetic)

    def patterns(self) -> tuple[Pattern, ...]:
        from collage_evo_cuda.cudnn.patterns import PATTERNS  # serving does not need it

        return PATTERNS

    def supports_node(self, graph: Graph, node: Node) -> Support:
        return judge(graph, node)

    def supports(self, graph: Graph, nodes: NodeSet) -> Support:
        verdict = super().supports(graph, nodes)
        kinds = {graph.nodes[index].op_type for index in members(nodes)}
        if not verdict:
            return verdict
        if kinds & {"Softmax", "Transpose"}:
            attention = find_attention(graph, nodes)
            return no(attention) if isinstance(attention, str) else YES
        return YES if kinds & HEAVY else no("without a convolution or product nothing is won")

    def variants_of(self, graph: Graph, nodes: NodeSet) -> tuple[Variant, ...]:
        chosen = [graph.nodes[index] for index in members(nodes)]
        if any(node.op_type == "Softmax" for node in chosen):
            return tuple(variant for variant in self.variants if variant.arithmetic in _HALF)
        products = any(node.op_type == "MatMul" and node.inputs[1] not in graph.constants for node in chosen)
        convolves = any(node.op_type in ("Conv", "ConvTranspose") for node in chosen)
        return tuple(
            variant
            for variant in self.variants
            # Without constant weights cuDNN multiplies matrices only on tensor cores, which round.
            if (not products or variant.arithmetic is not Arithmetic.FLOAT32)
            and (convolves or not variant.name.endswith(_INSIDE))
        )

    @returns_failures()
    def build(self, model: onnx.ModelProto, target: Target, variant: Variant, workdir: Path) -> Built | BuildFailure:
        from collage_evo_cuda.cudnn.lower import lower
        from collage_evo_cuda.cudnn.run import step_file, write

        graph = normalised_graph(model)
        if not (verdict := self.supports(graph, graph.all_nodes)):
            return BuildFailure(f"cudnn: {verdict.reason}")
        if variant not in self.variants_of(graph, graph.all_nodes):
            return BuildFailure(f"cudnn: {variant.name} is no choice here")
        channels_last = variant.name.endswith(_INSIDE) or variant.arithmetic in _HALF
        planned = lower(graph, variant.arithmetic, channels_last)
        files = write(planned.plan, planned.weights, workdir)
        steps = _compiled_steps(planned.plan)
        for number, data in enumerate(steps):
            (workdir / step_file(number)).write_bytes(data)
        return Built((*files, *(step_file(number) for number in range(len(steps)))))

    def load(
        self, workdir: Path, target: Target, variant: Variant, inputs: Tensors, outputs: Tensors
    ) -> DeviceExecutable:
        from collage_evo_cuda.cudnn.run import Loaded

        return Loaded(workdir)


def _compiled_steps(plan: Plan) -> list[bytes]:
    """Each step compiled for this machine's device; none without a device: loading compiles the steps then."""
    try:
        major, minor = gpu_capability()
    except UnavailableError:
        return []
    import cudnn

    from collage_evo_cuda.cudnn.emit import compiled

    device = {"device_property": cudnn.create_device_properties(0), "sm_version": 10 * major + minor}
    return [bytes(compiled(step, plan, **device).serialize()) for step in plan.steps]
