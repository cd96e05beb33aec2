"""Casts: a transform that writes a smaller floating type around stretches of operators.

Operators compute in their own types, so that one piece can mix them with operators in float32. ONNX has convolutions
in bfloat16 from operator set 22 on; importers that accept any types do not require it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from collage_evo.graph.convert.extract import put_operators
from collage_evo.graph.convert.static import reads
from collage_evo.graph.ir.graph import COMPOSITE, Graph, GraphCache, Node, NodeSet, members, node_set
from collage_evo.graph.ir.operators import ELEMENTWISE, HEAVY
from collage_evo.graph.ir.weights import array_of
from collage_evo.precision.quantise.marks import mark_written
from collage_evo.precision.quantise.rules import PASSING, Ranges, weight_axis
from collage_evo.precision.transforms.transform import Data, Draft, Transform, Trial

AS = "_as_"
"""Between a tensor's name and the smaller type in the name of its rounded form."""
_MIN_OPSET = 13
"""From here on Cast has bfloat16."""
_OTHERS = frozenset(
    {
        *("AveragePool", "GlobalAveragePool", "ReduceMean", "Softmax", "LayerNormalization"),
        *("Concat", "Split", "Slice", "Resize"),
    }
)
_MOVING = PASSING | {"Concat", "Expand", "Gather", "Pad", "Slice", "Split"}
"""Operators that choose among values or move them: what was rounded before is not rounded again."""
_NO_FLOATS_OUT = frozenset({"Cast", "Not", "Greater", "GreaterOrEqual", "Less", "LessOrEqual", "Equal", "And", "Or"})
_CASTABLE = (HEAVY | ELEMENTWISE | PASSING | _OTHERS) - _NO_FLOATS_OUT - {"ConvTranspose"}
"""Operators that a library computes in bfloat16 by their types, no slower than by its hint for the whole model.

Transposed convolutions are slower so than in float32, and the hint leaves them in float32.
"""


@dataclass(frozen=True)
class Casts(Transform):
    """A floating type, ``onnx_type`` in ONNX and ``dtype`` in numpy.

    Weights and outputs are rounded, and inputs from the model's own inputs, which no other operator rounds.
    """

    onnx_type: int
    dtype: np.dtype

    def sites(self, graph: Graph, nodes: NodeSet, data: Data) -> NodeSet:
        if graph.opset < _MIN_OPSET:
            return 0
        return nodes & _fitting(graph, self)

    def fits(self, graph: Graph, node: Node) -> bool:
        """Whether the type can be written into ``node``."""
        if node.domain not in ("", "ai.onnx") or node.op_type not in _CASTABLE:
            return False
        outputs = [graph.tensors[name] for name in node.outputs if name]
        read = [name for name in node.inputs if name and graph.tensors[name].dtype == "float32"]
        if not read or not all(tensor.dtype == "float32" and tensor.static for tensor in outputs):
            return False
        return all(self.holds(graph.constants[name]) for name in read if name in graph.constants)

    def holds(self, array: np.ndarray) -> bool:
        """Whether the type holds these numbers without infinities, unlike those of masks."""
        if not array.size:
            return True
        with np.errstate(over="ignore", invalid="ignore"):
            extremes = np.array([array.min(), array.max()])  # NaN if there is one
            return bool(np.isfinite(extremes.astype(self.dtype)).all())

    def apply(self, draft: Draft, nodes: NodeSet) -> None:
        _Casts(draft.model, draft.made_by(nodes), self).write()

    def losing(self, graph: Graph, nodes: NodeSet, ranges: Ranges) -> NodeSet:
        """Includes operators that are never written so, but run so by a library's setting for a whole piece."""
        if graph.opset < _MIN_OPSET:
            return 0
        chosen = (graph.nodes[index] for index in members(nodes))
        return node_set(
            node.index
            for node in chosen
            if node.domain != COMPOSITE
            and any(graph.tensors[name].dtype == "float32" for name in node.outputs if name)
            and not _moves_what_others_make(graph, node)
        )

    def trial(self, graph: Graph, node: Node, ranges: Ranges) -> Trial:
        read = enumerate(node.inputs)
        positions = (place for place, name in read if name in graph.inputs and graph.tensors[name].dtype == "float32")
        return Trial(dict.fromkeys(positions, self.onnx_type), self.onnx_type)

    def constants(self, graph: Graph, node: Node, ranges: Ranges) -> Mapping[str, np.ndarray]:
        """Rounded weights."""
        axis = weight_axis(graph, node) if node.op_type in HEAVY else None
        if axis is None or (exact := graph.constants[node.inputs[1]]).dtype != np.float32:
            return {}
        return {node.inputs[1]: exact.astype(self.dtype).astype(np.float32)}


@GraphCache
def _fitting(graph: Graph, casts: Casts) -> NodeSet:
    """All nodes that fit ``casts``. The check reads all constants, and each node is in many matches."""
    return node_set(node.index for node in graph.nodes if casts.fits(graph, node))


def _moves_what_others_make(graph: Graph, node: Node) -> bool:
    """Whether ``node`` passes on values of other operators, which round them."""
    if node.op_type not in _MOVING or node.domain not in ("", "ai.onnx"):
        return False
    moved = node.inputs if node.op_type == "Concat" else node.inputs[:1]
    return all(name in graph.producer for name in moved)


class _Casts:
    """Writes a type into a model, in place, operator by operator; those that make ``ends`` compute in it.

    A tensor that one of them makes and another reads is in that type. A Cast is inserted where other operators read
    it, where it leaves the model, and where it enters in float32. ``_low``: a tensor's name in that type.
    """

    def __init__(self, model: onnx.ModelProto, ends: Collection[str], of: Casts) -> None:
        self._model, self._ends, self._of = model, frozenset(ends), of
        self._suffix = f"{AS}{of.arithmetic}"
        self._constants = {tensor.name: tensor for tensor in model.graph.initializer}
        self._floats = _floats(model)
        self._made: list[onnx.NodeProto] = []
        self._low: dict[str, str] = {}
        self._made_low: set[str] = set()
        self._waiting: set[str] = set()
        """Tensors that exist only in the smaller type."""
        self._rounded: dict[str, onnx.TensorProto] = {}
        self._quantised = any(proto.op_type == "QuantizeLinear" for proto in model.graph.node)

    def write(self) -> None:
        graph = self._model.graph
        reduced = []
        for proto in graph.node:
            if self._ends.intersection(proto.output):
                self._reduce(proto)
                reduced.append(proto)
            elif self._quantised and self._would_dequantise(proto):
                self._reduce(proto)
            else:
                self._made += self._restored(reads(proto))
                self._made.append(proto)
        self._made += self._restored(value.name for value in graph.output)
        mark_written(self._model, self._of.arithmetic, (proto.name for proto in reduced))
        graph.initializer.extend(self._rounded.values())
        self._declare()
        put_operators(self._model, self._made)

    def _reduce(self, proto: onnx.NodeProto) -> None:
        """Write ``proto`` with the smaller type in place of float32."""
        for position, name in enumerate(proto.input):
            if name in self._constants:
                proto.input[position] = self._constant(name)
            elif name in self._floats:
                proto.input[position] = self._reduced(name)
        for position, name in enumerate(proto.output):
            if name:
                proto.output[position] = self._low[name] = f"{name}{self._suffix}"
                self._made_low.add(name)
                self._waiting.add(name)
        self._made.append(proto)

    def _would_dequantise(self, proto: onnx.NodeProto) -> bool:
        """Whether ``proto`` adds a constant to a result in the smaller type, or multiplies the result by one.

        Behind a Cast to float32 a library may take it for a part of a DequantizeLinear (docs/backends.md).
        """
        if proto.op_type not in ("Add", "Sub", "Mul", "Div") or self._made_low.isdisjoint(proto.input):
            return False
        constants = [self._constants[name] for name in proto.input if name in self._constants]
        return len(constants) == 1 and self._of.holds(array_of(constants[0]))

    def _reduced(self, name: str) -> str:
        if name not in self._low:
            self._low[name] = f"{name}{self._suffix}"
            self._made.append(_cast(name, self._low[name], self._of.onnx_type))
        return self._low[name]

    def _constant(self, name: str) -> str:
        tensor = self._constants[name]
        if tensor.data_type != TensorProto.FLOAT:
            return name
        low = f"{name}{self._suffix}"
        if low not in self._rounded:
            array = array_of(tensor).astype(self._of.dtype)
            self._rounded[low] = numpy_helper.from_array(array, low)
        return low

    def _restored(self, names: Iterable[str]) -> Iterator[onnx.NodeProto]:
        """Casts to float32 of those of ``names`` that exist only in the smaller type."""
        for name in names:
            if name in self._waiting:
                self._waiting.discard(name)
                yield _cast(self._low[name], name, TensorProto.FLOAT)

    def _declare(self) -> None:
        """Types of the tensors in the smaller type."""
        graph = self._model.graph
        shapes = {value.name: value for value in (*graph.input, *graph.output, *graph.value_info)}
        for name, low in self._low.items():
            if name in shapes:
                value = deepcopy(shapes[name])
                value.name, value.type.tensor_type.elem_type = low, self._of.onnx_type
                graph.value_info.append(value)


def _cast(source: str, target: str, to: int) -> onnx.NodeProto:
    return helper.make_node("Cast", [source], [target], f"{target}_Cast", to=to)


def _floats(model: onnx.ModelProto) -> frozenset[str]:
    """Activations in float32. Only the output of a DequantizeLinear has no declared type."""
    declared: Mapping[str, int] = {
        value.name: value.type.tensor_type.elem_type
        for value in (*model.graph.input, *model.graph.output, *model.graph.value_info)
    }
    back = (proto.output[0] for proto in model.graph.node if proto.op_type == "DequantizeLinear")
    return frozenset({name for name, kind in declared.items() if kind == TensorProto.FLOAT} | {*back})
