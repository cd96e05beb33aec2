"""Early stage: the mixtures of precisions that are likeliest to win, measured before any cost is."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from collage_evo.answer.baselines import Baseline
from collage_evo.genome.cost_model import Engine
from collage_evo.genome.encoding import encode
from collage_evo.genome.space import SearchSpace
from collage_evo.report.stage import Stage
from collage_evo.run.best_so_far import BestSoFar
from collage_evo.run.context import RunContext
from collage_evo.run.stages.evolve import measuring
from collage_evo.run.stages.likely_families import likely_families
from collage_evo.search.evolution.origin import Origin
from collage_evo.search.evolution.state import Evaluated
from collage_evo.search.mixtures.correction import AS_PREDICTED
from collage_evo.search.mixtures.likely import FIRST, NEXT, likeliest_mixtures, unsettled
from collage_evo.search.mixtures.measured import EarlyMixture, corrections_by

BATCHES = 3
"""Batches of mixtures at most. Chosen."""
SECONDS = 30.0
"""Seconds after which no further one of a batch is measured."""
MIXTURES = "early_mixtures"
"""Store key of the mixtures."""


@dataclass(frozen=True)
class EarlyMixtures:
    """A record of them; ``key``: of the matches that they consist of."""

    key: str
    mixtures: tuple[EarlyMixture, ...]


def in_space(early: Sequence[EarlyMixture], space: SearchSpace) -> dict[str, Evaluated]:
    """The first measurements of a search in ``space``, by key; without those that it lacks a match of."""
    usable, evaluated = set(space.usable), dict[str, Evaluated]()
    for mixture in early:
        if all(match in usable for region in mixture.placement.regions for match in region.matches):
            genome, predicted_ms = encode(mixture.placement, space), space.predict(mixture.placement)
            evaluated[mixture.placement.key] = Evaluated(
                genome, mixture.outcome, Origin.mixture(mixture.family).as_seed, 0, len(evaluated) + 1, predicted_ms
            )
    return evaluated


def measure_early(
    run: RunContext,
    space: SearchSpace,
    baselines: Sequence[Baseline],
    baseline_ms: Mapping[Engine, float],
    best: BestSoFar,
) -> tuple[EarlyMixture, ...]:
    """Measure the likeliest mixtures of precisions of near families, and publish what is the ``best`` so far.

    Of the family that is expected to be the fastest two mixtures come first: their errors correct those that are
    predicted of all later ones.

    Args:
        space: that of :func:`expected_space`.
        baselines: the single backends.
        baseline_ms: ms of the whole model on engines that ran it.
    """
    likely = likeliest_mixtures(space, baseline_ms, run.limits.budget, FIRST) if space.terms else {}
    if not likely:
        return ()
    families = tuple(dict.fromkeys(likely.values()))
    measured: list[EarlyMixture] = []
    if len(families) > 1:
        families = likely_families(run, space, families, baseline_ms)
    likely = {mixture: family for mixture, family in likely.items() if family == families[0]}
    with run.stage(Stage.EARLY, len(likely)), measuring(run, next(iter(likely)), baselines) as evaluator:
        evaluator.listen(best.offers(evaluator, space))
        for _ in range(BATCHES):
            if not likely:
                break
            outcomes = evaluator.evaluate(likely, time.monotonic() + SECONDS)
            results = zip(likely.items(), outcomes, strict=True)
            measured += [EarlyMixture(*mixture, outcome) for mixture, outcome in results if outcome is not None]
            going_on = unsettled(measured, families, baseline_ms, evaluator.bounds)
            corrections = corrections_by(measured, space, run.limits.budget)
            alike = next(reversed(corrections.values()), AS_PREDICTED)  # errors of one network grow alike in all
            corrections = {family: corrections.get(family, alike) for family in families}
            again = likeliest_mixtures(space, baseline_ms, run.limits.budget, (NEXT,), corrections)
            tried = {mixture.placement.key for mixture in measured}
            likely = {one: family for one, family in again.items() if one.key not in tried and family in going_on}
        best.finish()
    return tuple(measured)
