"""What backends have in common: conditions on a node that most of them share, and how they are found."""

from __future__ import annotations

import functools
import importlib.metadata
from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from collage_evo.backends.base import YES, Probe, Support, no
from collage_evo.graph.ir import COMPOSITE, Graph, Node, Tensor

if TYPE_CHECKING:
    import onnx

_NATIVE = {".so", ".dylib", ".dll", ".pyd"}
_RANDOM = {"Bernoulli", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike"}


def repeatable(graph: Graph, node: Node) -> Support:
    """Whether ``node`` gives the same numbers each time."""
    if node.op_type in _RANDOM or _drops(graph, node):
        return no(f"{node.op_type} gives other numbers each time")
    return YES


def plain(graph: Graph, node: Node, dtypes: Collection[str]) -> Support:
    """Whether ``node`` is a standard operator without body or dice, on non-empty static tensors of ``dtypes``."""
    if node.domain == COMPOSITE:
        return no(f"{node.op_type} has a body, or tensors whose shapes depend on data")
    if node.domain not in ("", "ai.onnx"):
        return no(f"operators of the domain {node.domain} are not taken")
    if not (verdict := repeatable(graph, node)):
        return verdict
    for name in filter(None, (*node.inputs, *node.outputs)):
        tensor = graph.tensors[name]
        if tensor.dtype not in dtypes:
            return no(f"tensor {name} is {tensor.dtype}; only {', '.join(sorted(dtypes))} are taken")
        if 0 in tensor.shape:
            return no(f"tensor {name} is empty")
    return YES


def _drops(graph: Graph, node: Node) -> bool:
    """Whether ``node`` is a Dropout that is, or may be, in training."""
    if node.op_type != "Dropout" or not present(node, 2):
        return False
    training = constant(graph, node, 2)
    return training is None or bool(training)


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


@functools.cache
def probe_distribution(distribution: str, mend: str) -> Probe:
    """Whether a Python distribution is installed with all its native libraries.

    Nothing is imported: that would take up to a second and start the library's threads. Looked for once.

    Args:
        distribution: its name on PyPI.
        mend: the command that installs it.
    """
    try:
        installed = importlib.metadata.distribution(distribution)
    except importlib.metadata.PackageNotFoundError:
        return Probe(False, reason=f"{distribution} is not installed: {mend}")
    natives = [path for path in installed.files or () if ".so" in path.suffixes or path.suffix in _NATIVE]
    missing = [path.name for path in natives if not Path(str(path.locate())).exists()]
    if missing:
        reason = f"{distribution} {installed.version} is broken, {missing[0]} is missing: {mend}"
        return Probe(False, installed.version, reason=reason)
    return Probe(True, installed.version)
