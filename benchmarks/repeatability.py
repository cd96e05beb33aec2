"""How well the search's measurements repeat, as they are and at the machine's usual pace.

    python benchmarks/repeatability.py repeat.json [--model builtin:inception_v1] [--threads 1] [--seconds 120]

The search's seeds are measured again and again, in random order, in as many timing slots as a search uses. Given is
how far measurements of one placement lie from their mean: standard deviation of the logarithm, over all placements.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import tempfile
import time
from pathlib import Path

import numpy as np
from rich.console import Console

from collage_evo.backends.select import select_backends
from collage_evo.config import parse_config
from collage_evo.fitness.evaluate import placement_job
from collage_evo.genome.encoding import decode
from collage_evo.genome.seeds import make_seeds
from collage_evo.patterns.enumerate import enumerate_matches
from collage_evo.report.progress import LineReporter
from collage_evo.runtime.timing import Timing
from collage_evo.stages import HOPELESS, Stages


def measure(source: str, threads: int, seconds: float) -> tuple[np.ndarray, np.ndarray]:
    """Latencies and paces in ms, one row a placement, one column a round."""
    config = parse_config({"model": {"source": source}, "target": {"threads": threads}}, (), "benchmark")
    with tempfile.TemporaryDirectory() as work, Stages(config, Path(work), LineReporter()) as stages:
        model = stages.prepare()
        graph = stages.normalise(model).graph
        backends = select_backends(())
        space = stages.measure_costs(graph, enumerate_matches(graph, backends), backends).space
        seeds = make_seeds(space)
        placements = [decode(genome, space) for _, genome in seeds.named]
        timing = config.fitness.timing.settings()
        jobs = [
            placement_job(placement, timing, math.inf)
            for placement in placements
            if space.predict(placement) < HOPELESS * seeds.dp.cost_ms
        ]
        compiled = list(stages.pool.map(jobs))
        able = [job for job, answer in zip(jobs, compiled, strict=True) if answer.times_ms]
        rounds: list[list[tuple[float, float]]] = []
        rng, began = random.Random(0), time.monotonic()
        while len(rounds) < 2 or time.monotonic() - began < seconds:
            order = rng.sample(range(len(able)), len(able))
            answers = dict(zip(order, stages.pool.map([able[index] for index in order]), strict=True))
            took = [answers[index] for index in range(len(able))]
            rounds.append([(Timing(answer.times_ms).median_ms, answer.pace_ms or math.nan) for answer in took])
    latencies, paces = np.array(rounds).transpose(2, 1, 0)
    return latencies, paces


def spread(values: np.ndarray) -> float:
    """Standard deviation of the logarithm about each row's mean."""
    logs = np.log(values)
    apart = logs - logs.mean(axis=1, keepdims=True)
    return float(np.sqrt((apart**2).sum() / (apart.size - len(apart))))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("output", type=Path, help="raw figures, JSON")
    parser.add_argument("--model", default="builtin:inception_v1")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=120.0)
    options = parser.parse_args()
    latencies, paces = measure(options.model, options.threads, options.seconds)
    options.output.write_text(json.dumps({"latencies_ms": latencies.tolist(), "paces_ms": paces.tolist()}, indent=1))
    placements, rounds = latencies.shape
    Console().print(
        f"{placements} placements, {rounds} rounds: as measured {spread(latencies):.1%}, "
        f"at the usual pace {spread(latencies / paces):.1%}; the pace itself {spread(paces):.1%}"
    )


if __name__ == "__main__":
    main()
