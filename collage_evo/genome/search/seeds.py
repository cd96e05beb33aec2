"""What the first population starts with: takes a search space, gives named genomes of distinct placements."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice, permutations

from collage_evo.genome.cover.dynamic_program import DpResult, cheapest_covers, diverse_covers
from collage_evo.genome.cover.front import CoverFront, FrontCover, cover_front
from collage_evo.genome.encoding import encode, place
from collage_evo.genome.genome import Genome
from collage_evo.genome.search.greedy import (
    backend_placement,
    engine_placement,
    greedy_placement,
    rewritten_placement,
)
from collage_evo.genome.space import SearchSpace
from collage_evo.patterns.match import Placement

EFFORT, DIVERSE_EFFORT = 20_000, 10_000
"""States examined for the cheapest covers, and for each different one. Seen once, on
``builtin:nasnet_a?size=64&cells=2&filters=192`` with random costs: all seeds took a third of the processor time that
220,000 states for each take, and the first cover was 0.1 % dearer."""

MOST_ORDERS = 6
"""Greedy partitions tried: orders of preference over the backends."""


@dataclass(frozen=True)
class Seeds:
    """Named genomes in order of preference, no placement twice; ``dp`` says how good the first is.

    ``slowest_ms`` is what the most exact cover of the front costs, or where matches do not differ in error the first.
    """

    named: tuple[tuple[str, Genome], ...]
    dp: DpResult
    slowest_ms: float


def make_seeds(space: SearchSpace, near: int = 4, diverse: int = 4, budget: float = math.inf) -> Seeds:
    """The DP optimum, each backend (with rewrites too) and engine alone, greedy partitions, ``near`` next cheapest
    and ``diverse`` different good covers.

    Kinds: ``dp``, ``single:<backend>``, ``rewritten:<backend>``, ``single:<backend>/<variant>``,
    ``greedy:<backend>,...``, ``dp-near``, ``dp-diverse``. A placement that several ways lead to has the first one's
    kind.

    Where matches differ in error, ``dp`` is the fastest whatever its error, ``dp-front`` are covers from there to the
    most exact one, those nearest to ``budget`` (a relative error) first, and single backends and diverse covers are
    chosen at the price that an error has there.
    """
    dp = cheapest_covers(space, 1 + near, EFFORT)
    found: dict[str, tuple[str, Genome]] = {}
    front = cover_front(space, budget) if any(space.error2) else None
    placements = _placements(space, dp, diverse) if front is None else _precise(space, dp, diverse, front, budget)
    for kind, placement in placements:
        found.setdefault(placement.key, (kind, encode(placement, space)))
    return Seeds(tuple(found.values()), dp, front.hull[-1].ms if front else dp.cost_ms)


def _placements(space: SearchSpace, dp: DpResult, diverse: int) -> Iterator[tuple[str, Placement]]:
    yield "dp", place(dp.covers[0].matches, space)
    yield from _backends(space)
    yield from _rewritten(space)
    yield from _engines(space)
    yield from _partitions(space)
    for cover in dp.covers[1:]:
        yield "dp-near", place(cover.matches, space)
    for cover in diverse_covers(space, diverse, effort=DIVERSE_EFFORT):
        yield "dp-diverse", place(cover.matches, space)


def _precise(
    space: SearchSpace, dp: DpResult, diverse: int, front: CoverFront, budget: float
) -> Iterator[tuple[str, Placement]]:
    priced = space.priced(front.slope)
    yield "dp", place(dp.covers[0].matches, space)
    yield from _backends(priced)
    yield from _rewritten(priced)
    for point in _from_budget(front, budget):
        yield "dp-front", place(point.matches, space)
    yield from _engines(space)
    for cover in diverse_covers(priced, diverse, effort=DIVERSE_EFFORT):
        yield "dp-diverse", place(cover.matches, space)
    yield from _partitions(space)


def _from_budget(front: CoverFront, budget: float) -> list[FrontCover]:
    """The front's covers, those whose latency is next to that of the fastest within the budget first."""
    kept = [cover.ms for cover in (*front.hull, *front.near) if cover.error2 <= budget**2]
    here = min(kept, default=front.hull[-1].ms)
    return sorted((*front.near, *front.hull), key=lambda cover: abs(cover.ms - here))


def _backends(space: SearchSpace) -> Iterator[tuple[str, Placement]]:
    for backend in _names(space):
        yield f"single:{backend}", backend_placement(space, backend)


def _rewritten(space: SearchSpace) -> Iterator[tuple[str, Placement]]:
    for backend in _names(space):
        if (placement := rewritten_placement(space, backend)) is not None:
            yield f"rewritten:{backend}", placement


def _engines(space: SearchSpace) -> Iterator[tuple[str, Placement]]:
    for engine in space.engines:
        if sum(backend == engine[0] for backend, _ in space.engines) > 1:
            yield f"single:{engine[0]}/{engine[1]}", engine_placement(space, engine)


def _partitions(space: SearchSpace) -> Iterator[tuple[str, Placement]]:
    for order in islice(permutations(_names(space)), MOST_ORDERS):
        preference = [engine for backend in order for engine in space.engines if engine[0] == backend]
        yield f"greedy:{','.join(order)}", greedy_placement(space, preference)


def _names(space: SearchSpace) -> list[str]:
    return sorted({backend for backend, _ in space.engines})
