"""Greedy partitions: the cover that an order of preference over engines leads to.

The partitioning that frameworks ship (TVM's BYOC: annotate, merge, partition): each node goes to the first engine
that supports it, in the largest piece that fits, whatever crossing costs.
"""

from __future__ import annotations

from collections.abc import Sequence

from collage_evo.errors import InputError
from collage_evo.genome.cost_model import Engine, bordering
from collage_evo.genome.cover.dynamic_program import cheapest_covers, known_cover
from collage_evo.genome.encoding import find_cover, place
from collage_evo.genome.space import SearchSpace
from collage_evo.graph.ir.graph import NodeSet, union
from collage_evo.patterns.match import Placement


def greedy_placement(space: SearchSpace, preference: Sequence[Engine]) -> Placement:
    """Every node on the first engine of ``preference`` that supports it, largest match first, maximally merged.

    Engines that are not named come last, by cost.
    """
    rank = {engine: position for position, engine in enumerate(preference)}

    def order(match: int) -> tuple[int, int, float]:
        candidate = space.matches[match]
        return rank.get(candidate.engine, len(rank)), -candidate.nodes.bit_count(), space.ms_per_node(match)

    return _preferring(space, [sorted(options, key=order) for options in space.by_cost])


def backend_placement(space: SearchSpace, backend: str) -> Placement:
    """The cheapest placement on ``backend`` only, any variant; nodes that it does not support go elsewhere.

    Nothing is rewritten that ``backend`` supports without a rewrite.
    """
    plain = [match for match in space.usable if not space.matches[match].rewrites]
    of_backend = [match for match in plain if space.matches[match].backend == backend]
    try:
        cover = cheapest_covers(space, allowed=[*of_backend, *_filling(space, of_backend)]).covers[0].matches
    except InputError:  # its matches overlap so that they cannot cover all the nodes it supports
        first = sorted(space.engines, key=lambda engine: (engine[0] != backend, engine))
        return greedy_placement(space, first)
    return place(cover, space)


def rewritten_placement(space: SearchSpace, backend: str) -> Placement | None:
    """The cheapest placement on ``backend`` with rewrites; None if none applies, or not all is covered.

    A region that was measured as a whole hides gains inside it: of matches without rewrites only those within sites,
    and outside of all sites, take part.
    """
    of_backend = [match for match in space.usable if space.matches[match].backend == backend]
    rewritten = [match for match in of_backend if space.matches[match].rewrites]
    if not rewritten:
        return None
    sites = {space.matches[match].nodes for match in rewritten}
    plain = (match for match in of_backend if not space.matches[match].rewrites)
    inside = [match for match in plain if not any(_around(space.matches[match].nodes, site) for site in sites)]
    allowed = [*rewritten, *inside, *_filling(space, of_backend)]
    try:
        return place(cheapest_covers(space, allowed=allowed).covers[0].matches, space)
    except InputError:
        return None


def _around(nodes: NodeSet, site: NodeSet) -> bool:
    return nodes != site and not site & ~nodes


def engine_placement(space: SearchSpace, engine: Engine) -> Placement:
    """``engine`` (one variant of one backend) wherever it can, in its largest matches, whose costs include the fewest
    borders. The rest goes to engines of its family, with which it makes one piece, those first that write no other
    precision, and its own not into more operators than it does, then to others of its backend.
    """
    family = next((match.family for match in space.matches if match.engine == engine), engine)
    precisions = {kind for match in space.matches if match.engine == engine for kind, _ in match.numerics}

    def order(match: int) -> tuple[bool, bool, bool, int, bool, int, bool, int]:
        candidate = space.matches[match]
        others = candidate.engine != engine, candidate.family != family, candidate.backend != engine[0]
        kinds, more = {kind for kind, _ in candidate.numerics}, space.writes_more(bordering(candidate.engine), engine)
        further, fewer = len(kinds - precisions), len(precisions - kinds)
        return *others, further, more, fewer, bool(candidate.rewrites), -candidate.nodes.bit_count()

    return _preferring(space, [sorted(options, key=order) for options in space.candidates])


def _preferring(space: SearchSpace, wishes: Sequence[Sequence[int]]) -> Placement:
    """Each node by the first match of its ``wishes`` that fits."""
    cover = find_cover(space, lambda node: wishes[node])
    return place(cover if cover is not None else known_cover(space), space)


def _filling(space: SearchSpace, matches: Sequence[int]) -> list[int]:
    """Usable matches of what none of ``matches`` covers."""
    covered = union(space.matches[match].nodes for match in matches)
    return [match for match in space.usable if not space.matches[match].nodes & covered]
