"""Calibration: the range of every activation over samples, and means for bias correction."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from collage_evo.errors import InputError
from collage_evo.files import read_json
from collage_evo.graph.ir.graph import Graph
from collage_evo.graph.reference.reference import Reference
from collage_evo.precision.quantise.observers import Observation
from collage_evo.precision.quantise.rules import Range, Ranges

ENOUGH, ENOUGH_SHARE = 8, 0.4
"""Samples that show the ranges of a slow model, and the share of the time for it. Chosen."""


def calibrate(
    graph: Graph,
    samples: Iterable[Mapping[str, Any]],
    threads: int = 1,
    seconds: float = math.inf,
    clock: Callable[[], float] = time.monotonic,
) -> Ranges:
    """The range of every float32 activation of ``graph`` over ``samples``.

    A range is the least and the greatest value. An activation that is not finite in some sample has none; a model of
    integers has none at all.

    Args:
        graph: the normalised model.
        samples: arrays by input name; at least one runs.
        threads: of the reference.
        seconds: no further sample begins after this time, and after ``ENOUGH_SHARE`` of it none beyond ``ENOUGH``.
        clock: seconds.

    Raises:
        InputError: there are no samples, or the model does not run on one.
    """
    seen = Observation(graph)
    if seen.empty:
        return {}
    reference = Reference(seen.model, threads, in_order=True)
    begin, count = clock(), 0
    for count, sample in enumerate(samples, 1):
        seen.add(reference.run(sample))
        share = ENOUGH_SHARE if count >= ENOUGH else 1.0
        if clock() - begin > share * seconds:
            break
    if not count:
        raise InputError("there are no samples to calibrate on")
    return seen.ranges()


def read_ranges(path: Path) -> Ranges:
    """Read ranges, a JSON object by name.

    Raises:
        DamagedFile: the file holds no ranges.
    """
    return read_json(path, dict[str, Range])
