"""bfloat16 written into a model: takes operators, gives Casts around stretches of them and rounded constants.

The operators' own types say what they compute in, so that they and operators in float32 stand in one piece. ONNX has
convolutions in bfloat16 from operator set 22 on; importers that take types as they come do not ask for it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

import ml_dtypes
import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from collage_evo.quantise.marks import mark_bfloat16


def write_bfloat16(model: onnx.ModelProto, ends: Collection[str]) -> None:
    """Let the operators of ``model`` that make the tensors ``ends`` compute in bfloat16, in place.

    A tensor that one of them makes and another reads is in bfloat16. A Cast stands where others read it, where it
    leaves the model, and where it came in float32.
    """
    _Casts(model, ends).write()


class _Casts:
    """Takes operators in order. ``_low`` and ``_full`` say what a tensor is called in either type."""

    def __init__(self, model: onnx.ModelProto, ends: Collection[str]) -> None:
        self._model, self._ends = model, frozenset(ends)
        self._constants = {tensor.name: tensor for tensor in model.graph.initializer}
        self._floats = _floats(model)
        self._made: list[onnx.NodeProto] = []
        self._low: dict[str, str] = {}
        self._waiting: set[str] = set()
        """Tensors that are there in bfloat16 alone."""
        self._rounded: dict[str, onnx.TensorProto] = {}

    def write(self) -> None:
        graph = self._model.graph
        reduced = []
        for proto in list(graph.node):
            if self._ends.intersection(proto.output):
                self._reduce(proto)
                reduced.append(proto)
            else:
                self._made += self._restored(proto.input)
                self._made.append(proto)
        self._made += self._restored(value.name for value in graph.output)
        for place, proto in enumerate(self._made):
            proto.name = f"n{place}_{proto.op_type}"
        mark_bfloat16(self._model, (proto.name for proto in reduced))
        del graph.node[:]
        graph.node.extend(self._made)
        read = {name for proto in self._made for name in proto.input}
        kept = [tensor for tensor in graph.initializer if tensor.name in read]
        del graph.initializer[:]
        graph.initializer.extend([*kept, *self._rounded.values()])
        self._declare()

    def _reduce(self, proto: onnx.NodeProto) -> None:
        """Write ``proto``, which reads and makes bfloat16 where it read and made float32."""
        for position, name in enumerate(proto.input):
            if name in self._constants:
                proto.input[position] = self._constant(name)
            elif name in self._floats:
                proto.input[position] = self._reduced(name)
        for position, name in enumerate(proto.output):
            if name:
                proto.output[position] = self._low[name] = f"{name}_bf16"
                self._waiting.add(name)
        self._made.append(proto)

    def _reduced(self, name: str) -> str:
        if name not in self._low:
            self._low[name] = f"{name}_bf16"
            self._made.append(helper.make_node("Cast", [name], [self._low[name]], to=TensorProto.BFLOAT16))
        return self._low[name]

    def _constant(self, name: str) -> str:
        tensor = self._constants[name]
        if tensor.data_type != TensorProto.FLOAT:
            return name
        low = f"{name}_bf16"
        if low not in self._rounded:
            self._rounded[low] = numpy_helper.from_array(_rounded(numpy_helper.to_array(tensor)), low)
        return low

    def _restored(self, names: Collection[str] | Iterator[str]) -> Iterator[onnx.NodeProto]:
        """What gives back in float32 those of ``names`` that are there in bfloat16 alone."""
        for name in names:
            if name in self._waiting:
                self._waiting.discard(name)
                yield helper.make_node("Cast", [self._low[name]], [name], to=TensorProto.FLOAT)

    def _declare(self) -> None:
        """Types of the tensors that there are."""
        graph = self._model.graph
        made = {name for proto in self._made for name in proto.output}
        shapes = {value.name: value for value in (*graph.input, *graph.output, *graph.value_info)}
        kept = [value for value in graph.value_info if value.name in made]
        for name, low in self._low.items():
            if name in shapes:
                value = onnx.ValueInfoProto()
                value.CopyFrom(shapes[name])
                value.name, value.type.tensor_type.elem_type = low, TensorProto.BFLOAT16
                kept.append(value)
        del graph.value_info[:]
        graph.value_info.extend(kept)


def _floats(model: onnx.ModelProto) -> frozenset[str]:
    """Activations in float32. Of tensors without a declared type there are only what a quantiser gives back."""
    declared: Mapping[str, int] = {
        value.name: value.type.tensor_type.elem_type
        for value in (*model.graph.input, *model.graph.output, *model.graph.value_info)
    }
    back = (proto.output[0] for proto in model.graph.node if proto.op_type == "DequantizeLinear")
    return frozenset({name for name, kind in declared.items() if kind == TensorProto.FLOAT} | {*back})


def _rounded(array: np.ndarray) -> np.ndarray:
    return array.astype(ml_dtypes.bfloat16)
