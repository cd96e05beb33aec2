"""Placements that tell what borders cost: takes a search space, gives random cuts of the model between engines."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from random import Random

from collage_evo.fitness.costs.borders import Row
from collage_evo.fitness.costs.model import Engine, crossings
from collage_evo.genome.encoding import find_cover, place
from collage_evo.genome.space import SearchSpace
from collage_evo.patterns.match import Placement

MOST_CUTS = 5
"""A border is a small difference between large times: of one cut alone it would be lost in the noise."""


def random_cuts(space: SearchSpace, engines: Sequence[Engine], rng: Random) -> Iterator[Placement]:
    """Placements of the whole model, cut across at random, with neighbouring parts on different ``engines``."""
    count = len(space.graph.nodes)
    seen = set()
    for _ in range(20 * count):  # small models have few
        cuts = sorted(rng.sample(range(1, count), min(rng.randint(1, MOST_CUTS), count - 1)))
        spans = list(pairwise([0, *cuts, count]))
        turns = [rng.randrange(len(engines))]
        for _ in spans[1:]:
            turns.append((turns[-1] + rng.randint(1, len(engines) - 1)) % len(engines))
        parts = zip(spans, turns, strict=True)
        wanted = {node: (engines[turn], span) for span, turn in parts for node in range(*span)}
        cover = find_cover(space, lambda node, wanted=wanted: _wishes(space, node, *wanted[node]))  # type: ignore[misc]
        if cover is None:
            continue
        placement = place(cover, space)
        if placement.key not in seen and len(placement.regions) > 1:
            seen.add(placement.key)
            yield placement


def _wishes(space: SearchSpace, node: int, engine: Engine, span: tuple[int, int]) -> list[int]:
    """What ``node`` may choose from: matches of ``engine`` inside ``span`` first, the largest of them."""
    begin, end = span

    def order(match: int) -> tuple[bool, bool, int]:
        found = space.matches[match]
        leaves = bool(found.nodes >> end or found.nodes & ((1 << begin) - 1))
        return found.engine != engine, leaves, -found.nodes.bit_count()

    return sorted(space.candidates[node], key=order)


def row_of(space: SearchSpace, placement: Placement, measured_ms: float, disturbed: bool) -> Row:
    """What ``placement`` says of borders. What the caller hands in and gets back is in each engine's own time."""
    inner = sum(space.cost.match_ms[match] for region in placement.regions for match in region.matches)
    handed = (
        (crossing.nbytes, space.cost.family(crossing.source), space.cost.family(crossing.target))
        for crossing in crossings(space.flows, placement)
        if crossing.source and crossing.target and not crossing.inside
    )
    return Row(measured_ms, inner, tuple(handed), disturbed)
