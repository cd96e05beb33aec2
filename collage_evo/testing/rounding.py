"""Sensitivity of a model to a lower precision: a relative error for an arithmetic."""

from __future__ import annotations

import math
from collections.abc import Mapping
from copy import deepcopy

import ml_dtypes
import numpy as np
import onnx
from onnx import numpy_helper

from collage_evo.backends.variants import Arithmetic
from collage_evo.errors import InputError
from collage_evo.graph.convert.read import build_graph
from collage_evo.graph.ir.values import plain
from collage_evo.graph.load.inputs import random_inputs
from collage_evo.graph.reference.distance import relative_error
from collage_evo.graph.reference.reference import Reference

_TYPES: Mapping[Arithmetic, np.dtype] = {
    Arithmetic.BFLOAT16: np.dtype(ml_dtypes.bfloat16),
    Arithmetic.FLOAT16: np.dtype(np.float16),
}


def rounding_error(model: onnx.ModelProto, arithmetic: Arithmetic) -> float:
    """The relative error (2-norm) of the outputs after rounding the inputs and constants of ``model``.

    Operators that multiply errors so much, such as attention with large logits, may do so inside a library as well.
    Infinite if nothing is left to compare; 0 for an arithmetic that stores no numbers.
    """
    if arithmetic not in _TYPES:
        return 0.0
    graph = build_graph(model)
    shapes = {name: list(map(abs, graph.tensors[name].shape)) for name in graph.inputs}  # 1 where a size is open
    feeds = random_inputs(graph, 0, shapes)
    rounded = deepcopy(model)
    for tensor in rounded.graph.initializer:
        if tensor.data_type == onnx.TensorProto.FLOAT:
            tensor.CopyFrom(numpy_helper.from_array(_rounded(numpy_helper.to_array(tensor), arithmetic), tensor.name))
    try:
        exact = plain(Reference(model).run(feeds))
        values = plain(Reference(rounded).run({name: _rounded(value, arithmetic) for name, value in feeds.items()}))
    except InputError:
        return 0.0  # the reference cannot decide: the piece is not run
    error = relative_error(values, exact).relative
    return error if error == error else math.inf


def _rounded(array: np.ndarray, arithmetic: Arithmetic) -> np.ndarray:
    return array.astype(_TYPES[arithmetic]).astype(np.float32) if array.dtype == np.float32 else array
