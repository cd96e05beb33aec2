"""Conversion of a normalised ModelProto to the Graph that matching and search work on."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from collage_evo.errors import InputError
from collage_evo.graph.convert.composite import grouped, is_composite
from collage_evo.graph.convert.static import reads
from collage_evo.graph.ir.graph import COMPOSITE, OPAQUE, Graph, Node, Tensor, post_order
from collage_evo.graph.ir.weights import array_of
from collage_evo.multimap import multimap


def build_graph(model: onnx.ModelProto) -> Graph:
    """The DAG view of ``model``, a result of ``normalise``.

    Nodes come in depth-first post-order from the outputs: one branch is finished before the next begins, so few
    tensors are alive at any point. Nodes that no output needs are dropped. Operators with tensors between them that
    have no static shape are one node.

    Raises:
        InputError: an output is a constant, or a node reads a tensor that none makes.
    """
    graph = model.graph
    constants = {tensor.name: _constant(tensor) for tensor in graph.initializer}
    for value in graph.output:
        if value.name in constants:
            raise InputError(f"output {value.name!r} is a constant: remove it from the model's outputs")
    inputs = tuple(value.name for value in graph.input if value.name not in constants)
    outputs = tuple(value.name for value in graph.output)
    protos = _depth_first(graph)
    tensors = _tensors(graph, constants, {*inputs, *(name for proto in protos for name in proto.output if name)})
    _require_made(protos, tensors)
    nodes = tuple(_nodes(grouped(protos, tensors), tensors, set(outputs)))
    between = {*constants, *inputs, *(name for node in nodes for name in node.outputs if name)}
    return Graph(model, nodes, {name: tensors[name] for name in between}, constants, inputs, outputs)


def _require_made(protos: Sequence[onnx.NodeProto], tensors: Mapping[str, Tensor]) -> None:
    for proto in protos:
        for name in reads(proto):
            if name not in tensors:
                raise InputError(f"node {proto.name!r} ({proto.op_type}) reads {name!r}, which nothing makes")


def _constant(tensor: onnx.TensorProto) -> np.ndarray:
    try:
        array = array_of(tensor)
    except Exception as error:
        raise InputError(f"weight {tensor.name!r} cannot be read: the model file is damaged") from error
    array.flags.writeable = False
    return array


def _depth_first(graph: onnx.GraphProto) -> list[onnx.NodeProto]:
    """Nodes in post-order of a depth-first walk from the outputs through the inputs, left to right."""
    nodes = list(graph.node)
    maker = {name: index for index, node in enumerate(nodes) for name in node.output if name}

    def makers(index: int) -> list[int]:
        return [maker[name] for name in reads(nodes[index]) if name in maker]

    ends = (maker[output.name] for output in graph.output if output.name in maker)
    return [nodes[index] for index in post_order(ends, makers)]


def _nodes(
    groups: Sequence[Sequence[onnx.NodeProto]], tensors: Mapping[str, Tensor], final: set[str]
) -> Iterator[Node]:
    protos = [proto for group in groups for proto in group]
    names = dict(zip(map(id, protos), _unique_names(protos), strict=True))
    read = ((index, name) for index, group in enumerate(groups) for proto in group for name in reads(proto))
    readers = multimap((name, index) for index, name in read)
    for index, group in enumerate(groups):
        first, *rest = group
        name = names[id(first)]
        if not rest and not is_composite(first, tensors):
            yield operator(index, name, first)
            continue
        outputs = [name for proto in group for name in proto.output if name]
        inside = set(outputs)
        entering = (name for proto in group for name in reads(proto))
        yield Node(
            index=index,
            name=f"{name} .. {names[id(rest[-1])]}" if rest else name,
            op_type="Composite" if rest else first.op_type,
            domain=COMPOSITE,
            inputs=tuple(dict.fromkeys(name for name in entering if name not in inside)),
            outputs=tuple(name for name in outputs if name in final or {*readers.get(name, ())} - {index}),
            attributes={},
            protos=tuple(group),
        )


def operator(index: int, name: str, proto: onnx.NodeProto) -> Node:
    """The node of a single operator."""
    attributes = {attribute.name: attribute_value(attribute) for attribute in proto.attribute}
    inputs, outputs = tuple(proto.input), tuple(proto.output)
    return Node(index, name, proto.op_type, proto.domain, inputs, outputs, attributes, (proto,))


def _unique_names(protos: Sequence[onnx.NodeProto]) -> list[str]:
    """Each node's own name; a nameless one gets its operator and a number, a repeated one a suffix."""
    names_in_file = {proto.name for proto in protos if proto.name}
    used: set[str] = set()
    counts: dict[str, int] = {}
    names = []
    for proto in protos:
        name = proto.name
        while not name or name in used:
            stem = proto.name or proto.op_type
            counts[stem] = counts.get(stem, 0) + 1
            candidate = f"{stem}_{counts[stem]}"
            name = "" if candidate in names_in_file else candidate
        used.add(name)
        names.append(name)
    return names


def attribute_value(attribute: onnx.AttributeProto) -> Any:
    """The attribute's value: str for bytes, numpy array for tensors, protobuf for subgraphs only."""
    value = helper.get_attribute_value(attribute)
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    if isinstance(value, onnx.TensorProto):
        return numpy_helper.to_array(value)
    if isinstance(value, onnx.GraphProto) or attribute.type == onnx.AttributeProto.TYPE_PROTO:
        return value
    if isinstance(value, (int, float)):
        return value
    return [v.decode(errors="replace") if isinstance(v, bytes) else v for v in value]


def _tensors(
    graph: onnx.GraphProto, constants: Mapping[str, np.ndarray], needed: set[str]
) -> dict[str, Tensor]:
    kinds = {name: OPAQUE if array.dtype == object else array.dtype.name for name, array in constants.items()}
    tensors = {name: Tensor(name, kinds[name], array.shape) for name, array in constants.items()}
    declared = {value.name: value.type for value in (*graph.value_info, *graph.input, *graph.output)}
    for name in sorted(needed - tensors.keys()):
        tensors[name] = _observed(declared_tensor(name, declared.get(name)), declared.get(name))
    return tensors


def _observed(tensor: Tensor, declared: onnx.TypeProto | None) -> Tensor:
    """``tensor`` with the sizes that :func:`~collage_evo.graph.convert.static.annotate` wrote for those that vary."""
    dims = declared.tensor_type.shape.dim if declared is not None else ()
    sizes = {axis: int(dim.denotation) for axis, dim in enumerate(dims) if dim.denotation.isdecimal()}
    varies = tuple(axis for axis in sizes if tensor.dtype != OPAQUE and tensor.shape[axis] < 0)
    shape = tuple(sizes[axis] if axis in varies else size for axis, size in enumerate(tensor.shape))
    return Tensor(tensor.name, tensor.dtype, shape, varies)


def declared_tensor(name: str, declared: onnx.TypeProto | None) -> Tensor:
    """The declared type of a tensor: an open size is -1, a tensor without numbers is opaque."""
    if declared is None or declared.WhichOneof("value") != "tensor_type":
        return Tensor(name, OPAQUE, ())
    kind = declared.tensor_type
    shape = tuple(dim.dim_value if dim.HasField("dim_value") else -1 for dim in kind.shape.dim)
    if kind.elem_type in (onnx.TensorProto.UNDEFINED, onnx.TensorProto.STRING) or not kind.HasField("shape"):
        return Tensor(name, OPAQUE, shape)
    return Tensor(name, np.dtype(helper.tensor_dtype_to_np_dtype(kind.elem_type)).name, shape)
