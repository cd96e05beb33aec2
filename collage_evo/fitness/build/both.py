"""A region with rewrites in which operators run in a lower precision: takes a graph and the region, gives its model.

It is rewritten first; what is written in which precision, and the ranges of tensors, are then looked up under the
names there.
"""

from __future__ import annotations

from collections.abc import Mapping, MutableSequence
from dataclasses import dataclass

import onnx

from collage_evo.errors import InputError
from collage_evo.graph.extract import canonical_names
from collage_evo.graph.ir import Graph, members, node_set
from collage_evo.graph.read import build_graph
from collage_evo.patterns.match import Region
from collage_evo.quantise.numerics import Numerics, numerics_of
from collage_evo.quantise.region import writing_key, written_region
from collage_evo.quantise.rules import PASSING, Quantisers, Ranges
from collage_evo.rewrites.write import write_rewrites

_MOVES = PASSING - {"MaxPool"}
"""Operators that change no value: what goes in has the range of what comes out."""


@dataclass(frozen=True)
class RewrittenRegion:
    """A rewritten region as a graph, what its nodes are written in, and the ranges of its tensors."""

    graph: Graph
    numerics: Numerics
    ranges: Ranges

    def key(self, quantisers: Quantisers | None) -> str:
        """What a content hash must cover besides the region and its rewrites."""
        return writing_key(self.graph, self.graph.all_nodes, self.numerics, self.ranges, quantisers)

    def model(self, quantisers: Quantisers | None) -> onnx.ModelProto:
        """The region as a model of its own, in the precisions that are asked for, its borders in their order."""
        model = written_region(self.graph, self.graph.all_nodes, self.numerics, self.ranges, quantisers)
        names = canonical_names(self.graph, self.graph.all_nodes)
        _in_order(model.graph.input, {names[name]: place for place, name in enumerate(self.graph.inputs)})
        _in_order(model.graph.output, {names[name]: place for place, name in enumerate(self.graph.outputs)})
        return model


def rewritten_region(graph: Graph, region: Region, ranges: Ranges) -> RewrittenRegion:
    """``region`` after rewriting.

    Raises:
        InputError: a rewrite does not fit, reads less than the region does, or took away what is to be written
            in a lower precision.
    """
    inner = build_graph(write_rewrites(graph, region.nodes, region.rewrites))
    names = canonical_names(graph, region.nodes)
    if unread := [name for name in inner.inputs if name not in inner.consumers]:
        raise InputError(
            f"rewritten, the region does not read its input {unread[0]}: no precision can be written into it"
        )
    numerics = []
    for arithmetic, nodes in region.numerics:
        ends = [names[graph.nodes[index].outputs[0]] for index in members(nodes)]
        if any(end not in inner.producer for end in ends):
            raise InputError(f"a node that is to run in {arithmetic.value} is rewritten as well")
        numerics.append((arithmetic, node_set(inner.producer[end] for end in ends)))
    known = {names[name]: its for name, its in ranges.items() if name in names}
    for node in reversed(inner.nodes):
        if node.op_type in _MOVES and node.outputs[0] in known:  # the scale of what is moved is looked up before it
            known.setdefault(node.inputs[0], known[node.outputs[0]]._replace(means=()))
    return RewrittenRegion(inner, numerics_of(*numerics), known)


def _in_order(values: MutableSequence[onnx.ValueInfoProto], place: Mapping[str, int]) -> None:
    ordered = sorted(values, key=lambda value: place[value.name])
    del values[:]
    values.extend(ordered)
