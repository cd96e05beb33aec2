"""Writing of rewrites into a region: a standalone model, or its key.

Names are canonical as in ``graph/convert/extract.py``: equal regions rewritten alike give equal models.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import onnx
from onnx import helper, numpy_helper

from collage_evo.digests import digest_of_lines
from collage_evo.errors import InputError
from collage_evo.graph.convert.extract import (
    canonical_names,
    declare,
    extract,
    put_operators,
    renamed_node,
)
from collage_evo.graph.convert.read import declared_tensor
from collage_evo.graph.convert.static import reads
from collage_evo.graph.ir.graph import Graph, GraphCache, NodeSet, Tensor, members, post_order
from collage_evo.rewrites.catalogue import rewrite_named
from collage_evo.rewrites.rewrite import Replacement
from collage_evo.rewrites.sites import Sites

_SMALL = 1024
"""Constants up to this many elements may decide about shapes."""
_PREFIX = "r{}_"
"""Prefix of the names of tensors inside a rewritten site: the number of the site."""


def write_rewrites(graph: Graph, nodes: NodeSet, sites: Sites) -> onnx.ModelProto:
    """The region ``nodes`` as a standalone model in which each of ``sites`` is replaced by its rewrite's operators.

    Its inputs and outputs are those of :func:`collage_evo.graph.convert.extract.extract`, and all tensors inside have
    types.

    Raises:
        InputError: a rewrite is unknown, a site is not in ``nodes`` or overlaps another, or its replacement does
            not fit in its place.
    """
    model = extract(graph, nodes)
    names = dict(canonical_names(graph, nodes))
    nodes_of_model = iter(list(model.graph.node))
    protos = {index: [next(nodes_of_model) for _ in graph.nodes[index].protos] for index in members(nodes)}
    replaced: dict[int, list[onnx.NodeProto]] = {}
    for number, (name, site) in enumerate(sites):
        replacement = _replacement(graph, nodes, name, site)
        for index in members(site):
            if protos.pop(index, None) is None:
                raise InputError(f"{name}: it replaces a node that another rewrite replaces too")
        site_names = {**names, **_new_names(graph, replacement, _PREFIX.format(number))}
        replaced[(site & -site).bit_length() - 1] = [renamed_node(proto, site_names) for proto in replacement.nodes]
        for constant, array in replacement.constants.items():
            model.graph.initializer.append(numpy_helper.from_array(array, site_names[constant]))
        model.graph.value_info.extend(
            declare(tensor, site_names[inner]) for inner, tensor in _inner(graph, site, name, replacement).items()
        )
    pieces = [each for _, each in sorted({**protos, **replaced}.items())]
    ordered = _runnable([proto for each in pieces for proto in each])
    for place, proto in enumerate(ordered):
        proto.name = f"n{place}_{proto.op_type}"
    put_operators(model, ordered)
    return model


def written_names(site: int, names: Iterable[str]) -> list[str]:
    """The ``names`` of tensors that only the rewrite at site number ``site`` made."""
    return [name for name in names if name.startswith(_PREFIX.format(site))]


def written_tensors(graph: Graph, nodes: NodeSet, sites: Sites) -> Mapping[str, str]:
    """Tensors of the model of :func:`write_rewrites`, with those of ``graph`` that hold the same numbers: all that
    the region had before, and those that rewrites declare the same."""
    written = {new: name for name, new in canonical_names(graph, nodes).items()}
    for number, (name, site) in enumerate(sites):
        replacement = _replacement(graph, nodes, name, site)
        site_names = _new_names(graph, replacement, _PREFIX.format(number))
        written |= {site_names[inner]: outer for inner, outer in replacement.same.items()}
    return written


def rewriting_key(graph: Graph, nodes: NodeSet, sites: Sites) -> str:
    """Text that a hash of the region's structure or content must cover besides it: its sites and their rewrites."""
    place = {index: position for position, index in enumerate(members(nodes))}
    parts = []
    for name, site in sites:
        _require_inside(nodes, name, site)
        parts.append(f"{name} {','.join(str(place[index]) for index in members(site))} {_content(graph, name, site)}")
    return digest_of_lines(parts)


@GraphCache
def _content(graph: Graph, name: str, site: NodeSet) -> str:
    """Digest of the replacement of ``site``, independent of its position."""
    return digest_of_lines(_written(graph, site, _replacement(graph, site, name, site)))


def _written(graph: Graph, site: NodeSet, replacement: Replacement) -> Iterable[str]:
    """The content of a replacement, independent of its position. Constants follow from the site's: types suffice."""
    names = {**canonical_names(graph, site), **_new_names(graph, replacement, "r")}
    for proto in replacement.nodes:
        yield renamed_node(proto, names).SerializeToString(deterministic=True).hex()
    for name, array in replacement.constants.items():
        steers = array.size == 1 or (array.size <= _SMALL and array.dtype.kind in "iub")
        value = array.tobytes().hex() if steers else ""
        yield f"{names[name]} {array.dtype}{list(array.shape)}{value}"


def _replacement(graph: Graph, nodes: NodeSet, name: str, site: NodeSet) -> Replacement:
    """The replacement of ``site`` by the rewrite ``name``.

    Raises:
        InputError: the rewrite is unknown, or uses the graph's names for something else.
    """
    _require_inside(nodes, name, site)
    rewrite = rewrite_named(name)
    latest, key = _latest(graph), (id(rewrite), site)
    if key in latest:
        return latest[key]
    replacement = rewrite.apply(graph, site)
    entering, leaving = graph.boundary(site)
    constants = {read for index in members(site) for read in graph.nodes[index].inputs if read in graph.constants}
    readable = {*entering, *constants, *replacement.constants}
    for proto in replacement.nodes:
        if unknown := [read for read in reads(proto) if read not in readable]:
            raise InputError(f"{name}: its {proto.op_type} reads {unknown[0]!r}, which nothing before it makes")
        readable |= set(proto.output)
    outputs = {output for proto in replacement.nodes for output in proto.output if output}
    if missing := [output for output in leaving if output not in outputs]:
        raise InputError(f"{name}: it does not make {missing[0]!r}")
    if clashing := sorted((outputs | set(replacement.constants)) & set(graph.tensors) - set(leaving)):
        raise InputError(f"{name}: it calls a tensor of its own {clashing[0]!r}, as another one is called")
    latest.clear()
    latest[key] = replacement
    return replacement


def _require_inside(nodes: NodeSet, name: str, site: NodeSet) -> None:
    if site & ~nodes:
        raise InputError(f"{name}: it replaces nodes that are not in the region")


@GraphCache
def _latest(graph: Graph) -> dict[tuple[int, NodeSet], Replacement]:
    """The latest replacement: a region is written several times in a row. Only one, because it holds weights."""
    return {}


def _new_names(graph: Graph, replacement: Replacement, prefix: str) -> dict[str, str]:
    """Names in the model of the replacement's new tensors and constants, by their names in the replacement."""
    outputs = (name for proto in replacement.nodes for name in proto.output)
    new = [name for name in (*replacement.constants, *outputs) if name and name not in graph.tensors]
    return {name: f"{prefix}{place}" for place, name in enumerate(dict.fromkeys(new))}


def _inner(graph: Graph, site: NodeSet, rewrite: str, replacement: Replacement) -> Mapping[str, Tensor]:
    """The types of the tensors inside a replacement.

    Raises:
        InputError: ONNX cannot infer one, or the replacement's outputs have other types than the site's.
    """
    entering, leaving = graph.boundary(site)
    arrays = dict(replacement.constants)
    read = {name for proto in replacement.nodes for name in reads(proto)}
    arrays |= {name: graph.constants[name] for name in sorted(read) if name in graph.constants}
    light = [numpy_helper.from_array(array, n) for n, array in arrays.items() if array.size <= _SMALL]
    types = {n: Tensor(n, array.dtype.name, array.shape) for n, array in arrays.items() if array.size > _SMALL}
    heavy = [declare(tensor, name) for name, tensor in types.items()]
    inputs = [declare(graph.tensors[name], name) for name in entering]
    outputs = [onnx.ValueInfoProto(name=name) for name in leaving]
    body = helper.make_graph(list(replacement.nodes), "site", [*inputs, *heavy], outputs, light)
    model = helper.make_model(body, opset_imports=graph.model.opset_import, ir_version=graph.model.ir_version)
    try:
        inferred = onnx.shape_inference.infer_shapes(model, strict_mode=True, data_prop=True).graph
    except Exception as error:  # exceptions of several kinds, each a fault of the rewrite
        raise InputError(f"{rewrite}: what it writes is no ONNX graph: {' '.join(str(error).split())}") from error
    declared = (declared_tensor(value.name, value.type) for value in (*inferred.value_info, *inferred.output))
    types_inferred = {tensor.name: tensor for tensor in declared if tensor.static}
    for name in leaving:
        if (tensor := types_inferred.get(name)) is not None and tensor != graph.tensors[name]:
            raise InputError(f"{rewrite}: it makes {tensor.dtype}{list(tensor.shape)} of {name}")
    inner = {
        name: types_inferred.get(name)
        for proto in replacement.nodes
        for name in proto.output
        if name and name not in graph.tensors
    }
    if unknown := [name for name, tensor in inner.items() if tensor is None]:
        raise InputError(f"{rewrite}: ONNX does not tell the type of {unknown[0]!r}, which it makes")
    return {name: tensor for name, tensor in inner.items() if tensor is not None}


def _runnable(protos: Sequence[onnx.NodeProto]) -> list[onnx.NodeProto]:
    """Operators in an order in which they can run, the given one where it is free.

    Raises:
        InputError: some wait for each other: two sites, each convex, may be entwined.
    """
    maker = {name: place for place, proto in enumerate(protos) for name in proto.output if name}

    def before(place: int) -> list[int]:
        return [maker[name] for name in reads(protos[place]) if name in maker]

    order = post_order(range(len(protos)), before)
    position = {place: number for number, place in enumerate(order)}
    if any(position[other] >= position[place] for place in order for other in before(place)):
        raise InputError("rewritten operators would wait for each other")
    return [protos[place] for place in order]
