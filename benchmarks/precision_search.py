"""How close searches come to the fastest placement within a budget of error, on simulated targets.

    python benchmarks/precision_search.py [--seeds 0 1 2] [--evaluations 120] [--noise 0.01]

Prints for each method the median over seeds of the gap to the optimum under the budget (chains, where it is known
exactly) or to the best that any method found (other graphs), and the share of the measured placements that broke the
budget. The methods: this project's search with two objectives; the same search for latency alone, which is given the
same seeds and takes what breaks the budget as failed; covers of the dynamic program at random prices of an error.
"""

from __future__ import annotations

import argparse
import math
import random
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import repository  # noqa: F401
from joblib import Parallel, delayed
from rich.console import Console
from rich.table import Table

from collage_evo.genome.cover.dynamic_program import cheapest_covers
from collage_evo.genome.encoding import place
from collage_evo.genome.failure import Failure, Fault
from collage_evo.genome.outcome import Objective, Outcome
from collage_evo.genome.settings import Budget, GaSettings
from collage_evo.patterns.match import Placement
from collage_evo.search.evolution.evolution import Evolution
from collage_evo.search.evolution.seeds import make_seeds
from collage_evo.search.evolution.state import new_state
from tests.support.precise import BUDGET, CHAINS, GRAPHS, PreciseTarget, chain_optimum_ms
from tests.support.simulated_target import SimulatedEvaluator

WITHIN = {Objective.ERROR: BUDGET}
TARGETS = (*CHAINS, *GRAPHS)
EFFORT = 20_000


@dataclass
class Noting:
    """A target that notes, after each evaluation, the true latency of the best so far that keeps the budget (ms)."""

    target: SimulatedEvaluator
    trace_ms: list[float] = field(default_factory=list)
    broken: int = 0
    _best: float = math.inf

    def evaluate(self, placements: Iterable[Placement], until: float = math.inf) -> list[Outcome]:
        asked = tuple(placements)
        outcomes = self.target.evaluate(asked)
        for placement, outcome in zip(asked, outcomes, strict=True):
            assert outcome.latency_ms is not None
            assert outcome.error is not None
            within = outcome.error <= BUDGET
            self.broken += not within
            before = self.trace_ms[-1] if self.trace_ms else math.inf
            better = within and outcome.latency_ms < self._best
            self._best = outcome.latency_ms if better else self._best
            self.trace_ms.append(self.target.latency_ms(placement) if better else before)
        return outcomes


@dataclass
class Discarding:
    """What breaks the budget failed."""

    noting: Noting

    def evaluate(self, placements: Iterable[Placement], until: float = math.inf) -> list[Outcome]:
        wrong = Outcome.unfit(Failure(Fault.WRONG_NUMBERS, "over the budget"))
        return [o if o.error is not None and o.error <= BUDGET else wrong for o in self.noting.evaluate(placements)]


def two_objectives(noting: Noting, seed: int, evaluations: int) -> None:
    """This project's search."""
    space, settings = noting.target.space, GaSettings(patience=0, seed=seed)
    seeds = tuple(make_seeds(space, bounds=WITHIN))
    search = Evolution(space, noting, settings, Budget(evaluations), lambda: 0.0, seeds)
    search.run(new_state(seed, WITHIN))


def latency_only(noting: Noting, seed: int, evaluations: int) -> None:
    """The search for latency, from the same seeds; what breaks the budget is not learned from."""
    space, settings = noting.target.space, GaSettings(patience=0, seed=seed)
    seeds = tuple(make_seeds(space, bounds=WITHIN))
    blind = replace(space, terms={})
    Evolution(blind, Discarding(noting), settings, Budget(evaluations), lambda: 0.0, seeds).run()


def random_prices(noting: Noting, seed: int, evaluations: int) -> None:
    """Cheapest covers at prices of an error drawn log-uniformly, around what all latency is worth at the budget."""
    space, rng = noting.target.space, random.Random(seed)
    usual = cheapest_covers(space, effort=EFFORT).cost_ms / BUDGET**2
    known: set[str] = set()
    for _ in range(evaluations):
        price = usual * 10 ** rng.uniform(-2, 2)
        cover = cheapest_covers(space.priced({Objective.ERROR: price}), effort=EFFORT).covers[0]
        placement = place(cover.matches, space)
        if placement.key not in known:
            known.add(placement.key)
            noting.evaluate([placement])


METHODS: dict[str, Callable[[Noting, int, int], None]] = {
    "two objectives": two_objectives,
    "latency only": latency_only,
    "random prices": random_prices,
}


@dataclass(frozen=True)
class Run:
    """One method on one target with one seed; the trace is in ms."""

    target: str
    method: str
    trace_ms: tuple[float, ...]
    broken: float

    def at(self, evaluations: int) -> float:
        return self.trace_ms[min(evaluations, len(self.trace_ms)) - 1]


def run_method(target: PreciseTarget, method: str, seed: int, evaluations: int, noise: float) -> Run:
    """Let one method search one target."""
    noting = Noting(target.make(noise))
    METHODS[method](noting, seed, evaluations)
    return Run(target.name, method, tuple(noting.trace_ms), noting.broken / len(noting.trace_ms))


def table(runs: Sequence[Run], best_ms: dict[str, float], evaluations: int) -> Table:
    """Median gaps in percent, by method and target, and over all of them at some numbers of evaluations."""
    counts = [n for n in (24, 48, 80) if n < evaluations] + [evaluations]
    methods = list(dict.fromkeys(run.method for run in runs))
    shown = Table(title=f"gap to the fastest within the budget after {evaluations} evaluations, median over seeds, %")
    for name in ("target", *methods):
        shown.add_column(name, justify="right")

    def gap(method: str, n: int, targets: Collection[str] = best_ms.keys()) -> float:
        of_method = (run for run in runs if run.method == method and run.target in targets)
        return 100 * float(np.median([run.at(n) / best_ms[run.target] - 1 for run in of_method]))

    for name in best_ms:
        shown.add_row(name, *(f"{gap(method, evaluations, {name}):.2f}" for method in methods))
    for n in counts:
        shown.add_row(f"all, after {n}", *(f"{gap(method, n):.2f}" for method in methods))
    broken = [np.mean([run.broken for run in runs if run.method == method]) for method in methods]
    shown.add_row("broke the budget", *(f"{share:.0%}" for share in broken))
    return shown


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--methods", nargs="+", choices=list(METHODS), default=list(METHODS))
    parser.add_argument("--targets", nargs="+", default=[target.name for target in TARGETS])
    parser.add_argument("--evaluations", type=int, default=120)
    parser.add_argument("--noise", type=float, default=0.01, help="relative noise of a measured latency")
    parser.add_argument("--jobs", type=int, default=1)
    options = parser.parse_args()
    chosen = [target for target in TARGETS if target.name in options.targets]
    tasks = [(t, m, seed) for m in options.methods for t in chosen for seed in options.seeds]
    runs: list[Run] = Parallel(n_jobs=options.jobs)(
        delayed(run_method)(*task, options.evaluations, options.noise) for task in tasks
    )
    best_ms = {
        target.name: chain_optimum_ms(target.make())
        if target in CHAINS
        else min(run.at(options.evaluations) for run in runs if run.target == target.name)
        for target in chosen
    }
    Console(width=120).print(table(runs, best_ms, options.evaluations))


if __name__ == "__main__":
    main()
