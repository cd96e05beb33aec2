"""The ncnn backend: float32 networks on the CPU, converted by pnnx."""

from __future__ import annotations

import importlib.util
import os
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from collage_evo.backends.base import Backend, BuildFailure, Built, Executable, Probe, Support, Target, Tensors, no
from collage_evo.backends.checks import probe_distribution, returns_failures
from collage_evo.backends.ncnn.plain import NcnnPlain
from collage_evo.backends.ncnn.plain.piece import Bindable, Network
from collage_evo.backends.ncnn.plan import Plan, make_plan
from collage_evo.backends.ncnn.rules import MAX_RANK, judge, known_wrong
from collage_evo.backends.plain import PlainFiles
from collage_evo.backends.variants import DEFAULT, Variant
from collage_evo.codec import to_json
from collage_evo.files import BUILD_ANEW, read_json
from collage_evo.graph.ir.graph import Graph, Node, NodeSet, members
from collage_evo.hardware.cores import gnu_openmp

if TYPE_CHECKING:
    import onnx


_STEM = "model"
_PARAM, _BIN, _PLAN = f"{_STEM}.ncnn.param", f"{_STEM}.ncnn.bin", f"{_STEM}.ncnn.json"
_FILES = (_PARAM, _BIN, _PLAN)
_CONVERT_SECONDS = 300
_WIDEST = 4
"""Bytes of the widest number that a Mat is read with."""


class NcnnBackend(Backend):
    """Networks with Winograd, matrix-multiplication convolution and packed layouts.

    The variant ``sgemm`` disables Winograd: less memory, and quicker on small planes with many channels.
    """

    name: ClassVar[str] = "ncnn"
    extra: ClassVar[str] = "ncnn"
    variants: ClassVar[tuple[Variant, ...]] = (DEFAULT, Variant("sgemm", built_as=DEFAULT.name))

    def probe(self) -> Probe:
        probe = probe_distribution("ncnn", "ncnn")
        if probe.available and _converter() is None:
            mend = "pip install --no-deps pnnx"
            return Probe(False, probe.version, reason=f"ncnn's converter pnnx is not installed: {mend}")
        return probe

    def supports_node(self, graph: Graph, node: Node) -> Support:
        return judge(graph, node)

    def known_wrong(self, graph: Graph, node: Node) -> str:
        return known_wrong(graph, node)

    def supports(self, graph: Graph, nodes: NodeSet) -> Support:
        verdict = super().supports(graph, nodes)
        if verdict:
            for name in (name for side in graph.boundary(nodes) for name in side):
                if len(graph.tensors[name].shape) > MAX_RANK:
                    return no(f"tensor {name} crosses the border with more than {MAX_RANK} axes")
        return verdict

    def variants_of(self, graph: Graph, nodes: NodeSet) -> tuple[Variant, ...]:
        """Variants with and without Winograd differ only on 3x3 convolutions with stride and dilation 1."""
        chosen = any(_may_be_winograd(graph, graph.nodes[index]) for index in members(nodes))
        return self.variants if chosen else self.variants[:1]

    def runs_on_after_fork(self, variant: Variant, threads: int) -> bool:
        return threads == 1

    def environment(self, target: Target) -> Mapping[str, str]:
        return gnu_openmp(target.threads)

    def plain_files(self) -> PlainFiles:
        return NcnnPlain(_PARAM, _BIN, _plan)

    @returns_failures()
    def build(self, model: onnx.ModelProto, target: Target, variant: Variant, workdir: Path) -> Built | BuildFailure:
        import ncnn
        import onnx

        if reason := _not_read(model):
            return BuildFailure(reason, declined=True)
        try:
            onnx.save(model, workdir / f"{_STEM}.onnx")
            _convert(workdir)
            plan = make_plan(
                (workdir / _PARAM).read_text(),
                (workdir / f"{_STEM}_ncnn.py").read_text(),
                [_sizes(value) for value in (*model.graph.input, *model.graph.output)],
                len(model.graph.input),
                lambda kind: ncnn.layer_to_index(kind) >= 0,
            )
            (workdir / _PLAN).write_text(to_json(plan))
        finally:
            for path in workdir.glob(f"{_STEM}*"):
                if path.name not in _FILES:
                    path.unlink()
        return Built(_FILES)

    def load(self, workdir: Path, target: Target, variant: Variant, inputs: Tensors, outputs: Tensors) -> Executable:
        network = Network(workdir / _PARAM, workdir / _BIN, target.threads, winograd=variant.base != "sgemm")
        plan = _plan(workdir)
        return Bindable(network, plan.batched_inputs, plan.batched_outputs, plan.shared_inputs)


def _sizes(value: onnx.ValueInfoProto) -> list[int]:
    """The size of each axis, 0 for an open one."""
    return [dim.dim_value for dim in value.type.tensor_type.shape.dim]


def _plan(workdir: Path) -> Plan:
    return read_json(workdir / _PLAN, Plan, BUILD_ANEW)


def _may_be_winograd(graph: Graph, node: Node) -> bool:
    if node.op_type != "Conv":
        return False
    attributes = node.attributes
    kernel = graph.tensors[node.inputs[1]].shape[2:]
    steps = (*attributes.get("strides", ()), *attributes.get("dilations", ()), attributes.get("group", 1))
    return kernel == (3, 3) and all(step == 1 for step in steps)


def _not_read(model: onnx.ModelProto) -> str:
    """Why ncnn cannot read tensors of ``model``: a 64-bit one would end the process, and results are floats."""
    import onnx

    outputs = {value.name for value in model.graph.output}
    for value in (*model.graph.input, *model.graph.output):
        kind = value.type.tensor_type.elem_type
        wide = kind and onnx.helper.tensor_dtype_to_np_dtype(kind).itemsize > _WIDEST
        if wide or (value.name in outputs and kind not in (onnx.TensorProto.FLOAT, 0)):
            return f"ncnn: {value.name} is {onnx.TensorProto.DataType.Name(kind).lower()}, which it does not take"
    return ""


def _converter() -> Path | None:
    """The pnnx program. Its Python package is not imported: that would need PyTorch."""
    spec = importlib.util.find_spec("pnnx")
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        path = Path(folder) / ("pnnx.exe" if os.name == "nt" else "pnnx")
        if path.is_file():
            return path
    return None


def _convert(workdir: Path) -> None:
    """Run the converter on the model in ``workdir``.

    Raises:
        RuntimeError: the converter failed; the message is its last line.
    """
    command = [str(_converter()), f"{_STEM}.onnx", "fp16=0"]
    done = subprocess.run(command, cwd=workdir, capture_output=True, text=True, timeout=_CONVERT_SECONDS, check=False)
    if done.returncode or not (workdir / _PARAM).exists():
        lines = [line for line in (done.stdout + "\n" + done.stderr).splitlines() if line.strip()]
        raise RuntimeError(f"pnnx ended with {done.returncode}: {lines[-1] if lines else 'no output'}")
