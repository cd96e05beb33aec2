"""Cuts a region out: takes a Graph and a set of nodes, gives a standalone model, or a hash of its structure.

Equal regions give equal models wherever they stand: every name is canonical. Inputs are ``i0``, outputs
``o0``, tensors inside ``t0``, constants ``w0``, nodes ``n0_Conv``, each numbered by first appearance.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import numpy as np
import onnx
from onnx import helper, numpy_helper

from collage_evo.graph.ir import Graph, Node, NodeSet, Tensor, members

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
        for name in node.outputs:
            if name not in names:
                names[name] = f"t{inside}"
                inside += 1
    return _Region(chosen, inputs, outputs, tuple(constants), names)


def extract(graph: Graph, nodes: NodeSet) -> onnx.ModelProto:
    """The region as a model of its own.

    Its inputs and outputs are those of ``graph.boundary(nodes)``, in that order, with static types.
    """
    region = _region(graph, nodes)
    names = region.names
    made = []
    for position, node in enumerate(region.nodes):
        proto = onnx.NodeProto(op_type=node.op_type, domain=node.domain, name=f"n{position}_{node.op_type}")
        proto.input.extend(names[name] for name in node.inputs)
        proto.output.extend(names[name] for name in node.outputs)
        proto.attribute.extend(graph.proto(node).attribute)
        made.append(proto)
    inside = [name for node in region.nodes for name in node.outputs if names[name].startswith("t")]
    result = helper.make_graph(
        made,
        "region",
        [_declare(graph.tensors[name], names[name]) for name in region.inputs],
        [_declare(graph.tensors[name], names[name]) for name in region.outputs],
        [numpy_helper.from_array(graph.constants[name], names[name]) for name in region.constants],
        value_info=[_declare(graph.tensors[name], names[name]) for name in inside],
    )
    return helper.make_model(
        result, opset_imports=graph.model.opset_import, ir_version=graph.model.ir_version
    )


def structural_hash(graph: Graph, nodes: NodeSet) -> str:
    """Equal for regions that take equally long: 32 hexadecimal digits.

    Covers operators, attributes, wiring, types and shapes, which tensors leave, and the values of constants
    that steer behaviour (scalars, integers up to 64 elements), but not of the weights.
    """
    return _digest(_structure(graph, _region(graph, nodes)))


def content_hash(graph: Graph, nodes: NodeSet) -> str:
    """Equal for regions that compute the same: 32 hexadecimal digits.

    Covers the structure and every constant's bytes.
    """
    region = _region(graph, nodes)
    weights = [_constant_digest(graph, name) for name in region.constants]
    return _digest([*_structure(graph, region), *weights])


def _structure(graph: Graph, region: _Region) -> list[str]:
    names = region.names
    parts = sorted(f"opset {entry.domain}:{entry.version}" for entry in graph.model.opset_import)
    for name in (*region.inputs, *region.outputs):
        parts.append(f"{names[name]} {_type(graph.tensors[name])}")
    for name in region.constants:
        parts.append(f"{names[name]} {_type(graph.tensors[name])}{_steering_value(graph.constants[name])}")
    for node in region.nodes:
        read, made = (",".join(names[name] for name in side) for side in (node.inputs, node.outputs))
        types = ";".join(_type(graph.tensors[name]) for name in node.outputs if name)
        attributes = _attributes(graph, node)
        parts.append(f"{node.domain}:{node.op_type}({read})->{made} {types} {attributes}")
    return parts


def _type(tensor: Tensor) -> str:
    return f"{tensor.dtype}{list(tensor.shape)}"


def _steering_value(array: np.ndarray) -> str:
    steers = array.size == 1 or (array.dtype.kind in "iub" and array.size <= _VALUE_LIMIT)
    return f"={array.tobytes().hex()}" if steers else ""


def _attributes(graph: Graph, node: Node) -> str:
    """The node's attributes in the order of their names, by their own deterministic encoding."""
    key = f"attributes {node.index}"
    if key not in graph.memo:
        attributes = sorted(graph.proto(node).attribute, key=lambda attribute: attribute.name)
        graph.memo[key] = "".join(a.SerializeToString(deterministic=True).hex() for a in attributes)
    return graph.memo[key]


def _constant_digest(graph: Graph, name: str) -> str:
    key = f"constant {name}"
    if key not in graph.memo:
        array = np.ascontiguousarray(graph.constants[name])
        graph.memo[key] = hashlib.sha256(array.reshape(-1).view(np.uint8).data).hexdigest()
    return graph.memo[key]


def _digest(parts: list[str]) -> str:
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:32]


def _declare(tensor: Tensor, name: str) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(
        name, helper.np_dtype_to_tensor_dtype(np.dtype(tensor.dtype)), tensor.shape
    )
