"""Rewrites and precisions in one piece: takes a graph, nodes and what is written into them, gives the piece's model.

It is rewritten first; which of its operators are written in which precision, and the ranges of tensors, are then
looked up under the names there. What stands in place of a site is in the site's precision as far as it can be.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, MutableSequence
from dataclasses import dataclass
from functools import reduce
from operator import or_

import onnx

from collage_evo.errors import InputError
from collage_evo.graph.extract import canonical_names
from collage_evo.graph.ir import Graph, NodeSet, members, node_set
from collage_evo.graph.read import build_graph
from collage_evo.quantise.arithmetic import Arithmetic
from collage_evo.quantise.castable import castable
from collage_evo.quantise.numerics import Numerics, numerics_of
from collage_evo.quantise.region import writing_key, written_region
from collage_evo.quantise.rules import PASSING, Quantisers, Range, Ranges, quantisable
from collage_evo.rewrites.rewrite import Sites
from collage_evo.rewrites.write import write_rewrites, written_names

_MOVES = PASSING - {"MaxPool"} | {"Split"}
"""Operators that keep all values: what goes in has the range of what comes out."""
_WITHIN = PASSING | {"AveragePool", "GlobalAveragePool", "Slice", "Split"}
"""Operators whose results lie within the range of what goes in."""


@dataclass(frozen=True)
class Rewritten:
    """A rewritten piece as a graph, the nodes there that each rewrite wrote, and the ranges of its tensors."""

    graph: Graph
    names: Mapping[str, str]
    """Of the tensors that the piece had before."""
    wrote: tuple[NodeSet, ...]
    ranges: Ranges

    @classmethod
    def of(cls, graph: Graph, nodes: NodeSet, sites: Sites, ranges: Ranges) -> Rewritten:
        """``nodes`` after rewriting.

        Raises:
            InputError: a rewrite does not fit.
        """
        inner = build_graph(write_rewrites(graph, nodes, sites))
        names = canonical_names(graph, nodes)
        wrote = []
        for number, (_, site) in enumerate(sites):
            leaving = {names[name] for name in graph.boundary(site)[1]}
            ours = (n.index for n in inner.nodes if leaving & {*n.outputs} or written_names(number, n.outputs))
            wrote.append(node_set(ours))
        known = _known(inner, {names[name]: its for name, its in ranges.items() if name in names})
        return cls(inner, names, tuple(wrote), known)

    def makers(self, graph: Graph, sites: Sites) -> Iterator[tuple[str, NodeSet]]:
        """Each tensor, by its name in what is written of the piece, and the nodes of ``graph`` that it comes from: of
        what a rewrite wrote, all of its site."""
        before = {inner: graph.producer.get(name, 0) for name, inner in self.names.items()}
        now = canonical_names(self.graph, self.graph.all_nodes)
        for name, maker in self.graph.producer.items():
            places = zip(sites, self.wrote, strict=True)
            site = next((nodes for (_, nodes), wrote in places if wrote >> maker & 1), 0)
            yield now[name], site or 1 << before[name]

    def able(self, arithmetic: Arithmetic, nodes: NodeSet, quantisers: Quantisers | None) -> NodeSet:
        """Which of its ``nodes`` can be written in ``arithmetic``."""
        if arithmetic is Arithmetic.BFLOAT16:
            return castable(self.graph, nodes)
        return quantisable(self.graph, nodes, quantisers, ranges=self.ranges) if quantisers is not None else 0


@dataclass(frozen=True)
class WrittenRegion:
    """A rewritten region, and what its nodes are written in."""

    rewritten: Rewritten
    numerics: Numerics
    quantisers: Quantisers | None

    @classmethod
    def of(
        cls,
        graph: Graph,
        nodes: NodeSet,
        sites: Sites,
        numerics: Numerics,
        ranges: Ranges,
        quantisers: Quantisers | None,
    ) -> WrittenRegion:
        """``nodes`` with ``sites`` rewritten and ``numerics`` written in, both by nodes of ``graph``.

        Raises:
            InputError: a rewrite does not fit, reads less than the region does, or writes nothing that can be in
                the precision of its site.
        """
        found = Rewritten.of(graph, nodes, sites, ranges)
        inner, names = found.graph, found.names
        if unread := [name for name in inner.inputs if name not in inner.consumers]:
            raise InputError(
                f"rewritten, the region does not read its input {unread[0]}: no precision can be written into it"
            )
        rewritten = reduce(or_, (site for _, site in sites), 0)
        parts = []
        for arithmetic, own in numerics:
            kept = members(own & ~rewritten)
            parts.append((arithmetic, node_set(inner.producer[names[graph.nodes[i].outputs[0]]] for i in kept)))
            for (name, site), wrote in zip(sites, found.wrote, strict=True):
                if site & own:
                    able = found.able(arithmetic, wrote, quantisers)
                    if not able:
                        raise InputError(f"nothing of what {name} writes can run in {arithmetic.value} here")
                    parts.append((arithmetic, able))
        return cls(found, numerics_of(*parts), quantisers)

    @property
    def key(self) -> str:
        """What a content hash must cover besides the region and its rewrites."""
        graph = self.rewritten.graph
        return writing_key(graph, graph.all_nodes, self.numerics, self.rewritten.ranges, self.quantisers)

    def model(self) -> onnx.ModelProto:
        """The region as a model of its own, in the precisions that are asked for, its borders in their order."""
        graph = self.rewritten.graph
        model = written_region(graph, graph.all_nodes, self.numerics, self.rewritten.ranges, self.quantisers)
        names = canonical_names(graph, graph.all_nodes)
        _in_order(model.graph.input, {names[name]: place for place, name in enumerate(graph.inputs)})
        _in_order(model.graph.output, {names[name]: place for place, name in enumerate(graph.outputs)})
        return model


def _known(inner: Graph, ranges: Mapping[str, Range]) -> Ranges:
    """``ranges``, and those that follow for tensors that only the rewritten piece has."""
    known = {**ranges}
    for node in reversed(inner.nodes):
        made = [known.get(name) for name in node.outputs]
        # What a Relu alone reads is quantised behind it.
        sole = node.op_type == "Relu" and len(inner.consumers[node.inputs[0]]) == 1
        if (sole or node.op_type in _MOVES) and (of := [one for one in made if one]) == made:
            known.setdefault(node.inputs[0], Range(min(one.low for one in of), max(one.high for one in of)))
    for node in inner.nodes:
        if node.op_type in _WITHIN and node.inputs[0] in known:
            known.setdefault(node.outputs[0], known[node.inputs[0]]._replace(means=()))
    return known


def _in_order(values: MutableSequence[onnx.ValueInfoProto], place: Mapping[str, int]) -> None:
    ordered = sorted(values, key=lambda value: place[value.name])
    del values[:]
    values.extend(ordered)
