"""Early stage: the mixtures of precisions that are likeliest to win, measured before any cost is."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from types import MappingProxyType

from collage_evo.answer.baselines import Baseline
from collage_evo.backends.enumerate import Matches
from collage_evo.backends.select import arithmetic_of
from collage_evo.backends.variants import engine_name
from collage_evo.costs.unprofiled import guessed_ms
from collage_evo.errors import NotSearchable
from collage_evo.graph.ir.graph import Graph, members
from collage_evo.patterns.match import Placement
from collage_evo.placement.cost_model import Border, CostModel, Engine, bordering
from collage_evo.placement.outcome import Outcome, Terms
from collage_evo.placement.space import SearchSpace
from collage_evo.run.best_so_far import BestSoFar
from collage_evo.run.context import RunContext
from collage_evo.run.stages.evolve import EARLY, measuring
from collage_evo.run.store import Store
from collage_evo.search.encoding import encode
from collage_evo.search.evolution.knapsack import error_off, greedy_levels
from collage_evo.search.evolution.seeds import level_kind, likeliest
from collage_evo.search.evolution.state import SEED, Evaluated

LEVEL = 0.7
"""Predicted error of an early mixture as a share of the budget: predictions are off by a third."""
FAMILIES = 2
"""Families of which a mixture is measured early, those that run the whole model the fastest. Chosen."""
SECONDS = 30.0
"""Seconds after which no further one is measured."""
ATTEMPTS = 2
"""Mixtures of a family that are measured while none is within the budget, each corrected by the error of the one
before. Chosen."""
ERRORS_OFF = "errors_off"
"""Store key of measured over predicted errors."""
FARTHEST = 4.0
"""Predicted errors are corrected by this factor at most: one that is farther off has another cause. Chosen."""


@dataclass(frozen=True)
class EarlyMixture:
    """A placement that was measured before the costs, the family that most of it is of, and its outcome."""

    placement: Placement
    family: Engine
    outcome: Outcome


def in_space(early: Sequence[EarlyMixture], space: SearchSpace) -> dict[str, Evaluated]:
    """The first measurements of a search in ``space``, by key; without those that it lacks a match of."""
    usable, evaluated = set(space.usable), dict[str, Evaluated]()
    for mixture in early:
        if all(match in usable for region in mixture.placement.regions for match in region.matches):
            genome, predicted_ms = encode(mixture.placement, space), space.predict(mixture.placement)
            evaluated[mixture.placement.key] = Evaluated(
                genome, mixture.outcome, f"{SEED}{level_kind(mixture.family)}", 0, len(evaluated) + 1, predicted_ms
            )
    return evaluated


def measure_early(
    run: RunContext,
    graph: Graph,
    matches: Matches,
    terms: Terms,
    baselines: Sequence[Baseline],
    baseline_ms: Mapping[Engine, float],
    best: BestSoFar,
) -> tuple[EarlyMixture, ...]:
    """Measure the likeliest mixture of precisions of each near family, and publish it if it is the ``best`` so far.

    Args:
        graph: the model.
        matches: all of the search.
        terms: what each match adds to the error.
        baselines: the single backends.
        baseline_ms: ms of the whole model on engines that ran it.
    """
    try:
        space = expected_space(graph, matches, terms, baseline_ms) if terms else None
    except NotSearchable:
        space = None
    likely = {} if space is None else likeliest_mixtures(space, baseline_ms, run.limits.budget)
    if not likely or space is None:
        return ()
    measured: list[EarlyMixture] = []
    with (
        run.stage(EARLY, len(likely)),
        measuring(run, next(iter(likely)), baselines) as evaluator,
    ):
        evaluator.on_measured = best.offers(evaluator.builders, space)
        until = time.monotonic() + SECONDS
        for _ in range(ATTEMPTS):
            outcomes = evaluator.evaluate(likely, until)
            results = zip(likely.items(), outcomes, strict=True)
            measured += [EarlyMixture(*mixture, outcome) for mixture, outcome in results if outcome is not None]
            if any(mixture.outcome.keeps(evaluator.bounds) for mixture in measured):
                break
            off = errors_off(measured, space)
            again = likeliest_mixtures(space, baseline_ms, run.limits.budget, off)
            tried = {mixture.placement.key for mixture in measured}
            likely = {one: family for one, family in again.items() if one.key not in tried}
            if not likely:
                break
        best.finish()
    return tuple(measured)


def likeliest_mixtures(
    space: SearchSpace,
    baseline_ms: Mapping[Engine, float],
    budget: float,
    off: Mapping[Engine, float] = MappingProxyType({}),
) -> dict[Placement, Engine]:
    """For each of the fastest families the mixture that saves the most time, and the family.

    ``off``: measured over predicted error of a family's mixtures, where some were measured.
    """
    near, _ = likeliest(space, baseline_ms)
    families = [*dict.fromkeys(map(space.cost.family, near))][:FAMILIES]
    engines = [engine for engine in near if space.cost.family(engine) in families]
    levels = islice(greedy_levels(space, engines, budget, (LEVEL,), off), FAMILIES)
    return {placement: family for family, placement in levels}


def errors_off(early: Sequence[EarlyMixture], space: SearchSpace) -> dict[Engine, float]:
    """Measured over predicted error of the last mixture of each family that has both."""
    off: dict[Engine, float] = {}
    for mixture in early:
        error, failure = mixture.outcome.error, mixture.outcome.failure
        if error is None and failure is not None:
            error = failure.relative_error  # far above the budget
        if error is not None and (ratio := error_off(space, mixture.placement, error)) is not None:
            off[mixture.family] = min(max(ratio, 1 / FARTHEST), FARTHEST)
    return off


def recorded_errors_off(
    store: Store, early: Sequence[EarlyMixture], space: SearchSpace
) -> dict[Engine, float]:
    """:func:`errors_off`, recorded because a resumed run measures no mixtures before its costs."""

    def by_name() -> dict[str, float]:
        return {engine_name(*family): off for family, off in errors_off(early, space).items()}

    recorded = store.once(ERRORS_OFF, dict[str, float], by_name)
    families = dict.fromkeys(map(space.cost.family, space.engines))
    return {family: recorded[name] for family in families if (name := engine_name(*family)) in recorded}


def expected_space(
    graph: Graph, matches: Matches, terms: Terms, baseline_ms: Mapping[Engine, float]
) -> SearchSpace:
    """The search space at expected costs: shares of the whole model's time by operations and bytes, without borders.

    Raises:
        NotSearchable: some operator is in no match whose time can be expected.
    """
    guess = guessed_ms(graph)
    whole = sum(guess)
    engines = {match.engine for match in matches.matches if not match.rewrites}
    families = {match.engine: match.family for match in matches.matches if match.family != match.engine}

    def expected_ms(engine: Engine) -> float:
        measured_ms = baseline_ms.get(engine)
        exact = baseline_ms.get(families.get(engine, engine), float("inf"))
        # Half of what the bytes of its weights promise.
        return measured_ms if measured_ms is not None else (1 + arithmetic_of(*engine).weight_bytes / 4) / 2 * exact

    per_guess = {engine: expected_ms(engine) / whole for engine in engines}
    ms = tuple(
        float("inf") if match.rewrites else per_guess[match.engine] * sum(guess[n] for n in members(match.nodes))
        for match in matches.matches
    )
    borders = {bordering(engine): Border(0.0, 0.0) for engine in engines}
    cost = CostModel(ms, borders, families=families)
    return SearchSpace(graph, matches.matches, cost, matches.refusals, terms)
