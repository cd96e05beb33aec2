"""Reads a normalised model: takes a ModelProto, gives the Graph that matching and search work on."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from collage_evo.errors import InputError
from collage_evo.graph.ir import Graph, Node, NodeSet, Tensor, members


def build_graph(model: onnx.ModelProto) -> Graph:
    """The DAG view of ``model``, which ``normalise`` has been through.

    Nodes come in depth-first post-order from the outputs: one branch is finished before the next is begun,
    so few tensors are alive at any point. Nodes that no output needs are left out.

    Raises:
        InputError: a tensor's shape is not static or its type holds no numbers (the tensor is named), an
            output is a constant, or a node's body reads tensors from outside it.
    """
    graph = model.graph
    if graph.sparse_initializer:
        raise InputError("the model has sparse weights, which are not supported: export it with dense ones")
    constants = {tensor.name: _constant(tensor) for tensor in graph.initializer}
    for value in graph.output:
        if value.name in constants:
            raise InputError(f"output {value.name!r} is a constant: remove it from the model's outputs")
    protos = _depth_first(graph)
    nodes = tuple(_nodes(protos))
    inputs = tuple(value.name for value in graph.input if value.name not in constants)
    producer = {name: node.index for node in nodes for name in node.outputs if name}
    consumers = _consumers(nodes)
    pred = tuple(_makers(node, producer) for node in nodes)
    succ = _transposed(pred)
    return Graph(
        model=model,
        nodes=nodes,
        tensors=_tensors(graph, constants, {*inputs, *producer}),
        constants=constants,
        inputs=inputs,
        outputs=tuple(value.name for value in graph.output),
        producer=producer,
        consumers=consumers,
        pred=pred,
        succ=succ,
        anc=_closure(pred, range(len(nodes))),
        desc=_closure(succ, range(len(nodes) - 1, -1, -1)),
    )


def _constant(tensor: onnx.TensorProto) -> np.ndarray:
    try:
        array = numpy_helper.to_array(tensor)
    except Exception as error:
        raise InputError(f"weight {tensor.name!r} cannot be read: the model file is damaged") from error
    array.flags.writeable = False
    return array


def _depth_first(graph: onnx.GraphProto) -> list[onnx.NodeProto]:
    """Nodes in post-order of a depth-first walk from the outputs through the inputs, left to right."""
    maker = {name: index for index, node in enumerate(graph.node) for name in node.output if name}
    order: list[onnx.NodeProto] = []
    seen: set[int] = set()
    for output in graph.output:
        stack = [(maker[output.name], False)] if output.name in maker else []
        while stack:
            index, finished = stack.pop()
            node = graph.node[index]
            if finished:
                order.append(node)
            elif index not in seen:
                seen.add(index)
                stack.append((index, True))
                stack.extend((maker[name], False) for name in reversed(node.input) if name in maker)
    return order


def _nodes(protos: Sequence[onnx.NodeProto]) -> Iterator[Node]:
    names = _unique_names(protos)
    for index, (proto, name) in enumerate(zip(protos, names, strict=True)):
        for attribute in proto.attribute:
            _refuse_captures(name, proto.op_type, attribute)
        yield Node(
            index=index,
            name=name,
            op_type=proto.op_type,
            domain=proto.domain,
            inputs=tuple(proto.input),
            outputs=tuple(proto.output),
            attributes={attribute.name: _attribute(attribute) for attribute in proto.attribute},
        )


def _unique_names(protos: Sequence[onnx.NodeProto]) -> list[str]:
    """Each node's own name; a nameless one gets its operator and a number, a repeated one a suffix."""
    taken = {proto.name for proto in protos if proto.name}
    given: set[str] = set()
    counts: dict[str, int] = {}
    names = []
    for proto in protos:
        name = proto.name
        while not name or name in given:
            stem = proto.name or proto.op_type
            counts[stem] = counts.get(stem, 0) + 1
            candidate = f"{stem}_{counts[stem]}"
            name = "" if candidate in taken else candidate
        given.add(name)
        names.append(name)
    return names


def _attribute(attribute: onnx.AttributeProto) -> Any:
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


def _refuse_captures(name: str, op_type: str, attribute: onnx.AttributeProto) -> None:
    """A body that reads the outer graph has inputs that the node does not list: it cannot be cut out."""
    bodies = [attribute.g] if attribute.type == onnx.AttributeProto.GRAPH else list(attribute.graphs)
    for body in bodies:
        captured = sorted(_captures(body))
        if captured:
            raise InputError(
                f"the body of node {name!r} ({op_type}) reads the outer tensor {captured[0]!r}, which is not "
                "supported: export the model without data-dependent control flow"
            )


def _captures(body: onnx.GraphProto) -> set[str]:
    known = {value.name for value in body.input} | {tensor.name for tensor in body.initializer}
    known |= {name for node in body.node for name in node.output}
    read = {name for node in body.node for name in node.input if name} | {value.name for value in body.output}
    for node in body.node:
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.GRAPH:
                read |= _captures(attribute.g)
    return read - known


def _tensors(
    graph: onnx.GraphProto, constants: Mapping[str, np.ndarray], needed: set[str]
) -> dict[str, Tensor]:
    found = {name: Tensor(name, array.dtype.name, array.shape) for name, array in constants.items()}
    declared = {value.name: value.type for value in (*graph.value_info, *graph.input, *graph.output)}
    for name in sorted(needed - found.keys()):
        found[name] = _tensor(name, declared.get(name))
    return found


def _tensor(name: str, declared: onnx.TypeProto | None) -> Tensor:
    if declared is None or not declared.WhichOneof("value"):
        raise InputError(
            f"the shape of tensor {name!r} cannot be inferred: only standard operators whose output shape "
            "does not depend on data are supported"
        )
    tensor = declared.tensor_type
    if declared.WhichOneof("value") != "tensor_type" or tensor.elem_type in (0, onnx.TensorProto.STRING):
        raise InputError(f"tensor {name!r} holds no numbers: only numeric tensors are supported")
    dims = tensor.shape.dim
    if not tensor.HasField("shape") or not all(dim.HasField("dim_value") for dim in dims):
        shape = [dim.dim_value if dim.HasField("dim_value") else dim.dim_param or "?" for dim in dims]
        known = f"[{', '.join(map(str, shape))}]" if tensor.HasField("shape") else "of unknown rank"
        raise InputError(
            f"tensor {name!r} has no static shape ({known}): fix the inputs with model.shapes; if they are "
            "fixed, its shape depends on data, which is not supported"
        )
    dtype = np.dtype(helper.tensor_dtype_to_np_dtype(tensor.elem_type)).name
    return Tensor(name, dtype, tuple(dim.dim_value for dim in dims))


def _consumers(nodes: Sequence[Node]) -> dict[str, tuple[int, ...]]:
    users: dict[str, list[int]] = {}
    for node in nodes:
        for name in dict.fromkeys(node.inputs):
            if name:
                users.setdefault(name, []).append(node.index)
    return {name: tuple(indices) for name, indices in users.items()}


def _makers(node: Node, producer: Mapping[str, int]) -> NodeSet:
    result = 0
    for name in node.inputs:
        if name in producer:
            result |= 1 << producer[name]
    return result


def _transposed(pred: Sequence[NodeSet]) -> tuple[NodeSet, ...]:
    succ = [0] * len(pred)
    for index, before in enumerate(pred):
        for maker in members(before):
            succ[maker] |= 1 << index
    return tuple(succ)


def _closure(direct: Sequence[NodeSet], order: Sequence[int]) -> tuple[NodeSet, ...]:
    """All that can be reached along ``direct``; ``order`` visits every neighbour before the node itself."""
    reach = [0] * len(direct)
    for index in order:
        for neighbour in members(direct[index]):
            reach[index] |= 1 << neighbour | reach[neighbour]
    return tuple(reach)
