"""Early stage: the mixtures of precisions that are likeliest to win, measured before any cost is."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from collage_evo.answer.baselines import Baseline
from collage_evo.backends.enumerate import Matches
from collage_evo.backends.select import arithmetic_of
from collage_evo.costs.unprofiled import guessed_ms
from collage_evo.genome.cost_model import Border, CostModel, Engine, bordering
from collage_evo.genome.encoding import encode
from collage_evo.genome.outcome import Bounds, Outcome, Terms
from collage_evo.genome.space import SearchSpace
from collage_evo.graph.ir.graph import Graph, members
from collage_evo.patterns.match import Match, Placement
from collage_evo.report.stage import Stage
from collage_evo.run.best_so_far import BestSoFar
from collage_evo.run.context import RunContext
from collage_evo.run.stages.evolve import measuring
from collage_evo.run.stages.likely_families import likely_families
from collage_evo.search.evolution.origin import Origin
from collage_evo.search.evolution.seeds import likeliest
from collage_evo.search.evolution.state import Evaluated
from collage_evo.search.mixtures.correction import AS_PREDICTED, Correction, Erred
from collage_evo.search.mixtures.knapsack import greedy_levels, predicted_error

FIRST = (0.85, 0.45)
"""Aimed errors of the first two mixtures as shares of the budget. Chosen: where one of each kind of operators was
tried, a ViT-B/16 and an encoder erred 0.9 to 1.3 times as much as predicted, a decoder 1.6 times."""
NEXT = 0.92
"""Aimed error of the mixtures after those, which measurements have corrected. Chosen."""
BATCHES = 3
"""Batches of mixtures at most. Chosen."""
ROOM = 0.8
"""Another mixture of a family is measured while the errors within the budget are below this share of it. Chosen:
mixtures at 0.67 and 0.79 of it were 1.54 and 1.62 times as fast as ONNX Runtime (an encoder of 24 layers, Xeon held
to AVX2), at 0.66 and 0.92 1.33 and 1.47 times (ViT-B/16)."""
FAMILIES = 2
"""Families of which a mixture is measured, those that run the whole model the fastest. Chosen."""
NEAR, GAINS = 1.25, 0.95
"""A family has another mixture if that may take less than ``NEAR`` times as long as the fastest family's, and less
than ``GAINS`` of the best single backend's time. Chosen."""
SECONDS = 30.0
"""Seconds after which no further one of a batch is measured."""
MIXTURES = "early_mixtures"
"""Store key of the mixtures."""


@dataclass(frozen=True)
class EarlyMixture:
    """A placement that was measured before the costs, the family that most of it is of, and its outcome."""

    placement: Placement
    family: Engine
    outcome: Outcome


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


def apportioned_ms(
    early: Sequence[EarlyMixture], graph: Graph, matches: Sequence[Match], best_ms: float
) -> dict[int, float]:
    """The latencies of the mixtures that take less than ``best_ms``, which may be the answer, apportioned to their
    matches. ``matches``: all of the search."""
    guessed, apportioned = guessed_ms(graph), dict[int, float]()
    whole = sum(guessed)
    for mixture in early:
        latency_ms = mixture.outcome.latency_ms
        if latency_ms is None or latency_ms >= best_ms:
            continue
        for match in (match for region in mixture.placement.regions for match in region.matches):
            share = sum(guessed[node] for node in members(matches[match].nodes)) / whole
            apportioned[match] = min(share * latency_ms, apportioned.get(match, math.inf))
    return apportioned


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


def unsettled(
    measured: Sequence[EarlyMixture], asked: Iterable[Engine], baseline_ms: Mapping[Engine, float], bounds: Bounds
) -> set[Engine]:
    """The families of which another mixture may be the fastest within ``bounds``.

    They are those ``asked`` for of which none was measured, those of which one erred too much to be timed, and the
    fast ones: the next is slower than one that exceeded the bounds, and may be ``NEAR`` times as fast as one that
    leaves room there.
    """
    lower = {objective: ROOM * bound for objective, bound in bounds.items()}
    over, within, settled = dict[Engine, float](), dict[Engine, float](), set[Engine]()
    for family, outcome in ((mixture.family, mixture.outcome) for mixture in measured):
        ms = outcome.latency_ms
        if ms is None:
            if outcome.error is not None:
                over.setdefault(family, 0.0)
        elif outcome.keeps(bounds):
            within[family] = min(ms, within.get(family, math.inf))
            if not outcome.keeps(lower):
                settled.add(family)
        else:
            over[family] = max(ms, over.get(family, 0.0))
    least = {family: max(over.get(family, 0.0), within.get(family, 0.0) / NEAR) for family in {*over, *within}}
    most = GAINS * min(baseline_ms.values(), default=math.inf)
    most = min(most, NEAR * min(filter(None, least.values()), default=math.inf))

    def may_win(family: Engine) -> bool:
        return least[family] < min([most, *(ms for other, ms in within.items() if other != family)])

    unmeasured = set(asked) - {mixture.family for mixture in measured}
    return unmeasured | {family for family in least if family not in settled and may_win(family)}


def suffices(
    measured: Sequence[EarlyMixture], baseline_ms: Mapping[Engine, float], bounds: Bounds
) -> bool:
    """Whether one of the mixtures is faster than every single backend, keeps the ``bounds`` and leaves little room
    below them."""
    most_ms = GAINS * min(baseline_ms.values(), default=math.inf)
    lower = {objective: ROOM * bound for objective, bound in bounds.items()}
    outcomes = (mixture.outcome for mixture in measured)
    fast = [outcome for outcome in outcomes if outcome.latency_ms is not None and outcome.latency_ms < most_ms]
    return any(outcome.keeps(bounds) and not outcome.keeps(lower) for outcome in fast)


def likeliest_mixtures(
    space: SearchSpace,
    baseline_ms: Mapping[Engine, float],
    budget: float,
    levels: Sequence[float],
    corrections: Mapping[Engine, Correction] = MappingProxyType({}),
) -> dict[Placement, Engine]:
    """For each of the fastest families the mixtures that save the most time at ``levels`` of the budget, and the
    family; without those that are expected to save hardly any.

    ``corrections``: of predicted errors of a family's mixtures, where some were measured.
    """
    near, _ = likeliest(space, baseline_ms)
    families = [*dict.fromkeys(map(space.cost.family, near))][:FAMILIES]
    engines = [engine for engine in near if space.cost.family(engine) in families]
    most_ms = GAINS * min(baseline_ms.values(), default=math.inf)
    found = greedy_levels(space, engines, budget, levels, corrections)
    return {placement: family for family, placement in found if space.predict(placement) < most_ms}


def corrections_by(early: Sequence[EarlyMixture], space: SearchSpace, budget: float) -> dict[Engine, Correction]:
    """The correction of each family of which mixtures were measured, or erred too much to be timed."""
    erred: dict[Engine, list[Erred]] = {}
    for mixture in early:
        error = mixture.outcome.error
        if error and (predicted := predicted_error(space, mixture.placement)):
            erred.setdefault(mixture.family, []).append(Erred(predicted, error))
    return {family: Correction.of(mixtures, budget) for family, mixtures in erred.items()}


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
        if engine in baseline_ms:
            return baseline_ms[engine]
        family, weight_bytes = families.get(engine, engine), arithmetic_of(*engine).weight_bytes
        known = ((ms, arithmetic_of(*one)) for one, ms in baseline_ms.items() if families.get(one, one) == family)
        shares = ((ms, weight_bytes / of.weight_bytes) for ms, of in known if of.weight_bytes >= weight_bytes)
        # Half of what the bytes of its weights promise, from the arithmetics of its family that were measured.
        return min((ms * (1 + share) / 2 for ms, share in shares), default=math.inf)

    per_guess = {engine: expected_ms(engine) / whole for engine in engines}
    ms = tuple(
        float("inf") if match.rewrites else per_guess[match.engine] * sum(guess[n] for n in members(match.nodes))
        for match in matches.matches
    )
    borders = {bordering(engine): Border(0.0, 0.0) for engine in engines}
    cost = CostModel(ms, borders, families=families)
    return SearchSpace(graph, matches.matches, cost, matches.refusals, terms)
