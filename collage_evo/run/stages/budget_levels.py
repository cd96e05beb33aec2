"""Budget levels: mixed-precision placements for a budget other than the search's, measured when that budget is
known."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from collage_evo.answer.baselines import Baseline
from collage_evo.genome.cost_model import Engine
from collage_evo.genome.encoding import decode, encode
from collage_evo.genome.space import SearchSpace
from collage_evo.patterns.match import Placement
from collage_evo.pruning import SLOW_LEVEL
from collage_evo.report.stage import Stage
from collage_evo.run.context import RunContext
from collage_evo.run.search import SearchRecord
from collage_evo.run.stages.evolve import measuring
from collage_evo.search.evolution.origin import Origin
from collage_evo.search.evolution.ranking import ranked
from collage_evo.search.evolution.state import Evaluated
from collage_evo.search.mixtures.correction import Correction
from collage_evo.search.mixtures.knapsack import greedy_levels, predicted_error
from collage_evo.search.mixtures.likely import likeliest

SHARES = (0.95, 0.85)
"""Shares of the budget to aim at, by errors as measured: two, because the correction learned from one placement is
inexact for another. Chosen."""
SLOWER = SLOW_LEVEL.number
"""A budget level is measured unless its predicted time is so many times that of the fastest within the budget."""


def with_budget_levels(
    run: RunContext,
    space: SearchSpace,
    record: SearchRecord,
    baselines: Sequence[Baseline],
    budget: float,
    baseline_ms: Mapping[Engine, float],
) -> SearchRecord:
    """``record``, and budget levels for ``budget`` that may be faster than everything in it within that budget,
    measured now.

    Measurements near the budget correct the predicted errors, and so the aims of the levels. ``baseline_ms``: ms of
    the whole model on engines that ran it.
    """
    if not space.terms or not 0.0 < budget < math.inf:
        return record
    levels = dict(_worth_it(space, record, baseline_ms, budget))
    if not levels:
        return record
    reference = decode(next(iter(record.evaluated.values())).genome, space)
    with measuring(run, reference, baselines) as evaluator, run.stage(Stage.BUDGET_LEVELS, len(levels)):
        outcomes = evaluator.evaluate(levels)
    evaluated = dict(record.evaluated)
    for (placement, kind), outcome in zip(levels.items(), outcomes, strict=True):
        if outcome is not None:
            result = encode(placement, space), outcome, kind, record.state.generation
            evaluated[placement.key] = Evaluated(*result, len(evaluated) + 1, space.predict(placement))
    state = replace(record.state, evaluated=evaluated)
    return SearchRecord(ranked(state, space), state)


def _worth_it(
    space: SearchSpace, record: SearchRecord, baseline_ms: Mapping[Engine, float], budget: float
) -> Iterator[tuple[Placement, Origin]]:
    """Budget levels that were not measured, each with its origin."""
    near, _ = likeliest(space, baseline_ms)
    fastest = SLOWER * min(
        (o.latency_ms for o in record.outcomes.values() if o.latency_ms and (o.error or 0.0) <= budget),
        default=math.inf,
    )
    for family in dict.fromkeys(map(space.cost.family, near)):
        engines = [engine for engine in near if space.cost.family(engine) == family]
        corrections = {family: Correction(_off(space, record, family, budget))}
        for _, placement in greedy_levels(space, engines, budget, SHARES, corrections):
            if placement.key not in record.evaluated and space.predict(placement) <= fastest:
                yield placement, Origin.mixture(family)


def _off(space: SearchSpace, record: SearchRecord, family: Engine, budget: float) -> float:
    """Measured over predicted error of the placement, mostly of ``family``, whose error is the nearest to ``budget``:
    preferably a budget level of that family, as similar placements have similar errors. 1 if there is none.
    """
    ratios = list[tuple[bool, float, float]]()
    for tried_before in record.evaluated.values():
        placement, error = decode(tried_before.genome, space), tried_before.outcome.error or 0.0
        predicted = predicted_error(space, placement)
        largest = max(placement.regions, key=lambda region: region.nodes.bit_count())
        if predicted and error > 0.0 and largest.family == family:
            is_level = tried_before.kind.as_seed == Origin.mixture(family).as_seed
            ratios.append((not is_level, abs(math.log(error / budget)), error / predicted))
    return min(ratios)[-1] if ratios else 1.0
