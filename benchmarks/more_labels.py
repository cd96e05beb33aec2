"""What the last third of a search wins by small steps from its best, on simulated targets with few measurements.

    python benchmarks/more_labels.py more_labels.json [--seeds 20] [--noise 0.02] [--wrong 1] [--jobs 1]

A seed draws a target: costs, wrong beliefs about them, interactions of neighbouring nodes. Each way measures the same
first two thirds of the placements and proposes the rest: as the search does; as it would if it bred there whatever
seeds are left; one gene, or one mutation, from the best, by Thompson sampling. *True costs*: the search as it is with
true costs from the start. Prints geometric means, with standard errors over seeds, of the true time of the fastest of
three candidates over that of the search as it is, and the share of nodes in pieces not compiled before.

    python benchmarks/more_labels.py kinds.json --recorded RUN ... [--labels 40 80] [--seeds 20]

With ``--recorded`` the search believes the costs and errors that runs measured, and the truth is drawn: nodes of one
kind are off by the same factor within 2 %. The way is the search with each node as its own kind. *Seconds* of the
processor are for each placement after the first generation. *Learned*: the mean error of the surrogate, in natural
logarithms, for placements that the run itself measured, from those of the generations before.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cache, partial
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import repository  # noqa: F401
from joblib import Parallel, delayed
from rich.console import Console
from rich.table import Table
from scipy.stats import spearmanr

from collage_evo.accuracy.limits import Limits
from collage_evo.graph.ir.graph import Graph
from collage_evo.graph.ir.kinds import kinds_of
from collage_evo.patterns.match import Placement
from collage_evo.placement.genome import Genome
from collage_evo.placement.outcome import Bounds, Objective, Outcome
from collage_evo.placement.space import SearchSpace
from collage_evo.policy import Policy
from collage_evo.run.open import LIMITS
from collage_evo.run.recorded import read_run
from collage_evo.run.stages.excluded_engines import known_ms
from collage_evo.search.encoding import decode
from collage_evo.search.evolution.acquisition import violation
from collage_evo.search.evolution.breeding import Breeder, Candidate
from collage_evo.search.evolution.evolution import Evolution
from collage_evo.search.evolution.ranking import ranked
from collage_evo.search.evolution.seeds import make_seeds
from collage_evo.search.evolution.selection import Individual
from collage_evo.search.evolution.settings import Budget, GaSettings
from collage_evo.search.evolution.state import SearchState, new_state
from collage_evo.search.surrogate.features import FeatureMap
from collage_evo.search.surrogate.model import Surrogate, predicted_ms
from tests.support.precise import BUDGET, PreciseTarget, predicted_error
from tests.support.simulated_target import NonAdditive, SimulatedEvaluator
from tests.support.spaces import encoder_like, equal_copies, inception_like, make_space, mistaken, resnet_like

CANDIDATES, LAYOUT = 3, 0.25
NETWORKS: Mapping[str, tuple[Callable[[], Graph], bool]] = {
    "encoder": (partial(encoder_like, 3), False), "residual": (partial(resnet_like, 2), False),
    "residual, budget": (partial(resnet_like, 2), True), "inception, budget": (partial(inception_like, 3), True),
}  # fmt: skip
"""Graphs, and whether engines differ in their errors. Equal layers of the encoder cost the same."""
QUICK = Policy(cover_states=1000)  # finds the same covers in less time
OURS, TRUE = "as it is", "true costs"
EACH, NEAR = "each node its own kind", 1.5


def target_of(network: str, seed: int, noise: float, wrong: float) -> SimulatedEvaluator:
    graph, budget = NETWORKS[network]
    effects = NonAdditive(layout=LAYOUT * wrong, region=0.03, contention=0.01)
    if budget:
        return PreciseTarget(network, graph, seed, effects).make(noise)
    space, kinds = make_space(graph(), Random(seed), 4, 0.7, border=0.1), kinds_of(graph())
    if len({*kinds}) == len(kinds):
        return SimulatedEvaluator(space, effects, noise, seed)
    return SimulatedEvaluator(equal_copies(space, kinds, 0.02, Random(seed)), effects, noise, seed, kinds=kinds)


def neighbours(genome: Genome, space: SearchSpace) -> Iterator[Genome]:
    """All that differ in one gene: the match of a node, or whether the ends of an edge merge."""
    for match in space.usable:
        inside = space.matches[match].nodes
        genes = enumerate(genome.choices)
        choices = tuple(space.candidates[i].index(match) if inside >> i & 1 else gene for i, gene in genes)
        edges = zip(space.edges, genome.merges, strict=True)
        yield Genome(choices, tuple(1 if inside & (1 << i | 1 << j) else gene for (i, j), gene in edges))
    for edge in range(len(space.edges)):
        yield Genome(genome.choices, tuple(gene ^ (i == edge) for i, gene in enumerate(genome.merges)))


class OneGene(Breeder):
    """Candidates that differ from the only parent in one gene."""

    def _children(self, parents: list[Individual], wanted: int) -> list[Candidate]:
        found = (self._take(genome, "gene") for genome in neighbours(parents[0].genome, self.space))
        return [candidate for candidate in found if candidate is not None]


LOCAL = {"explore": 1.0, "random_share": 0.0, "program_share": 0.0, "more_mutations": 0.0, "climb": 0}
WAYS: Mapping[str, tuple[type[Breeder], Mapping[str, Any]]] = {
    "bred": (Breeder, {}), "one gene": (OneGene, LOCAL), "one mutation": (Breeder, LOCAL),
}  # fmt: skip


class LastThird(Evolution):
    """The end of a search: ``breeder`` proposes all placements, without a climb from the best."""

    breeder: type[Breeder]

    def _batch(self, state: SearchState, parents: list[Individual], rng: Random) -> Iterator[Candidate]:
        assert self.budget.evaluations is not None
        size = min(self.settings.offspring, self.budget.evaluations - state.evaluations)
        terms, bounds = [*map(self._terms, state.bounds)], [*state.bounds.values()]
        if not self.settings.climb:
            parents = [min(parents, key=lambda one: violation(one.fitness.values, bounds))]
        breeder = self.breeder(self._features, self.settings, (), set(state.evaluated), rng, terms, bounds)
        yield from breeder.batch(parents, self._surrogate(state), size, [self._learned(state, t) for t in terms])


@dataclass(frozen=True)
class Run:
    """By way: true ms, share of new nodes. ``predicted`` over measured: p10, median, p90; rank correlation."""

    network: str
    seed: int
    labels: int
    found_ms: Mapping[str, float]
    new: Mapping[str, float]
    predicted: tuple[float, ...]
    seconds: Mapping[str, float] = field(default_factory=dict)


@cache
def recorded(directory: Path) -> tuple[Mapping[str, SearchSpace], Bounds, Sequence[tuple[str, Genome]]]:
    """By way, the space of a run; the bounds and the seeds of its search."""
    run = read_run(directory)
    space, limits = replace(run.space, policy=QUICK), run.store.get(LIMITS, Limits)
    bounds = {Objective.ERROR: limits.budget} if limits and space.terms else {}
    single = replace(space.graph)
    single.memo["kinds"] = tuple(range(len(single.nodes)))
    spaces = {OURS: space, EACH: replace(space, graph=single)}
    return spaces, bounds, make_seeds(space, bounds, known_ms(run.baselines)).named


class RecordedTarget(SimulatedEvaluator):
    """Errors are as the space predicts them. ``clock`` stands still during evaluations."""

    spent = 0.0

    def evaluate(self, placements: Iterable[Placement], until: float = math.inf) -> list[Outcome]:
        asked = tuple(placements)
        begun = time.process_time()
        outcomes = super().evaluate(asked)
        self.spent += time.process_time() - begun
        return outcomes

    def clock(self) -> float:
        return time.process_time() - self.spent

    def error(self, placement: Placement) -> float:
        return predicted_error(self.space, placement)


def search_recorded(directory: Path, seed: int, noise: float, wrong: float, labels: Sequence[int]) -> list[Run]:
    """Runs with and without kinds on a truth drawn around the costs of a run."""
    spaces, bounds, seeds = recorded(directory)
    rng, settings, runs = Random(seed), GaSettings(patience=0, seed=seed), []
    truth = mistaken(spaces[OURS], rng, wrong)
    costs = tuple(ms * rng.uniform(0.98, 1.02) for ms in truth.cost.match_ms)
    truth = truth.costing(replace(truth.cost, match_ms=costs))
    effects = NonAdditive(layout=LAYOUT * wrong, region=0.03, contention=0.01)
    target = RecordedTarget(truth, effects, noise, seed, kinds=kinds_of(truth.graph))
    for count in labels:
        ends, seconds = {}, {}
        for way, space in spaces.items():
            evolution = Evolution(space, target, settings, Budget(count), target.clock, seeds)
            ends[way] = state = evolution.run(new_state(seed, bounds))
            bred = state.evaluations - state.log[0]["evaluations"]
            seconds[way] = (state.seconds - state.log[0]["seconds"]) / bred if bred else math.nan
        found = fastest_ms(target, ends, spaces)
        runs.append(Run(directory.name, seed, count, found, {}, predicted_over_measured(ends[OURS]), seconds))
    return runs


def learned(directory: Path) -> dict[str, np.ndarray]:
    """By way, how far predictions are off for placements of a run that are near its best at that time."""
    ran = [one for one in read_run(directory).evaluated.values() if one.outcome.ok]
    ms, errors = [one.outcome.latency_ms or math.nan for one in ran], dict[str, np.ndarray]()
    for way, space in recorded(directory)[0].items():
        features, found = FeatureMap(space), []
        rows = [features.vector(decode(one.genome, space)) for one in ran]
        for generation in sorted({one.generation for one in ran} - {ran[0].generation}):
            count = sum(one.generation < generation for one in ran)
            weights, best = Surrogate(features, rows[:count], ms[:count]).mean, min(ms[:count])
            fresh = [i for i, one in enumerate(ran) if one.generation == generation and ms[i] < NEAR * best]
            found += [abs(math.log(predicted_ms(rows[i], weights) / ms[i])) for i in fresh]
        errors[way] = np.array(found)
    return errors


def fastest_ms(
    target: SimulatedEvaluator, ends: Mapping[str, SearchState], spaces: Mapping[str, SearchSpace]
) -> dict[str, float]:
    """By way, the true ms of the fastest of the candidates of the final comparison."""
    final = {way: ranked(state, spaces.get(way, spaces[OURS]))[:CANDIDATES] for way, state in ends.items()}
    return {way: min(map(target.latency_ms, those), default=math.nan) for way, those in final.items()}


def predicted_over_measured(state: SearchState) -> tuple[float, ...]:
    """Tenth, fiftieth and ninetieth percentile of what the costs predict over what was measured; rank correlation."""
    pairs = [(one.predicted_ms, one.outcome.latency_ms) for one in state.evaluated.values() if one.outcome.latency_ms]
    said = [*np.quantile([a / b for a, b in pairs], (0.1, 0.5, 0.9)), spearmanr(pairs).statistic]
    return tuple(map(float, said))


def search(network: str, seed: int, noise: float, wrong: float, labels: Sequence[int]) -> list[Run]:
    """Runs of all ways with each number of placements."""
    target, runs = target_of(network, seed, noise, wrong), []
    bounds = {Objective.ERROR: BUDGET} if target.space.terms else {}
    space = replace(target.space, policy=QUICK)
    spaces = {OURS: mistaken(space, Random(seed), wrong), TRUE: space}
    seeds = {way: make_seeds(space, bounds).named for way, space in spaces.items()}
    settings, start = GaSettings(patience=0, seed=seed), new_state(seed, bounds)
    for count in labels:
        first = math.ceil(count * 2 / 3)
        begun, *whole = (
            Evolution(spaces[way], target, settings, Budget(size), lambda: 0.0, seeds[way]).run(start)
            for way, size in ((OURS, first), (OURS, count), (TRUE, count))
        )
        ends = dict(zip((OURS, TRUE), whole, strict=True))
        for way, (breeder, values) in WAYS.items():
            last = LastThird(spaces[OURS], target, replace(settings, **values), Budget(count), lambda: 0.0)
            last.breeder = breeder
            ends[way] = last.run(begun)
        found = fastest_ms(target, ends, spaces)
        new = {way: new_share(state, space, first) for way, state in ends.items()}
        runs.append(Run(network, seed, count, found, new, predicted_over_measured(ends[OURS])))
    return runs


def new_share(state: SearchState, space: SearchSpace, first: int) -> float:
    """Share of nodes of what was measured after the ``first`` that lie in pieces not compiled before."""
    known, new = set[str](), []
    for one in state.evaluated.values():
        pieces = {Placement((region,)).key: region.nodes for region in decode(one.genome, space).regions}
        new.append(sum(nodes.bit_count() for key, nodes in pieces.items() if key not in known))
        known |= pieces.keys()
    return float(np.mean(new[first:])) / len(space.graph.nodes)


def times_as_long(runs: Sequence[Run], way: str) -> str:
    """Geometric mean and standard error; a run in which no placement is within the budget does not count."""
    logs = np.log([run.found_ms[way] / run.found_ms[OURS] for run in runs])
    return f"{np.exp(np.nanmean(logs)):.3f} ± {np.nanstd(logs, ddof=1) / np.sqrt(np.isfinite(logs).sum()):.3f}"


def show(runs: Sequence[Run]) -> None:
    """A table of ``runs`` with one number of placements."""
    networks = dict.fromkeys(run.network for run in runs)
    table = Table("way", *networks, "all", title=f"{runs[0].labels} placements, {len({r.seed for r in runs})} seeds")
    groups = [*([run for run in runs if run.network == network] for network in networks), runs]
    for way in (way for way in runs[0].found_ms if way != OURS):
        table.add_row(way, *(times_as_long(group, way) for group in groups))
    for way in (way for way in runs[0].new if way != TRUE):
        table.add_row(f"new, {way}", *(f"{np.mean([run.new[way] for run in group]):.2f}" for group in groups))
    for way in runs[0].seconds:
        table.add_row(f"seconds, {way}", *(f"{np.mean([run.seconds[way] for run in group]):.2f}" for group in groups))
    said = [np.mean([run.predicted for run in group], axis=0) for group in groups]
    table.add_row("predicted over measured", *(f"{b:.2f} ({a:.2f} to {c:.2f}), {rank:.2f}" for a, b, c, rank in said))
    Console(width=170).print(table)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("output", type=Path, help="raw figures, JSON")
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--noise", type=float, default=0.02, help="relative noise of a measurement")
    parser.add_argument("--wrong", type=float, default=1.0, help="factor on what is wrong with the additive model")
    parser.add_argument("--labels", type=int, nargs="+", default=[10, 20, 40], help="numbers of placements")
    parser.add_argument("--recorded", type=Path, nargs="+", default=[], metavar="RUN", help="directories of runs")
    parser.add_argument("--jobs", type=int, default=1)
    options = parser.parse_args()
    how = (options.noise, options.wrong, options.labels)
    targets = ((one, seed) for seed in range(options.seeds) for one in options.recorded or NETWORKS)
    tasks = (delayed(search_recorded if options.recorded else search)(*one, *how) for one in targets)
    runs: list[Run] = [run for found in Parallel(n_jobs=options.jobs)(tasks) for run in found]
    options.output.write_text(json.dumps([asdict(run) for run in runs]))
    for labels in options.labels:
        show([run for run in runs if run.labels == labels])
    for directory in options.recorded:
        kinds, each = learned(directory).values()
        more, count = each - kinds, len(kinds)
        print(f"{directory.name}, {count} placements: learned {kinds.mean():.4f}; {EACH} {each.mean():.4f}, "
              f"more by {more.mean():.4f} ± {more.std(ddof=1) / math.sqrt(count):.4f}")  # fmt: skip


if __name__ == "__main__":
    main()
