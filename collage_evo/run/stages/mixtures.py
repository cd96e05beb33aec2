"""Mixtures of precisions: the likeliest are measured before any cost, others when another budget is known."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice

from collage_evo.answer.baselines import Baseline
from collage_evo.costs.matches import cost_ms
from collage_evo.costs.unprofiled import guessed_ms
from collage_evo.files import Stored
from collage_evo.genome.cost_model import Engine
from collage_evo.genome.encoding import decode, encode
from collage_evo.genome.space import SearchSpace
from collage_evo.patterns.match import Match
from collage_evo.report.stage import Stage
from collage_evo.run.context import RunContext
from collage_evo.run.objectives import search_bounds
from collage_evo.run.publisher import Publisher
from collage_evo.run.search import SearchRecord
from collage_evo.run.stages.costs import cost_meter
from collage_evo.run.stages.evolve import measuring
from collage_evo.search.evolution.origin import Origin, Way
from collage_evo.search.evolution.ranking import ranked
from collage_evo.search.evolution.state import Evaluated
from collage_evo.search.mixtures.families import likely_families
from collage_evo.search.mixtures.levels import FIRST
from collage_evo.search.mixtures.likely import SECONDS, likeliest_mixtures, measure_in_batches, mixtures_for_budget
from collage_evo.search.mixtures.measured import Mixture

COSTS_SHARE = 1 / 3
"""Share of the time for costs that likely families take at most. Chosen: it took 3 to 5 s."""


@dataclass(frozen=True)
class EarlyMixtures:
    """A record of mixtures that were measured before the costs; ``key``: of the matches that they consist of."""

    key: str
    mixtures: tuple[Mixture, ...]


MIXTURES = Stored("work/early_mixtures.json", EarlyMixtures)


def measure_early(
    run: RunContext,
    space: SearchSpace,
    baselines: Sequence[Baseline],
    baseline_ms: Mapping[Engine, float],
    publisher: Publisher,
) -> tuple[Mixture, ...]:
    """Measure the likeliest mixtures of precisions of near families, which the ``publisher`` publishes.

    Of the family that is expected to be the fastest up to four mixtures come first: their errors correct those that
    are predicted of all later ones, and their times tell whether lower precisions pay between heavy operators.

    Args:
        space: at expected costs.
        baselines: the single backends.
        baseline_ms: ms of the whole model on engines that ran it.
    """
    budget = run.limits.budget
    likely = likeliest_mixtures(space, baseline_ms, budget, FIRST) if space.terms else {}
    if not likely:
        return ()
    families = tuple(dict.fromkeys(likely.values()))
    if len(families) > 1:
        families = _by_operators(run, space, families, baseline_ms)
    first = {mixture: family for mixture, family in likely.items() if family == families[0]}
    with (
        run.stage(Stage.EARLY, len(first)),
        measuring(run, next(iter(first)), baselines, on_all_samples=True) as evaluator,
        publisher.following(evaluator, space),
    ):
        limits = budget, search_bounds(run)
        measured = measure_in_batches(evaluator, space, first, families, baseline_ms, *limits, time.monotonic)
    return measured


def _by_operators(
    run: RunContext, space: SearchSpace, families: Sequence[Engine], baseline_ms: Mapping[Engine, float]
) -> tuple[Engine, ...]:
    with run.stage(Stage.FAMILIES), run.machine.regions() as regions:
        meter = cost_meter(run, space.graph, regions, COSTS_SHARE * run.config.costs.seconds)

        def time_ms(matches: Sequence[Match]) -> dict[str, float]:
            answers = meter.measure(matches, lambda match: math.inf, lambda done: None)
            return {key: cost_ms(answer) for key, answer in answers.items()}

        return likely_families(space, families, baseline_ms, meter.key, guessed_ms(space.graph), time_ms)


def in_space(early: Iterable[Mixture], space: SearchSpace) -> dict[str, Evaluated]:
    """The first measurements of a search in ``space``, by key; without those that it lacks a match of."""
    usable, evaluated = set(space.usable), dict[str, Evaluated]()
    for mixture in early:
        if all(match in usable for region in mixture.placement.regions for match in region.matches):
            number, origin = len(evaluated) + 1, Origin.mixture(mixture.family).as_seed
            evaluated[mixture.placement.key] = _evaluated(mixture, space, origin, 0, number)
    return evaluated


def with_mixtures_for_budget(
    run: RunContext,
    space: SearchSpace,
    record: SearchRecord,
    baselines: Sequence[Baseline],
    budget: float,
    baseline_ms: Mapping[Engine, float],
    most: int | None = None,
) -> SearchRecord:
    """``record``, and mixtures that may be faster than everything in it within ``budget``, measured now.

    ``baseline_ms``: ms of the whole model on engines that ran it; ``most``: number of mixtures at most.
    """
    if not space.terms or not record.evaluated or not 0.0 < budget < math.inf:
        return record
    likely = dict(islice(mixtures_for_budget(space, *_measured(record, space), baseline_ms, budget).items(), most))
    if not likely:
        return record
    reference = decode(next(iter(record.evaluated.values())).genome, space)
    with (
        measuring(run, reference, baselines, on_all_samples=True) as evaluator,
        run.stage(Stage.BUDGET_LEVELS, len(likely)),
    ):
        outcomes = evaluator.evaluate(likely, time.monotonic() + SECONDS)
    evaluated, generation = dict(record.evaluated), record.state.generation
    for (placement, family), outcome in zip(likely.items(), outcomes, strict=True):
        if outcome is not None:
            mixture, number = Mixture(placement, family, outcome), len(evaluated) + 1
            evaluated[placement.key] = _evaluated(mixture, space, Origin.mixture(family), generation, number)
    state = replace(record.state, evaluated=evaluated)
    return SearchRecord(ranked(state, space), state)


def _measured(record: SearchRecord, space: SearchSpace) -> tuple[list[Mixture], list[Mixture]]:
    """The mixtures of ``record``, and its other placements."""
    mixtures, others = list[Mixture](), list[Mixture]()
    for one in record.evaluated.values():
        placement = decode(one.genome, space)
        family = max(placement.regions, key=lambda region: region.nodes.bit_count()).family
        (mixtures if one.kind.way is Way.MIXTURE else others).append(Mixture(placement, family, one.outcome))
    return mixtures, others


def _evaluated(mixture: Mixture, space: SearchSpace, origin: Origin, generation: int, number: int) -> Evaluated:
    genome, predicted_ms = encode(mixture.placement, space), space.predict(mixture.placement)
    return Evaluated(genome, mixture.outcome, origin, generation, number, predicted_ms)
