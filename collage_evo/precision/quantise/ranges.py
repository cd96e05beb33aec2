"""Calibration: takes a graph and samples, gives the range of every activation, and means to correct biases by."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from collage_evo.errors import InputError
from collage_evo.files import read_json, write_json
from collage_evo.graph.ir import Graph
from collage_evo.graph.reference import Reference
from collage_evo.precision.quantise.observers import Observation
from collage_evo.precision.quantise.rules import Range, Ranges


def calibrate(
    graph: Graph, samples: Iterable[Mapping[str, Any]], threads: int = 1, seconds: float = math.inf
) -> Ranges:
    """The range of every float32 activation of ``graph`` over ``samples``.

    It goes from the least to the greatest value. What is not finite in some sample has no range; a model of integers
    has none at all.

    Args:
        graph: the normalised model.
        samples: arrays by input name; at least one is run.
        threads: that ONNX Runtime may use.
        seconds: no further sample is begun after so long.

    Raises:
        InputError: there are no samples, or the model does not run on one.
    """
    seen = Observation(graph)
    if seen.empty:
        return {}
    reference = Reference(seen.model, threads)
    end = time.monotonic() + seconds
    for sample in samples:
        seen.add(reference.run(sample))
        if time.monotonic() > end:
            break
    if not seen.samples:
        raise InputError("there are no samples to calibrate on")
    return seen.ranges()


def write_ranges(path: Path, ranges: Ranges) -> None:
    """Write ``ranges`` as JSON, every number to the bit."""
    write_json(path, dict[str, Range], {name: ranges[name] for name in sorted(ranges)})


def read_ranges(path: Path) -> Ranges:
    """What :func:`write_ranges` wrote.

    Raises:
        DamagedFile: it holds no ranges.
    """
    return read_json(path, dict[str, Range])
