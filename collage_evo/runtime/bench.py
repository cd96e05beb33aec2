"""Times an artifact in this process: takes inputs, gives latency, outputs and each region's share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from collage_evo.errors import InputError
from collage_evo.runtime.artifact import load_artifact
from collage_evo.runtime.session import Session
from collage_evo.runtime.timing import TimingSettings, measure


@dataclass(frozen=True)
class BenchReport:
    """Latency in ms; dtype and shape of each output; engine and median ms of each region."""

    median_ms: float
    p10_ms: float
    p90_ms: float
    n: int
    outputs: Mapping[str, tuple[str, tuple[int, ...]]]
    regions: tuple[tuple[str, float], ...]


def bench_artifact(artifact: Path, inputs: Path | None, warmup: int, repeat: int) -> BenchReport:
    """Load ``artifact`` and run it ``warmup`` + ``repeat`` times on the arrays of ``inputs``, or random ones.

    Raises:
        InputError: the artifact or the inputs cannot be used.
    """
    with load_artifact(artifact) as session:
        feeds = _read(inputs) if inputs else _random(session)
        outputs = session.run(None, feeds)
        settings = TimingSettings(warmup, repeat, min_seconds=0.0, max_seconds=float("inf"))
        timing = measure(session.execute, settings)
        profiles = np.median([session.profile() for _ in range(min(repeat, 10))], axis=0)
        names = [output.name for output in session.get_outputs()]
        engines = [f"{p.backend}/{p.variant}" for p in session.program.pieces]
    return BenchReport(
        timing.median_ms,
        timing.p10_ms,
        timing.p90_ms,
        timing.n,
        {name: (array.dtype.name, array.shape) for name, array in zip(names, outputs, strict=True)},
        tuple(zip(engines, map(float, profiles), strict=True)),
    )


def _read(path: Path) -> dict[str, np.ndarray]:
    try:
        with np.load(path) as data:
            return {name: data[name] for name in data.files}
    except (OSError, ValueError) as error:
        raise InputError(f"{path} cannot be read as .npz: write it with numpy.savez(path, NAME=array)") from error


def _random(session: Session) -> dict[str, np.ndarray]:
    """Standard normal floats; zeros for integers, the one index that every table has."""
    rng = np.random.default_rng(0)
    feeds = {}
    for given in session.get_inputs():
        if np.issubdtype(np.dtype(given.type), np.floating):
            feeds[given.name] = rng.standard_normal(given.shape).astype(given.type)
        else:
            feeds[given.name] = np.zeros(given.shape, given.type)
    return feeds
