"""What the first population starts with: takes a search space, gives named genomes of distinct placements."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice, permutations

from collage_evo.genome.cover.dynamic_program import DpResult, cheapest_covers, diverse_covers
from collage_evo.genome.encoding import encode, place
from collage_evo.genome.genome import Genome
from collage_evo.genome.search.greedy import backend_placement, engine_placement, greedy_placement
from collage_evo.genome.space import SearchSpace
from collage_evo.patterns.match import Placement

MOST_ORDERS = 6
"""Greedy partitions tried: orders of preference over the backends."""


@dataclass(frozen=True)
class Seeds:
    """Named genomes in order of preference, no placement twice; ``dp`` says how good the first is."""

    named: tuple[tuple[str, Genome], ...]
    dp: DpResult


def make_seeds(space: SearchSpace, near: int = 4, diverse: int = 4) -> Seeds:
    """The DP optimum, each backend and engine alone, greedy partitions, ``near`` next cheapest and ``diverse``
    different good covers.

    Kinds: ``dp``, ``single:<backend>``, ``single:<backend>/<variant>``, ``greedy:<backend>,...``, ``dp-near``,
    ``dp-diverse``. A placement that several ways lead to has the first one's kind.
    """
    dp = cheapest_covers(space, k=1 + near)
    found: dict[str, tuple[str, Genome]] = {}
    for kind, placement in _placements(space, dp, diverse):
        found.setdefault(placement.key, (kind, encode(placement, space)))
    return Seeds(tuple(found.values()), dp)


def _placements(space: SearchSpace, dp: DpResult, diverse: int) -> Iterator[tuple[str, Placement]]:
    yield "dp", place(dp.covers[0].matches, space)
    backends = sorted({backend for backend, _ in space.engines})
    for backend in backends:
        yield f"single:{backend}", backend_placement(space, backend)
    for engine in space.engines:
        if sum(backend == engine[0] for backend, _ in space.engines) > 1:
            yield f"single:{engine[0]}/{engine[1]}", engine_placement(space, engine)
    for order in islice(permutations(backends), MOST_ORDERS):
        preference = [engine for backend in order for engine in space.engines if engine[0] == backend]
        yield f"greedy:{','.join(order)}", greedy_placement(space, preference)
    for cover in dp.covers[1:]:
        yield "dp-near", place(cover.matches, space)
    for cover in diverse_covers(space, diverse):
        yield "dp-diverse", place(cover.matches, space)
