"""Seeds of the first population: named genomes of distinct placements."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import islice, permutations
from types import MappingProxyType

from collage_evo.genome.cost_model import Engine
from collage_evo.genome.cover.dynamic_program import DpResult, cheapest_covers, differing_covers
from collage_evo.genome.cover.front import cover_fronts
from collage_evo.genome.encoding import encode, place
from collage_evo.genome.genome import Genome
from collage_evo.genome.greedy import (
    backend_placement,
    engine_placement,
    greedy_placement,
    rewritten_placement,
)
from collage_evo.genome.outcome import Bounds, Objective
from collage_evo.genome.space import SearchSpace
from collage_evo.patterns.match import Placement
from collage_evo.pruning import EARLY_SEED
from collage_evo.search.evolution.origin import Origin, Way
from collage_evo.search.mixtures.correction import UNCORRECTED, Correction
from collage_evo.search.mixtures.knapsack import mixtures_at, predicted_error
from collage_evo.search.mixtures.likely import likeliest

NEAR_SEEDS, DIVERSE_SEEDS, GREEDY_SEEDS = 4, 4, 6
"""Seeds that are the next cheapest covers (where latency alone counts), good covers unlike the others, and partitions
that give each operator to the first library that takes it. Chosen."""


class Seeds:
    """Named genomes in order of preference, no placement twice. Each is made on first access.

    Making one may take seconds: the caller measures the first ones meanwhile. Not thread-safe.
    """

    def __init__(self, space: SearchSpace, ways: Iterable[tuple[Origin, Placement]], near: int) -> None:
        self._space, self._ways, self._near = space, iter(ways), near
        self._made: dict[str, tuple[Origin, Genome]] = {}

    def __iter__(self) -> Iterator[tuple[Origin, Genome]]:
        yield from self.made
        for kind, placement in self._ways:
            if placement.key not in self._made:
                self._made[placement.key] = kind, encode(placement, self._space)
                yield self._made[placement.key]

    @property
    def made(self) -> tuple[tuple[Origin, Genome], ...]:
        """Seeds that were made so far."""
        return tuple(self._made.values())

    @cached_property
    def dp(self) -> DpResult:
        """The cheapest covers by the additive model, and the quality of the first."""
        return cheapest_covers(self._space, 1 + self._near, self._space.policy.cover_states)


def make_seeds(
    space: SearchSpace,
    bounds: Bounds = MappingProxyType({}),
    baseline_ms: Mapping[Engine, float] = MappingProxyType({}),
    corrections: Mapping[Engine, Correction] = MappingProxyType({}),
    throughout: tuple[Collection[Engine], Collection[Engine]] = ((), ()),
) -> Seeds:
    """The DP optimum, each single backend (with rewrites too) and engine, greedy partitions, the next cheapest covers
    and different good ones.

    A placement that several ways lead to has the first one as its origin.

    The first seed is the fastest engine of those that ran the whole model, unless other objectives are bounded.

    If matches differ in objectives other than latency, engines that are predicted to keep the ``bounds`` and to be
    faster than every baseline come first, then each level of
    :func:`~collage_evo.search.mixtures.knapsack.mixtures_at`; the dynamic program's cover is the fastest whatever
    the other objectives; covers of the front are the one that adds the least and others that close in on the
    objective's bound, each as soon as it is found; single backends and diverse covers are chosen at the prices at the
    ``bounds``; and the other engines come last, in the order of :func:`likeliest`.

    ``baseline_ms``: ms of the whole model on engines that ran it; ``corrections``: of predicted errors, by family,
    where mixtures were measured; ``throughout``: engines that write a precision between heavy operators too, those
    that are known to be faster in mixtures, and those that are not
    (:func:`~collage_evo.search.mixtures.likely.throughout`).
    """
    seeds: Seeds
    if space.terms:
        seeds = Seeds(space, _precise(space, lambda: seeds.dp, bounds, baseline_ms, corrections, throughout), 0)
    else:
        seeds = Seeds(space, _placements(space, lambda: seeds.dp, baseline_ms), NEAR_SEEDS)
    return seeds


def _placements(
    space: SearchSpace, dp: Callable[[], DpResult], baseline_ms: Mapping[Engine, float]
) -> Iterator[tuple[Origin, Placement]]:
    if known := [engine for engine in space.engines if engine in baseline_ms]:
        fastest = min(known, key=lambda engine: baseline_ms[engine])
        yield _single(fastest), engine_placement(space, fastest)
    yield Origin(Way.DYNAMIC_PROGRAM), place(dp().covers[0].matches, space)
    yield from _backends(space, space.engines)
    yield from _rewritten(space, space.engines)
    yield from _engines(space, space.engines)
    yield from _partitions(space)
    for cover in dp().covers[1:]:
        yield Origin(Way.NEXT_COVER), place(cover.matches, space)
    differing = differing_covers(space, DIVERSE_SEEDS)
    for cover in sorted(differing, key=lambda cover: cover.cost_ms):
        yield Origin(Way.DIVERSE_COVER), place(cover.matches, space)


def _precise(
    space: SearchSpace,
    dp: Callable[[], DpResult],
    bounds: Bounds,
    baseline_ms: Mapping[Engine, float],
    corrections: Mapping[Engine, Correction],
    throughout: tuple[Collection[Engine], Collection[Engine]],
) -> Iterator[tuple[Origin, Placement]]:
    near, far = likeliest(space, baseline_ms)
    # Errors of one precision throughout are predicted better than those of many changes between two.
    most_ms = EARLY_SEED.number * min(baseline_ms.values(), default=0.0)
    yield from _engines(space, [one for one in near if _promises(space, one, bounds, most_ms, corrections)])
    faster, slower = throughout
    mixing, most = [engine for engine in near if engine not in slower], bounds.get(Objective.ERROR, math.inf)
    for family, placement in mixtures_at(space, mixing, most, corrections=corrections, throughout=faster):
        yield Origin.mixture(family), placement
    yield from _rewritten(space, near)
    yield Origin(Way.DYNAMIC_PROGRAM), place(dp().covers[0].matches, space)
    known = {dp().covers[0].matches}
    prices: dict[Objective, float] = {}
    for objective in space.terms:
        for front in cover_fronts(space, objective, bounds.get(objective, math.inf), dp().covers[0]):
            prices[objective] = front.slope
            for point in front.hull:
                if point.matches not in known:
                    known.add(point.matches)
                    yield Origin(Way.FRONT_COVER), place(point.matches, space)
    priced = space.priced(prices)
    yield from _backends(priced, near)
    yield from _rewritten(priced, near)
    for cover in differing_covers(priced, DIVERSE_SEEDS):
        yield Origin(Way.DIVERSE_COVER), place(cover.matches, space)
    yield from _partitions(space)
    # Last, because the baselines have timed most of these: docs/studies.md#the-order-of-the-first-placements.
    yield from _engines(space, near)
    yield from _engines(space, far)
    yield from _backends(priced, far)
    yield from _rewritten(priced, far)


def _promises(
    space: SearchSpace, engine: Engine, bounds: Bounds, most_ms: float, corrections: Mapping[Engine, Correction]
) -> bool:
    """Whether the engine, wherever it can, is predicted to take less than ``most_ms`` within ``bounds``."""
    placement, correction = engine_placement(space, engine), corrections.get(space.cost.family(engine), UNCORRECTED)
    error = correction.measured(predicted_error(space, placement))
    return error <= bounds.get(Objective.ERROR, math.inf) and space.predict(placement) < most_ms


def _backends(space: SearchSpace, engines: Sequence[Engine]) -> Iterator[tuple[Origin, Placement]]:
    for backend in _names(engines):
        yield Origin(Way.SINGLE, (backend,)), backend_placement(space, backend)


def _rewritten(space: SearchSpace, engines: Sequence[Engine]) -> Iterator[tuple[Origin, Placement]]:
    for backend in _names(engines):
        if (placement := rewritten_placement(space, backend)) is not None:
            yield Origin(Way.REWRITTEN, (backend,)), placement


def _engines(space: SearchSpace, engines: Sequence[Engine]) -> Iterator[tuple[Origin, Placement]]:
    for engine in engines:
        if sum(backend == engine[0] for backend, _ in space.engines) > 1:
            yield _single(engine), engine_placement(space, engine)


def _single(engine: Engine) -> Origin:
    backend, variant = engine
    return Origin(Way.SINGLE, (backend,), variant)


def _partitions(space: SearchSpace) -> Iterator[tuple[Origin, Placement]]:
    for order in islice(permutations(_names(space.engines)), GREEDY_SEEDS):
        preference = [engine for backend in order for engine in space.engines if engine[0] == backend]
        yield Origin(Way.GREEDY, order), greedy_placement(space, preference)


def _names(engines: Sequence[Engine]) -> list[str]:
    return sorted({backend for backend, _ in engines})
