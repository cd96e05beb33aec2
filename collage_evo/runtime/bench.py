"""Times an artifact in this process: takes inputs, gives latency, outputs, each region's and each border's share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from collage_evo.graph.data import read_npz
from collage_evo.runtime.artifact import load_artifact, read_artifact
from collage_evo.runtime.session import Program, Session
from collage_evo.runtime.timing import TimingSettings, measure


@dataclass(frozen=True)
class Transition:
    """A tensor that one region hands to another of a different engine.

    ``ms`` is what leaving the one and entering the other cost together, as fitted when the artifact was
    made; it is spent inside the two regions. None where the artifact does not tell.
    """

    tensor: str
    nbytes: int
    source: int
    target: int
    ms: float | None


@dataclass(frozen=True)
class BenchReport:
    """Latency in ms with the 95 % interval of its median; dtype and shape of each output.

    ``regions`` holds each region's engine and median ms; ``outside_ms`` is what a run takes beyond them.
    """

    median_ms: float
    low_ms: float
    high_ms: float
    p10_ms: float
    p90_ms: float
    n: int
    outputs: Mapping[str, tuple[str, tuple[int, ...]]]
    regions: tuple[tuple[str, float], ...]
    outside_ms: float
    transitions: tuple[Transition, ...]


def bench_artifact(artifact: Path, inputs: Path | None, warmup: int, repeat: int) -> BenchReport:
    """Load ``artifact`` and run it ``warmup`` + ``repeat`` times on the arrays of ``inputs``, or random ones.

    Raises:
        InputError: the artifact or the inputs cannot be used.
    """
    info = read_artifact(artifact).info
    with load_artifact(artifact) as session:
        feeds = read_npz(inputs) if inputs else _random(session)
        outputs = session.run(None, feeds)
        settings = TimingSettings(warmup, repeat, min_seconds=0.0, max_seconds=float("inf"))
        timing = measure(session.execute, settings)
        profiles = np.array([session.profile() for _ in range(repeat)])
        names = [output.name for output in session.get_outputs()]
        engines = [f"{p.backend}/{p.variant}" for p in session.program.pieces]
        crossing = transitions(session.program, info.get("borders", {}))
    low, high = timing.interval_ms
    return BenchReport(
        timing.median_ms,
        low,
        high,
        timing.p10_ms,
        timing.p90_ms,
        timing.n,
        {name: (array.dtype.name, array.shape) for name, array in zip(names, outputs, strict=True)},
        tuple(zip(engines, map(float, np.median(profiles, axis=0)), strict=True)),
        max(0.0, timing.median_ms - float(np.median(profiles.sum(axis=1)))),
        crossing,
    )


def transitions(program: Program, borders: Mapping[str, Mapping[str, Any]]) -> tuple[Transition, ...]:
    """Every tensor that moves between regions of different engines, in the order in which they are read.

    Args:
        program: the placement.
        borders: for each engine (``backend/variant``) its ``fixed_ms`` and ``ms_per_mb`` to enter or to leave.
    """
    found = []
    maker = {name: index for index, piece in enumerate(program.pieces) for name in piece.outputs}
    for target, reader in enumerate(program.pieces):
        for name in reader.inputs:
            source = maker.get(name, target)
            piece = program.pieces[source]
            if (piece.backend, piece.variant) != (reader.backend, reader.variant):
                nbytes = program.tensors[name].nbytes
                sides = [borders.get(f"{side.backend}/{side.variant}") for side in (piece, reader)]
                costs = [b["fixed_ms"] + b["ms_per_mb"] * nbytes / 1e6 for b in sides if b is not None]
                found.append(Transition(name, nbytes, source, target, sum(costs) if len(costs) == 2 else None))
    return tuple(found)


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
