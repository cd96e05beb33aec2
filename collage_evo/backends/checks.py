"""What backends have in common: conditions on a node that most of them share, and a table of patterns."""

from __future__ import annotations

import importlib.metadata
import importlib.util
from collections.abc import Collection
from typing import TYPE_CHECKING

import numpy as np
import onnx

from collage_evo.backends.base import YES, Probe, Support, no
from collage_evo.graph.ir import Graph, Node, Tensor

if TYPE_CHECKING:
    from collage_evo.patterns.language import Pattern

HEAVY = frozenset({"Conv", "ConvTranspose", "Gemm", "MatMul"})
"""Operators that carry the arithmetic of a model."""
ELEMENTWISE = frozenset(
    {
        *("Add", "Sub", "Mul", "Div", "Sum", "Max", "Min", "Pow", "Where", "Cast"),
        *("Relu", "Clip", "LeakyRelu", "PRelu", "Elu", "Selu", "Sigmoid", "HardSigmoid", "HardSwish", "Tanh"),
        *("Erf", "Gelu", "Exp", "Log", "Sqrt", "Abs", "Neg", "Reciprocal", "Softplus", "BatchNormalization"),
    }
)
"""Operators that give one element for each element of their largest input."""
_RANDOM = {"Bernoulli", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike"}


def general_patterns() -> tuple[Pattern, ...]:
    """Every operator alone, heavy operators with their epilogue, elementwise chains, and whole blocks."""
    from collage_evo.patterns.language import Block, Chain, Epilogue, Single

    return (Single(), Epilogue(HEAVY, ELEMENTWISE, 4), Chain(ELEMENTWISE, 8), Block())


def plain(graph: Graph, node: Node, dtypes: Collection[str]) -> Support:
    """Whether ``node`` is a standard operator without subgraphs or dice, on non-empty tensors of ``dtypes``."""
    if node.domain not in ("", "ai.onnx"):
        return no(f"operators of the domain {node.domain} are not taken")
    if node.op_type in _RANDOM:
        return no(f"{node.op_type} gives other numbers each time")
    if any(isinstance(value, onnx.GraphProto) for value in node.attributes.values()):
        return no(f"{node.op_type} has subgraphs")
    for name in filter(None, (*node.inputs, *node.outputs)):
        tensor = graph.tensors[name]
        if tensor.dtype not in dtypes:
            return no(f"tensor {name} is {tensor.dtype}; only {', '.join(sorted(dtypes))} are taken")
        if 0 in tensor.shape:
            return no(f"tensor {name} is empty")
    return YES


def data_inputs(graph: Graph, node: Node) -> list[Tensor]:
    """The inputs that are present and not constant."""
    return [graph.tensors[name] for name in node.inputs if name and name not in graph.constants]


def constant(graph: Graph, node: Node, position: int) -> np.ndarray | None:
    """The constant that ``node`` has as its input number ``position``, or None."""
    if position >= len(node.inputs):
        return None
    return graph.constants.get(node.inputs[position])


def present(node: Node, position: int) -> bool:
    """Whether the optional input number ``position`` is given."""
    return position < len(node.inputs) and bool(node.inputs[position])


def fails_to_pass_through(model: onnx.ModelProto) -> str:
    """Why ``model`` cannot be a compiled piece: an output that no node computes. Empty if there is none."""
    made = {name for node in model.graph.node for name in node.output}
    for value in model.graph.output:
        if value.name not in made:
            return f"output {value.name} is an input or a constant of the region"
    return ""


def probe_distribution(distribution: str, module: str, extra: str) -> Probe:
    """Whether a Python distribution and its importable module are installed, without importing it."""
    mend = f'pip install "collage-evo[{extra}]"'
    try:
        version = importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return Probe(False, reason=f"{distribution} is not installed: {mend}")
    try:
        found = importlib.util.find_spec(module)
    except (ImportError, ValueError):
        found = None
    if found is None:
        return Probe(False, version, reason=f"{distribution} {version} is broken, no module {module}: {mend}")
    return Probe(True, version, ("cpu",))
