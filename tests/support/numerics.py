"""What is written in one precision, in few words."""

from __future__ import annotations

import onnx

from collage_evo.backends.onnxruntime.int8 import CALIBRATED_INT8, DYNAMIC_INT8
from collage_evo.backends.openvino.int8 import INT8
from collage_evo.graph.ir.graph import Graph, NodeSet
from collage_evo.precision.quantise.arithmetic import Arithmetic
from collage_evo.precision.quantise.form import Int8Form
from collage_evo.precision.quantise.rules import Ranges
from collage_evo.precision.transforms.edits import Edits, Numerics, numerics_of
from collage_evo.precision.transforms.piece import EditedRegion
from collage_evo.precision.transforms.transform import Data

INPUTS, BOTH, DYNAMIC = INT8, CALIBRATED_INT8, DYNAMIC_INT8
"""int8 forms, by where their quantisers stand."""


def in_int8(nodes: NodeSet) -> Numerics:
    return numerics_of((Arithmetic.INT8, nodes))


def in_bfloat16(nodes: NodeSet) -> Numerics:
    return numerics_of((Arithmetic.BFLOAT16, nodes))


def written_region(
    graph: Graph, nodes: NodeSet, edits: Edits, ranges: Ranges, form: Int8Form | None
) -> onnx.ModelProto:
    return EditedRegion(graph, nodes, edits, Data(ranges, form)).model()


def writing_key(graph: Graph, nodes: NodeSet, edits: Edits, ranges: Ranges, form: Int8Form | None) -> str:
    return EditedRegion(graph, nodes, edits, Data(ranges, form)).key
