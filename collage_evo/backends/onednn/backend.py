"""oneDNN, one kernel at a time: takes a convolution, a product with constant weights or a layer normalisation."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from collage_evo.backends.base import YES, Backend, BuildFailure, Built, Executable, Probe, Support, Target, no
from collage_evo.backends.checks import constant, fails_to_pass_through, plain, present, probe_distribution
from collage_evo.errors import one_line
from collage_evo.graph.ir import Graph, Node, NodeSet, Tensor, members
from collage_evo.target.cores import gnu_openmp

if TYPE_CHECKING:
    import onnx

    from collage_evo.backends.onednn.native import Primitive
    from collage_evo.patterns.language import Pattern

_PLAN, _CONSTANTS = "plan.json", "constants.npz"
_ANCHORS = frozenset({"Conv", "Gemm", "MatMul"})


class OneDnnBackend(Backend):
    """Primitives of oneDNN 3.2, the last release on PyPI that is built for CPUs with GNU OpenMP alone.

    OpenVINO holds a newer oneDNN. What is left to win is its overhead on light operators.
    """

    name: ClassVar[str] = "onednn"
    extra: ClassVar[str] = "onednn"
    execution_providers: ClassVar[Mapping[str, str]] = {"cpu": "DnnlExecutionProvider"}

    def probe(self) -> Probe:
        return probe_distribution("onednn-cpu-gomp", 'pip install "collage-evo[onednn]"')

    def patterns(self) -> tuple[Pattern, ...]:
        from collage_evo.patterns.language import GraphPattern

        kernels = sorted(_ANCHORS | {"LayerNormalization"})
        return (
            GraphPattern("kernel", lambda op: op.any_of(*kernels)(...)),
            GraphPattern("kernel_relu", lambda op: op.Relu(op.any_of(*sorted(_ANCHORS))(...))),
        )

    def supports_node(self, graph: Graph, node: Node) -> Support:
        verdict = plain(graph, node, {"float32"})
        if not verdict:
            return verdict
        if node.op_type not in _RULES:
            return no(f"{node.op_type} is not among the kernels that are bound")
        reason = _RULES[node.op_type](graph, node)
        return no(f"{node.op_type}: {reason}") if reason else YES

    def supports(self, graph: Graph, nodes: NodeSet) -> Support:
        kinds = [graph.nodes[index].op_type for index in members(nodes)]
        if kinds[0] == "Relu" or kinds[1:] not in ([], ["Relu"]):
            return no("one kernel, or one with a Relu behind it, is a piece")
        if len(graph.boundary(nodes)[1]) > 1:
            return no("what the Relu reads is wanted elsewhere too")
        return super().supports(graph, nodes)

    def environment(self, target: Target) -> Mapping[str, str]:
        return gnu_openmp(target.threads)

    def build(self, model: onnx.ModelProto, target: Target, variant: str, workdir: Path) -> Built | BuildFailure:
        from collage_evo.graph.read import build_graph

        reason = fails_to_pass_through(model)
        if reason:
            return BuildFailure(reason)
        try:
            graph = build_graph(model)
            verdict = self.supports(graph, graph.all_nodes)
            if not verdict:
                return BuildFailure(f"onednn: {verdict.reason}")
            plan, constants = _planned(graph)
            _primitive(plan, constants, target.threads)
        except Exception as error:
            # Every failure of the library is one kind of outcome here: this piece cannot be built.
            return BuildFailure(f"onednn: {one_line(error)}")
        (workdir / _PLAN).write_text(json.dumps(plan))
        np.savez(workdir / _CONSTANTS, allow_pickle=False, **constants)
        return Built((_PLAN, _CONSTANTS))

    def load(self, workdir: Path, target: Target, inputs: Sequence[Tensor], outputs: Sequence[Tensor]) -> Executable:
        plan = json.loads((workdir / _PLAN).read_text())
        with np.load(workdir / _CONSTANTS, allow_pickle=False) as file:
            constants = dict(file)
        return _Loaded(_primitive(plan, constants, target.threads), plan, target.threads)


class _Loaded:
    def __init__(self, primitive: Primitive, plan: Mapping[str, Any], threads: int) -> None:
        self._primitive, self._threads = primitive, threads
        self._shapes = plan["shapes"]

    def bind(self, inputs: Sequence[np.ndarray], outputs: Sequence[np.ndarray]) -> Callable[[], None]:
        source, target = (a.reshape(s) for a, s in zip((inputs[0], outputs[0]), self._shapes, strict=True))
        return self._primitive.bind(source, target, self._threads)


def _planned(graph: Graph) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """What :func:`_primitive` needs: plain values, and the constants in the shapes that the library wants."""
    node = graph.nodes[0]
    given = [np.array(graph.constants[name]) for name in node.inputs[1:] if name]
    constants = dict(zip(("weights", "bias"), given, strict=False))
    shapes = [graph.tensors[name].shape for name in (node.inputs[0], node.outputs[0])]
    plan: dict[str, Any] = {"kind": node.op_type, "relu": len(graph.nodes) > 1, "shapes": shapes}
    weights, group = constants["weights"], node.attributes.get("group", 1)
    match node.op_type:
        case "Conv":
            count = weights.ndim - 2
            for key, default in (("strides", [1] * count), ("dilations", [1] * count), ("pads", [0] * 2 * count)):
                plan[key] = list(node.attributes.get(key, default))
            if group > 1:
                constants["weights"] = weights.reshape(group, weights.shape[0] // group, *weights.shape[1:])
        case "LayerNormalization":
            plan["epsilon"] = node.attributes.get("epsilon", 1e-5)
            constants.setdefault("bias", np.zeros_like(weights))
        case _:
            turned = weights.T if node.attributes.get("transB", 0) else weights
            constants["weights"] = np.ascontiguousarray(turned)
            plan["shapes"] = [(prod(shape[:-1]), shape[-1]) for shape in shapes]
            if "bias" in constants:
                constants["bias"] = constants["bias"].reshape(1, -1)
    return plan, constants


def _primitive(plan: Mapping[str, Any], constants: Mapping[str, np.ndarray], threads: int) -> Primitive:
    from collage_evo.backends.onednn import native

    native.use_threads(threads)
    weights, bias, shapes = constants["weights"], constants.get("bias"), plan["shapes"]
    match plan["kind"]:
        case "Conv":
            window = (plan["strides"], plan["dilations"], plan["pads"])
            return native.convolution((shapes[0], shapes[1]), weights, bias, window, relu=plan["relu"])
        case "LayerNormalization":
            return native.layer_normalization(shapes[0], weights, constants["bias"], plan["epsilon"])
    return native.product(shapes[0][0], weights, bias, relu=plan["relu"])


def _constants(graph: Graph, node: Node) -> str:
    computed = [name for name in node.inputs[1:] if name and name not in graph.constants]
    return f"{computed[0]} is computed, not constant" if computed else ""


def _conv(graph: Graph, node: Node) -> str:
    if node.attributes.get("auto_pad", "NOTSET") not in ("NOTSET", "VALID"):
        return "its padding is not given by pads"
    return _constants(graph, node)


def _gemm(graph: Graph, node: Node) -> str:
    if node.attributes.get("transA", 0) or {node.attributes.get(key, 1.0) for key in ("alpha", "beta")} != {1.0}:
        return "transA, alpha and beta are not taken"
    added = constant(graph, node, 2)
    columns = graph.tensors[node.outputs[0]].shape[-1]
    if added is not None and (added.size != columns or added.shape[-1:] != (columns,)):
        return "what is added is no row of constants"
    return _constants(graph, node)


def _matmul(graph: Graph, node: Node) -> str:
    weights = constant(graph, node, 1)
    if weights is None or weights.ndim != 2 or not graph.tensors[node.inputs[0]].shape[1:]:
        return "only rows times a constant matrix are taken"
    return "a constant on the left is not taken" if node.inputs[0] in graph.constants else ""


def _layer_normalization(graph: Graph, node: Node) -> str:
    rank = len(graph.tensors[node.inputs[0]].shape)
    if node.attributes.get("axis", -1) % rank != rank - 1 or not 2 <= rank <= 5 or len(node.outputs) > 1:
        return "only one over the last axis, without statistics, is taken"
    scale = constant(graph, node, 1)
    if present(node, 2) and scale is not None and scale.ndim != 1:
        return "a scale of several axes is not taken"
    return _constants(graph, node)


_RULES: Mapping[str, Callable[[Graph, Node], str]] = {
    "Conv": _conv,
    "Gemm": _gemm,
    "MatMul": _matmul,
    "LayerNormalization": _layer_normalization,
    "Relu": lambda graph, node: "",
}
