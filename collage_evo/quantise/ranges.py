"""Calibration: takes a graph and samples, gives the least and the greatest value of every activation (MinMax)."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper

from collage_evo.errors import InputError
from collage_evo.files import MADE_AGAIN, reading, write_whole
from collage_evo.graph.ir import Graph
from collage_evo.graph.reference import Reference
from collage_evo.quantise.rules import Ranges


def calibrate(
    graph: Graph, samples: Iterable[Mapping[str, Any]], threads: int = 1, seconds: float = math.inf
) -> Ranges:
    """The range of every float32 activation of ``graph`` over ``samples``.

    The extremes are found inside the model, so that a run keeps no tensor longer than it would. What is not finite
    in some sample has no range; a model of integers has none at all.

    Args:
        graph: the normalised model.
        samples: arrays by input name; at least one is run.
        threads: that ONNX Runtime may use.
        seconds: no further sample is begun after so long.

    Raises:
        InputError: there are no samples, or the model does not run on one.
    """
    names = _activations(graph)
    if not names:
        return {}
    reference = Reference(_with_extremes(graph, names), threads)
    least, greatest = np.full(len(names), np.inf, np.float32), np.full(len(names), -np.inf, np.float32)
    end, seen = time.monotonic() + seconds, False
    for sample in samples:
        found = np.array(reference.run(sample), np.float32)
        # A nan stays one: np.minimum and np.maximum pass it on.
        least, greatest = np.minimum(least, found[: len(names)]), np.maximum(greatest, found[len(names) :])
        seen = True
        if time.monotonic() > end:
            break
    if not seen:
        raise InputError("there are no samples to calibrate on")
    pairs = zip(names, least, greatest, strict=True)
    return {name: (float(low), float(high)) for name, low, high in pairs if np.isfinite([low, high]).all()}


def write_ranges(path: Path, ranges: Ranges) -> None:
    """Write ``ranges`` as JSON, every number to the bit."""
    write_whole(path, json.dumps({name: list(ranges[name]) for name in sorted(ranges)}))


def read_ranges(path: Path) -> Ranges:
    """What :func:`write_ranges` wrote.

    Raises:
        DamagedFile: it holds no ranges.
    """
    with reading(path, MADE_AGAIN):
        found = json.loads(path.read_bytes())
        return {str(name): (float(low), float(high)) for name, (low, high) in found.items()}


def _activations(graph: Graph) -> list[str]:
    """Float32 tensors with elements that operators read or make; those inside composites are nobody's business."""
    made = (name for node in graph.nodes for name in node.outputs if name)
    return [name for name in dict.fromkeys((*graph.inputs, *made)) if _has_range(graph, name)]


def _has_range(graph: Graph, name: str) -> bool:
    tensor = graph.tensors[name]
    return tensor.dtype == "float32" and tensor.static and tensor.nbytes > 0


def _with_extremes(graph: Graph, names: list[str]) -> onnx.ModelProto:
    """A model whose outputs are the least values of ``names``, then the greatest."""
    model = onnx.ModelProto()
    model.CopyFrom(graph.model)
    del model.graph.output[:]
    for kind, op_type in (("least", "ReduceMin"), ("greatest", "ReduceMax")):
        for name in names:
            made = f"{kind} of {name}"
            model.graph.node.append(helper.make_node(op_type, [name], [made], keepdims=0))
            model.graph.output.append(helper.make_tensor_value_info(made, TensorProto.FLOAT, []))
    return model
