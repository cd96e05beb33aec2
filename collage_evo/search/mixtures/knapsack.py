"""Greedy knapsack of precisions: for each family a mixed-precision placement at each level of the error budget.

Operators go to lower precisions in order of saved ms for their squared error, up to a level's error: the greedy
solution of a knapsack with several choices for each item (Sinha and Zoltners, "The Multiple-Choice Knapsack Problem",
Operations Research 27, 1979). If operators that are rewritten together are faster so, in any precision, they change
together. A family is compiled as one piece, so a level costs one compilation.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from types import MappingProxyType

from collage_evo.genome.cost_model import Engine, bordering
from collage_evo.genome.encoding import find_cover, place
from collage_evo.genome.greedy import engine_placement
from collage_evo.genome.outcome import Objective
from collage_evo.genome.space import SearchSpace
from collage_evo.graph.ir.graph import members
from collage_evo.graph.ir.operators import HEAVY
from collage_evo.patterns.match import Placement
from collage_evo.search.mixtures.correction import UNCORRECTED, Correction
from collage_evo.search.mixtures.levels import AS_PREDICTED, CORRECTED, MAX_LEVELS

ERROR = Objective.ERROR

PAYS = 0.98
"""An engine that writes a precision into more operators than another counts as faster if its prediction is less than
this share of the other's time. Chosen: of a BERT one profile gave 9.91 and 9.92 ms, another 9.45 and 8.89."""


@dataclass(frozen=True)
class _Step:
    """A stretch in a lower precision than in the step before: the saved time, the added error, and its matches."""

    stretch: int
    place: int
    saved_ms: float
    error2: float
    matches: Mapping[int, int]

    @property
    def worth(self) -> float:
        """ms saved for each unit of squared error."""
        return self.saved_ms / self.error2 if self.error2 > 0 else math.inf


def mixtures_at(
    space: SearchSpace,
    engines: Sequence[Engine],
    budget: float,
    levels: Sequence[float] = (),
    corrections: Mapping[Engine, Correction] = MappingProxyType({}),
    throughout: Collection[Engine] = (),
) -> Iterator[tuple[Engine, Placement]]:
    """A placement for each family of ``engines`` and level, all families' likeliest levels first, without repeats; at
    each level the family first that is predicted to be the fastest.

    ``budget`` is the relative error that ``levels`` are shares of, by default those of a search: others for a family
    in ``corrections``, of which placements were measured. Empty if the budget is no bound, or a family offers a
    single precision. ``throughout``: engines that write a precision also into what is between heavy operators, and
    take part whatever their predicted time is.
    """
    if not math.isfinite(budget):
        return
    found: dict[Engine, Iterator[Placement | None]] = {}
    for family in dict.fromkeys(map(space.cost.family, engines)):
        of_family = [engine for engine in engines if space.cost.family(engine) == family]
        shares = levels or (CORRECTED if family in corrections else AS_PREDICTED)
        correction = corrections.get(family, UNCORRECTED)
        found[family] = _mixtures_of(
            space, family, _paying(space, of_family, throughout), [correction.predicted(x * budget) for x in shares]
        )
    for at_level in zip_longest(*found.values()):
        mixtures = [(family, mixture) for family, mixture in zip(found, at_level, strict=True) if mixture is not None]
        # A slow model has time for two or three: of the family that gains the most, not of the fastest in float32.
        yield from sorted(mixtures, key=lambda one: space.predict(one[1]))


def _mixtures_of(
    space: SearchSpace, family: Engine, engines: Sequence[Engine], errors: Sequence[float]
) -> Iterator[Placement | None]:
    """A mixture for each predicted error; None for one that is there already, or that no cover has."""
    exact, steps = _steps(space, engines)
    _, begun = _totals(space, exact)
    keys = set[str]()
    for error in errors if steps else ():
        mixture = _placed(space, family, {**exact, **_taken(steps, ERROR.amount(error) - begun)})
        if mixture is None or mixture.key in keys:
            yield None
            continue
        yield mixture
        keys.add(mixture.key)
        if len(keys) == MAX_LEVELS:
            return


def predicted_error(space: SearchSpace, placement: Placement) -> float:
    """The error that sensitivities predict for a placement."""
    return ERROR.of_amount(space.added(ERROR, [match for region in placement.regions for match in region.matches]))


def _paying(space: SearchSpace, engines: Sequence[Engine], throughout: Collection[Engine]) -> list[Engine]:
    """``engines`` without those that write the precision of another into more operators, and are no faster over the
    whole model, unless they are in ``throughout``.

    Where one of them seems to save a little, the profile had its time in a neighbour: a Swin-T in bfloat16 takes 16.2
    ms with int8 in its 101 products and convolutions, 17.6 with 95 others, 19.7 with int8 in all that takes it.
    """
    single_ways = {engine: space.predict(engine_placement(space, engine)) for engine in engines}

    def pays(engine: Engine) -> bool:
        return all(single_ways[engine] < PAYS * single_ways[one] for one in engines if space.writes_more(engine, one))

    return [engine for engine in engines if engine in throughout or pays(engine)]


def _steps(space: SearchSpace, engines: Sequence[Engine]) -> tuple[dict[int, int], list[_Step]]:
    """The most exact match of each node, and the alternatives of stretches, step by step, in order of worth."""
    options = _options(space, engines)

    def inexact(match: int) -> tuple[float, bool, float]:
        writes = bool(space.matches[match].numerics)
        return space.terms[ERROR][match], writes, space.ms_per_node(match)

    exact = {node: min(by_engine.values(), key=inexact) for node, by_engine in options.items()}
    steps: list[_Step] = []
    for number, stretch in enumerate(_stretches(space, options)):
        usable = [node for node in stretch if node in options]
        heavy = [node for node in usable if space.graph.nodes[node].op_type in HEAVY]
        before = {node: exact[node] for node in usable}
        ways = [{n: _on(space, engine, engines, options[n], exact[n]) for n in usable} for engine in engines]
        # In float32, what is between heavy operators, such as a residual stream, may save most of the error.
        ways += [apart for way in ways if (apart := {**before, **{n: way[n] for n in heavy}}) != way]
        # Operators that only move numbers count as exact in int8, and run in int8 only next to a heavy operator in
        # int8.
        steps += _hull(space, number, before, [way for way in ways if any(way[n] != exact[n] for n in heavy)])
    return exact, sorted(steps, key=lambda step: (-step.worth, step.stretch, step.place))


def _on(
    space: SearchSpace, engine: Engine, engines: Sequence[Engine], options: Mapping[Engine, int], exact: int
) -> int:
    """A node's match on ``engine``; else on one of ``engines`` that writes the same into fewer operators."""
    fewer = (other for other in engines if other in options and space.writes_more(engine, other))
    return options[engine] if engine in options else options.get(next(fewer, engine), exact)


def _options(space: SearchSpace, engines: Sequence[Engine]) -> dict[int, dict[Engine, int]]:
    """For each node its match on each engine: by itself, or rewritten with others where that is faster."""
    options: dict[int, dict[Engine, int]] = {}
    rewritten: list[tuple[Engine, int]] = []
    for index in space.usable:
        match = space.matches[index]
        if (engine := bordering(match.engine)) not in engines:
            continue
        if match.rewrites:
            rewritten.append((engine, index))
        elif match.nodes.bit_count() == 1:
            options.setdefault(next(members(match.nodes)), {})[engine] = index
    single_ways = {node: dict(by_engine) for node, by_engine in options.items()}

    def apart_ms(engine: Engine, node: int) -> float:
        """Cost in ms without the rewrite; if ``engine`` does not support the node, on the fastest that adds the least
        error."""
        ways = single_ways.get(node, {})
        there = [ways[engine]] if engine in ways else [*ways.values()]
        return min(((space.terms[ERROR][m], space.cost.match_ms[m]) for m in there), default=(0.0, math.inf))[1]

    def saved_ms(engine: Engine, index: int) -> float:
        apart = (apart_ms(engine, node) for node in members(space.matches[index].nodes))
        return sum(apart) - space.cost.match_ms[index]

    rewritten_nodes = dict.fromkeys(engines, 0)
    for saved, engine, index in sorted(((saved_ms(*each), *each) for each in rewritten), reverse=True):
        nodes = space.matches[index].nodes
        if 0 < saved < math.inf and not nodes & rewritten_nodes[engine]:
            rewritten_nodes[engine] |= nodes
            for node in members(nodes):
                options[node][engine] = index
    return options


def _stretches(space: SearchSpace, options: Mapping[int, Mapping[Engine, int]]) -> list[list[int]]:
    """Each heavy operator with the operators up to the next ones: changing precision between them costs time.

    Those that are rewritten together are one.
    """
    stretches: list[list[int]] = []
    of: dict[int, list[int]] = {}
    for node in space.graph.nodes:
        before = [index for index in members(space.graph.pred[node.index]) if index in of]
        if node.op_type in HEAVY:
            of[node.index] = []
            stretches.append(of[node.index])
        elif before:
            of[node.index] = of[max(before)]
        else:
            continue
        of[node.index].append(node.index)
    for match in {match for by_engine in options.values() for match in by_engine.values()}:
        together = [index for index in members(space.matches[match].nodes) if index in of]
        for index in together[1:]:
            first, other = of[together[0]], of[index]
            if other is not first:
                first += other
                stretches.remove(other)
                of.update(dict.fromkeys(other, first))
    return stretches


def _hull(space: SearchSpace, stretch: int, exact: dict[int, int], ways: Sequence[dict[int, int]]) -> Iterator[_Step]:
    """From ``exact`` on, always the alternative that saves the most for its added error."""
    ms, error2 = _totals(space, exact)
    for place_ in range(len(ways)):
        best: _Step | None = None
        for way in ways:
            its_ms, its_error2 = _totals(space, way)
            if its_ms < ms and way is not exact:
                step = _Step(stretch, place_, ms - its_ms, max(0.0, its_error2 - error2), way)
                best = step if best is None or (step.worth, step.saved_ms) > (best.worth, best.saved_ms) else best
        if best is None:
            return
        yield best
        exact = dict(best.matches)
        ms, error2 = _totals(space, exact)


def _totals(space: SearchSpace, way: Mapping[int, int]) -> tuple[float, float]:
    matches = set(way.values())
    return sum(space.cost.match_ms[m] for m in matches), space.added(ERROR, matches)


def _taken(steps: Sequence[_Step], most: float) -> dict[int, int]:
    """Matches of the steps that fit: of a stretch none after one that does not."""
    error2, matches, closed = 0.0, dict[int, int](), set[int]()
    for step in steps:
        if step.stretch in closed:
            continue
        if error2 + step.error2 > most:
            closed.add(step.stretch)
            continue
        error2 += step.error2
        matches.update(step.matches)
    return matches


def _placed(space: SearchSpace, family: Engine, wanted: Mapping[int, int]) -> Placement | None:
    """The nodes in ``wanted`` as given there, others where they add the least error, best in the same family.

    None if others have no match that fits between these.
    """

    def order(match: int) -> tuple[bool, float, float]:
        return space.matches[match].family != family, space.terms[ERROR][match], space.ms_per_node(match)

    wishes = [sorted(options, key=order) for options in space.candidates]
    cover = find_cover(space, lambda node: ([wanted[node]] if node in wanted else []) + wishes[node])
    return None if cover is None else place(cover, space)
