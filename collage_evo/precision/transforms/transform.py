"""What a transform is: a lower precision that is written into operators of a region before a backend compiles it.

Rewrites (``rewrites/rewrite.py``) are written into regions too. They lose nothing, so they have no trials, and each
of their sites stands or falls as a whole.
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

from collage_evo.graph.extract import canonical_names, extract
from collage_evo.graph.ir import Graph, Node, NodeSet, members
from collage_evo.precision.quantise.arithmetic import Arithmetic
from collage_evo.precision.quantise.rules import Quantisers, Ranges
from collage_evo.precision.quantise.scales import Scale


@dataclass(frozen=True)
class Data:
    """What else decides how a precision is written.

    Attributes:
        ranges: of the graph's tensors; None where it is only asked what could be written if all had one.
        quantisers: where the library wants them; None if it takes none.
        everything: whether pooling, joins and moves are quantised too, not heavy operators alone.
    """

    ranges: Ranges | None = None
    quantisers: Quantisers | None = None
    everything: bool = False


@dataclass
class Draft:
    """The region ``nodes`` of ``graph`` while precisions are written into it."""

    graph: Graph
    nodes: NodeSet
    data: Data

    @cached_property
    def model(self) -> onnx.ModelProto:
        """What is written of it so far; transforms change it, or put another one in its place."""
        return extract(self.graph, self.nodes)

    def made_by(self, nodes: NodeSet) -> list[str]:
        """Names in ``model`` of the tensors that ``nodes`` make."""
        names = canonical_names(self.graph, self.nodes)
        return [names[name] for index in members(nodes) for name in self.graph.nodes[index].outputs if name]


Rounding = Scale | int
"""Numbers that a tensor goes through, there and back: uint8 of that scale, or a floating type of ONNX."""
Operators = tuple[list[onnx.NodeProto], dict[str, np.ndarray]]
"""Operators, and their constants by name."""


@dataclass(frozen=True)
class Trial:
    """One operator in a lower precision, in a model that is in float32 otherwise.

    Attributes:
        reads: positions of inputs that are rounded, and how.
        makes: the floating type of ONNX that its outputs of float32 are rounded to; 0 if they are not.
        instead: other operators in its place, given its own.
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
    """Whether it is written into what a rewrite wrote. That is taken to lose what the rewrite's site would."""

    @abstractmethod
    def sites(self, graph: Graph, nodes: NodeSet, data: Data) -> NodeSet:
        """Which of ``nodes``, a match, it is written into."""

    @abstractmethod
    def apply(self, draft: Draft, nodes: NodeSet) -> None:
        """Write it into ``nodes`` of ``draft``, after the transforms before it in the catalogue.

        Raises:
            InputError: something that it needs is missing, as a tensor's range.
        """

    def key(self, draft: Draft, nodes: NodeSet) -> str:
        """What a content hash must cover besides the region: which of its nodes, and what else decides numbers."""
        places = ",".join(str(place) for place, index in enumerate(members(draft.nodes)) if nodes >> index & 1)
        return f"{self.arithmetic} {hashlib.sha256(places.encode()).hexdigest()[:32]}"

    @abstractmethod
    def losing(self, graph: Graph, nodes: NodeSet, ranges: Ranges) -> NodeSet:
        """Which of ``nodes`` may add to the error in this arithmetic: there is a trial for each."""

    @abstractmethod
    def trial(self, graph: Graph, node: Node, ranges: Ranges) -> Trial:
        """How ``node`` is tried alone."""

    def constants(self, graph: Graph, node: Node, ranges: Ranges) -> Mapping[str, np.ndarray]:
        """Constants of ``node`` that are others in its trial, by name: such as weights after rounding, in float32."""
        return {}
