"""How well the additive cost model predicts the placement that the dynamic program chooses by it.

    python benchmarks/additive_error.py additive.json [--threads 1 2] [--models builtin:squeezenet ...]
        [-s 'backends.use=[onnxruntime, lanes]']

For each model and thread count: costs of all matches are measured twice, as they are paid inside the model
(caches flushed) and hot-and-alone; the cheapest cover under each is compiled and timed as a whole. The error is
|measured - predicted| / measured. Regions whose parts run side by side are measured as wholes and summed like others;
each row says which these were.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from collage_evo.backends.enumerate import enumerate_matches
from collage_evo.backends.variants import engine_name
from collage_evo.config import parse_config
from collage_evo.fitness.evaluate import outcome_of, placement_job
from collage_evo.genome.cover.dynamic_program import cheapest_covers
from collage_evo.genome.encoding import place
from collage_evo.patterns.match import Placement
from collage_evo.report.progress import LineReporter
from collage_evo.rewrites.catalogue import REWRITES
from collage_evo.run.context import RunContext
from collage_evo.run.open import chosen_backends, open_run
from collage_evo.run.stages.costs import gather_costs
from collage_evo.run.stages.model import normalise

MODELS = ("builtin:resnet50", "builtin:squeezenet", "builtin:mobilenet_v2", "builtin:bert?layers=2&length=128")
LANES = "lanes"
ROUNDS = 5


@dataclass(frozen=True)
class Row:
    """One model, thread count and way of measuring costs. Times in ms."""

    model: str
    threads: int
    costs: str
    regions: int
    engines: tuple[str, ...]
    in_lanes: tuple[tuple[str, int], ...]
    """Regions of the backend ``lanes``: the engine and the number of operators of each."""
    predicted_ms: float
    measured_ms: float

    @property
    def error(self) -> float:
        return abs(self.measured_ms - self.predicted_ms) / self.measured_ms


def measure_row(source: str, threads: int, flush: bool, cache: str | None, said: Sequence[str] = ()) -> Row:
    """Measure costs, take the cheapest cover, time it."""
    data: dict[str, Any] = {
        "model": {"source": source},
        "target": {"threads": threads},
        "costs": {"flush": flush},
        "cache": {"dir": cache},
    }
    config = parse_config(data, said, "benchmark")
    with tempfile.TemporaryDirectory() as work, open_run(config, Path(work), LineReporter()) as (context, model):
        graph = normalise(context, model).graph
        backends = chosen_backends(config)
        found = enumerate_matches(graph, backends, rewrites=REWRITES)
        costs = gather_costs(context, graph, found, backends)
        space = costs.space
        placement = place(cheapest_covers(space).covers[0].matches, space)
        measured = latency_ms(context, placement, ROUNDS)
    if measured is None:
        raise SystemExit(f"{source}: its cheapest cover cannot be run")
    engines = tuple(sorted({engine_name(*region.engine) for region in placement.regions}))
    beside = [region for region in placement.regions if region.backend == LANES]
    in_lanes = tuple((engine_name(*region.engine), region.nodes.bit_count()) for region in beside)
    way = "cold, in the model" if flush else "hot and alone"
    predicted = space.predict(placement)
    return Row(source, threads, way, len(placement.regions), engines, in_lanes, predicted, measured)


def told_lanes(row: Row) -> str:
    """Which regions ran side by side, in words; nothing where none did."""
    regions = [f"{count} operators on {engine}" for engine, count in row.in_lanes]
    return f"; in lanes {', '.join(regions)}" if regions else ""


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
    parser.add_argument("-s", "--set", action="append", default=[], metavar="KEY=VALUE", help="as for the tool")
    options = parser.parse_args()
    rows = []
    for threads in options.threads:
        for source in options.models:
            for way in options.ways:
                row = measure_row(source, threads, way == "cold", options.cache, options.set)
                rows.append(row)
                options.output.write_text(json.dumps([asdict(r) | {"error": r.error} for r in rows], indent=1))
                print(
                    f"{row.model} {row.threads}T {row.costs}: predicted {row.predicted_ms:.2f} ms, "
                    f"measured {row.measured_ms:.2f} ms, error {row.error:.1%}, {row.regions} regions "
                    f"on {', '.join(row.engines)}{told_lanes(row)}",
                    flush=True,
                )


if __name__ == "__main__":
    main()
