"""Static checks of the contract; models that no backend can build; models that take long."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

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


def _heavy(
    op_type: str, shape: tuple[int, ...], *constants: np.ndarray | np.generic, **attributes: Any
) -> onnx.ModelProto:
    b = Builder("heavy")
    return b.model(b.op(op_type, b.input("x", shape), *map(b.const, constants), **attributes))


UNBUILDABLE: Mapping[str, Callable[[], onnx.ModelProto]] = {
    "an operator that does not exist": lambda: _single("NoSuchOperator", "x"),
    "a tensor that nobody makes": lambda: _single("Add", "x", "absent"),
}
HEAVY: Mapping[str, Callable[[], onnx.ModelProto]] = {
    "convolution": lambda: _heavy("Conv", (1, 64, 56, 56), weight(64, 64, 3, 3), pads=[1, 1, 1, 1]),
    "matrix product": lambda: _heavy("MatMul", (1, 384, 384), weight(384, 384)),
    "Tanh": lambda: _heavy("Tanh", (1, 64, 128, 128)),
    "Add": lambda: _heavy("Add", (1, 64, 128, 128), np.float32(1)),
}
