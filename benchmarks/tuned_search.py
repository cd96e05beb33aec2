"""Do settings that a search tuned for itself beat the default ones on the real target, at equal measured budget?

    python benchmarks/tuned_search.py tuned.json [--model builtin:squeezenet] [--evaluations 60] [--pairs 5]

Costs are measured once. Then come pairs of searches with the same seed and the same number of measured placements:
one with the default settings, one with `search.tune`, which tunes after its first generation, on simulated targets
learned from that generation. Which is first alternates. The best placements of a pair take turns, each in a process
of its own. A ratio above 1 says that the tuned search found the faster placement. Stop other programs first.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import tempfile
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import optuna

from collage_evo.answer.baselines import Baseline, best_single
from collage_evo.answer.race import race
from collage_evo.answer.sequential import Ratio
from collage_evo.backends.enumerate import enumerate_matches
from collage_evo.backends.select import select_backends
from collage_evo.config import Config, parse_config
from collage_evo.patterns.match import Placement
from collage_evo.placement.failure import Failure
from collage_evo.placement.space import SearchSpace
from collage_evo.report.progress import LineReporter
from collage_evo.run.directory import reopen_run, start_run
from collage_evo.run.open import open_run
from collage_evo.run.stages.answer import write_placements
from collage_evo.run.stages.baselines import measure_baselines
from collage_evo.run.stages.costs import gather_costs
from collage_evo.run.stages.evolve import evolve
from collage_evo.run.stages.model import normalise
from collage_evo.search.evolution.seeds import Seeds, make_seeds


@dataclass(frozen=True)
class Side:
    """One search: its best placement as measured by itself, and which settings it ended with."""

    key: str
    best_ms: float
    evaluations: int
    evaluations_to_best: int
    seconds: float
    ga: Mapping[str, Any]


@dataclass(frozen=True)
class Pair:
    """Both searches of one seed. ``ratio``: default's time over tuned's, with its 95 % interval."""

    seed: int
    default: Side
    tuned: Side
    ratio: tuple[float, float, float]
    times_ms: Mapping[str, tuple[tuple[float, ...], ...]]

    def line(self) -> str:
        same = ", the same placement" if self.default.key == self.tuned.key else ""
        estimate, low, high = self.ratio
        return f"seed {self.seed}: {estimate:.4f} [{low:.4f}, {high:.4f}]{same}"


@dataclass(frozen=True)
class Measured:
    """What all searches share: the costs, and the fastest single backend."""

    space: SearchSpace
    seeds: Seeds
    single: Baseline


def measure(config: Config, folder: Path) -> Measured:
    """Costs of the model, once."""
    with open_run(config, folder, LineReporter()) as (context, model):
        graph = normalise(context, model).graph
        backends = select_backends(())
        single = best_single(measure_baselines(context, backends))
        space = gather_costs(context, graph, enumerate_matches(graph, backends), backends).space
    return Measured(space, make_seeds(space), single)


def search(config: Config, folder: Path, known: Measured) -> tuple[Side, Placement]:
    """One search in a run directory of its own."""
    start_run(folder, config)
    started = time.monotonic()
    with open_run(config, folder, LineReporter()) as (context, model):
        normalise(context, model)
        found = evolve(context, known.space, known.seeds, model, [known.single])
    best = found.ranked[0]
    settings = asdict(reopen_run(folder).search.ga)
    latency = found.outcomes[best.key].latency_ms
    assert latency is not None
    taken = (found.state.evaluations, found.state.best_evaluation, time.monotonic() - started)
    return Side(best.key, latency, *taken, settings), best


def compare(config: Config, folder: Path, known: Measured, best: Mapping[str, Placement], rounds: int) -> Any:
    """The race between the best placements."""
    with open_run(config, folder, LineReporter()) as (context, model):
        normalise(context, model)
        artifacts = {}
        for name, artifact in write_placements(context, best, known.space).items():
            if isinstance(artifact, Failure):
                raise SystemExit(f"{name}: {artifact}")
            artifacts[name] = artifact
        return race(artifacts, context.pool, rounds)


def run_pair(seed: int, options: argparse.Namespace, known: Measured) -> Pair:
    """Both searches, then the race."""
    configs = {name: config_of(options, seed, tune=name == "tuned") for name in ("default", "tuned")}
    with tempfile.TemporaryDirectory() as folder:
        order = list(configs) if seed % 2 == 0 else list(reversed(configs))
        found = {name: search(configs[name], Path(folder) / name, known) for name in order}
        best = {name: found[name][1] for name in configs}
        raced = compare(configs["default"], Path(folder) / "race", known, best, options.rounds)
    ratio = Ratio.of(raced.logs("default", "tuned"))
    interval = (ratio.estimate, ratio.low, ratio.high)
    return Pair(seed, found["default"][0], found["tuned"][0], interval, raced.rounds)


def config_of(options: argparse.Namespace, seed: int = 0, tune: bool = False) -> Config:
    data = {
        "model": {"source": options.model},
        "target": {"threads": options.threads},
        "search": {
            "seconds": math.inf,
            "evaluations": options.evaluations,
            "tune": tune,
            "ga": {"seed": seed, "patience": 0},
        },
        "tune": {"trials": options.trials, "seconds": options.tune_seconds, "evaluations": options.evaluations},
        "cache": {"dir": options.cache},
    }
    return parse_config(data, (), "benchmark")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("output", type=Path, help="raw figures, JSON")
    parser.add_argument("--model", default="builtin:squeezenet")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--evaluations", type=int, default=60, help="measured placements of each search")
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--trials", type=int, default=60, help="of each tuning")
    parser.add_argument("--tune-seconds", type=float, default=120.0, help="of each tuning")
    parser.add_argument("--rounds", type=int, default=8, help="rounds of the race")
    parser.add_argument("--cache", help="cache directory (default: the usual one)")
    options = parser.parse_args()
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    with tempfile.TemporaryDirectory() as folder:
        known = measure(config_of(options), Path(folder))
    pairs: list[Pair] = []
    for seed in range(options.pairs):
        pairs.append(run_pair(seed, options, known))
        options.output.write_text(json.dumps([asdict(pair) for pair in pairs], indent=1))
        print(pairs[-1].line(), flush=True)
    print(f"median of {len(pairs)} pairs: {statistics.median(pair.ratio[0] for pair in pairs):.4f}")


if __name__ == "__main__":
    main()
