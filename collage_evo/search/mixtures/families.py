"""Likely families: those whose lower precisions gain the most, by a few of the model's operators that are timed."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

from collage_evo.genome.cost_model import Engine, family_ms
from collage_evo.genome.space import SearchSpace
from collage_evo.graph.ir.graph import members
from collage_evo.patterns.match import Match
from collage_evo.pruning import SLOW_FAMILY

KINDS, LEAST_SHARE = 2, 0.1
"""Kinds of operators that are timed of each engine, those that take the most of the model's expected time, and the
least share of it that one takes. Chosen."""


def likely_families(
    space: SearchSpace,
    families: Sequence[Engine],
    baseline_ms: Mapping[Engine, float],
    key: Callable[[Match], str],
    expected_ms: Sequence[float],
    time_ms: Callable[[Sequence[Match]], Mapping[str, float]],
) -> tuple[Engine, ...]:
    """Those of ``families`` that may be the fastest with lower precisions, the likeliest first.

    On a processor without VNNI int8 takes half of float32's time in one library, all of it in another, and bytes and
    operations do not tell which.

    Args:
        space: at expected costs.
        families: of which some engine ran the whole model, not always the one in their usual precision.
        baseline_ms: ms of the whole model on engines that ran it.
        key: of a match, equal for those that take the same time.
        expected_ms: of each node.
        time_ms: measures matches; their ms by key, infinite or absent where one fails.
    """
    lower = [one for one in space.engines if one not in baseline_ms and space.cost.family(one) in families]
    pairs_of = {engine: _pairs(space, engine, key, expected_ms) for engine in lower}
    measured_ms = time_ms([match for pairs in pairs_of.values() for pair in pairs for match in pair])
    family_best_ms = {family: family_ms(family, space.cost.families, baseline_ms) for family in families}
    for engine, pairs in pairs_of.items():
        lower_ms, usual_ms = (sum(measured_ms.get(key(pair[k]), math.inf) for pair in pairs) for k in (0, 1))
        family = space.cost.family(engine)
        if pairs and math.isfinite(usual_ms) and family in baseline_ms:
            family_best_ms[family] = min(family_best_ms[family], lower_ms / usual_ms * baseline_ms[family])
    ordered = sorted(families, key=family_best_ms.__getitem__)
    most_ms = SLOW_FAMILY.number * family_best_ms[ordered[0]]
    return tuple(family for family in ordered if family_best_ms[family] <= most_ms)


def _pairs(
    space: SearchSpace, engine: Engine, key: Callable[[Match], str], expected_ms: Sequence[float]
) -> list[tuple[Match, Match]]:
    """For the kinds of operators that take the most of the expected time, a match of ``engine`` and the match of the
    same operator in its family's usual precision."""
    single = [match for match in space.matches if match.nodes.bit_count() == 1 and not match.rewrites]
    usual = {match.nodes: match for match in single if match.engine == space.cost.family(engine)}
    kind_ms, pair_of = dict[str, float](), dict[str, tuple[Match, Match]]()
    for match in single:
        if match.engine == engine and match.nodes in usual:
            kind = key(match)
            kind_ms[kind] = kind_ms.get(kind, 0.0) + sum(expected_ms[node] for node in members(match.nodes))
            pair_of.setdefault(kind, (match, usual[match.nodes]))
    heaviest = sorted(kind_ms, key=lambda kind: -kind_ms[kind])[:KINDS]
    return [pair_of[kind] for kind in heaviest if kind_ms[kind] >= LEAST_SHARE * sum(expected_ms)]
