"""What is written in one precision, in few words."""

from __future__ import annotations

from collage_evo.graph.ir import NodeSet
from collage_evo.quantise.arithmetic import Arithmetic
from collage_evo.quantise.numerics import Numerics, numerics_of


def in_int8(nodes: NodeSet) -> Numerics:
    return numerics_of((Arithmetic.INT8, nodes))


def in_bfloat16(nodes: NodeSet) -> Numerics:
    return numerics_of((Arithmetic.BFLOAT16, nodes))
