"""Border probes: random cuts of the model between engines, whose times determine the cost of borders."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from random import Random

from collage_evo.costs.borders import BorderSample, Sides, WholeModel
from collage_evo.patterns.match import Placement
from collage_evo.placement.cost_model import Engine, bordering, crossings
from collage_evo.placement.space import SearchSpace
from collage_evo.search.encoding import find_cover, place

MAX_PROBES = 5
"""Borders per probe. A border is a small difference between large times: a single cut would be lost in the noise."""


def random_probes(space: SearchSpace, engines: Sequence[Engine], rng: Random) -> Iterator[Placement]:
    """Placements of the whole model, cut at random, with neighbouring parts on different ``engines``."""
    count = len(space.graph.nodes)
    seen = set()
    for _ in range(20 * count):  # small models have few
        cuts = sorted(rng.sample(range(1, count), min(rng.randint(1, MAX_PROBES), count - 1)))
        spans = list(pairwise([0, *cuts, count]))
        turns = [rng.randrange(len(engines))]
        for _ in spans[1:]:
            turns.append((turns[-1] + rng.randint(1, len(engines) - 1)) % len(engines))
        placement = _placed(space, [(engines[turn], span) for turn, span in zip(turns, spans, strict=True)])
        if placement is not None and placement.key not in seen:
            seen.add(placement.key)
            yield placement


def whole_on(space: SearchSpace, engine: Engine) -> Placement | None:
    """The whole model on ``engine``, and on others of its family the nodes that it does not support."""
    return _placed(space, [(engine, (0, len(space.graph.nodes)))])


def _placed(space: SearchSpace, spans: Sequence[tuple[Engine, tuple[int, int]]]) -> Placement | None:
    """Place ranges of node numbers on an engine each, as far as it supports them."""
    wanted = {node: (engine, span) for engine, span in spans for node in range(*span)}
    cover = find_cover(space, lambda node: _wishes(space, node, *wanted[node]))
    return None if cover is None else place(cover, space)


def _wishes(space: SearchSpace, node: int, engine: Engine, span: tuple[int, int]) -> list[int]:
    """The choices of ``node`` in order: matches of ``engine`` inside ``span`` first, then of its family, large ones
    first."""
    begin, end = span
    family = space.cost.family(engine)

    def order(match: int) -> tuple[bool, bool, bool, int]:
        found = space.matches[match]
        leaves = bool(found.nodes >> end or found.nodes & ((1 << begin) - 1))
        return found.engine != engine, found.engine != family, leaves, -found.nodes.bit_count()

    return sorted(space.candidates[node], key=order)


def sides_of(space: SearchSpace, placement: Placement) -> Sides:
    """Tensor crossings: for each family the number of sides of its regions' borders, and their bytes.

    An engine that differs from its family has additional ones, at its borders inside a region too.
    """
    found: dict[Engine, tuple[float, float]] = {}
    for crossing in crossings(space.flows, placement):
        for engine in filter(None, (crossing.source, crossing.target)):
            family = space.cost.family(engine)
            for who in {engine, family} - ({family} if crossing.inside else set()):
                number, nbytes = found.get(who, (0.0, 0.0))
                found[who] = number + 1, nbytes + crossing.nbytes
    return found


def sample_of(
    space: SearchSpace,
    placement: Placement,
    whole_models: Mapping[Engine, WholeModel],
    measured_ms: float,
    contended: bool,
) -> BorderSample:
    """The cost of ``placement`` at borders beyond ``whole_models``, which contain the engines' own cost of the whole
    model."""
    sides = dict(sides_of(space, placement))
    inner = 0.0
    for match in (match for region in placement.regions for match in region.matches):
        ms, engine = space.cost.match_ms[match], bordering(space.matches[match].engine)
        inner += ms
        if (whole := whole_models.get(engine)) is not None:
            for who, (number, nbytes) in whole.sides.items():
                had, share = sides.get(who, (0.0, 0.0)), ms / whole.ms
                sides[who] = had[0] - share * number, had[1] - share * nbytes
    return BorderSample(measured_ms, inner, sides, contended)
