"""What the search reaches on the real target: best single backend, dynamic program, genetic search.

    python benchmarks/real_target.py real.json [--models builtin:squeezenet ...] [--threads 1 2] [--seconds 300]

Each model is searched for so many seconds; then the fastest single backend, the cheapest cover, the placement that
won the finalists' heats and the one that had the shortest time in the search take turns, each in a process of its
own. Stop other programs first.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

from collage_evo.backends.base import BuildFailure
from collage_evo.backends.enumerate import enumerate_matches
from collage_evo.backends.select import select_backends
from collage_evo.config import parse_config
from collage_evo.fitness.final.baselines import best_single
from collage_evo.fitness.final.race import Ratio, race
from collage_evo.genome.encoding import place
from collage_evo.genome.search.seeds import make_seeds
from collage_evo.patterns.match import Placement
from collage_evo.report.progress import LineReporter
from collage_evo.run.context import RunContext
from collage_evo.run.search import Found
from collage_evo.run.stages.answer import compile_candidates, decide, write_placements
from collage_evo.run.stages.costs import gather_costs
from collage_evo.run.stages.evolve import evolve
from collage_evo.run.stages.model import normalise, prepare
from collage_evo.run.stages.singles import measure_baselines
from collage_evo.runtime.timing import TimingSettings

MODELS = ("builtin:resnet50", "builtin:squeezenet", "builtin:inception_v1", "builtin:bert?layers=2&length=128")
TURN = TimingSettings(1, 2, 0.3, max_seconds=30.0)


@dataclass(frozen=True)
class Row:
    """One model on so many threads. Speedups are medians of paired ratios with their 95 % interval."""

    model: str
    threads: int
    single: str
    single_ms: float
    dp_ms: float
    ga_ms: float
    dp_speedup: tuple[float, float, float]
    ga_speedup: tuple[float, float, float]
    ga_over_dp: tuple[float, float, float]
    ga_over_shortest: tuple[float, float, float]
    """Over the placement with the shortest time in the search."""
    regions: int
    engines: tuple[str, ...]
    evaluations: int
    measured: int
    """Of the evaluations: how many ran; the others were predicted to be hopeless, or could not be compiled."""
    measured_a_minute: float
    evaluations_to_best: int
    seconds_to_best: float
    search_seconds: float
    evaluating_share: float
    """Share of the search's time spent building, checking and timing placements."""
    timed_share: float
    """Share of the timing slots' time that timed runs took."""
    cost_seconds: float
    times_ms: dict[str, tuple[float, ...]]


def measure(source: str, threads: int, seconds: float, rounds: int, cache: str | None) -> Row:
    """Search one model, then compare."""
    config = parse_config(
        {
            "model": {"source": source},
            "target": {"threads": threads},
            "search": {"seconds": seconds, "ga": {"patience": 0}},
            "cache": {"dir": cache},
        },
        (),
        "benchmark",
    )
    with tempfile.TemporaryDirectory() as work, RunContext(config, Path(work), LineReporter()) as context:
        model = prepare(context)
        graph = normalise(context, model).graph
        backends = select_backends(())
        found = enumerate_matches(graph, backends)
        baselines = measure_baselines(context, backends)
        single = best_single(baselines)
        started = time.monotonic()
        space = gather_costs(context, graph, found, backends).space
        cost_seconds = time.monotonic() - started
        seeds = make_seeds(space)
        search = evolve(context, space, seeds, model, [single])
        candidates = compile_candidates(context, space, search)
        verdict = decide(context, candidates, baselines)
        rivals = {b.name: b.artifact for b in baselines}
        ways = {"single": rivals[verdict.best_single], "ga": candidates[verdict.candidate]}
        others = {"dp": place(seeds.dp.covers[0].matches, space), "shortest": _shortest(search)}
        for name, program in write_placements(context, others, space).items():
            if isinstance(program, BuildFailure):
                raise SystemExit(f"{source}: {program.reason}")
            ways[name] = program
        final = race(ways, context.pool, rounds, TURN)
        slots = len(context.pool.slots)
    best = search.ranked[int(verdict.candidate.removeprefix("placement-"))]
    return Row(
        model=source,
        threads=threads,
        single=verdict.best_single,
        single_ms=final.timing("single").median_ms,
        dp_ms=final.timing("dp").median_ms,
        ga_ms=final.timing("ga").median_ms,
        dp_speedup=_interval(final.ratio("single", "dp")),
        ga_speedup=_interval(final.ratio("single", "ga")),
        ga_over_dp=_interval(final.ratio("dp", "ga")),
        ga_over_shortest=_interval(final.ratio("shortest", "ga")),
        regions=len(best.regions),
        engines=tuple(sorted({"/".join(region.engine) for region in best.regions})),
        evaluations=search.evaluations,
        measured=(measured := sum(outcome.n > 0 for outcome in search.outcomes.values())),
        measured_a_minute=60 * measured / search.seconds,
        evaluations_to_best=search.evaluations_to_best,
        seconds_to_best=search.seconds_to_best,
        search_seconds=search.seconds,
        evaluating_share=search.evaluating_seconds / search.seconds,
        timed_share=sum(o.n * (o.latency_ms or 0.0) for o in search.outcomes.values()) / 1e3 / slots / search.seconds,
        cost_seconds=cost_seconds,
        times_ms={name: final.timing(name).times_ms for name in ways},
    )


def _shortest(search: Found) -> Placement:
    return min(search.ranked, key=lambda placement: search.outcomes[placement.key].latency_ms or 0.0)


def _interval(ratio: Ratio) -> tuple[float, float, float]:
    return (ratio.median, ratio.low, ratio.high)


def show(rows: list[Row]) -> Table:
    shown = Table()
    for column in ("model", "T", "best single", "ms", "DP ms", "GA ms", "DP x", "GA x", "over shortest", "measured",
                   "a minute", "to best s", "evaluating", "timed runs"):  # fmt: skip
        shown.add_column(column, justify="left" if column in ("model", "best single") else "right")
    for row in rows:
        ratios = (row.dp_speedup, row.ga_speedup, row.ga_over_shortest)
        speedups = [f"{m:.3f} [{low:.3f}, {high:.3f}]" for m, low, high in ratios]
        times = [f"{ms:.2f}" for ms in (row.single_ms, row.dp_ms, row.ga_ms)]
        shares = [f"{share:.0%}" for share in (row.evaluating_share, row.timed_share)]
        rates = [str(row.measured), f"{row.measured_a_minute:.0f}", f"{row.seconds_to_best:.0f}"]
        shown.add_row(row.model, str(row.threads), row.single, *times, *speedups, *rates, *shares)
    return shown


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("output", type=Path, help="raw figures, JSON")
    parser.add_argument("--models", nargs="+", default=list(MODELS))
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--seconds", type=float, default=300.0, help="budget of each search")
    parser.add_argument("--rounds", type=int, default=8, help="turns of each way in the comparison")
    parser.add_argument("--cache", help="cache directory (default: the usual one)")
    options = parser.parse_args()
    rows: list[Row] = []
    for threads in options.threads:
        for source in options.models:
            rows.append(measure(source, threads, options.seconds, options.rounds, options.cache))
            options.output.write_text(json.dumps([asdict(row) for row in rows], indent=1))
            Console(width=200).print(show(rows[-1:]))
    Console(width=200).print(show(rows))


if __name__ == "__main__":
    main()
