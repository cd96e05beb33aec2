"""Catalogue of the lower precisions that are written into regions."""

from __future__ import annotations

import ml_dtypes
import numpy as np
from onnx import TensorProto

from collage_evo.errors import InputError
from collage_evo.graph.ir.graph import NodeSet
from collage_evo.precision.quantise.arithmetic import Arithmetic
from collage_evo.precision.transforms.casts import Casts
from collage_evo.precision.transforms.edits import Numerics
from collage_evo.precision.transforms.int8 import Int8
from collage_evo.precision.transforms.rows import Rows
from collage_evo.precision.transforms.transform import Transform
from collage_evo.precision.transforms.weights import Weights

TRANSFORMS: tuple[Transform, ...] = (
    Int8(Arithmetic.INT8),
    Casts(Arithmetic.BFLOAT16, TensorProto.BFLOAT16, np.dtype(ml_dtypes.bfloat16)),
    Weights(Arithmetic.INT8_WEIGHTS),
    Weights(Arithmetic.INT8_BLOCKS),
    Rows(Arithmetic.INT8_ROWS),
)
"""All, each once, in the order in which they are written into a region."""


def transform_of(arithmetic: Arithmetic) -> Transform | None:
    """The transform that writes ``arithmetic`` into regions; None for one that only a library's setting enables."""
    return next((one for one in TRANSFORMS if one.arithmetic is arithmetic), None)


def in_turn(numerics: Numerics) -> list[tuple[Transform, NodeSet]]:
    """The transforms that write ``numerics``, each with its nodes, in the order of application.

    Raises:
        InputError: no transform writes one of them.
    """
    wanted = dict(numerics)
    transforms = [(t, wanted.pop(t.arithmetic)) for t in TRANSFORMS if t.arithmetic in wanted]
    if wanted:
        raise InputError(f"nothing writes {min(wanted).value} into a region: it is of another version")
    return transforms
