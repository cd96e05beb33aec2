"""Attribution of a library's kernels to nodes: reads a region's profile, returns node sets with their ms."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence, Set
from itertools import chain

import onnx

from collage_evo.backends.profiled import Kernel, KernelTime, names_in
from collage_evo.graph.convert.extract import canonical_names
from collage_evo.graph.convert.origin import node_names
from collage_evo.graph.ir.graph import Graph, NodeSet, members, post_order, union
from collage_evo.graph.ir.operators import HEAVY
from collage_evo.graph.ir.roofline import heavy_operators
from collage_evo.patterns.match import Region
from collage_evo.precision.transforms.casts import AS
from collage_evo.precision.transforms.rewritten import Rewritten
from collage_evo.runtime.trace import named_nodes

_FORMS = re.compile(rf"(_raw|_product|_column)?({AS}[a-z0-9-]+)?$")
"""Suffixes of output names before their quantisers, their bias or their own shape, or in a smaller type
(``precision/quantise/write.py``)."""
_WRITTEN = re.compile(r"r(\d+)_\d+$")
"""Names of tensors inside a rewritten site (``rewrites/write.py``): the number of the site, and their own name."""


def kernels_of(
    graph: Graph, region: Region, model: onnx.ModelProto, kernel_times: Sequence[KernelTime]
) -> list[tuple[NodeSet, float]]:
    """Each kernel's nodes of ``graph`` and its ms; ``model`` is what was compiled for ``region``.

    A heavy operator without a kernel of its name was fused into the kernel of the next named operator behind it.
    """
    owners, readers = node_owners(graph, region, model)
    labels = [names_in(kernel.label) for kernel in kernel_times]
    # A quantiser may be fused into a kernel before its reader, which then computes it.
    sets = [_union(owners, names) or _union(readers, names) for names in labels]
    times = [kernel.ms for kernel in kernel_times]
    named = union(sets) & ~_fused_behind(region, model, owners, {name for names in labels for name in names})
    for silent in members(region.nodes & ~named):
        if heavy_operators(graph, 1 << silent):
            holder = _next_named(graph, silent, region.nodes, named)
            holding = [place for place, nodes in enumerate(sets) if nodes & holder]
            if holding:
                sets[max(holding, key=lambda place: times[place])] |= 1 << silent
    return list(zip(sets, times, strict=True))


def _fused_behind(region: Region, model: onnx.ModelProto, owners: Mapping[str, NodeSet], called: Set[str]) -> NodeSet:
    """Rewritten sites with a heavy operator after which, and after whose successors there, no kernel is named."""
    heard: dict[NodeSet, bool] = {}
    sites = {site for _, site in region.rewrites}
    for proto in model.graph.node:
        site = owners.get(proto.name, 0)
        if site in sites and (site in heard or proto.op_type in HEAVY):
            heard[site] = heard.get(site, False) or not called.isdisjoint((proto.name, *proto.output))
    return union(site for site, once in heard.items() if not once)


def _union(of: Mapping[str, NodeSet], names: Iterable[str]) -> NodeSet:
    return union(of.get(name, 0) for name in names)


def nodes_of_kernels(
    graph: Graph, region: Region, model: onnx.ModelProto, kernels: Sequence[Kernel]
) -> list[tuple[str, ...]]:
    """For each of ``kernels`` its nodes as :func:`kernels_of` finds them, by their names in the user's file."""
    timed = [KernelTime(kernel.label, kernel.us / 1e3) for kernel in kernels]
    return [
        tuple(name for node in members(nodes) for name in graph.nodes[node].names)
        for nodes, _ in kernels_of(graph, region, model, timed)
    ]


def nodes_of_whole(model: onnx.ModelProto, kernels: Sequence[Kernel]) -> list[tuple[str, ...]]:
    """For each of ``kernels`` of ``model``, which a library compiled as it is, its nodes: those whose names, or those
    of their outputs, are in its label, and those before them that are in no label, and so were fused."""
    nodes = list(zip(node_names(model), model.graph.node, strict=True))
    places = {
        key: place
        for place, (name, one) in enumerate(nodes)
        for key in (name, *one.output)
        if key and one.op_type != "Constant"
    }
    found = named_nodes(places, kernels)
    named = set(chain.from_iterable(found))
    fused = [
        [places[name] for name in one.input if name in places and places[name] not in named] for _, one in nodes
    ]
    return [tuple(nodes[place][0] for place in post_order(some, fused.__getitem__)) for some in found]


def node_owners(
    graph: Graph, region: Region, model: onnx.ModelProto
) -> tuple[Mapping[str, NodeSet], Mapping[str, NodeSet]]:
    """For each node and tensor of ``model``, by name, the nodes of ``graph`` that produce it; for those that exist in
    ``model`` only, such as a quantiser, the nodes that read it.

    Everything that a rewrite wrote belongs to all nodes of its site.
    """
    rewritten = {node: site for _, site in region.rewrites for node in members(site)}
    producers = {
        inner: rewritten.get(node, 1 << node)
        for name, inner in canonical_names(graph, region.nodes).items()
        if (node := graph.producer.get(name, -1)) >= 0 and region.nodes >> node & 1
    }
    if region.rewrites and region.numerics:
        producers = dict(Rewritten.of(graph, region.nodes, region.rewrites, {}).makers(graph, region.rewrites))
    sites = [site for _, site in region.rewrites]
    owners: dict[str, NodeSet] = {}
    readers: dict[str, NodeSet] = {}
    reading: dict[str, NodeSet] = {}
    for proto in reversed(model.graph.node):
        written_nodes = 0
        for output in proto.output:
            if nodes := producers.get(_FORMS.sub("", output, count=1), 0):
                written_nodes |= nodes
            elif written := _WRITTEN.match(output):
                written_nodes |= sites[int(written[1])]
        nodes_of_proto = written_nodes or next((reading[output] for output in proto.output if output in reading), 0)
        into = owners if written_nodes else readers
        into |= dict.fromkeys((proto.name, *filter(None, proto.output)), nodes_of_proto)
        for name in proto.input:
            reading.setdefault(name, nodes_of_proto)
    return owners, readers


def _next_named(graph: Graph, node: int, inside: NodeSet, named: NodeSet) -> NodeSet:
    """The nearest of ``named`` behind ``node``, else before it; 0 if there are none."""
    for along in (graph.succ, graph.pred):
        reached = 1 << node
        while reached:
            reached = union(along[index] for index in members(reached)) & inside
            if named_reached := reached & named:
                return named_reached & -named_reached
    return 0
