"""Static checks of the contract; models that no backend can build; models that take long."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import numpy as np
import onnx
from onnx import TensorProto, helper

from collage_evo.backends.base import Backend, Support
from collage_evo.graph.ir.graph import Graph
from collage_evo.models.builder import IR_VERSION, OPSET, Builder
from collage_evo.testing.cases.case import weight


def contract_problems(backend: Backend) -> Iterator[tuple[str, str]]:
    """Each promise of the contract with its violation, or an empty text."""
    probe = backend.probe()
    yield "name", "" if backend.name.isidentifier() else f"the name {backend.name!r} is no identifier"
    yield "probe", "" if probe.version else "an available backend gives its version"
    yield "devices", "" if backend.devices else "a backend serves some device"
    names = [variant.name for variant in backend.variants]
    distinct = names and len(set(names)) == len(names)
    yield "variants", "" if distinct else f"variants must be some, with distinct names: {names}"
    names = [pattern.name for pattern in backend.patterns()]
    named = names and all(names) and len(set(names)) == len(names)
    yield "patterns", "" if named else f"patterns must be some, with distinct names: {names}"


def silent_refusal(backend: Backend, graph: Graph, whole: Support) -> str:
    """A refusal whose reason is not one line; or empty."""
    for verdict in (*(backend.takes(graph, node) for node in graph.nodes), whole):
        if not verdict and (not verdict.reason.strip() or len(verdict.reason.splitlines()) > 1):
            return f"refused, but not with one line: {verdict.reason!r}"
    return ""


def _single(op_type: str, *inputs: str) -> onnx.ModelProto:
    source, made = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 4, 6, 6]) for name in ("x", "y"))
    graph = helper.make_graph([helper.make_node(op_type, list(inputs), ["y"], name="n")], "g", [source], [made])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=IR_VERSION)


def _conv() -> onnx.ModelProto:
    b = Builder("conv")
    return b.model(b.op("Conv", b.input("x", (1, 64, 56, 56)), b.const(weight(64, 64, 3, 3)), pads=[1, 1, 1, 1]))


def _matmul() -> onnx.ModelProto:
    b = Builder("matmul")
    return b.model(b.op("MatMul", b.input("x", (1, 384, 384)), b.const(weight(384, 384))))


def _tanh() -> onnx.ModelProto:
    b = Builder("tanh")
    return b.model(b.op("Tanh", b.input("x", (1, 64, 128, 128))))


def _add() -> onnx.ModelProto:
    b = Builder("add")
    return b.model(b.op("Add", b.input("x", (1, 64, 128, 128)), b.const(np.float32(1))))


UNBUILDABLE: Mapping[str, Callable[[], onnx.ModelProto]] = {
    "an operator that does not exist": lambda: _single("NoSuchOperator", "x"),
    "a tensor that nobody makes": lambda: _single("Add", "x", "absent"),
}
HEAVY: Mapping[str, Callable[[], onnx.ModelProto]] = {
    "convolution": _conv,
    "matrix product": _matmul,
    "Tanh": _tanh,
    "Add": _add,
}
