"""What is written in one precision, in few words."""

from __future__ import annotations

import onnx

from collage_evo.graph.ir import Graph, NodeSet
from collage_evo.precision.quantise.arithmetic import Arithmetic
from collage_evo.precision.quantise.rules import Quantisers, Ranges
from collage_evo.precision.transforms.edits import Edits, Numerics, numerics_of
from collage_evo.precision.transforms.piece import EditedRegion
from collage_evo.precision.transforms.transform import Data


def in_int8(nodes: NodeSet) -> Numerics:
    return numerics_of((Arithmetic.INT8, nodes))


def in_bfloat16(nodes: NodeSet) -> Numerics:
    return numerics_of((Arithmetic.BFLOAT16, nodes))


def written_region(
    graph: Graph, nodes: NodeSet, edits: Edits, ranges: Ranges, quantisers: Quantisers | None
) -> onnx.ModelProto:
    return EditedRegion(graph, nodes, edits, Data(ranges, quantisers)).model()


def writing_key(graph: Graph, nodes: NodeSet, edits: Edits, ranges: Ranges, quantisers: Quantisers | None) -> str:
    return EditedRegion(graph, nodes, edits, Data(ranges, quantisers)).key
