"""Kinds of operators, by what may be fused with them."""

from __future__ import annotations

from enum import IntEnum

from collage_evo.graph.ir.graph import Graph, Node

HEAVY = frozenset({"Conv", "ConvTranspose", "Gemm", "MatMul"})
"""Operators that carry the arithmetic of a model."""
CONTRIBUTED = "com.microsoft"
"""The domain of operators besides ONNX's that several runtimes know."""


class OpKind(IntEnum):
    """How an operator's outputs depend on its inputs, in the order of TVM's ``OpPatternKind``."""

    ELEMENTWISE = 0
    BROADCAST = 1
    INJECTIVE = 2
    REDUCTION = 3
    OUT_FUSABLE = 4
    """A heavy operator on whose output elementwise operators may be computed: a convolution, a matrix product."""
    OPAQUE = 8


_UNARY = frozenset(
    {
        *("Relu", "Clip", "LeakyRelu", "Elu", "Selu", "Celu", "Sigmoid", "HardSigmoid", "HardSwish", "Tanh"),
        *("Erf", "Gelu", "Exp", "Log", "Sqrt", "Abs", "Neg", "Reciprocal", "Softplus", "Cast", "Not"),
    }
)
_BROADCASTING = frozenset(
    {
        *("Add", "Sub", "Mul", "Div", "Sum", "Max", "Min", "Pow", "Where", "PRelu", "BatchNormalization"),
        *("Greater", "GreaterOrEqual", "Less", "LessOrEqual", "Equal", "And", "Or"),
    }
)
ELEMENTWISE = _UNARY | _BROADCASTING
"""Operators that make one element for each element of their largest input."""
_KINDS = {
    OpKind.ELEMENTWISE: _UNARY,
    OpKind.BROADCAST: _BROADCASTING,
    OpKind.INJECTIVE: {
        *("Reshape", "Flatten", "Transpose", "Squeeze", "Unsqueeze", "Concat", "Split", "Slice", "Pad"),
        *("Expand", "Gather", "Tile", "DepthToSpace", "SpaceToDepth", "Resize"),
    },
    OpKind.REDUCTION: {
        *("ReduceMean", "ReduceSum", "ReduceMax", "ReduceMin", "ReduceProd", "ArgMax", "ArgMin"),
        *("GlobalAveragePool", "GlobalMaxPool"),
    },
    OpKind.OUT_FUSABLE: {*HEAVY, "MaxPool", "AveragePool"},
}
_KIND_OF = {op_type: kind for kind, types in _KINDS.items() for op_type in types}


def kind_of(node: Node) -> OpKind:
    """The kind of a standard operator; opaque if it is unknown."""
    return _KIND_OF.get(node.op_type, OpKind.OPAQUE)


def edge_kind(graph: Graph, producer: Node, reader: Node) -> OpKind:
    """How ``reader`` uses what ``producer`` makes: a broadcast is elementwise in operands of its own shape."""
    kind = kind_of(reader)
    shapes = {graph.tensors[name].shape for name in producer.outputs if name in reader.inputs}
    same = shapes == {graph.tensors[reader.outputs[0]].shape}
    return OpKind.ELEMENTWISE if kind is OpKind.BROADCAST and same else kind
