"""Benchmark of an artifact in this process: latency, outputs, and the time of each region."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from collage_evo.errors import InputError, UnavailableError
from collage_evo.graph.load.data import read_npz, require_rows
from collage_evo.hardware.slots import usable_cores
from collage_evo.runtime.artifact import load_artifact, read_artifact
from collage_evo.runtime.program import Piece, Program
from collage_evo.runtime.session import Session
from collage_evo.runtime.timing import TimingSettings, measure


@dataclass(frozen=True)
class BenchReport:
    """Latency in ms with the 95 % interval of its median; dtype and shape of each input and output.

    ``regions`` holds each region's engine and median ms; ``outside_ms`` is the time of a run beyond them.
    """

    median_ms: float
    low_ms: float
    high_ms: float
    p10_ms: float
    p90_ms: float
    n: int
    inputs: Mapping[str, tuple[str, tuple[int, ...]]]
    outputs: Mapping[str, tuple[str, tuple[int, ...]]]
    regions: tuple[tuple[str, float], ...]
    outside_ms: float
    fallback: bool = False
    """The inputs' shapes are of no profile."""
    device_ms: float | None = None
    """Where a device takes part: the median by its events, without copies of inputs and outputs."""


def keep_to_cores(artifact: Path) -> None:
    """Pin this process to the cores that ``artifact`` was made on, if it names some, or to as many others.

    Raises:
        InputError: the artifact cannot be used.
        UnavailableError: so many are not usable here.
    """
    cores, here = read_artifact(artifact).target.cores, usable_cores()
    if not set(cores) <= os.sched_getaffinity(0):
        if len(cores) > len(here):
            made = f"{artifact} was made on {len(cores)} cores, and usable here are {len(here)}"
            raise UnavailableError(f"{made}: let this process use more, or run the search on this machine")
        cores = here[: len(cores)]
    if cores:
        os.sched_setaffinity(0, cores)


def bench_artifact(artifact: Path, inputs: Path | None, warmup: int, repeat: int) -> tuple[BenchReport, ...]:
    """Load ``artifact`` and run it ``warmup`` + ``repeat`` times on the arrays of ``inputs``, or random ones.

    Returns:
        One report for ``inputs``; without them one for each profile.

    Raises:
        InputError: the artifact or the inputs cannot be used.
    """
    contents = read_artifact(artifact)
    profiles = contents.profiles
    settings = TimingSettings(warmup, repeat, min_seconds=0.0, max_seconds=float("inf"))
    answers = [profile.program.pieces for profile in profiles]
    samples = [feeds_of(inputs, artifact)] if inputs else [random_feeds(profile.program) for profile in profiles]
    with load_artifact(artifact) as session:
        return tuple(_bench(session, feeds, settings, answers) for feeds in samples)


def feeds_of(inputs: Path, artifact: Path) -> Mapping[str, np.ndarray]:
    """The arrays of an .npz file, for the model of ``artifact``.

    Raises:
        InputError: it cannot be read, or an input has no rows.
    """
    feeds, signature = read_npz(inputs), read_artifact(artifact).signature
    open_ones = [arg.name for arg in signature.inputs if arg.shape and not isinstance(arg.shape[0], int)]
    require_rows(feeds, open_ones, str(inputs))
    return feeds


def _bench(
    session: Session, feeds: Mapping[str, np.ndarray], settings: TimingSettings, answers: Sequence[Sequence[Piece]]
) -> BenchReport:
    outputs = dict(zip(session.program.outputs, session.run(None, feeds), strict=True))
    session.feed(feeds)
    program = session.program
    clock = session.clock
    timing = measure(session.execute, settings, warm_s=clock.warm_s if clock else 0.0)
    by_events = [clock.time_ms() for _ in range(settings.min_runs)] if clock else None
    profiles = np.array([session.profile() for _ in range(settings.min_runs)])
    engines = [f"{piece.backend}/{piece.variant}" for piece in program.pieces]
    low, high = timing.interval_ms
    return BenchReport(
        timing.median_ms,
        low,
        high,
        timing.p10_ms,
        timing.p90_ms,
        timing.n,
        _types(feeds),
        _types(outputs),
        tuple(zip(engines, np.median(profiles, axis=0).tolist(), strict=True)),
        max(0.0, timing.median_ms - float(np.median(profiles.sum(axis=1)))),
        fallback=program.pieces not in answers,
        device_ms=None if by_events is None else float(np.median(by_events)),
    )


def _types(arrays: Mapping[str, Any]) -> dict[str, tuple[str, tuple[int, ...]]]:
    as_numpy = {name: np.asarray(array) for name, array in arrays.items()}
    return {name: (array.dtype.name, array.shape) for name, array in as_numpy.items()}


def random_feeds(program: Program) -> dict[str, np.ndarray]:
    """Standard normal floats; zeros for integers, the only index that every table has.

    Raises:
        InputError: an input has an open shape, or holds no numbers.
    """
    rng = np.random.default_rng(0)
    feeds = {}
    for name in program.inputs:
        tensor = program.tensors[name]
        if not tensor.static:
            raise InputError(f"input {name!r} takes several shapes or no numbers: give --inputs FILE.npz")
        floating = np.issubdtype(np.dtype(tensor.dtype), np.floating)
        values = rng.standard_normal(tensor.shape) if floating else np.zeros(tensor.shape)
        feeds[name] = values.astype(tensor.dtype)
    return feeds
