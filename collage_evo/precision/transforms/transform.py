"""The transform interface: a lower precision that is written into operators of a region before a backend compiles it.

Rewrites (``rewrites/rewrite.py``) are written into regions too. They are exact, so they have no trials, and each of
their sites is applied as a whole or not at all.
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import ClassVar

import numpy as np
import onnx
from onnx import numpy_helper

from collage_evo.graph.convert.extract import canonical_names, extract, import_domains, put_operators
from collage_evo.graph.ir.graph import Graph, Node, NodeSet, members
from collage_evo.graph.ir.operators import CONTRIBUTED
from collage_evo.precision.quantise.arithmetic import Arithmetic
from collage_evo.precision.quantise.form import Int8Form
from collage_evo.precision.quantise.marks import mark_written
from collage_evo.precision.quantise.rules import Ranges
from collage_evo.precision.quantise.scales import Scale


@dataclass(frozen=True)
class Data:
    """Further inputs of the writing of a precision.

    Attributes:
        ranges: of the graph's tensors; None assumes that all have one.
        int8_form: the library's; None if it runs nothing in int8 between quantisers.
        everything: whether pooling, joins and moves are quantised too, not only heavy operators.
    """

    ranges: Ranges | None = None
    int8_form: Int8Form | None = None
    everything: bool = False


@dataclass
class Draft:
    """The region ``nodes`` of ``graph`` while precisions are written into it."""

    graph: Graph
    nodes: NodeSet
    data: Data

    @cached_property
    def model(self) -> onnx.ModelProto:
        """The model so far; transforms change or replace it."""
        return extract(self.graph, self.nodes)

    def made_by(self, nodes: NodeSet) -> list[str]:
        """Names in ``model`` of the tensors that ``nodes`` make."""
        names = canonical_names(self.graph, self.nodes)
        return [names[name] for index in members(nodes) for name in self.graph.nodes[index].outputs if name]

    def replace(self, nodes: NodeSet, arithmetic: Arithmetic, written: Callable[[onnx.NodeProto], Operators]) -> None:
        """Replace the operators of ``nodes`` by those of ``written``, and mark them to run in ``arithmetic``."""
        graph, ends = self.model.graph, frozenset(self.made_by(nodes))
        protos, constants, replaced = list[onnx.NodeProto](), dict[str, np.ndarray](), list[str]()
        for proto in graph.node:
            if not ends.intersection(proto.output):
                protos.append(proto)
                continue
            operators, parts = written(proto)
            protos += operators
            constants |= parts
            replaced.append(proto.name)
        graph.initializer.extend(numpy_helper.from_array(array, name) for name, array in constants.items())
        if any(proto.domain == CONTRIBUTED for proto in protos):
            import_domains(self.model, {CONTRIBUTED: 1})
        mark_written(self.model, arithmetic, replaced)
        put_operators(self.model, protos)


Rounding = Scale | int
"""The type through which a tensor is rounded: uint8 of that scale, or a floating type of ONNX."""
Operators = tuple[list[onnx.NodeProto], dict[str, np.ndarray]]
"""Operators, and their constants by name."""


@dataclass(frozen=True)
class Trial:
    """One operator in a lower precision, in a model that is in float32 otherwise.

    Attributes:
        reads: positions of rounded inputs, with their rounding.
        makes: ONNX's floating type to which its float32 outputs are rounded; 0 if they are not.
        instead: other operators in its place, as a function of its own.
    """

    reads: Mapping[int, Rounding] = field(default_factory=dict)
    makes: int = 0
    instead: Callable[[onnx.NodeProto], Operators] | None = None


@dataclass(frozen=True)
class Transform(ABC):
    """Writes ``arithmetic`` into operators. It has no state: one object serves all graphs."""

    arithmetic: Arithmetic
    """Its name in edits, keys, costs and reports."""

    into_rewritten: ClassVar[bool] = True
    """Whether it is written into replacements, which are assumed to have the error of the rewrite's site."""

    @abstractmethod
    def sites(self, graph: Graph, nodes: NodeSet, data: Data) -> NodeSet:
        """The nodes of a match, ``nodes``, into which it is written."""

    @abstractmethod
    def apply(self, draft: Draft, nodes: NodeSet) -> None:
        """Write it into ``nodes`` of ``draft``, after the transforms before it in the catalogue.

        Raises:
            InputError: a requirement is missing, such as a tensor's range.
        """

    def key(self, draft: Draft, nodes: NodeSet) -> str:
        """Text that a content hash must cover besides the region: its nodes, and all else that determines results."""
        places = ",".join(str(place) for place, index in enumerate(members(draft.nodes)) if nodes >> index & 1)
        return f"{self.arithmetic} {hashlib.sha256(places.encode()).hexdigest()[:32]}"

    def losing(self, graph: Graph, nodes: NodeSet, ranges: Ranges) -> NodeSet:
        """The ``nodes`` that may add to the error in this arithmetic: each has a trial."""
        return self.sites(graph, nodes, Data())

    @abstractmethod
    def trial(self, graph: Graph, node: Node, ranges: Ranges) -> Trial:
        """The trial of ``node`` by itself."""

    def constants(self, graph: Graph, node: Node, ranges: Ranges) -> Mapping[str, np.ndarray]:
        """Constants of ``node`` that differ in its trial, by name, such as weights after rounding, in float32."""
        return {}
