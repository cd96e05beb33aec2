"""Likely mixtures of precisions: which are measured before the cost of any match is known, and for another budget.

What was measured corrects the errors that are predicted of the next ones.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType

from collage_evo.genome.cost_model import Engine, bordering, family_ms
from collage_evo.genome.outcome import Bounds, Evaluator
from collage_evo.genome.space import SearchSpace
from collage_evo.patterns.match import Placement
from collage_evo.pruning import LATE_SEED, LITTLE_ROOM, SLOW_FAMILY, SLOW_LEVEL, SMALL_GAIN
from collage_evo.search.mixtures.correction import UNCORRECTED, Correction
from collage_evo.search.mixtures.knapsack import PAYS, mixtures_at
from collage_evo.search.mixtures.levels import NEXT, OTHER_BUDGET
from collage_evo.search.mixtures.measured import Mixture, corrections_by

FAMILIES = 2
"""Families of which a mixture is measured, those that run the whole model the fastest. Chosen."""
THROUGHOUT = 0.5
"""Share of the operators between heavy ones that a mixture has in a lower precision, to be measured beside those with
it in heavy ones only: with fewer, as a small budget allows, it hardly differs. Chosen."""
BATCHES = 3
"""Batches of mixtures at most. Chosen."""
SECONDS = 30.0
"""Seconds after which no further one of a batch, or for a budget, is measured."""


def likeliest(
    space: SearchSpace, baseline_ms: Mapping[Engine, float]
) -> tuple[tuple[Engine, ...], tuple[Engine, ...]]:
    """Engines, those first whose family runs the whole model the fastest; and those whose family is known to be far
    behind: float32 in a family whose bfloat16 is fast is not, because it is what makes a mixture exact."""
    fastest_ms = {engine: family_ms(engine, space.cost.families, baseline_ms) for engine in space.engines}
    ordered = sorted(space.engines, key=lambda engine: (baseline_ms.get(engine, fastest_ms[engine]), engine))
    bound = LATE_SEED.number * min(baseline_ms.values(), default=math.inf)
    far = [engine for engine in ordered if bound < fastest_ms[engine] < math.inf]
    return tuple(engine for engine in ordered if engine not in far), tuple(far)


def likeliest_mixtures(
    space: SearchSpace,
    baseline_ms: Mapping[Engine, float],
    budget: float,
    levels: Sequence[float],
    corrections: Mapping[Engine, Correction] = MappingProxyType({}),
    measured: Iterable[Mixture] = (),
) -> dict[Placement, Engine]:
    """For each of the fastest families the mixtures that save the most time at ``levels`` of the budget, and the
    family; without those that are expected to save hardly any.

    Those with lower precisions in heavy operators only come first, then those that have them also in what is between:
    which are faster differs between networks (int8 throughout takes 0.9 of the time on Inception v3, 1.6 on
    EfficientNet-B0), and only a measurement tells.

    Args:
        corrections: of predicted errors of a family's mixtures, where some were measured.
        measured: mixtures; of a family with both kinds only the faster kind follows.
    """
    near, _ = likeliest(space, baseline_ms)
    families = [*dict.fromkeys(map(space.cost.family, near))][:FAMILIES]
    engines = [engine for engine in near if space.cost.family(engine) in families]
    faster, slower = throughout(space, engines, measured)
    engines = [engine for engine in engines if engine not in slower]
    wide = {wide for _, wide in _pairs(space, engines)}
    # The family's own baseline, not the best one: expected times are good for ratios within a library (int8 of an
    # encoder of 6 layers on AMX took 0.26 of float32's time where 0.9 was expected).
    most_ms = {
        engine: SMALL_GAIN.number * family_ms(engine, space.cost.families, baseline_ms) for engine in families
    }
    only_heavy = [engine for engine in engines if engine not in wide - faster]
    found = [*mixtures_at(space, only_heavy, budget, levels, corrections, faster)]
    single = (match.engine for match in space.matches if match.nodes.bit_count() == 1)
    offered = Counter(engine for engine in single if engine in wide)
    for family, placement in mixtures_at(space, engines, budget, levels, corrections, wide) if wide != faster else ():
        used = Counter(space.matches[match].engine for match in _matches(placement))
        if any(used[engine] >= THROUGHOUT * count for engine, count in offered.items()):
            found.append((family, placement))
    return {placement: family for family, placement in found if space.predict(placement) < most_ms[family]}


def _matches(placement: Placement) -> list[int]:
    return [match for region in placement.regions for match in region.matches]


def _pairs(space: SearchSpace, engines: Sequence[Engine]) -> list[tuple[Engine, Engine]]:
    """Pairs of a family: an engine that writes a precision into heavy operators, and one of ``engines`` that also
    writes it into what is between them."""
    pairs = ((one, other) for one in engines for other in engines if space.writes_more(other, one))
    return [pair for pair in pairs if len(set(map(space.cost.family, pair))) == 1]


def throughout(
    space: SearchSpace, engines: Sequence[Engine], measured: Iterable[Mixture]
) -> tuple[set[Engine], set[Engine]]:
    """The engines that write a precision also between heavy operators, of families of which mixtures with it and in
    heavy operators only were ``measured``: those that were faster, and those that were not."""
    pairs = _pairs(space, engines)
    narrow, wide = {one for one, _ in pairs}, {other for _, other in pairs}
    kinds_ms: tuple[dict[Engine, float], dict[Engine, float]] = {}, {}
    for mixture in measured:
        used = {bordering(space.matches[match].engine) for match in _matches(mixture.placement)}
        if (ms := mixture.outcome.latency_ms) is not None and used & (narrow | wide):
            of_kind = kinds_ms[bool(used & wide)]
            of_kind[mixture.family] = min(ms, of_kind.get(mixture.family, math.inf))
    narrow_ms, wide_ms = kinds_ms
    known = {engine for engine in wide if space.cost.family(engine) in narrow_ms.keys() & wide_ms.keys()}
    families = {engine: space.cost.family(engine) for engine in known}
    faster = {engine for engine, family in families.items() if wide_ms[family] < PAYS * narrow_ms[family]}
    return faster, known - faster


def measure_in_batches(
    evaluator: Evaluator,
    space: SearchSpace,
    first: Mapping[Placement, Engine],
    families: Sequence[Engine],
    baseline_ms: Mapping[Engine, float],
    budget: float,
    bounds: Bounds,
    clock: Callable[[], float],
) -> tuple[Mixture, ...]:
    """Measure the ``first`` mixtures, then others of the ``families`` that may be the fastest within ``bounds``."""
    measured, likely = list[Mixture](), dict(first)
    for _ in range(BATCHES):
        if not likely:
            break
        outcomes = evaluator.evaluate(likely, clock() + SECONDS)
        results = zip(likely.items(), outcomes, strict=True)
        measured += [Mixture(*mixture, outcome) for mixture, outcome in results if outcome is not None]
        going_on = unsettled(measured, families, baseline_ms, bounds)
        corrections = corrections_by(measured, space, budget)
        alike = next(reversed(corrections.values()), UNCORRECTED)  # errors of one network grow alike in all
        corrections = {family: corrections.get(family, alike) for family in families}
        again = likeliest_mixtures(space, baseline_ms, budget, NEXT, corrections, measured)
        tried = {mixture.placement.key for mixture in measured}
        likely = {one: family for one, family in again.items() if one.key not in tried and family in going_on}
    return tuple(measured)


def unsettled(
    measured: Sequence[Mixture], asked: Iterable[Engine], baseline_ms: Mapping[Engine, float], bounds: Bounds
) -> set[Engine]:
    """The families of which another mixture may be the fastest within ``bounds``.

    They are those ``asked`` for of which none was measured, those of which one erred too much to be timed, and the
    fast ones: the next is slower than one that exceeded the bounds, and may be as many times as fast as one that
    leaves room there as ``SLOW_FAMILY`` says.
    """
    lower = {objective: LITTLE_ROOM.number * bound for objective, bound in bounds.items()}
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
    near = SLOW_FAMILY.number
    least = {family: max(over.get(family, 0.0), within.get(family, 0.0) / near) for family in {*over, *within}}
    most = SMALL_GAIN.number * min(baseline_ms.values(), default=math.inf)
    most = min(most, near * min(filter(None, least.values()), default=math.inf))

    def may_win(family: Engine) -> bool:
        return least[family] < min([most, *(ms for other, ms in within.items() if other != family)])

    unmeasured = set(asked) - {mixture.family for mixture in measured}
    return unmeasured | {family for family in least if family not in settled and may_win(family)}


def suffices(
    measured: Sequence[Mixture], baseline_ms: Mapping[Engine, float], bounds: Bounds
) -> bool:
    """Whether one of the mixtures is faster than every single backend, keeps the ``bounds`` and leaves little room
    below them."""
    most_ms = SMALL_GAIN.number * min(baseline_ms.values(), default=math.inf)
    lower = {objective: LITTLE_ROOM.number * bound for objective, bound in bounds.items()}
    outcomes = (mixture.outcome for mixture in measured)
    fast = [outcome for outcome in outcomes if outcome.latency_ms is not None and outcome.latency_ms < most_ms]
    return any(outcome.keeps(bounds) and not outcome.keeps(lower) for outcome in fast)


def mixtures_for_budget(
    space: SearchSpace,
    mixtures: Sequence[Mixture],
    others: Sequence[Mixture],
    baseline_ms: Mapping[Engine, float],
    budget: float,
) -> dict[Placement, Engine]:
    """Mixtures that may be faster within ``budget`` than everything measured, each with its family.

    ``others``: placements that are no mixtures. They correct the predicted errors of families without ``mixtures``,
    as similar placements have similar errors.
    """
    measured = [*others, *mixtures]
    fastest_ms = SLOW_LEVEL.number * min(
        (o.latency_ms for o in (one.outcome for one in measured) if o.latency_ms and (o.error or 0.0) <= budget),
        default=math.inf,
    )
    corrections = corrections_by(others, space, budget) | corrections_by(mixtures, space, budget)
    near, _ = likeliest(space, baseline_ms)
    faster, slower = throughout(space, near, mixtures)
    near = tuple(engine for engine in near if engine not in slower)
    tried = {one.placement.key for one in measured}
    found = mixtures_at(space, near, budget, OTHER_BUDGET, corrections, faster)
    return {
        placement: family
        for family, placement in found
        if placement.key not in tried and space.predict(placement) <= fastest_ms
    }
