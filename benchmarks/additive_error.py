"""How well the additive cost model predicts the placement that the dynamic program chooses by it.

    python benchmarks/additive_error.py additive.json [--threads 1 2] [--models builtin:squeezenet ...]

For each model and thread count: costs of all matches are measured twice, as they are paid inside the model
(caches flushed) and hot-and-alone; the cheapest cover under each is compiled and timed as a whole. The error is
|measured - predicted| / measured.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from collage_evo.backends.enumerate import enumerate_matches
from collage_evo.backends.select import select_backends
from collage_evo.config import parse_config
from collage_evo.fitness.evaluate import outcome_of, placement_job
from collage_evo.genome.cover.dynamic_program import cheapest_covers
from collage_evo.genome.encoding import place
from collage_evo.patterns.match import Placement
from collage_evo.report.progress import LineReporter
from collage_evo.run.context import RunContext
from collage_evo.run.stages.costs import gather_costs
from collage_evo.run.stages.model import normalise, prepare

MODELS = ("builtin:resnet50", "builtin:squeezenet", "builtin:mobilenet_v2", "builtin:bert?layers=2&length=128")
ROUNDS = 5


@dataclass(frozen=True)
class Row:
    """One model, thread count and way of measuring costs. Times in ms."""

    model: str
    threads: int
    costs: str
    regions: int
    engines: tuple[str, ...]
    predicted_ms: float
    measured_ms: float

    @property
    def error(self) -> float:
        return abs(self.measured_ms - self.predicted_ms) / self.measured_ms


def measure_row(source: str, threads: int, flush: bool, cache: str | None) -> Row:
    """Measure costs, take the cheapest cover, time it."""
    data: dict[str, Any] = {
        "model": {"source": source},
        "target": {"threads": threads},
        "costs": {"flush": flush},
        "cache": {"dir": cache},
    }
    config = parse_config(data, (), "benchmark")
    with tempfile.TemporaryDirectory() as work, RunContext(config, Path(work), LineReporter()) as context:
        graph = normalise(context, prepare(context)).graph
        backends = select_backends(())
        found = enumerate_matches(graph, backends)
        costs = gather_costs(context, graph, found, backends)
        space = costs.space
        placement = place(cheapest_covers(space).covers[0].matches, space)
        measured = latency_ms(context, placement, ROUNDS)
    if measured is None:
        raise SystemExit(f"{source}: its cheapest cover cannot be run")
    engines = tuple(sorted({f"{r.backend}/{r.variant}" for r in placement.regions}))
    way = "cold, in the model" if flush else "hot and alone"
    predicted = space.predict(placement)
    return Row(source, threads, way, len(placement.regions), engines, predicted, measured)


def latency_ms(context: RunContext, placement: Placement, times: int) -> float | None:
    """Median of ``times`` measurements, in ms; None where it fails."""
    timing = context.config.fitness.timing.settings()
    replies = context.pool.map([placement_job(placement, timing, math.inf)] * times)
    measured = [outcome_of(reply.answer).latency_ms for reply in replies]
    found = [ms for ms in measured if ms is not None]
    return statistics.median(found) if found else None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("output", type=Path, help="raw figures, JSON")
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--models", nargs="+", default=list(MODELS))
    parser.add_argument("--ways", nargs="+", choices=("cold", "hot"), default=["cold", "hot"])
    parser.add_argument("--cache", help="cache directory (default: the usual one)")
    options = parser.parse_args()
    rows = []
    for threads in options.threads:
        for source in options.models:
            for way in options.ways:
                row = measure_row(source, threads, way == "cold", options.cache)
                rows.append(row)
                options.output.write_text(json.dumps([asdict(r) | {"error": r.error} for r in rows], indent=1))
                print(
                    f"{row.model} {row.threads}T {row.costs}: predicted {row.predicted_ms:.2f} ms, "
                    f"measured {row.measured_ms:.2f} ms, error {row.error:.1%}, {row.regions} regions "
                    f"on {', '.join(row.engines)}",
                    flush=True,
                )


if __name__ == "__main__":
    main()
