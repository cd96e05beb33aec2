"""Likely mixtures of precisions: those that a run measures before it knows the cost of any match."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType

from collage_evo.genome.cost_model import Engine, family_ms
from collage_evo.genome.outcome import Bounds
from collage_evo.genome.space import SearchSpace
from collage_evo.patterns.match import Placement
from collage_evo.pruning import LATE_SEED, LITTLE_ROOM, SLOW_FAMILY, SMALL_GAIN
from collage_evo.search.mixtures.correction import Correction
from collage_evo.search.mixtures.knapsack import greedy_levels
from collage_evo.search.mixtures.measured import EarlyMixture

FIRST = (0.85, 0.45)
"""Aimed errors of the first two mixtures as shares of the budget. Chosen: where one of each kind of operators was
tried, a ViT-B/16 and an encoder erred 0.9 to 1.3 times as much as predicted, a decoder 1.6 times."""
NEXT = 0.92
"""Aimed error of the mixtures after those, which measurements have corrected. Chosen."""
ROOM = LITTLE_ROOM.number
"""Another mixture of a family is measured while the errors within the budget are below this share of it."""
FAMILIES = 2
"""Families of which a mixture is measured, those that run the whole model the fastest. Chosen."""
NEAR, GAINS = SLOW_FAMILY.number, SMALL_GAIN.number
"""A family has another mixture if that may take less than ``NEAR`` times as long as the fastest family's, and less
than ``GAINS`` of the best single backend's time."""


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
