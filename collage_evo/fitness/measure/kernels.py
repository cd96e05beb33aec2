"""Whose work a library's kernels do: takes what its profiler told of a region, gives node sets with their ms."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import onnx

from collage_evo.backends.profiled import KernelTime, names_in
from collage_evo.graph.extract import canonical_names
from collage_evo.graph.ir import Graph, NodeSet, members
from collage_evo.graph.roofline import heavy_operators
from collage_evo.patterns.match import Region

_RAW = "_raw"
"""Ends what an output is called before its quantisers (``quantise/write.py``)."""


def kernels_of(
    graph: Graph, region: Region, model: onnx.ModelProto, told: Sequence[KernelTime]
) -> list[tuple[NodeSet, float]]:
    """Each kernel's nodes of ``graph`` and its ms; ``model`` is what was compiled for ``region``.

    A heavy operator that no kernel is called after was fused into the one of the next operator behind it that one is.
    """
    owners = node_owners(graph, region, model)
    sets = []
    for kernel in told:
        nodes = 0
        for name in names_in(kernel.label):
            nodes |= owners.get(name, 0)
        sets.append(nodes)
    times = [kernel.ms for kernel in told]
    named = 0
    for nodes in sets:
        named |= nodes
    for silent in members(region.nodes & ~named):
        if heavy_operators(graph, 1 << silent):
            holder = _next_named(graph, silent, region.nodes, named)
            holding = [place for place, nodes in enumerate(sets) if nodes & holder]
            if holding:
                sets[max(holding, key=lambda place: times[place])] |= 1 << silent
    return list(zip(sets, times, strict=True))


def node_owners(graph: Graph, region: Region, model: onnx.ModelProto) -> Mapping[str, NodeSet]:
    """For each node and tensor that ``model`` makes, by name, the nodes of ``graph`` whose work that is.

    What only the model has, such as a quantiser, belongs to who reads it; what a rewrite wrote, to all of its site.
    """
    made = {inner: graph.producer[name] for name, inner in canonical_names(graph, region.nodes).items()
            if name in graph.producer and region.nodes >> graph.producer[name] & 1}  # fmt: skip
    rewritten = {node: site for _, site in region.rewrites for node in members(site)}
    owners: dict[str, NodeSet] = {}
    readers: dict[str, NodeSet] = {}
    for proto in reversed(model.graph.node):
        nodes = 0
        for output in proto.output:
            if (maker := made.get(output.removesuffix(_RAW))) is not None:
                nodes |= rewritten.get(maker, 1 << maker)
        for output in proto.output if not nodes else ():
            nodes = nodes or readers.get(output, 0)
        owners[proto.name] = nodes
        owners |= dict.fromkeys(filter(None, proto.output), nodes)
        for name in proto.input:
            readers.setdefault(name, nodes)
    return owners


def _next_named(graph: Graph, node: int, inside: NodeSet, named: NodeSet) -> NodeSet:
    """The nearest of ``named`` behind ``node``, else before it; 0 if there are none."""
    for along in (graph.succ, graph.pred):
        reached = 1 << node
        while reached:
            following = 0
            for each in members(reached):
                following |= along[each]
            reached = following & inside
            if found := reached & named:
                return found & -found
    return 0
