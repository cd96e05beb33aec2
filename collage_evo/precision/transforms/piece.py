"""A region with its edits: the model that a backend compiles, and the text for its keys.

The region is rewritten first; nodes for precisions and ranges of tensors are then looked up by the names in the
result.
"""

from __future__ import annotations

from collections.abc import MutableSequence, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import onnx

from collage_evo.graph.convert.extract import canonical_names
from collage_evo.graph.ir.graph import Graph, NodeSet, members
from collage_evo.models.builder import refill
from collage_evo.precision.quantise.arithmetic import Arithmetic
from collage_evo.precision.transforms.catalogue import in_turn
from collage_evo.precision.transforms.edits import Edits, precisions_in, sites_in
from collage_evo.precision.transforms.rewritten import Rewritten
from collage_evo.precision.transforms.transform import Data, Draft, Transform
from collage_evo.rewrites.write import rewriting_key, write_rewrites


@dataclass(frozen=True)
class EditedRegion:
    """The region ``nodes`` of ``graph`` with ``edits``, which name nodes of ``graph``."""

    graph: Graph
    nodes: NodeSet
    edits: Edits
    data: Data

    @property
    def key(self) -> str:
        """Text that a content hash must cover besides the region; empty without edits. Raises as :meth:`model`."""
        sites = sites_in(self.edits)
        parts = [rewriting_key(self.graph, self.nodes, sites)] if sites else []
        draft, writing = self._drafted()
        return " ".join([*parts, *(transform.key(draft, written) for transform, written in writing)])

    def model(self) -> onnx.ModelProto:
        """The region as a standalone model, with the borders of :func:`collage_evo.graph.convert.extract.extract`.

        Raises:
            InputError: a rewrite does not fit; there is int8 without quantisers, or a tensor that needs a range has
                none; or a site has both a rewrite and a precision, and no operator of its replacement can be in that
                precision.
        """
        draft, writing = self._drafted()
        sites = sites_in(self.edits)
        if sites and not writing:
            return write_rewrites(self.graph, self.nodes, sites)
        for transform, written in writing:
            transform.apply(draft, written)
        if sites:
            names = canonical_names(draft.graph, draft.nodes)
            _in_order(draft.model.graph.input, [names[name] for name in draft.graph.inputs])
            _in_order(draft.model.graph.output, [names[name] for name in draft.graph.outputs])
        return draft.model

    def _drafted(self) -> tuple[Draft, list[tuple[Transform, NodeSet]]]:
        """The region before precisions are written into it, and the nodes for each precision."""
        numerics, rewritten = precisions_in(self.edits), self._rewritten
        if rewritten is None:
            return Draft(self.graph, self.nodes, self.data), in_turn(numerics)
        inner = rewritten.graph
        draft = Draft(inner, inner.all_nodes, replace(self.data, ranges=rewritten.ranges))
        return draft, in_turn(rewritten.numerics(self.graph, sites_in(self.edits), numerics, self.data.int8_form))

    @cached_property
    def _rewritten(self) -> Rewritten | None:
        """The rewritten region as a graph; None without rewrites or without precisions."""
        if (sites := sites_in(self.edits)) and precisions_in(self.edits):
            return Rewritten.of(self.graph, self.nodes, sites, self.data.ranges or {})
        return None


def structure_text(graph: Graph, nodes: NodeSet, edits: Edits) -> str:
    """Text that a structural hash must cover besides the region: the precision of its nodes, numbered in order, and
    its rewritten sites; empty without edits."""
    parts = []
    for arithmetic, written in precisions_in(edits):
        places = [str(place) for place, index in enumerate(members(nodes)) if written >> index & 1]
        word = "quantised" if arithmetic is Arithmetic.INT8 else arithmetic.value
        parts += [f"|{word} {','.join(places)}"] if places else []
    sites = sites_in(edits)
    return "".join([*parts, f"|rewritten {rewriting_key(graph, nodes, sites)}" if sites else ""])


def _in_order(values: MutableSequence[onnx.ValueInfoProto], names: Sequence[str]) -> None:
    ordered = sorted(values, key=lambda value: names.index(value.name))
    refill(values, ordered)
