"""Extraction of a region as a standalone model, and hashes of its structure and content.

Equal regions give equal models wherever they are in the graph: every name is canonical. Inputs are ``i0``, outputs
``o0``, tensors inside ``t0``, constants ``w0``, nodes ``n0_Conv``, each numbered by first appearance.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
import onnx
from onnx import helper, numpy_helper

from collage_evo.digests import digest_of_lines
from collage_evo.graph.convert.static import reads
from collage_evo.graph.ir.graph import COMPOSITE, OPAQUE, Graph, GraphCache, Node, NodeSet, Tensor, members
from collage_evo.graph.ir.weights import content_digest, is_placed
from collage_evo.models.builder import refill

_VALUE_LIMIT = 64
"""Integer constants up to this many elements are part of the structure: they are shapes, axes and bounds."""


@dataclass(frozen=True)
class _Region:
    """A region's nodes, its canonical tensor names, and its constants in order of first use."""

    nodes: tuple[Node, ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    constants: tuple[str, ...]
    names: dict[str, str]


def _region(graph: Graph, nodes: NodeSet) -> _Region:
    inputs, outputs = graph.boundary(nodes)
    chosen = tuple(graph.nodes[index] for index in members(nodes))
    names = {"": ""}
    names.update((name, f"i{k}") for k, name in enumerate(inputs))
    names.update((name, f"o{k}") for k, name in enumerate(outputs))
    constants: list[str] = []
    inside = 0
    for node in chosen:
        for name in node.inputs:
            if name not in names and name in graph.constants:
                names[name] = f"w{len(constants)}"
                constants.append(name)
        for name in (name for proto in node.protos for name in proto.output):
            if name not in names:
                names[name] = f"t{inside}"
                inside += 1
    return _Region(chosen, inputs, outputs, tuple(constants), names)


def extract(graph: Graph, nodes: NodeSet) -> onnx.ModelProto:
    """The region as a standalone model.

    Its inputs and outputs are those of ``graph.boundary(nodes)``, in that order, with static types; sizes that vary
    stay open. Weights of the graph that are in files of this process (``graph/ir/weights.py``) stay there.
    """
    region = _region(graph, nodes)
    names = region.names
    protos: list[onnx.NodeProto] = []
    for proto in (proto for node in region.nodes for proto in node.protos):
        renamed = renamed_node(proto, names)
        renamed.name = f"n{len(protos)}_{proto.op_type}"
        protos.append(renamed)
    inside = [name for node in region.nodes for name in node.outputs if names[name].startswith("t")]
    # Assembled in place: onnx.helper's make_graph and make_model would each copy all weights once more.
    model = onnx.ModelProto(ir_version=graph.model.ir_version)
    model.opset_import.extend(graph.model.opset_import)
    model.graph.name = "region"
    model.graph.node.extend(protos)
    model.graph.input.extend(declare(graph.tensors[name], names[name]) for name in region.inputs)
    for value, name in zip(model.graph.input, region.inputs, strict=True):
        value.type.MergeFrom(_opaque_type(graph, name))
    model.graph.output.extend(declare(graph.tensors[name], names[name]) for name in region.outputs)
    model.graph.value_info.extend(declare(graph.tensors[name], names[name]) for name in inside)
    placed = _placed(graph)
    for name in region.constants:  # one at a time: only one is in memory twice
        if name in placed:
            model.graph.initializer.add().CopyFrom(placed[name])
            model.graph.initializer[-1].name = names[name]
        else:
            model.graph.initializer.append(numpy_helper.from_array(graph.constants[name], names[name]))
    return model


@GraphCache
def _placed(graph: Graph) -> Mapping[str, onnx.TensorProto]:
    """Initializers whose content is in files of this process, by name."""
    return {one.name: one for one in graph.model.graph.initializer if is_placed(one)}


def canonical_names(graph: Graph, nodes: NodeSet) -> Mapping[str, str]:
    """Names in :func:`extract`'s model of the tensors in and around the region, by their names in ``graph``."""
    return _region(graph, nodes).names


def structural_hash(graph: Graph, nodes: NodeSet) -> str:
    """Equal for regions that take equally long: 32 hexadecimal digits.

    Covers operators, attributes, wiring, types and shapes, which tensors leave, and the values of constants that
    determine behaviour (scalars, integers up to 64 elements), but not of weights.
    """
    return digest_of_lines(_structure(graph, _region(graph, nodes)))


def content_hash(graph: Graph, nodes: NodeSet) -> str:
    """Equal for regions that compute the same: 32 hexadecimal digits.

    Covers the structure and every constant's bytes.
    """
    region = _region(graph, nodes)
    weights = [constant_digest(graph, name) for name in region.constants]
    return digest_of_lines([*_structure(graph, region), *weights])


def _structure(graph: Graph, region: _Region) -> list[str]:
    names = region.names
    parts = sorted(f"opset {entry.domain}:{entry.version}" for entry in graph.model.opset_import)
    for name in (*region.inputs, *region.outputs):
        kind = _opaque_type(graph, name).SerializeToString(deterministic=True).hex() if name in region.inputs else ""
        parts.append(f"{names[name]} {_type(graph.tensors[name])}{kind}")
    for name in region.constants:
        parts.append(f"{names[name]} {_type(graph.tensors[name])}{_steering_value(graph.constants[name])}")
    for node in region.nodes:
        types = ";".join(_type(graph.tensors[name]) for name in node.outputs if name)
        if node.domain == COMPOSITE:
            inner = (renamed_node(proto, names).SerializeToString(deterministic=True) for proto in node.protos)
            parts.append(f"{node.domain} {types} {' '.join(text.hex() for text in inner)}")
            continue
        read, written = (",".join(names[name] for name in side) for side in (node.inputs, node.outputs))
        parts.append(f"{node.domain}:{node.op_type}({read})->{written} {types} {_attributes(graph, node.index)}")
    return parts


def _opaque_type(graph: Graph, name: str) -> onnx.TypeProto:
    """The declared type of a model input that holds no numbers; None for any other tensor."""
    if graph.tensors[name].dtype != OPAQUE:
        return onnx.TypeProto()
    return next((value.type for value in graph.model.graph.input if value.name == name), onnx.TypeProto())


def _type(tensor: Tensor) -> str:
    return f"{tensor.dtype}{list(tensor.shape)}{list(tensor.varies) if tensor.varies else ''}"


def _steering_value(array: np.ndarray) -> str:
    steers = array.size == 1 or (array.dtype.kind in "iub" and array.size <= _VALUE_LIMIT)
    return f"={_content(array).hex()}" if steers else ""


def _content(array: np.ndarray) -> bytes | memoryview:
    """The bytes of an array; the text of strings, since the array itself holds only pointers to them."""
    if array.dtype == object:
        return json.dumps(array.tolist()).encode()
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8).data


@GraphCache
def _attributes(graph: Graph, index: int) -> str:
    """A node's attributes in the order of their names, in their deterministic encoding."""
    attributes = sorted(graph.nodes[index].protos[0].attribute, key=lambda attribute: attribute.name)
    return "".join(attribute.SerializeToString(deterministic=True).hex() for attribute in attributes)


@GraphCache
def constant_digest(graph: Graph, name: str) -> str:
    """Digest of the content of the constant ``name``, independent of its name."""
    array = graph.constants[name]
    return hashlib.sha256(_content(array)).hexdigest() if array.dtype == object else content_digest(array)


def declare(tensor: Tensor, name: str) -> onnx.ValueInfoProto:
    """The type of ``tensor`` under ``name``; only the name of an opaque one, whose type the library has to infer."""
    if tensor.dtype == OPAQUE:
        return onnx.ValueInfoProto(name=name)
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(tensor.dtype))
    return helper.make_tensor_value_info(name, kind, [size if size >= 0 else None for size in tensor.opened.shape])


def renamed_node(proto: onnx.NodeProto, names: Mapping[str, str], prefix: str = "b") -> onnx.NodeProto:
    """A nameless copy of ``proto`` that reads and makes tensors by other ``names``, in its bodies too.

    A body's own tensors are named by their position, so that they cannot collide with names outside.
    """
    copy = onnx.NodeProto(op_type=proto.op_type, domain=proto.domain, overload=proto.overload)
    copy.input.extend(names[name] for name in proto.input)
    copy.output.extend(names[name] for name in proto.output)
    copy.attribute.extend(proto.attribute)
    for position, attribute in enumerate(copy.attribute):
        inner = [attribute.g] if attribute.type == onnx.AttributeProto.GRAPH else attribute.graphs
        for number, body in enumerate(inner):
            _rename_body(body, names, f"{prefix}{position}_{number}_")
    return copy


def put_operators(model: onnx.ModelProto, protos: Iterable[onnx.NodeProto]) -> None:
    """Replace the operators of ``model`` by ``protos``, and drop constants and types that none of them has."""
    graph = model.graph
    operators = list(protos)
    read = {name for proto in operators for name in reads(proto)}
    outputs = {name for proto in operators for name in proto.output}
    types = [value for value in graph.value_info if value.name in outputs]
    refill(graph.node, operators)
    refill(graph.value_info, types)
    unread = [place for place, tensor in enumerate(graph.initializer) if tensor.name not in read]
    for place in reversed(unread):  # in place: a list of the others would copy their weights
        del graph.initializer[place]


def import_domains(model: onnx.ModelProto, domains: Mapping[str, int]) -> None:
    """Import ``domains`` into ``model``, in these versions where it imports none yet."""
    there = {entry.domain for entry in model.opset_import}
    missing = [(domain, version) for domain, version in domains.items() if domain not in there]
    model.opset_import.extend(helper.make_opsetid(domain, version) for domain, version in missing)


def _rename_body(body: onnx.GraphProto, outer: Mapping[str, str], prefix: str) -> None:
    defined = [value.name for value in body.input] + [tensor.name for tensor in body.initializer]
    defined += [name for node in body.node for name in node.output]
    inside = {name: f"{prefix}{place}" for place, name in enumerate(dict.fromkeys(filter(None, defined)))}
    names = {**outer, **inside, "": ""}
    for value in (*body.input, *body.output, *body.value_info, *body.initializer):
        value.name = names.get(value.name, value.name)
    nodes = [renamed_node(node, names, f"{prefix}{place}_") for place, node in enumerate(body.node)]
    refill(body.node, nodes)
