"""Precisions of a rewritten piece: the nodes that each rewrite wrote, the ranges of tensors, the nodes of precisions.

The replacement of a site has the site's precision as far as it can.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from collage_evo.errors import InputError
from collage_evo.graph.convert.extract import canonical_names
from collage_evo.graph.convert.read import build_graph
from collage_evo.graph.ir.graph import Graph, NodeSet, members, node_set, union
from collage_evo.precision.quantise.arithmetic import Arithmetic
from collage_evo.precision.quantise.form import Int8Form
from collage_evo.precision.quantise.rounded import share_rounded
from collage_evo.precision.quantise.rules import PASSING, Range, Ranges, quantised_inputs
from collage_evo.precision.transforms.catalogue import transform_of
from collage_evo.precision.transforms.edits import Numerics, numerics_of
from collage_evo.precision.transforms.transform import Data
from collage_evo.rewrites.sites import Sites
from collage_evo.rewrites.write import write_rewrites, written_names, written_tensors

_MOVES = PASSING - {"MaxPool"} | {"Split"}
"""Operators that preserve all values: inputs have the range of outputs."""
_WITHIN = PASSING | {"AveragePool", "Concat", "GlobalAveragePool", "Slice", "Split"}
"""Operators whose outputs are within the range of their inputs."""


@dataclass(frozen=True)
class Rewritten:
    """A rewritten piece as a graph, the nodes there that each rewrite wrote, and the ranges of its tensors."""

    graph: Graph
    names: Mapping[str, str]
    """Names of the tensors that the piece had before."""
    wrote: tuple[NodeSet, ...]
    ranges: Ranges

    @classmethod
    def of(cls, graph: Graph, nodes: NodeSet, sites: Sites, ranges: Ranges) -> Rewritten:
        """``nodes`` after rewriting.

        Raises:
            InputError: a rewrite does not fit.
        """
        inner = build_graph(write_rewrites(graph, nodes, sites))
        share_rounded(graph, inner)
        names = canonical_names(graph, nodes)
        wrote = []
        for number, (_, site) in enumerate(sites):
            leaving = {names[name] for name in graph.boundary(site)[1]}
            ours = (n.index for n in inner.nodes if leaving & {*n.outputs} or written_names(number, n.outputs))
            wrote.append(node_set(ours))
        holds = written_tensors(graph, nodes, sites) if ranges else {}
        known_ranges = _known(inner, {inside: ranges[name] for inside, name in holds.items() if name in ranges})
        return cls(inner, names, tuple(wrote), known_ranges)

    def makers(self, graph: Graph, sites: Sites) -> Iterator[tuple[str, NodeSet]]:
        """Each tensor, by its name in the written piece, with the nodes of ``graph`` that it comes from: for a
        replacement, all of its site."""
        before = {inner: graph.producer.get(name, 0) for name, inner in self.names.items()}
        now = canonical_names(self.graph, self.graph.all_nodes)
        for name, maker in self.graph.producer.items():
            places = zip(sites, self.wrote, strict=True)
            site = next((nodes for (_, nodes), wrote in places if wrote >> maker & 1), 0)
            yield now[name], site or 1 << before[name]

    def able(self, arithmetic: Arithmetic, nodes: NodeSet, form: Int8Form | None) -> NodeSet:
        """The ``nodes``, all written by a rewrite, into which ``arithmetic`` can be written.

        Includes moves of their inputs from operators that no rewrite wrote, which then move the smaller integers.
        Between two replacements, moves that undo one another stay adjacent, so that the library can remove them.
        """
        transform = transform_of(arithmetic)
        if transform is None or not transform.into_rewritten:
            return 0
        data = Data(self.ranges, form)
        able = transform.sites(self.graph, nodes, data)
        moves = transform.sites(self.graph, nodes, replace(data, everything=True))
        return able | self._moves_before(able, moves & nodes)

    def _moves_before(self, able: NodeSet, moves: NodeSet) -> NodeSet:
        """Those of ``moves`` that only move integer inputs of ``able``, from operators that no rewrite wrote."""
        written, chosen = union(self.wrote), 0
        nodes = (self.graph.nodes[index] for index in members(able))
        for name in (node.inputs[place] for node in nodes for place in quantised_inputs(self.graph, node)):
            passed, maker = 0, self.graph.producer.get(name)
            while maker is not None and moves >> maker & 1 and self.graph.nodes[maker].op_type in _MOVES:
                passed |= 1 << maker
                maker = self.graph.producer.get(self.graph.nodes[maker].inputs[0])
            if maker is None or not written >> maker & 1:
                chosen |= passed
        return chosen

    def numerics(self, graph: Graph, sites: Sites, numerics: Numerics, form: Int8Form | None) -> Numerics:
        """Map ``numerics`` from nodes of ``graph`` to nodes of the piece, in which ``sites`` are rewritten.

        Raises:
            InputError: the piece no longer reads all of its inputs, or no operator of a replacement can be in the
                precision of its site.
        """
        if unread := [name for name in self.graph.inputs if name not in self.graph.consumers]:
            raise InputError(
                f"rewritten, the region does not read its input {unread[0]}: no precision can be written into it"
            )
        rewritten = union(site for _, site in sites)
        parts = []
        for arithmetic, written in numerics:
            exact_outputs = (graph.nodes[index].outputs[0] for index in members(written & ~rewritten))
            parts.append((arithmetic, node_set(self.graph.producer[self.names[name]] for name in exact_outputs)))
            for (name, site), wrote in zip(sites, self.wrote, strict=True):
                if site & written:
                    if not (able := self.able(arithmetic, wrote, form)):
                        raise InputError(f"nothing of what {name} writes can run in {arithmetic.value} here")
                    parts.append((arithmetic, able))
        return numerics_of(*parts)


def _known(inner: Graph, ranges: Mapping[str, Range]) -> Ranges:
    """``ranges``, and those that follow for the new tensors of the rewritten piece."""
    all_ranges = {**ranges}
    for node in reversed(inner.nodes):
        ranges_out = [all_ranges.get(name) for name in node.outputs]
        # A tensor that only a Relu reads is quantised behind the Relu.
        sole = node.op_type == "Relu" and len(inner.consumers[node.inputs[0]]) == 1
        if (sole or node.op_type in _MOVES) and (of := [one for one in ranges_out if one]) == ranges_out:
            all_ranges.setdefault(node.inputs[0], _around(of))
    for node in inner.nodes:
        joined = node.inputs if node.op_type == "Concat" else node.inputs[:1]
        if node.op_type in _WITHIN and all(name in all_ranges for name in joined):
            all_ranges.setdefault(node.outputs[0], _around([all_ranges[name] for name in joined]))
    return all_ranges


def _around(ranges: Sequence[Range]) -> Range:
    """The union of ``ranges``."""
    return Range(min(one.low for one in ranges), max(one.high for one in ranges))
