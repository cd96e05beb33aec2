"""How well the search's measurements repeat, within a measuring process and between processes, and in a race.

    python benchmarks/repeatability.py repeat.json [--model network:inception_v1] [--threads 1] [--seconds 120]

Placements of few regions (each single backend, and what greedy partition makes) are measured again and again, in
random order, in as many timing slots as a search uses. Given is how far measurements of one placement lie from their
mean: standard deviation of the logarithm, over all placements. The fastest then runs as in the final race: search and
race ought to give the same time.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from networks import model_source
from rich.console import Console

from collage_evo.answer.race import race
from collage_evo.answer.sequential import LOOKS
from collage_evo.backends.enumerate import enumerate_matches
from collage_evo.backends.select import select_backends
from collage_evo.config import parse_config
from collage_evo.measure.evaluate import outcome_of
from collage_evo.measure.jobs import PlacementJob, regions_of
from collage_evo.patterns.match import Placement
from collage_evo.placement.cost_model import Border, CostModel
from collage_evo.placement.failure import Failure
from collage_evo.placement.space import SearchSpace
from collage_evo.report.progress import LineReporter
from collage_evo.run.open import open_run
from collage_evo.run.stages.compile import write_placements
from collage_evo.run.stages.model import normalise
from collage_evo.search.encoding import decode
from collage_evo.search.evolution.seeds import make_seeds

MOST_REGIONS = 40
FAR_BEHIND = 3.0
"""A placement this many times as slow as the fastest is left out."""


@dataclass(frozen=True)
class Measured:
    """Latencies in ms and who measured: a row a placement, a column a round; the fastest one's times in a race."""

    latencies_ms: np.ndarray
    workers: np.ndarray
    race_ms: tuple[float, ...]


def measure(source: str, threads: int, seconds: float) -> Measured:
    """Measure placements again and again for so many seconds, then race the fastest of them alone."""
    config = parse_config({"model": {"source": source}, "target": {"threads": threads}}, (), "benchmark")
    with tempfile.TemporaryDirectory() as work, open_run(config, Path(work), LineReporter()) as (context, model):
        graph = normalise(context, model).graph
        matches = enumerate_matches(graph, select_backends(())).matches
        borders = dict.fromkeys({match.engine for match in matches}, Border(0.1, 0.1))
        # Any costs do: only which placements there are depends on them.
        space = SearchSpace(graph, matches, CostModel((1.0,) * len(matches), borders))
        by_key = {placement.key: placement for placement in _placements(space)}
        timing = config.fitness.timing.settings()
        jobs = {key: PlacementJob(regions_of(p), timing, math.inf) for key, p in by_key.items()}
        first = dict(zip(jobs, context.pool.map(list(jobs.values())), strict=True))
        outcomes = {key: outcome_of(reply.answer) for key, reply in first.items()}
        took = {key: outcome.latency_ms for key, outcome in outcomes.items() if outcome.latency_ms is not None}
        able = [key for key, ms in took.items() if ms < FAR_BEHIND * min(took.values())]
        latencies: list[list[float]] = []
        workers: list[list[str]] = []
        rng, began = random.Random(0), time.monotonic()
        while len(latencies) < 2 or time.monotonic() - began < seconds:
            order = rng.sample(able, len(able))
            replies = dict(zip(order, context.pool.map([jobs[key] for key in order]), strict=True))
            latencies.append([outcome_of(replies[key].answer).latency_ms or math.nan for key in able])
            workers.append([replies[key].worker for key in able])
        by_placement = np.array(latencies).T
        fastest = by_key[able[int(by_placement.min(axis=1).argmin())]]
        artifact = write_placements(context, {"fastest": fastest}, space)["fastest"]
        if isinstance(artifact, Failure):
            raise SystemExit(str(artifact))
        raced = race({"fastest": artifact}, context.pool, LOOKS[0]).timing("fastest")
    return Measured(by_placement, np.array(workers).T, raced.times_ms)


def _placements(space: SearchSpace) -> list[Placement]:
    seeds = [decode(genome, space) for _, genome in make_seeds(space).named]
    return [placement for placement in seeds if len(placement.regions) <= MOST_REGIONS]


def spread(values: np.ndarray) -> float:
    """Standard deviation of the logarithm about each row's mean; NaN is no value."""
    logs = np.log(values)
    apart = logs - np.nanmean(logs, axis=1, keepdims=True)
    rows = int(np.isfinite(apart).any(axis=1).sum())
    return float(np.sqrt(np.nansum(apart**2) / max(1, np.isfinite(apart).sum() - rows)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("output", type=Path, help="raw figures, JSON")
    parser.add_argument("--model", default="network:inception_v1")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=120.0)
    options = parser.parse_args()
    measured = measure(model_source(options.model), options.threads, options.seconds)
    latencies, workers = measured.latencies_ms, measured.workers
    rows = {"latencies_ms": latencies.tolist(), "workers": workers.tolist(), "race_ms": measured.race_ms}
    options.output.write_text(json.dumps(rows, indent=1))
    within = [spread(np.where(workers == worker, latencies, np.nan)) for worker in np.unique(workers)]
    fastest = float(np.median(latencies, axis=1).min())
    Console(width=200).print(
        f"{len(latencies)} placements, {latencies.shape[1]} rounds: spread {spread(latencies):.1%}; "
        f"within each process {', '.join(f'{one:.1%}' for one in within)}; "
        f"the fastest took {fastest:.2f} ms here, {float(np.median(measured.race_ms)):.2f} ms in a race"
    )


if __name__ == "__main__":
    main()
