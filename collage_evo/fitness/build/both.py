"""A region with rewrites in which operators run in int8: takes a graph and the region, gives its model.

It is rewritten first; what is quantised, and the ranges of tensors, are then looked up under the names there.
"""

from __future__ import annotations

from collections.abc import Mapping, MutableSequence
from dataclasses import dataclass

import onnx

from collage_evo.errors import InputError
from collage_evo.graph.extract import canonical_names
from collage_evo.graph.ir import Graph, NodeSet, members, node_set
from collage_evo.graph.read import build_graph
from collage_evo.patterns.match import Region
from collage_evo.quantise.rules import PASSING, Quantisers, Ranges
from collage_evo.quantise.write import quantisation_key, quantised_region
from collage_evo.rewrites.write import write_rewrites

_MOVES = PASSING - {"MaxPool"}
"""Operators that change no value: what goes in has the range of what comes out."""


@dataclass(frozen=True)
class RewrittenRegion:
    """A rewritten region as a graph, the nodes in there that run in int8, and the ranges of its tensors."""

    graph: Graph
    quantised: NodeSet
    ranges: Ranges

    def key(self, quantisers: Quantisers) -> str:
        """What a content hash must cover besides the region and its rewrites."""
        return quantisation_key(self.graph, self.graph.all_nodes, self.quantised, self.ranges, quantisers)

    def model(self, quantisers: Quantisers) -> onnx.ModelProto:
        """The region as a model of its own, with quantisers written into it, its borders in their order."""
        model = quantised_region(self.graph, self.graph.all_nodes, self.quantised, self.ranges, quantisers)
        names = canonical_names(self.graph, self.graph.all_nodes)
        _in_order(model.graph.input, {names[name]: place for place, name in enumerate(self.graph.inputs)})
        _in_order(model.graph.output, {names[name]: place for place, name in enumerate(self.graph.outputs)})
        return model


def rewritten_region(graph: Graph, region: Region, ranges: Ranges) -> RewrittenRegion:
    """``region`` after rewriting.

    Raises:
        InputError: a rewrite does not fit, reads less than the region does, or took away what is to run in int8.
    """
    inner = build_graph(write_rewrites(graph, region.nodes, region.rewrites))
    names = canonical_names(graph, region.nodes)
    if unread := [name for name in inner.inputs if name not in inner.consumers]:
        raise InputError(f"rewritten, the region does not read its input {unread[0]}: int8 cannot be written into it")
    ends = [names[graph.nodes[index].outputs[0]] for index in members(region.quantised)]
    if any(end not in inner.producer for end in ends):
        raise InputError("a node that is to run in int8 is rewritten as well")
    known = {names[name]: its for name, its in ranges.items() if name in names}
    for node in reversed(inner.nodes):
        if node.op_type in _MOVES and node.outputs[0] in known:  # the scale of what is moved is looked up before it
            known.setdefault(node.inputs[0], known[node.outputs[0]]._replace(means=()))
    return RewrittenRegion(inner, node_set(inner.producer[end] for end in ends), known)


def _in_order(values: MutableSequence[onnx.ValueInfoProto], place: Mapping[str, int]) -> None:
    ordered = sorted(values, key=lambda value: place[value.name])
    del values[:]
    values.extend(ordered)
