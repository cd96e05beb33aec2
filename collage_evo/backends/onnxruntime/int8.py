"""The int8 forms of ONNX Runtime: operators between quantisers on both sides, and products of integers.

Its convolutions run in int8 where their result is rounded too. Products run on integers also where their result is
float32, by an operator of the library's own.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from collage_evo.graph.ir.graph import Graph, Node
from collage_evo.graph.ir.operators import CONTRIBUTED
from collage_evo.precision.quantise.form import PRODUCTS, Int8Form, Integers

if TYPE_CHECKING:
    import onnx


def _multiplies_constants(graph: Graph, node: Node) -> bool:
    return node.op_type in PRODUCTS and node.inputs[1] in graph.constants


def _integer_product(sides: Sequence[Integers], bias: str, outputs: Sequence[str]) -> onnx.NodeProto:
    from onnx import helper  # serving does not need it

    # Inputs: integers of both sides, scales of both, zero points of both.
    inputs = [side[part] for part in range(3) for side in sides]
    return helper.make_node("MatMulIntegerToFloat", [*inputs, bias] if bias else inputs, outputs, domain=CONTRIBUTED)


CALIBRATED_INT8 = Int8Form(
    "both", lambda graph, node: node.op_type != "ConvTranspose", rounds_results=True, product=_integer_product
)
DYNAMIC_INT8 = Int8Form(
    "dynamic", _multiplies_constants, calibrated=False, batch_invariant=False, product=_integer_product
)
"""For products by constants whose ranges are found at run time."""
