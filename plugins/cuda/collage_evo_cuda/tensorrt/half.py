"""Conversion of a float32 model to half precision, with casts at its border.

TensorRT computes in the types of the model: since version 11 it has no other way.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from copy import deepcopy

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from collage_evo.backends.variants import Arithmetic
from collage_evo.errors import CollageError

_TYPES = {Arithmetic.FLOAT16: TensorProto.FLOAT16, Arithmetic.BFLOAT16: TensorProto.BFLOAT16}
_FLOAT_INPUTS = {"Resize": (1, 2), "Upsample": (1,)}
"""Inputs that are float32 whatever is computed on: scales."""
_LARGEST = float(np.finfo(np.float16).max)


def in_half(model: onnx.ModelProto, arithmetic: Arithmetic) -> onnx.ModelProto:
    """The same model, with float32 inputs and outputs, and all other tensors in ``arithmetic``.

    Raises:
        CollageError: an operator has a body, or a constant is too large for the type.
    """
    copy = deepcopy(model)
    graph, kind = copy.graph, _TYPES[arithmetic]
    if any(attribute.HasField("g") or attribute.graphs for node in graph.node for attribute in node.attribute):
        raise CollageError("an operator with a body is not written in half precision")
    float_names = {name for node in graph.node for name in _float_inputs(node)}
    for tensor in graph.initializer:
        if tensor.data_type == TensorProto.FLOAT and tensor.name not in float_names:
            tensor.CopyFrom(_rounded(tensor, kind))
    renamed: dict[str, str] = {}
    before, after = list(_into(graph.input, kind, renamed)), list(_out_of(graph.output, renamed))
    for node in graph.node:
        _rename(node.input, renamed)
        _rename(node.output, renamed)
        _retype(node, kind)
    nodes = [*before, *graph.node, *after]
    del graph.node[:], graph.value_info[:]
    graph.node.extend(nodes)
    return copy


def _float_inputs(node: onnx.NodeProto) -> Iterator[str]:
    for position in _FLOAT_INPUTS.get(node.op_type, ()):
        if position < len(node.input) and node.input[position]:
            yield node.input[position]


def _rounded(tensor: onnx.TensorProto, kind: int) -> onnx.TensorProto:
    value = numpy_helper.to_array(tensor)
    if kind == TensorProto.FLOAT16:
        if np.abs(value).max(initial=0.0, where=np.isfinite(value)) > _LARGEST:
            raise CollageError(f"the constant {tensor.name} is too large for float16")
        return numpy_helper.from_array(value.astype(np.float16), tensor.name)
    return numpy_helper.from_array(value.astype(helper.tensor_dtype_to_np_dtype(kind)), tensor.name)


def _into(inputs: Sequence[onnx.ValueInfoProto], kind: int, renamed: dict[str, str]) -> Iterator[onnx.NodeProto]:
    for value in inputs:
        if value.type.tensor_type.elem_type == TensorProto.FLOAT:
            renamed[value.name] = f"{value.name}.half"
            yield helper.make_node("Cast", [value.name], [renamed[value.name]], name=f"in.{value.name}", to=kind)


def _out_of(outputs: Sequence[onnx.ValueInfoProto], renamed: dict[str, str]) -> Iterator[onnx.NodeProto]:
    for value in outputs:
        if value.type.tensor_type.elem_type == TensorProto.FLOAT:
            inner = renamed.setdefault(value.name, f"{value.name}.half")
            yield helper.make_node("Cast", [inner], [value.name], name=f"out.{value.name}", to=TensorProto.FLOAT)


def _rename(names: list[str], renamed: dict[str, str]) -> None:
    for position, name in enumerate(names):
        if name in renamed:
            names[position] = renamed[name]


def _retype(node: onnx.NodeProto, kind: int) -> None:
    """Replace float32 by the half type in a node's attributes."""
    for attribute in node.attribute:
        if attribute.name in ("to", "dtype") and attribute.i == TensorProto.FLOAT:
            attribute.i = kind
        elif attribute.HasField("t") and attribute.t.data_type == TensorProto.FLOAT:
            attribute.t.CopyFrom(_rounded(attribute.t, kind))
