"""The rewrite interface: sites of a graph, and for each one other operators that compute the same."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import onnx
from onnx import helper

from collage_evo.graph.ir.graph import Graph, NodeSet


@dataclass(frozen=True)
class Replacement:
    """Operators that replace a node set.

    Attributes:
        nodes: in an order in which they can run. They read the node set's inputs and constants, and make its outputs,
            all under the graph's names; every other tensor has a new name.
        constants: new initializers, by name.
        same: for new tensors, the graph's tensor of the same numbers and channels, perhaps with other axes. Facts
            about its values hold for them too.
    """

    nodes: tuple[onnx.NodeProto, ...]
    constants: Mapping[str, np.ndarray] = field(default_factory=dict)
    same: Mapping[str, str] = field(default_factory=dict)


class Rewrite(Protocol):
    """A rule that replaces operators by equal ones: results differ only by rounding, as by the order of sums.

    It has no state: one object serves many threads and graphs.
    """

    @property
    def name(self) -> str:
        """Unique name in reports, databases and run directories: lower-case letters, digits and ``-``."""

    def sites(self, graph: Graph) -> Iterator[NodeSet]:
        """Convex node sets where it applies, without repeats, the most promising first. They may overlap.

        They need not be connected: operators that only share an input are a site too.
        """

    def apply(self, graph: Graph, nodes: NodeSet) -> Replacement:
        """The replacement of ``nodes``, one of its sites. Equal node sets have equal replacements."""


class Draft:
    """Builder of a replacement, with new names for inner tensors and constants."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._nodes: list[onnx.NodeProto] = []
        self._constants: dict[str, np.ndarray] = {}
        self._count = 0

    @property
    def opset(self) -> int:
        """The version of ONNX's own operators."""
        return self._graph.opset

    def constant(self, array: np.ndarray) -> str:
        """Add a constant; returns its new name."""
        name = self._fresh()
        self._constants[name] = np.atleast_1d(array)
        return name

    def node(self, op_type: str, inputs: Sequence[str], output: str = "", **attributes: Any) -> str:
        """An operator with one output, under the name ``output`` or a new one, which is returned."""
        return self.several(op_type, inputs, (output,), **attributes)[0]

    def several(
        self, op_type: str, inputs: Sequence[str], names: Sequence[str], **attributes: Any
    ) -> tuple[str, ...]:
        """An operator with the outputs ``names``; an empty name stands for a new one. Returns the names."""
        outputs = tuple(name or self._fresh() for name in names)
        # With an explicit domain, because keys of pieces cover the bytes of their operators.
        self._nodes.append(helper.make_node(op_type, list(inputs), list(outputs), domain="", **attributes))
        return outputs

    def copy(self, proto: onnx.NodeProto, inputs: Sequence[str], names: Sequence[str]) -> tuple[str, ...]:
        """Copy an operator of the graph with other inputs and outputs. Returns the names of its outputs."""
        outputs = tuple(name or self._fresh() for name in names)
        node = onnx.NodeProto(op_type=proto.op_type, domain=proto.domain)
        node.input.extend(inputs)
        node.output.extend(outputs)
        node.attribute.extend(proto.attribute)
        self._nodes.append(node)
        return outputs

    def finished(self, same: Mapping[str, str] | None = None) -> Replacement:
        """The replacement; ``same`` as in :class:`Replacement`."""
        return Replacement(tuple(self._nodes), dict(self._constants), dict(same or {}))

    def _fresh(self) -> str:
        self._count += 1
        while (name := f"rewritten_{self._count}") in self._graph.tensors:
            self._count += 1
        return name
