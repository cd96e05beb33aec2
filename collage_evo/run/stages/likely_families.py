"""Likely families: those whose lower precisions gain the most, by a few of the model's operators that are timed."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from collage_evo.costs.matches import CostMeter, cost_ms
from collage_evo.costs.unprofiled import guessed_ms
from collage_evo.genome.cost_model import Engine, family_ms
from collage_evo.genome.space import SearchSpace
from collage_evo.graph.ir.graph import members
from collage_evo.patterns.match import Match
from collage_evo.pruning import SLOW_FAMILY
from collage_evo.report.stage import Stage
from collage_evo.run.context import RunContext
from collage_evo.run.stages.costs import cost_meter

COSTS_SHARE = 1 / 3
"""Share of the time for costs that the stage takes at most. Chosen: it took 3 to 5 s."""
KINDS, LEAST_SHARE = 2, 0.1
"""Kinds of operators that are timed of each engine, those that take the most of the model's expected time, and the
least share of it that one takes. Chosen."""


def likely_families(
    run: RunContext, space: SearchSpace, families: Sequence[Engine], baseline_ms: Mapping[Engine, float]
) -> tuple[Engine, ...]:
    """Those of ``families`` that may be the fastest with lower precisions, the likeliest first.

    On a processor without VNNI int8 takes half of float32's time in one library, all of it in another, and bytes and
    operations do not tell which.

    Args:
        space: at expected costs.
        families: of which some engine ran the whole model, not always the one in their usual precision.
        baseline_ms: ms of the whole model on engines that ran it.
    """
    with run.stage(Stage.FAMILIES), run.machine.regions() as regions:
        meter = cost_meter(run, space.graph, regions, COSTS_SHARE * run.config.costs.seconds)
        return by_operators(space, families, baseline_ms, meter)


def by_operators(
    space: SearchSpace, families: Sequence[Engine], baseline_ms: Mapping[Engine, float], meter: CostMeter
) -> tuple[Engine, ...]:
    """:func:`likely_families`, by the times of ``meter``."""
    pairs = {engine: pairs_of(space, engine, meter) for engine in lower_engines(space, families, baseline_ms)}
    timed = [match for of_engine in pairs.values() for pair in of_engine for match in pair]
    answers = meter.measure(timed, lambda match: math.inf, lambda done: None)
    ms = {key: cost_ms(answer) for key, answer in answers.items()}
    expected_ms = {family: family_ms(family, space.cost.families, baseline_ms) for family in families}
    for engine, of_engine in pairs.items():
        lower_ms, usual_ms = (sum(ms.get(meter.key(pair[k]), math.inf) for pair in of_engine) for k in (0, 1))
        family = space.cost.family(engine)
        if of_engine and math.isfinite(usual_ms) and family in baseline_ms:
            expected_ms[family] = min(expected_ms[family], lower_ms / usual_ms * baseline_ms[family])
    ordered = sorted(families, key=lambda family: expected_ms[family])
    return tuple(family for family in ordered if expected_ms[family] <= SLOW_FAMILY.number * expected_ms[ordered[0]])


def lower_engines(
    space: SearchSpace, families: Sequence[Engine], baseline_ms: Mapping[Engine, float]
) -> list[Engine]:
    """Engines of ``families`` in a precision in which none of them ran the whole model."""
    return [one for one in space.engines if one not in baseline_ms and space.cost.family(one) in families]


def pairs_of(space: SearchSpace, engine: Engine, meter: CostMeter) -> list[tuple[Match, Match]]:
    """For the kinds of operators that take the most of the expected time, a match of ``engine`` and the match of the
    same operator in its family's usual precision."""
    guessed, family = guessed_ms(space.graph), space.cost.family(engine)
    single = [match for match in space.matches if match.nodes.bit_count() == 1 and not match.rewrites]
    usual = {match.nodes: match for match in single if match.engine == family}
    weight, pair_of = dict[str, float](), dict[str, tuple[Match, Match]]()
    for match in single:
        if match.engine == engine and match.nodes in usual:
            key = meter.key(match)
            weight[key] = weight.get(key, 0.0) + sum(guessed[node] for node in members(match.nodes))
            pair_of.setdefault(key, (match, usual[match.nodes]))
    heaviest = sorted(weight, key=lambda key: -weight[key])[:KINDS]
    return [pair_of[key] for key in heaviest if weight[key] >= LEAST_SHARE * sum(guessed)]
