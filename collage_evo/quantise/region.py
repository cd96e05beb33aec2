"""A region in the precisions that its nodes are written in: takes a graph, nodes and numerics, gives a model, keys.

int8 is written first, then bfloat16 around what is left, then weights in int8.
"""

from __future__ import annotations

import hashlib

import onnx

from collage_evo.errors import InputError
from collage_evo.graph.extract import canonical_names, extract
from collage_evo.graph.ir import Graph, NodeSet, members
from collage_evo.quantise.arithmetic import PACKED, Arithmetic
from collage_evo.quantise.casts import write_bfloat16
from collage_evo.quantise.numerics import Numerics, nodes_in
from collage_evo.quantise.rules import Quantisers, Ranges
from collage_evo.quantise.weights import write_packed
from collage_evo.quantise.write import quantisation_key, quantised_region


def written_region(
    graph: Graph, nodes: NodeSet, numerics: Numerics, ranges: Ranges, quantisers: Quantisers | None
) -> onnx.ModelProto:
    """The region ``nodes`` as a model of its own, its borders as :func:`collage_evo.graph.extract.extract` has them.

    ``quantisers``: where the library wants them; None if it takes none.

    Raises:
        InputError: there is int8 without quantisers, or a tensor that needs a range has none.
    """
    in_int8 = nodes_in(numerics, Arithmetic.INT8)
    if in_int8:
        model = quantised_region(graph, nodes, in_int8, ranges, _required(quantisers))
    else:
        model = extract(graph, nodes)
    if in_bfloat16 := nodes_in(numerics, Arithmetic.BFLOAT16):
        names = canonical_names(graph, nodes)
        ends = (name for index in members(nodes & in_bfloat16) for name in graph.nodes[index].outputs if name)
        write_bfloat16(model, {names[name] for name in ends})
    if packed := {index: kind for kind in PACKED for index in members(nodes & nodes_in(numerics, kind))}:
        names = canonical_names(graph, nodes)
        write_packed(model, {names[graph.nodes[index].outputs[0]]: kind for index, kind in packed.items()})
    return model


def writing_key(
    graph: Graph, nodes: NodeSet, numerics: Numerics, ranges: Ranges, quantisers: Quantisers | None
) -> str:
    """What a content hash must cover besides the region: how its nodes are written; empty for nothing."""
    parts = []
    if in_int8 := nodes_in(numerics, Arithmetic.INT8):
        parts.append(quantisation_key(graph, nodes, in_int8, ranges, _required(quantisers)))
    for kind in (Arithmetic.BFLOAT16, *PACKED):
        if own := nodes_in(numerics, kind):
            places = ",".join(str(place) for place, index in enumerate(members(nodes)) if own >> index & 1)
            parts.append(f"{kind.value} {hashlib.sha256(places.encode()).hexdigest()[:32]}")
    return " ".join(parts)


def structure_text(nodes: NodeSet, numerics: Numerics) -> str:
    """What a structural hash must cover besides the region: which of its nodes, counted in their order, are written
    in what; empty for none."""
    found = []
    for arithmetic, own in numerics:
        places = [str(place) for place, index in enumerate(members(nodes)) if own >> index & 1]
        word = "quantised" if arithmetic is Arithmetic.INT8 else arithmetic.value
        found += [f"|{word} {','.join(places)}"] if places else []
    return "".join(found)


def _required(quantisers: Quantisers | None) -> Quantisers:
    if quantisers is None:
        raise InputError("its operators cannot run in int8: this way of compiling it takes no quantisers")
    return quantisers
