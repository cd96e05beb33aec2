"""How long the costs of matches take, how many are measured for them, and what that loses.

    python benchmarks/time_to_costs.py costs.json [--threads 1] [--models builtin:resnet50 ...]
        [--seconds 50] [--without-wholes] [--all]

Each model starts with an empty cache. Its cheapest cover is then timed as a whole. ``--seconds`` are those for costs.
Estimates agree with what each backend takes alone; ``--without-wholes`` does all once more where they need not.
``--all`` goes on to measure every match, and says what the cheapest cover under all of them costs, and what the first
one costs under them.
"""

from __future__ import annotations

import argparse
import json
import math
import tempfile
import time
from dataclasses import asdict, dataclass, replace
from itertools import product
from pathlib import Path

from additive_error import latency_ms

from collage_evo.backends.enumerate import Matches, enumerate_matches
from collage_evo.config import parse_config
from collage_evo.fitness.costs.borders import inner_ms
from collage_evo.fitness.costs.database import CostDatabase
from collage_evo.fitness.costs.matches import CostMeter, CostSettings, measure_costs
from collage_evo.fitness.costs.model import CostModel, bordering
from collage_evo.fitness.final.baselines import latencies
from collage_evo.fitness.measure.builders import Builders
from collage_evo.genome.cover.dynamic_program import cheapest_covers
from collage_evo.genome.encoding import place
from collage_evo.genome.space import SearchSpace
from collage_evo.graph.ir import Graph
from collage_evo.patterns.match import Placement
from collage_evo.report.progress import LineReporter
from collage_evo.run.context import RunContext
from collage_evo.run.open import chosen_backends, open_run
from collage_evo.run.stages.costs import cost_meter, gather_costs
from collage_evo.run.stages.model import normalise
from collage_evo.run.stages.singles import measure_baselines

MODELS = (
    *("builtin:resnet50", "builtin:inception_v1", "builtin:mobilenet_v2", "builtin:squeezenet"),
    *("builtin:bert?layers=2&length=128", "builtin:resnet3d_18?frames=8&size=64"),
)
TIMES = 3
"""Measurements of a placement as a whole."""


@dataclass(frozen=True)
class Row:
    """One model. Seconds by stage, costs in ms; ``whole_ms``: as measured, ``full_ms``: with every match measured."""

    model: str
    threads: int
    wholes: bool
    """Whether estimates agree with what each backend takes alone."""
    matches: int
    structures: int
    measured: int
    disturbed: int
    seconds: dict[str, float]
    regions: int
    alone_ms: float
    """The fastest backend alone."""
    predicted_ms: float
    whole_ms: float | None
    full_seconds: float | None = None
    full_ms: float | None = None
    full_of_first_ms: float | None = None

    @property
    def line(self) -> str:
        total = sum(seconds for stage, seconds in self.seconds.items() if stage.startswith("costs"))
        way = "with" if self.wholes else "without"
        text = (
            f"{self.model} {self.threads}T, {way} wholes: {total:.0f} s, "
            f"{self.measured} measured ({self.disturbed} disturbed) for {self.matches} matches "
            f"of {self.structures} structures; {self.regions} regions, "
            f"predicted {self.predicted_ms:.2f} ms"
        )
        if self.whole_ms is not None:
            text += f", measured {self.whole_ms:.2f} ms, error {abs(1 - self.predicted_ms / self.whole_ms):.1%}, "
            text += f"a backend alone {self.alone_ms:.2f} ms"
        if self.full_ms is not None:
            text += (
                f"; all matches: {self.full_seconds:.0f} s more, cheapest cover {self.full_ms:.2f} ms, "
                f"the first one {self.full_of_first_ms:.2f} ms"
            )
        return text


def measure_row(source: str, threads: int, seconds: float, wholes: bool, everything: bool) -> Row:
    """Costs from an empty cache, and the cheapest cover as a whole."""
    with tempfile.TemporaryDirectory() as work:
        data = {"model": {"source": source}, "target": {"threads": threads}, "cache": {"dir": f"{work}/cache"}}
        data |= {"costs": {"seconds": seconds}}
        config = parse_config(data, (), "benchmark")
        with open_run(config, Path(work) / "run", LineReporter()) as (context, prepared):
            backends = chosen_backends(config)
            alone = latencies(measure_baselines(context, backends))
            graph = normalise(context, prepared).graph
            found = enumerate_matches(graph, backends, config.verify.tolerance)
            costs = gather_costs(context, graph, found, backends, alone=alone if wholes else {})
            placement = place(cheapest_covers(costs.space).covers[0].matches, costs.space)
            with Builders(context.pool) as builders:
                key = cost_meter(context, graph, builders, math.inf).key
                structures = len({key(match) for match in found.matches})
            row = Row(
                source,
                threads,
                wholes,
                len(found.matches),
                structures,
                costs.measured,
                costs.disturbed,
                dict(context.seconds),
                len(placement.regions),
                min(alone.values()),
                costs.space.predict(placement),
                latency_ms(context, placement, TIMES),
            )
            return _with_all(row, context, graph, found, costs.space, placement) if everything else row


def _with_all(
    row: Row, context: RunContext, graph: Graph, found: Matches, space: SearchSpace, first: Placement
) -> Row:
    """What measuring every match adds, with the same borders."""
    begin = time.monotonic()
    with Builders(context.pool) as builders:
        # A database of its own: in the run's own the costs are settled, and nothing more is measured.
        own = CostDatabase(context.work / "all.sqlite")
        costs = context.config.costs
        settings = CostSettings(costs.timing.settings(), costs.flush)
        meter = CostMeter(graph, context.pool, builders, own, context.databases[1], settings)
        table = measure_costs(meter, found.matches, context.config.costs.far_behind, context.reporter.advance)
    seconds = time.monotonic() - begin
    pairs = zip(found.matches, table.standalone_ms, strict=True)
    borders = space.cost.borders
    inner = [inner_ms(graph, match.nodes, ms, borders[bordering(match.engine)]) for match, ms in pairs]
    full = SearchSpace(graph, space.matches, CostModel(tuple(inner), space.cost.borders), found.refusals)
    best = place(cheapest_covers(full).covers[0].matches, full)
    return replace(
        row, full_seconds=seconds, full_ms=full.predict(best), full_of_first_ms=full.predict(first)
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("output", type=Path, help="raw figures, JSON")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--models", nargs="+", default=list(MODELS))
    parser.add_argument("--seconds", type=float, default=50.0, help="time for costs")
    parser.add_argument("--without-wholes", action="store_true", help="each model once more without them")
    parser.add_argument("--all", action="store_true", help="measure every match as well")
    options = parser.parse_args()
    rows = []
    ways = (True, False) if options.without_wholes else (True,)
    for source, wholes in product(options.models, ways):
        rows.append(measure_row(source, options.threads, options.seconds, wholes, options.all))
        options.output.write_text(json.dumps([asdict(row) for row in rows], indent=1))
        print(rows[-1].line, flush=True)


if __name__ == "__main__":
    main()
