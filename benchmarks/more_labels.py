"""What the last third of a search wins by small steps from its best, on simulated targets with few measurements.

    python benchmarks/more_labels.py more_labels.json [--seeds 20] [--noise 0.02] [--wrong 1] [--jobs 1]

A seed draws a target: costs, wrong beliefs about them, interactions of neighbouring nodes. Each way measures the same
first two thirds of the placements and proposes the rest: as the search does; as it would if it bred there whatever
seeds are left; one gene, or one mutation, from the best, by Thompson sampling. *True costs*: the search as it is with
true costs from the start. Prints geometric means, with standard errors over seeds, of the true time of the fastest of
three candidates over that of the search as it is, and the share of nodes in pieces not compiled before.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import repository  # noqa: F401
from joblib import Parallel, delayed
from rich.console import Console
from rich.table import Table
from scipy.stats import spearmanr

from collage_evo.graph.ir.graph import Graph
from collage_evo.graph.ir.kinds import kinds_of
from collage_evo.patterns.match import Placement
from collage_evo.placement.genome import Genome
from collage_evo.placement.outcome import Objective
from collage_evo.placement.space import SearchSpace
from collage_evo.policy import Policy
from collage_evo.search.encoding import decode
from collage_evo.search.evolution.acquisition import violation
from collage_evo.search.evolution.breeding import Breeder, Candidate
from collage_evo.search.evolution.evolution import Evolution
from collage_evo.search.evolution.ranking import ranked
from collage_evo.search.evolution.seeds import make_seeds
from collage_evo.search.evolution.selection import Individual
from collage_evo.search.evolution.settings import Budget, GaSettings
from collage_evo.search.evolution.state import SearchState, new_state
from tests.support.precise import BUDGET, PreciseTarget
from tests.support.simulated_target import NonAdditive, SimulatedEvaluator
from tests.support.spaces import encoder_like, equal_copies, inception_like, make_space, mistaken, resnet_like

LABELS, CANDIDATES, LAYOUT = (10, 20, 40), 3, 0.25
NETWORKS: Mapping[str, tuple[Callable[[], Graph], bool]] = {
    "encoder": (partial(encoder_like, 3), False), "residual": (partial(resnet_like, 2), False),
    "residual, budget": (partial(resnet_like, 2), True), "inception, budget": (partial(inception_like, 3), True),
}  # fmt: skip
"""Graphs, and whether engines differ in their errors. Equal layers of the encoder cost the same."""
OURS, TRUE = "as it is", "true costs"


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


def search(network: str, seed: int, noise: float, wrong: float) -> list[Run]:
    """Runs of all ways with each number of placements."""
    target, runs = target_of(network, seed, noise, wrong), []
    bounds = {Objective.ERROR: BUDGET} if target.space.terms else {}
    space = replace(target.space, policy=Policy(cover_states=1000))  # finds the same covers in less time
    spaces = {OURS: mistaken(space, Random(seed), wrong), TRUE: space}
    seeds = {way: make_seeds(space, bounds).named for way, space in spaces.items()}
    settings, start = GaSettings(patience=0, seed=seed), new_state(seed, bounds)
    for count in LABELS:
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
        final = {way: ranked(state, spaces.get(way, spaces[OURS]))[:CANDIDATES] for way, state in ends.items()}
        found = {way: min(map(target.latency_ms, those), default=math.nan) for way, those in final.items()}
        new = {way: new_share(state, space, first) for way, state in ends.items()}
        measured = [(one.predicted_ms, one.outcome.latency_ms or math.nan) for one in ends[OURS].evaluated.values()]
        said = [*np.quantile([a / b for a, b in measured], (0.1, 0.5, 0.9)), spearmanr(measured).statistic]
        runs.append(Run(network, seed, count, found, new, tuple(map(float, said))))
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
    for way in (*WAYS, TRUE):
        table.add_row(way, *(times_as_long(group, way) for group in groups))
    for way in (OURS, *WAYS):
        table.add_row(f"new, {way}", *(f"{np.mean([run.new[way] for run in group]):.2f}" for group in groups))
    said = [np.mean([run.predicted for run in group], axis=0) for group in groups]
    table.add_row("predicted over measured", *(f"{b:.2f} ({a:.2f} to {c:.2f}), {rank:.2f}" for a, b, c, rank in said))
    Console(width=170).print(table)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("output", type=Path, help="raw figures, JSON")
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--noise", type=float, default=0.02, help="relative noise of a measurement")
    parser.add_argument("--wrong", type=float, default=1.0, help="factor on what is wrong with the additive model")
    parser.add_argument("--jobs", type=int, default=1)
    options = parser.parse_args()
    each = ((network, seed) for seed in range(options.seeds) for network in NETWORKS)
    tasks = (delayed(search)(*one, options.noise, options.wrong) for one in each)
    runs: list[Run] = [run for found in Parallel(n_jobs=options.jobs)(tasks) for run in found]
    options.output.write_text(json.dumps([asdict(run) for run in runs]))
    for labels in LABELS:
        show([run for run in runs if run.labels == labels])


if __name__ == "__main__":
    main()
